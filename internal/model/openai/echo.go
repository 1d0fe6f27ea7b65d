package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// Bounds of what a provider accepts back.
const (
	// maxNameBytes is the longest tool name.
	maxNameBytes = 64
	// maxIDBytes is long because gateways hide signatures in ids, which the model
	// behind them needs back whole.
	maxIDBytes = 16 << 10
)

// echoMessage returns the assistant message as later requests repeat it: the
// provider's own bytes, unless a provider would refuse them. Providers check what
// they read more strictly than what they write, and one refused message would end the
// conversation for good.
func echoMessage(raw json.RawMessage, message object, calls []proposal) json.RawMessage {
	repaired, changed := message, false
	if role, _ := message.text("role"); role == "" {
		repaired, changed = repaired.with("role", quote(string(model.RoleAssistant))), true
	}
	switch {
	case len(calls) == 0:
		if hasMember(message, "tool_calls") {
			// An empty list, or null: fine in a reply, refused in a request.
			repaired, changed = repaired.without("tool_calls"), true
		}
	default:
		if list, differs := echoCalls(calls); differs {
			repaired, changed = repaired.with("tool_calls", list), true
		}
	}
	if !changed {
		return raw
	}
	return repaired.bytes()
}

func hasMember(o object, name string) bool {
	for _, m := range o {
		if m.name == name {
			return true
		}
	}
	return false
}

// echoCalls renders the calls; those that need no repair keep their bytes.
func echoCalls(calls []proposal) (list json.RawMessage, differs bool) {
	items := make([]json.RawMessage, 0, len(calls))
	for _, p := range calls {
		item, changed := p.echo()
		differs = differs || changed
		items = append(items, item)
	}
	return array(items), differs
}

func (p proposal) echo() (json.RawMessage, bool) {
	entry, function, changed := p.entry, p.function, false
	if id, ok := entry.text("id"); !ok || id != p.ID {
		entry, changed = entry.with("id", quote(p.ID)), true
	}
	if entry.get("type") == nil {
		entry, changed = entry.with("type", quote("function")), true
	}
	if name := echoName(p.Alias); name != p.Alias {
		function, changed = function.with("name", quote(name)), true
		entry = entry.with("function", function.bytes())
	}
	if arguments := echoArguments(p.Arguments); !p.argumentsAreText || arguments != p.Arguments {
		function, changed = function.with("arguments", quote(arguments)), true
		entry = entry.with("function", function.bytes())
	}
	if !changed {
		return p.raw, false
	}
	return entry.bytes(), true
}

// echoName makes a tool name legal: models invent names that their own provider
// refuses to read.
func echoName(name string) string {
	if legalName.MatchString(name) {
		return name
	}
	legal := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, name)
	if legal == "" {
		legal = "_"
	}
	return legal[:min(len(legal), maxNameBytes)]
}

// echoArguments makes arguments a JSON object: servers that parse them before they
// fill in a prompt template refuse the whole conversation otherwise, again and again.
// What the model wrote stays readable, so that it can see its mistake.
func echoArguments(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	if isObject([]byte(arguments)) {
		return arguments
	}
	return string(object{{"unreadable_arguments", quote(arguments)}}.bytes())
}

// assignIDs gives an id to each call that has none, or one that an earlier call of
// the conversation used. It reports whether two calls of the reply share an id.
func assignIDs(calls []proposal, used map[string]bool) (duplicate bool) {
	taken := map[string]bool{}
	for _, p := range calls {
		if p.ID == "" {
			continue
		}
		if taken[p.ID] {
			return true
		}
		taken[p.ID] = true
	}
	for i := range calls {
		if p := &calls[i]; p.ID == "" || used[p.ID] {
			p.ID = freshID(i, p.Call, func(id string) bool { return used[id] || taken[id] })
			taken[p.ID] = true
		}
	}
	return false
}

// freshID derives an id from the call's place and content, so that reading a reply
// twice gives the same ids. Nine letters and digits are what the strictest prompt
// templates accept.
func freshID(index int, call model.Call, taken func(string) bool) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %q %q %q", n, index, call.ID, call.Alias, call.Arguments))
		id := fmt.Sprintf("c%02d%s", index, hex.EncodeToString(sum[:])[:6])
		if !taken(id) {
			return id
		}
	}
}

// usedIDs are the call ids that the conversation already has.
func usedIDs(messages []model.Message) map[string]bool {
	used := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.Calls {
			used[c.ID] = true
		}
		if m.CallID != "" {
			used[m.CallID] = true
		}
	}
	return used
}
