package openai

import (
	"encoding/json"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// content is what a message says.
type content struct {
	text    string
	refusal string
}

// readContent reads text and refusal. Reasoning members are not text: a model that
// only thought has not answered.
func readContent(message wire.Object) (content, string) {
	var c content
	refusal, ok := message.Text("refusal")
	if !ok {
		return c, "refusal is not a string"
	}
	c.refusal = refusal
	value := message.Get("content")
	if value == nil || json.Unmarshal(value, &c.text) == nil {
		return c, ""
	}
	var parts []json.RawMessage
	if json.Unmarshal(value, &parts) != nil {
		return c, "content is neither text nor a list of parts"
	}
	var text strings.Builder
	for _, raw := range parts {
		part, problem := readPart(raw)
		if problem != "" {
			return c, problem
		}
		text.WriteString(part.text)
		c.refusal += part.refusal
	}
	c.text = text.String()
	return c, ""
}

// readPart reads one part of a content list. Parts of other types, such as thoughts
// or citations, are no answer and are left out.
func readPart(raw json.RawMessage) (content, string) {
	var c content
	if json.Unmarshal(raw, &c.text) == nil {
		return c, ""
	}
	part, err := wire.ParseObject(raw)
	if err != nil {
		return c, "a content part: " + err.Error()
	}
	kind, kindOK := part.Text("type")
	text, textOK := part.Text("text")
	refusal, refusalOK := part.Text("refusal")
	switch {
	case !kindOK:
		return c, "the type of a content part is not a string"
	case kind == "text":
		if !textOK {
			return c, "the text of a content part is not a string"
		}
		return content{text: text}, ""
	case kind == "refusal":
		if !refusalOK {
			return c, "the refusal of a content part is not a string"
		}
		return content{refusal: refusal}, ""
	default:
		return c, ""
	}
}

// proposal is a call with the members it was read from, for echoing.
type proposal struct {
	model.Call
	raw             json.RawMessage
	entry, function wire.Object
	// argumentsAreText is false where the server gave an wire.Object in place of a string.
	argumentsAreText bool
}

// readCalls reads tool_calls, in the order of the list: the index members that some
// servers add are wrong as often as right.
func readCalls(value json.RawMessage) ([]proposal, string) {
	if value == nil {
		return nil, ""
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		return nil, "tool_calls is not a list"
	}
	if len(list) > wire.MaxCalls {
		return nil, "it has more than 64 tool calls"
	}
	var calls []proposal
	for _, raw := range list {
		p, problem := readCall(raw)
		if problem != "" {
			return nil, problem
		}
		calls = append(calls, p)
	}
	return calls, ""
}

func readCall(raw json.RawMessage) (proposal, string) {
	entry, err := wire.ParseObject(raw)
	if err != nil {
		return proposal{}, "a tool call: " + err.Error()
	}
	if kind, ok := entry.Text("type"); !ok || (kind != "" && kind != "function") {
		return proposal{}, "a tool call is not of type function"
	}
	value := entry.Get("function")
	if value == nil {
		return proposal{}, "a tool call has no function"
	}
	function, err := wire.ParseObject(value)
	if err != nil {
		return proposal{}, "the function of a tool call: " + err.Error()
	}
	name, ok := function.Text("name")
	if !ok || strings.TrimSpace(name) == "" {
		return proposal{}, "a tool call has no name"
	}
	p := proposal{raw: raw, entry: entry, function: function}
	p.Alias = name
	p.Arguments, p.argumentsAreText = readArguments(function)
	if id, ok := entry.Text("id"); ok && wire.UsableID(id) {
		p.ID = id
	}
	return p, ""
}

// readArguments returns the arguments as text. Some servers give the wire.Object itself
// where the wire has a string that holds one; its own text is then what the string
// would have held.
func readArguments(function wire.Object) (arguments string, isText bool) {
	value := function.Get("arguments")
	if value == nil {
		return "", false
	}
	if json.Unmarshal(value, &arguments) == nil {
		return arguments, true
	}
	return string(value), false
}

// pointers lets ids be assigned in place.
func pointers(calls []proposal) []*model.Call {
	list := make([]*model.Call, len(calls))
	for i := range calls {
		list[i] = &calls[i].Call
	}
	return list
}
