package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// field is one member of an answer, as its schema has it.
type field struct {
	name, Type  string
	Description string
	Enum        []json.RawMessage
	required    bool
}

// fieldsOf lists the members of an answer by name. What it can't read it leaves out: the
// schema itself decides what fits.
func fieldsOf(schema json.RawMessage) []field {
	var object struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(schema, &object) != nil {
		return nil
	}
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		var one field
		_ = json.Unmarshal(object.Properties[name], &one)
		one.name, one.required = name, slices.Contains(object.Required, name)
		fields = append(fields, one)
	}
	return fields
}

// inputText is what people read: how to answer first, since what follows is the service's
// own and may be as long as it likes.
func inputText(call *journal.CallState) string {
	questions := call.Input().Asked.Questions
	text := fmt.Sprintf("The tool %s asks before it goes on. Answer %q to give it nothing and leave the call undone, or ", call.Call.Tool, decline)
	if len(questions) == 1 {
		text += fmt.Sprintf("with %s. It says: %s", shape(questions[0].Schema), questions[0].Message)
		return bounded(text, maxQuestionText)
	}
	var shapes, said []string
	for _, q := range questions {
		shapes = append(shapes, fmt.Sprintf("%s: %s or null", jsonString(q.Key), shape(q.Schema)))
		said = append(said, fmt.Sprintf("%s: %s", jsonString(q.Key), q.Message))
	}
	return bounded(text+"with {"+strings.Join(shapes, ", ")+"}. It says: "+strings.Join(said, "; "), maxQuestionText)
}

// shape describes an answer in one line.
func shape(schema json.RawMessage) string {
	var members []string
	for _, f := range fieldsOf(schema) {
		member := fmt.Sprintf("%s: %s", jsonString(f.name), kindOf(f))
		if !f.required {
			member += " (may be left out)"
		}
		if f.Description != "" {
			member += " (" + strictjson.Preview([]byte(f.Description), 200) + ")"
		}
		members = append(members, member)
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func kindOf(f field) string {
	if len(f.Enum) == 0 {
		return f.Type
	}
	var values []string
	for _, value := range f.Enum {
		values = append(values, string(value))
	}
	return "one of " + strings.Join(values, ", ")
}
