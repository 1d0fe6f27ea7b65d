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
