package responses

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// past is what a conversation already has, so that nothing in it comes twice.
type past struct {
	callIDs, itemIDs map[string]bool
}

// pastOf reads what the messages have.
func pastOf(messages []model.Message) past {
	p := past{callIDs: wire.UsedIDs(messages), itemIDs: map[string]bool{}}
	for _, m := range messages {
		items, _ := wire.List(m.Raw)
		for _, raw := range items {
			members, err := wire.ParseObject(raw)
			if err != nil {
				continue
			}
			if id, _ := members.Text("id"); id != "" {
				p.itemIDs[id] = true
			}
		}
	}
	return p
}

// echo returns the items as later requests repeat them: the provider's own bytes, unless
// a provider would refuse them, for one refused item would end the conversation for good.
//
// The vendor keeps nothing of a reply, so an item has to say everything itself. A thought
// does if it is there, encrypted or plain. One that has an id and nothing else is looked
// up, and not found; it is left out, and so are then the ids of the items around it, by
// which the vendor would miss it. A thought after which the reply ends is left out, too:
// the vendor refuses it without what followed from it.
func echo(items []item, before past) json.RawMessage {
	last, whole := len(items), true
	for last > 0 && items[last-1].kind == typeReasoning {
		last--
	}
	for _, i := range items[:last] {
		whole = whole && (i.kind != typeReasoning || i.saysItself())
	}
	var kept []json.RawMessage
	seen := map[string]bool{}
	for _, i := range items[:last] {
		if i.kind == typeReasoning && !i.saysItself() {
			continue
		}
		id, _ := i.members.Text("id")
		keepsID := id != "" && (whole || i.kind == typeReasoning) && !before.itemIDs[id] && !seen[id]
		seen[id] = true
		kept = append(kept, i.echo(keepsID))
	}
	return wire.Array(kept)
}

// saysItself reports whether a thought can be understood without what the vendor keeps.
func (i item) saysItself() bool {
	encrypted, _ := i.members.Text("encrypted_content")
	content, _ := wire.List(i.members.Get("content"))
	return encrypted != "" || len(content) > 0
}

func (i item) echo(keepsID bool) json.RawMessage {
	members, changed := i.members, false
	with := func(name string, value json.RawMessage) {
		members, changed = members.With(name, value), true
	}
	if !keepsID && members.Has("id") {
		members, changed = members.Without("id"), true
	}
	if i.kind == typeMessage && members.Get("role") == nil {
		with("role", wire.Quote(string(model.RoleAssistant)))
	}
	if i.call != nil {
		if id, ok := members.Text("call_id"); !ok || id != i.call.ID {
			with("call_id", wire.Quote(i.call.ID))
		}
		if name := wire.EchoName(i.call.Alias); name != i.call.Alias {
			with("name", wire.Quote(name))
		}
		if arguments := wire.EchoArguments(i.call.Arguments); !i.argumentsAreText || arguments != i.call.Arguments {
			with("arguments", wire.Quote(arguments))
		}
	}
	if !changed {
		return i.raw
	}
	return members.Bytes()
}
