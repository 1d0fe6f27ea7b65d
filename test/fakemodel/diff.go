package fakemodel

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/google/go-cmp/cmp"
)

// Difference is one way in which a request may differ from a recorded one on purpose.
type Difference struct {
	// Name of the difference.
	Name string
	// Why it is fine.
	Why string
	// Remove takes the difference out of a request, sent or recorded.
	Remove func(request map[string]any)
}

// EchoKeepsEmptyMembers is the Difference that an assistant message is echoed as the
// provider wrote it, while the recorder's library dropped what was null or empty.
var EchoKeepsEmptyMembers = Difference{
	Name: "echo keeps empty members",
	Why:  "messages of the assistant go back as they came; null and empty members mean the same as missing ones",
	Remove: func(request map[string]any) {
		messages, _ := request["messages"].([]any)
		for _, m := range messages {
			message, _ := m.(map[string]any)
			if message["role"] != "assistant" {
				continue
			}
			for name, value := range message {
				if list, ok := value.([]any); value == nil || (ok && len(list) == 0) {
					delete(message, name)
				}
			}
		}
	},
}

// OffersToReadAgain is the Difference that a run with tools offers one more, by which
// results can be read again that were cut.
var OffersToReadAgain = Difference{
	Name: "offers to read results again",
	Why:  "the recorder's library has no tool of its own; whatever the wire, ours is named read_result",
	Remove: func(request map[string]any) {
		request["tools"] = withoutTool(request["tools"], "read_result")
		if request["tools"] == nil {
			delete(request, "tools")
		}
	},
}

// withoutTool takes a tool out of a list as any of the wires has it: by its name, its
// function's name, or among the declarations of one entry.
func withoutTool(tools any, name string) any {
	list, _ := tools.([]any)
	var kept []any
	for _, entry := range list {
		tool, _ := entry.(map[string]any)
		function, _ := tool["function"].(map[string]any)
		if tool["name"] == name || function["name"] == name {
			continue
		}
		if declarations, ok := tool["functionDeclarations"]; ok {
			tool["functionDeclarations"] = withoutTool(declarations, name)
		}
		kept = append(kept, entry)
	}
	if kept == nil {
		return nil
	}
	return kept
}

// DiffRequests compares two request bodies modulo the order of members and the named
// differences. It returns "" for equal ones, else what differs ("-" recorded, "+" sent).
func DiffRequests(sent, recorded []byte, named ...Difference) string {
	got, err := readRequest(sent, named)
	if err != nil {
		return fmt.Sprintf("the sent request: %v", err)
	}
	want, err := readRequest(recorded, named)
	if err != nil {
		return fmt.Sprintf("the recorded request: %v", err)
	}
	return cmp.Diff(want, got)
}

func readRequest(body []byte, named []Difference) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var request map[string]any
	if err := decoder.Decode(&request); err != nil {
		return nil, err
	}
	for _, d := range named {
		d.Remove(request)
	}
	return request, nil
}
