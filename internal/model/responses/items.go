package responses

import (
	"encoding/json"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Statuses of a reply, and of its items.
const (
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
	statusInProgress = "in_progress"
	statusCancelled  = "cancelled"
	statusQueued     = "queued"
)

// Types of the items that are read. Others belong to tools that nobody was offered; they
// are echoed and mean nothing.
const (
	typeMessage      = "message"
	typeFunctionCall = "function_call"
	typeReasoning    = "reasoning"
)

// item is one item of the output, with the members it was read from, for echoing.
type item struct {
	raw     json.RawMessage
	members wire.Object
	kind    string
	status  string

	// text and refusal of a message; commentary is true for one that says itself to be no
	// answer.
	text, refusal string
	commentary    bool

	// call of a function_call, nil for others.
	call *model.Call
	// argumentsAreText is false where the server gave an object in place of a string.
	argumentsAreText bool
}

// readItem reads one item. What is wrong with it is a problem beside it, since it may not
// matter: the calls of a reply that was cut off are of no interest.
func readItem(raw json.RawMessage) (item, string) {
	members, err := wire.ParseObject(raw)
	if err != nil {
		return item{}, "an item: " + err.Error()
	}
	i := item{raw: raw, members: members}
	var ok bool
	if i.kind, ok = members.Text("type"); !ok || i.kind == "" {
		return i, "an item has no type"
	}
	if i.status, ok = members.Text("status"); !ok {
		return i, "the status of an item is not a string"
	}
	switch i.kind {
	case typeMessage:
		return i, i.readMessage()
	case typeFunctionCall:
		return i, i.readCall()
	case "mcp_approval_request":
		return i, "it asks for an approval that nobody can give: propose calls of the functions offered"
	default:
		return i, ""
	}
}

func (i *item) readMessage() string {
	if role, ok := i.members.Text("role"); !ok || (role != "" && role != string(model.RoleAssistant)) {
		return "a message does not come from the assistant"
	}
	phase, _ := i.members.Text("phase")
	i.commentary = phase == "commentary"
	value := i.members.Get("content")
	if value == nil || json.Unmarshal(value, &i.text) == nil {
		return ""
	}
	parts, ok := wire.List(value)
	if !ok {
		return "the content of a message is neither text nor a list of parts"
	}
	var text, refusal strings.Builder
	for _, raw := range parts {
		if problem := readPart(raw, &text, &refusal); problem != "" {
			return problem
		}
	}
	i.text, i.refusal = text.String(), refusal.String()
	return ""
}

// readPart reads one part of a message. Parts of other types are no answer.
func readPart(raw json.RawMessage, text, refusal *strings.Builder) string {
	part, err := wire.ParseObject(raw)
	if err != nil {
		return "a content part: " + err.Error()
	}
	kind, ok := part.Text("type")
	if !ok {
		return "the type of a content part is not a string"
	}
	into, name := text, "text"
	switch kind {
	case "output_text", "text":
	case "refusal":
		into, name = refusal, "refusal"
	default:
		return ""
	}
	words, ok := part.Text(name)
	if !ok {
		return "the " + name + " of a content part is not a string"
	}
	into.WriteString(words)
	return ""
}

func (i *item) readCall() string {
	name, ok := i.members.Text("name")
	if !ok || strings.TrimSpace(name) == "" {
		return "a tool call has no name"
	}
	if i.members.Get("namespace") != nil {
		if namespace, ok := i.members.Text("namespace"); !ok || namespace != "" {
			return "a tool call names a namespace that was not offered"
		}
	}
	i.call = &model.Call{Alias: name}
	i.call.Arguments, i.argumentsAreText = readArguments(i.members)
	if id, ok := i.members.Text("call_id"); ok && wire.UsableID(id) {
		i.call.ID = id
	}
	return ""
}

// readArguments returns the arguments as text. Some servers give the object itself where
// the wire has a string that holds one; its own text is then what the string would have
// held.
func readArguments(members wire.Object) (arguments string, isText bool) {
	value := members.Get("arguments")
	if value == nil {
		return "", false
	}
	if json.Unmarshal(value, &arguments) == nil {
		return arguments, true
	}
	return string(value), false
}

// unanswerable finds an item that waits for an output which nobody here can give: the
// call of a tool that was not offered. A reply that has the output, too, waits for
// nothing.
func unanswerable(items []item) string {
	answered := map[string]bool{}
	for _, i := range items {
		if strings.HasSuffix(i.kind, "_output") {
			id, _ := i.members.Text("call_id")
			answered[id] = true
		}
	}
	for _, i := range items {
		if i.kind == typeFunctionCall || strings.HasSuffix(i.kind, "_output") || i.members.Get("call_id") == nil {
			continue
		}
		if id, _ := i.members.Text("call_id"); !answered[id] {
			return "it calls a tool that was not offered: propose calls of the functions offered"
		}
	}
	return ""
}
