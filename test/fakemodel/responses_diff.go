package fakemodel

import "encoding/json"

// ResponsesDifferences are the ways in which a request of ours differs on purpose from one
// that was recorded with another library.
var ResponsesDifferences = []Difference{
	{
		Name: "instructions are instructions",
		Why:  "the system prompt has a member of its own; the recorder put it before the conversation, as a message of the system or a developer",
		Remove: func(request map[string]any) {
			if text, ok := request["instructions"].(string); ok {
				delete(request, "instructions")
				request["input"] = append([]any{map[string]any{"role": "developer", "content": text}}, responsesInput(request)...)
			}
			for _, item := range itemsOf(request, "message") {
				if item["role"] == "system" {
					item["role"] = "developer"
				}
			}
		},
	},
	{
		Name: "messages name their type",
		Why:  "the vendor's own types don't read a message of no type; the recorder left it out",
		Remove: func(request map[string]any) {
			for _, item := range itemsOf(request, "message") {
				delete(item, "type")
			}
		},
	},
	{
		Name: "asks for thoughts",
		Why:  "without state at the vendor, a thought that comes encrypted is the only one that can go back; the recorder did not ask for all it could have had",
		Remove: func(request map[string]any) {
			if include, ok := request["include"].([]any); ok && len(include) == 1 && include[0] == "reasoning.encrypted_content" {
				delete(request, "include")
			}
		},
	},
	{
		Name: "every reply is bounded",
		Why:  "a Model bounds its replies, to 4096 tokens where it says nothing; some recordings have no bound",
		Remove: func(request map[string]any) {
			if limit, ok := request["max_output_tokens"].(json.Number); ok && limit == "4096" {
				delete(request, "max_output_tokens")
			}
		},
	},
	{
		Name: "thoughts go back",
		Why:  "what the model has thought goes back as it came; the recorder dropped it",
		Remove: func(request map[string]any) {
			var kept []any
			for _, value := range responsesInput(request) {
				if item, _ := value.(map[string]any); item["type"] != "reasoning" {
					kept = append(kept, value)
				}
			}
			request["input"] = kept
		},
	},
	{
		Name: "items keep their ids",
		Why:  "an item whose reply can go back whole goes back byte for byte; the recorder wrote it anew",
		Remove: func(request map[string]any) {
			for _, item := range append(itemsOf(request, "function_call"), itemsOf(request, "message")...) {
				delete(item, "id")
			}
		},
	},
	{
		Name: "items keep their status",
		Why:  "like ids, with any reply",
		Remove: func(request map[string]any) {
			for _, item := range append(itemsOf(request, "function_call"), itemsOf(request, "message")...) {
				delete(item, "status")
			}
		},
	},
}

func responsesInput(request map[string]any) []any {
	input, _ := request["input"].([]any)
	return input
}

// itemsOf are the items of a type, messages of no type included.
func itemsOf(request map[string]any, kind string) []map[string]any {
	var items []map[string]any
	for _, value := range responsesInput(request) {
		item, _ := value.(map[string]any)
		if item["type"] == kind || kind == "message" && item["type"] == nil && item["role"] != nil {
			items = append(items, item)
		}
	}
	return items
}
