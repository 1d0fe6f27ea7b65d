package fakemodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// checkItems checks each item by itself, and who speaks first.
func (p *responsesRequest) checkItems(*Request) string {
	begun := false
	for i, item := range p.items {
		instructs := item.Role == "system" || item.Role == "developer"
		if !begun && !instructs {
			if item.kind() != "message" || item.Role != "user" {
				return "the first item after the instructions does not come from the user"
			}
			begun = true
		}
		if problem := item.check(); problem != "" {
			return fmt.Sprintf("input[%d]: %s", i, problem)
		}
	}
	if !begun {
		return "there is no message from the user"
	}
	return ""
}

func (i ResponsesItem) check() string {
	kind := i.kind()
	if _, known := itemPrefix[kind]; !known {
		return "an item of type " + kind + " can't be read: it is unknown, or refers to what was not stored"
	}
	if problem := unknownMember(kind, i.members); problem != "" {
		return problem
	}
	if i.members["status"] != nil && !slices.Contains([]string{"completed", "incomplete", "in_progress"}, i.Status) {
		return "its status is unknown"
	}
	switch kind {
	case "message":
		return i.checkMessage()
	case "function_call":
		return i.checkCall()
	case "function_call_output":
		if _, isText := i.Output.(string); !isText {
			return "its output is no text"
		}
		return checkCallID(i.CallID)
	default:
		return i.checkThought()
	}
}

func (i ResponsesItem) checkMessage() string {
	var allowed []string
	switch i.Role {
	case "system", "developer", "user":
		allowed = []string{"input_text"}
	case "assistant":
		allowed = []string{"output_text", "refusal"}
	default:
		return "its role is unknown"
	}
	if _, isText := i.Content.(string); isText {
		return ""
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal(i.members["content"], &parts) != nil || len(parts) == 0 {
		return "its content is neither text nor a list of parts"
	}
	for _, part := range parts {
		var kind string
		if json.Unmarshal(part["type"], &kind) != nil || !slices.Contains(allowed, kind) {
			return fmt.Sprintf("a part of type %q does not belong to %s", kind, i.Role)
		}
		if problem := unknownMember(kind, part); problem != "" {
			return problem
		}
		words := part["text"]
		if kind == "refusal" {
			words = part["refusal"]
		}
		var text string
		if json.Unmarshal(words, &text) != nil {
			return "a part has no text"
		}
	}
	return ""
}

func (i ResponsesItem) checkCall() string {
	var arguments string
	var object map[string]json.RawMessage
	switch {
	case !legalName.MatchString(i.Name):
		return "it has an illegal name"
	case json.Unmarshal(i.Arguments, &arguments) != nil:
		return "its arguments are not a string"
	case json.Unmarshal([]byte(arguments), &object) != nil:
		return "its arguments are not a JSON object"
	}
	return checkCallID(i.CallID)
}

func checkCallID(id string) string {
	switch {
	case id == "":
		return "it has no call_id"
	case len(id) > maxCallIDBytes:
		return fmt.Sprintf("its call_id has more than %d bytes", maxCallIDBytes)
	}
	return ""
}

// checkThought refuses a thought that would have to be looked up.
func (i ResponsesItem) checkThought() string {
	switch {
	case i.EncryptedContent == "":
		return "item with id '" + i.ID + "' not found: items are not persisted when store is set to false"
	case i.ID == "":
		return "a thought has no id"
	case i.members["summary"] == nil || i.Summary == nil:
		return "a thought has no summary"
	}
	return ""
}

// checkIDs checks the ids of items. The history checks that those of thoughts are the ones
// given.
func (p *responsesRequest) checkIDs(*Request) string {
	seen := map[string]bool{}
	for i, item := range p.items {
		if _, has := item.members["id"]; !has {
			continue
		}
		switch prefix := itemPrefix[item.kind()]; {
		case !strings.HasPrefix(item.ID, prefix):
			return fmt.Sprintf("input[%d]: expected an id that begins with %s", i, prefix)
		case seen[item.ID]:
			return fmt.Sprintf("input[%d]: duplicate item found with id %s", i, item.ID)
		}
		seen[item.ID] = true
	}
	return ""
}

// checkPairing checks that the calls of each turn are answered in their order before
// anybody says anything else, that no id comes twice, and that something follows from
// each thought.
func (p *responsesRequest) checkPairing(*Request) string {
	pairs := pairing{used: map[string]bool{}}
	for i, item := range p.items {
		answered := i > 0 && p.items[i-1].kind() == "function_call_output"
		if problem := pairs.next(item, answered); problem != "" {
			return fmt.Sprintf("input[%d]%s", i, problem)
		}
		if item.kind() == "reasoning" && (i+1 == len(p.items) || !p.items[i+1].spoken()) {
			return fmt.Sprintf("input[%d]: item '%s' of type 'reasoning' was provided without its required following item", i, item.ID)
		}
	}
	if len(pairs.open) > 0 {
		return "no output was found for the function calls " + strings.Join(pairs.open, ", ")
	}
	return ""
}

// pairing follows the calls of a conversation.
type pairing struct {
	used map[string]bool
	// open are the calls without a result, in their order.
	open []string
}

// next takes an item, which comes behind a result or does not.
func (p *pairing) next(item ResponsesItem, behindResult bool) string {
	switch kind := item.kind(); {
	case kind == "function_call_output":
		at := slices.Index(p.open, item.CallID)
		if at < 0 {
			return ": no function call is open with call_id " + item.CallID
		}
		if at > 0 {
			return " answers a call before the one that was made first"
		}
		p.open = p.open[1:]
	case len(p.open) > 0 && (!item.spoken() || behindResult):
		return " comes before an output was found for the function calls " + strings.Join(p.open, ", ")
	case kind == "function_call":
		if p.used[item.CallID] {
			return " uses the call_id " + item.CallID + " again"
		}
		p.used[item.CallID] = true
		p.open = append(p.open, item.CallID)
	}
	return ""
}

func (p *responsesRequest) checkOffered(*Request) string {
	for i, item := range p.items {
		if item.kind() == "function_call" && !slices.ContainsFunc(p.tools, func(t ResponsesTool) bool { return t.Name == item.Name }) {
			return fmt.Sprintf("input[%d] calls %s, which is not offered", i, item.Name)
		}
	}
	return ""
}
