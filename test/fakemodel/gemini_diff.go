package fakemodel

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// GeminiDifferences are the ways in which a request of ours differs on purpose from one
// that was recorded with the vendor's library.
var GeminiDifferences = []Difference{
	{
		Name: "schemas are JSON Schema",
		Why:  "a tool's own schema goes as it is in parametersJsonSchema; the recorder translated it into the vendor's language, which has fewer words",
		Remove: func(request map[string]any) {
			for _, f := range declared(request) {
				if schema, ok := f["parameters"]; ok {
					delete(f, "parameters")
					f["parametersJsonSchema"] = lowered(schema)
				}
			}
		},
	},
	{
		Name: "results are named output",
		Why:  "the vendor documents output and error; the recorder wrote result, which the vendor reads as an output of its own shape",
		Remove: func(request map[string]any) {
			for _, p := range geminiParts(request, "user") {
				result, _ := p["functionResponse"].(map[string]any)
				response, _ := result["response"].(map[string]any)
				if output, ok := response["result"]; ok {
					delete(response, "result")
					response["output"] = output
				}
			}
		},
	},
	{
		Name: "no id is made up",
		Why:  "calls without an id go back without one, since the wire pairs by place; the recorder numbered them",
		Remove: func(request map[string]any) {
			for _, p := range geminiParts(request, "") {
				for _, member := range []string{"functionCall", "functionResponse"} {
					call, _ := p[member].(map[string]any)
					if id, _ := call["id"].(string); madeUp.MatchString(id) {
						delete(call, "id")
					}
				}
			}
		},
	},
	{
		Name: "thoughts go back",
		Why:  "a reply goes back whole, as the vendor asks; the recorder dropped what the model thought aloud",
		Remove: func(request map[string]any) {
			contents, _ := request["contents"].([]any)
			for _, c := range contents {
				content, _ := c.(map[string]any)
				parts, _ := content["parts"].([]any)
				var kept []any
				for _, p := range parts {
					if part, _ := p.(map[string]any); part["thought"] != true {
						kept = append(kept, p)
					}
				}
				content["parts"] = kept
			}
		},
	},
	{
		Name: "every reply has a limit",
		Why:  "a request without maxOutputTokens could cost more than the budget has left; where a recording has none, ours has a Model's default",
		Remove: func(request map[string]any) {
			config, _ := request["generationConfig"].(map[string]any)
			if config["maxOutputTokens"] == json.Number("4096") {
				delete(config, "maxOutputTokens")
			}
		},
	},
}

// madeUp matches the ids that the recorder gave.
var madeUp = regexp.MustCompile(`^[0-9]$`)

// declared are the functions that a request offers.
func declared(request map[string]any) []map[string]any {
	var functions []map[string]any
	tools, _ := request["tools"].([]any)
	for _, t := range tools {
		tool, _ := t.(map[string]any)
		list, _ := tool["functionDeclarations"].([]any)
		for _, f := range list {
			if function, ok := f.(map[string]any); ok {
				functions = append(functions, function)
			}
		}
	}
	return functions
}

// geminiParts are the parts of all contents of a role, of every role for "".
func geminiParts(request map[string]any, role string) []map[string]any {
	var found []map[string]any
	contents, _ := request["contents"].([]any)
	for _, c := range contents {
		content, _ := c.(map[string]any)
		if role != "" && content["role"] != role {
			continue
		}
		parts, _ := content["parts"].([]any)
		for _, p := range parts {
			if part, ok := p.(map[string]any); ok {
				found = append(found, part)
			}
		}
	}
	return found
}

// GeminiJSONSchema is a schema of the vendor's language as JSON Schema: the one that it was
// translated from, for schemas as simple as those of the recordings.
func GeminiJSONSchema(parameters json.RawMessage) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(parameters))
	decoder.UseNumber()
	var schema any
	if decoder.Decode(&schema) != nil {
		return parameters
	}
	return encode(lowered(schema))
}

// lowered writes the names of types as JSON Schema does.
func lowered(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		changed := map[string]any{}
		for name, value := range s {
			if kind, ok := value.(string); ok && name == "type" {
				changed[name] = strings.ToLower(kind)
				continue
			}
			changed[name] = lowered(value)
		}
		return changed
	case []any:
		for i := range s {
			s[i] = lowered(s[i])
		}
		return s
	default:
		return s
	}
}
