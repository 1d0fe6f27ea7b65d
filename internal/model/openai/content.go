package openai

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/pawl-run/pawl/internal/model"
)

// content is what a message says.
type content struct {
	text    string
	refusal string
}

// readContent reads text and refusal. Reasoning members are not text: a model that
// only thought has not answered.
func readContent(message object) (content, string) {
	var c content
	refusal, ok := message.text("refusal")
	if !ok {
		return c, "refusal is not a string"
	}
	c.refusal = refusal
	value := message.get("content")
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
	part, err := parseObject(raw)
	if err != nil {
		return c, "a content part: " + err.Error()
	}
	kind, kindOK := part.text("type")
	text, textOK := part.text("text")
	refusal, refusalOK := part.text("refusal")
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
	entry, function object
	// argumentsAreText is false where the server gave an object in place of a string.
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
	if len(list) > maxCalls {
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
	entry, err := parseObject(raw)
	if err != nil {
		return proposal{}, "a tool call: " + err.Error()
	}
	if kind, ok := entry.text("type"); !ok || (kind != "" && kind != "function") {
		return proposal{}, "a tool call is not of type function"
	}
	value := entry.get("function")
	if value == nil {
		return proposal{}, "a tool call has no function"
	}
	function, err := parseObject(value)
	if err != nil {
		return proposal{}, "the function of a tool call: " + err.Error()
	}
	name, ok := function.text("name")
	if !ok || strings.TrimSpace(name) == "" {
		return proposal{}, "a tool call has no name"
	}
	p := proposal{raw: raw, entry: entry, function: function}
	p.Alias = name
	p.Arguments, p.argumentsAreText = readArguments(function)
	if id, ok := entry.text("id"); ok && usableID(id) {
		p.ID = id
	}
	return p, ""
}

// readArguments returns the arguments as text. Some servers give the object itself
// where the wire has a string that holds one; its own text is then what the string
// would have held.
func readArguments(function object) (arguments string, isText bool) {
	value := function.get("arguments")
	if value == nil {
		return "", false
	}
	if json.Unmarshal(value, &arguments) == nil {
		return arguments, true
	}
	return string(value), false
}

// usableID reports whether results can be given to an id.
func usableID(id string) bool {
	return strings.TrimSpace(id) != "" && len(id) <= maxIDBytes && strings.IndexFunc(id, unicode.IsControl) < 0
}
