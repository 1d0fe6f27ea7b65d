package gemini

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// content is what one side said, read as far as it matters, with the members it was
// read from.
type content struct {
	raw     json.RawMessage
	members wire.Object
	role    string
	parts   []part
	// text is the answer: what the model said and did not merely think.
	text string
}

// part is one piece of a content.
type part struct {
	raw     json.RawMessage
	members wire.Object
	// text of a part that is part of the answer.
	text string
	// call of a part that proposes one, else nil.
	call *proposal
	// blank is true for a part that says nothing at all.
	blank bool
}

// proposal is a call with the members it was read from.
type proposal struct {
	model.Call
	members wire.Object
}

// proposals are the calls in the order of their parts.
func (c *content) proposals() []*proposal {
	var list []*proposal
	for _, p := range c.parts {
		if p.call != nil {
			list = append(list, p.call)
		}
	}
	return list
}

// readContent reads what the model said. A problem leaves the content as far as it was
// read.
func readContent(raw json.RawMessage) (content, string) {
	c := content{raw: raw}
	if len(raw) == 0 {
		return c, ""
	}
	var err error
	if c.members, err = wire.ParseObject(raw); err != nil {
		return c, "its content: " + err.Error()
	}
	var ok bool
	if c.role, ok = c.members.Text("role"); !ok || (c.role != "" && c.role != roleModel) {
		return c, "its content does not come from the model"
	}
	list, ok := wire.List(c.members.Get("parts"))
	if !ok {
		return c, "parts is not a list"
	}
	var text strings.Builder
	count := 0
	for _, item := range list {
		p, problem := readPart(item)
		if problem != "" {
			return c, problem
		}
		if p.call != nil {
			count++
		}
		text.WriteString(p.text)
		c.parts = append(c.parts, p)
	}
	c.text = text.String()
	if count > wire.MaxCalls {
		return c, fmt.Sprintf("it has more than %d calls", wire.MaxCalls)
	}
	return c, ""
}

// readPart reads one part. Parts of other kinds, such as images or code, are no answer
// and are left out.
func readPart(raw json.RawMessage) (part, string) {
	p := part{raw: raw}
	var err error
	if p.members, err = wire.ParseObject(raw); err != nil {
		return p, "a part: " + err.Error()
	}
	thought := false
	if value := p.members.Get("thought"); value != nil && json.Unmarshal(value, &thought) != nil {
		return p, "thought is neither true nor false"
	}
	text, ok := p.members.Text("text")
	if !ok {
		return p, "the text of a part is not a string"
	}
	value := p.members.Get("functionCall")
	switch {
	case value == nil:
		if !thought {
			p.text = text
		}
		p.blank = text == "" && onlyWords(p.members)
		return p, ""
	case thought:
		return p, "a call is marked as a thought"
	case text != "":
		return p, "a part is text and a call at once"
	}
	call, problem := readCall(value)
	p.call = &call
	return p, problem
}

// onlyWords reports whether a part has no members but those of text.
func onlyWords(members wire.Object) bool {
	for _, m := range members {
		if m.Name != "text" && m.Name != "thought" && !wire.IsNull(m.Value) {
			return false
		}
	}
	return true
}

func readCall(value json.RawMessage) (proposal, string) {
	members, err := wire.ParseObject(value)
	if err != nil {
		return proposal{}, "a call: " + err.Error()
	}
	p := proposal{members: members}
	name, ok := members.Text("name")
	if !ok || strings.TrimSpace(name) == "" {
		return p, "a call has no name"
	}
	more := false
	if value := members.Get("willContinue"); value != nil && (json.Unmarshal(value, &more) != nil || more) {
		return p, "a call is not whole"
	}
	if members.Get("partialArgs") != nil {
		return p, "a call is not whole"
	}
	p.Alias = name
	p.Arguments = readArguments(members)
	if id, ok := members.Text("id"); ok && wire.UsableID(id) {
		p.ID = id
	}
	return p, ""
}

// readArguments returns the arguments as text. Some gateways give a string that holds
// the object, in place of the object itself.
func readArguments(members wire.Object) string {
	value := members.Get("args")
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// legalName is what the vendor accepts as the name of a function.
var legalName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

// echoName makes a function's name legal.
func echoName(name string) string {
	if legalName.MatchString(name) {
		return name
	}
	name = wire.EchoName(name)
	if !legalName.MatchString(name) {
		name = wire.EchoName("_" + name)
	}
	return name[:min(len(name), wire.MaxNameBytes)]
}
