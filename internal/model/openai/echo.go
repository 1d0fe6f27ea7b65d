package openai

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// echoMessage returns the assistant message as later requests repeat it: the
// provider's own bytes, unless a provider would refuse them. Providers check what
// they read more strictly than what they write, and one refused message would end the
// conversation for good.
func echoMessage(raw json.RawMessage, message wire.Object, calls []proposal) json.RawMessage {
	repaired, changed := message, false
	if role, _ := message.Text("role"); role == "" {
		repaired, changed = repaired.With("role", wire.Quote(string(model.RoleAssistant))), true
	}
	switch {
	case len(calls) == 0:
		if message.Has("tool_calls") {
			// An empty list, or null: fine in a reply, refused in a request.
			repaired, changed = repaired.Without("tool_calls"), true
		}
	default:
		if list, differs := echoCalls(calls); differs {
			repaired, changed = repaired.With("tool_calls", list), true
		}
	}
	if !changed {
		return raw
	}
	return repaired.Bytes()
}

// echoCalls renders the calls; those that need no repair keep their bytes.
func echoCalls(calls []proposal) (list json.RawMessage, differs bool) {
	items := make([]json.RawMessage, 0, len(calls))
	for _, p := range calls {
		item, changed := p.echo()
		differs = differs || changed
		items = append(items, item)
	}
	return wire.Array(items), differs
}

func (p proposal) echo() (json.RawMessage, bool) {
	entry, function, changed := p.entry, p.function, false
	if id, ok := entry.Text("id"); !ok || id != p.ID {
		entry, changed = entry.With("id", wire.Quote(p.ID)), true
	}
	if entry.Get("type") == nil {
		entry, changed = entry.With("type", wire.Quote("function")), true
	}
	if name := wire.EchoName(p.Alias); name != p.Alias {
		function, changed = function.With("name", wire.Quote(name)), true
		entry = entry.With("function", function.Bytes())
	}
	if arguments := wire.EchoArguments(p.Arguments); !p.argumentsAreText || arguments != p.Arguments {
		function, changed = function.With("arguments", wire.Quote(arguments)), true
		entry = entry.With("function", function.Bytes())
	}
	if !changed {
		return p.raw, false
	}
	return entry.Bytes(), true
}
