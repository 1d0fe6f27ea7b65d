package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/pawl-run/pawl/internal/model"
)

// Bounds of what a provider accepts back.
const (
	// MaxCalls bounds the calls of one reply.
	MaxCalls = 64
	// MaxNameBytes is the longest tool name.
	MaxNameBytes = 64
	// maxIDBytes is long because gateways hide signatures in ids, which the model
	// behind them needs back whole.
	maxIDBytes = 16 << 10
)

// LegalName is what every wire accepts as a tool's name, in tools and in echoed calls.
var LegalName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// UsableID reports whether results can be given to an id.
func UsableID(id string) bool {
	return strings.TrimSpace(id) != "" && len(id) <= maxIDBytes && strings.IndexFunc(id, unicode.IsControl) < 0
}

// EchoName makes a tool name legal: models invent names that their own provider
// refuses to read.
func EchoName(name string) string {
	if LegalName.MatchString(name) {
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
	return legal[:min(len(legal), MaxNameBytes)]
}

// EchoArguments makes arguments a JSON object: servers that parse them before they
// fill in a prompt template refuse the whole conversation otherwise, again and again.
// What the model wrote stays readable, so that it can see its mistake.
func EchoArguments(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	if IsObject([]byte(arguments)) {
		return arguments
	}
	return string(Object{M("unreadable_arguments", Quote(arguments))}.Bytes())
}

// AssignIDs gives an id to each call that has none, or one that an earlier call of
// the conversation used. It reports whether two calls of the reply share an id.
func AssignIDs(calls []*model.Call, used map[string]bool) (duplicate bool) {
	taken := map[string]bool{}
	for _, call := range calls {
		if call.ID == "" {
			continue
		}
		if taken[call.ID] {
			return true
		}
		taken[call.ID] = true
	}
	for i, call := range calls {
		if call.ID == "" || used[call.ID] {
			call.ID = freshID(i, *call, func(id string) bool { return used[id] || taken[id] })
			taken[call.ID] = true
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

// UsedIDs are the call ids that the conversation already has.
func UsedIDs(messages []model.Message) map[string]bool {
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
