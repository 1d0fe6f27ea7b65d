package gemini

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model/wire"
)

// echo returns the content as later requests repeat it: the provider's own bytes, unless
// it would refuse them. A part that changes keeps all its other members, its signature
// among them. Ids stay as they came: the wire pairs by place.
func (c *content) echo() json.RawMessage {
	repaired, changed := c.members, false
	if c.role == "" {
		repaired, changed = repaired.With("role", wire.Quote(roleModel)), true
	}
	if parts, differs := c.echoParts(); differs {
		repaired, changed = repaired.With("parts", wire.Array(parts)), true
	}
	if !changed {
		return c.raw
	}
	return repaired.Bytes()
}

// echoParts renders the parts; those that need no repair keep their bytes, and those
// that say nothing, which the wire gives and does not take, are left out.
func (c *content) echoParts() (parts []json.RawMessage, differs bool) {
	for _, p := range c.parts {
		if p.blank {
			differs = true
			continue
		}
		part, changed := p.echo()
		differs = differs || changed
		parts = append(parts, part)
	}
	return parts, differs
}

func (p part) echo() (json.RawMessage, bool) {
	if p.call == nil {
		return p.raw, false
	}
	part, call, changed := p.members, p.call.members, false
	if part.Get("text") != nil {
		// Empty, and one kind of data too many.
		part, changed = part.Without("text"), true
	}
	if name := echoName(p.call.Alias); name != p.call.Alias {
		call, changed = call.With("name", wire.Quote(name)), true
	}
	if args := call.Get("args"); args != nil && !wire.IsObject(args) {
		call, changed = call.With("args", json.RawMessage(wire.EchoArguments(p.call.Arguments))), true
	}
	if !changed {
		return p.raw, false
	}
	return part.With("functionCall", call.Bytes()).Bytes(), true
}
