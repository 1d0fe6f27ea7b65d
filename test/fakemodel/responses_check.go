package fakemodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	// maxCallIDBytes is the longest call_id that the vendor reads.
	maxCallIDBytes = 64
	// minOutputTokens is the least that may be asked for.
	minOutputTokens = 16
)

// responsesMembers are those that the vendor's objects have: it refuses all others.
var responsesMembers = map[string][]string{
	"the request": {
		"background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls",
		"metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
		"prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
		"stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
	},
	"tool":                 {"type", "name", "description", "parameters", "strict"},
	"message":              {"type", "id", "role", "content", "status", "phase"},
	"function_call":        {"type", "id", "call_id", "name", "arguments", "status", "namespace", "async", "caller"},
	"function_call_output": {"type", "id", "call_id", "output", "status"},
	"reasoning":            {"type", "id", "summary", "content", "encrypted_content", "status"},
	"input_text":           {"type", "text"},
	"output_text":          {"type", "text", "annotations", "logprobs"},
	"refusal":              {"type", "refusal"},
}

// itemPrefix is how ids begin.
var itemPrefix = map[string]string{"message": "msg", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs"}

// unknownMember is a member that the vendor does not know, "" for none.
func unknownMember(kind string, members map[string]json.RawMessage) string {
	for name := range members {
		if !slices.Contains(responsesMembers[kind], name) {
			return fmt.Sprintf("unknown parameter: %s of %s", name, kind)
		}
	}
	return ""
}

// responsesRequest is a request body.
type responsesRequest struct {
	members      map[string]json.RawMessage
	model        string
	instructions string
	items        []ResponsesItem
	tools        []ResponsesTool
}

// Read implements Wire.
func (responses) Read(r *Request, options Options) string {
	parsed := &responsesRequest{}
	checks := []func(*Request) string{
		checkVersion, parsed.parse, parsed.checkSettings, parsed.checkState, parsed.readTools, parsed.checkItems, parsed.checkIDs, parsed.checkPairing,
	}
	if options.RequireOfferedCalls {
		checks = append(checks, parsed.checkOffered)
	}
	for _, c := range checks {
		if problem := c(r); problem != "" {
			return problem
		}
	}
	parsed.describe(r)
	return ""
}

func readResponsesItems(list []json.RawMessage) (items []ResponsesItem, problem string) {
	for i, raw := range list {
		var item ResponsesItem
		if json.Unmarshal(raw, &item) != nil || json.Unmarshal(raw, &item.members) != nil {
			return nil, fmt.Sprintf("input[%d] has members of the wrong type", i)
		}
		items = append(items, item)
	}
	return items, ""
}

// parse reads the body, and its pieces for comparing.
func (p *responsesRequest) parse(r *Request) string {
	if json.Unmarshal(r.Body, &p.members) != nil {
		return "the body is not a JSON object"
	}
	if problem := unknownMember("the request", p.members); problem != "" {
		return problem
	}
	if json.Unmarshal(p.members["model"], &p.model) != nil || p.model == "" {
		return "model is not a name"
	}
	if raw, ok := p.members["instructions"]; ok && (json.Unmarshal(raw, &p.instructions) != nil || p.instructions == "") {
		return "instructions are no text, or empty"
	}
	var list []json.RawMessage
	if json.Unmarshal(p.members["input"], &list) != nil || len(list) == 0 {
		return "input is not a list with at least one item"
	}
	var problem string
	if p.items, problem = readResponsesItems(list); problem != "" {
		return problem
	}
	for i, item := range p.items {
		piece := Piece{Text: canonical(list[i]), Assistant: item.spoken()}
		piece.Turn = piece.Assistant && (i == 0 || !p.items[i-1].spoken())
		if seal, sealed := item.seal(p.items[i+1:]); sealed {
			piece.Seals = []Seal{seal}
		}
		r.Pieces = append(r.Pieces, piece)
	}
	r.Head = canonical(p.members["instructions"]) + canonical(p.members["tools"])
	return ""
}

// checkSettings checks what is set beside the conversation.
func (p *responsesRequest) checkSettings(r *Request) string {
	if raw, ok := p.members["max_output_tokens"]; ok {
		var n int64
		if json.Unmarshal(raw, &n) != nil || n < minOutputTokens {
			return fmt.Sprintf("max_output_tokens is below the minimum of %d", minOutputTokens)
		}
	}
	if _, ok := p.members["tool_choice"]; ok && p.members["tools"] == nil {
		return "tool_choice is allowed only with tools"
	}
	return checkCacheKey(r, p.members)
}

// checkCacheKey checks the member that both of the vendor's wires have. Dated versions of
// the platform don't know it.
func checkCacheKey(r *Request, members map[string]json.RawMessage) string {
	raw, ok := members["prompt_cache_key"]
	if !ok {
		return ""
	}
	var key string
	switch {
	case json.Unmarshal(raw, &key) != nil || len(key) > 64:
		return "prompt_cache_key is no text of at most 64 characters"
	case r.URL.Query().Has("api-version") && !strings.HasPrefix(r.URL.Path, "/openai/v1/"):
		return "unrecognised member prompt_cache_key in this version"
	}
	return ""
}

// checkState refuses what a server without state can't do.
func (p *responsesRequest) checkState(*Request) string {
	if string(p.members["store"]) != "false" {
		return "this server stores nothing: set store to false"
	}
	for _, name := range []string{"previous_response_id", "conversation", "background", "stream"} {
		if raw, ok := p.members[name]; ok && string(raw) != "null" && string(raw) != "false" {
			return name + " needs state that this server does not keep"
		}
	}
	raw, ok := p.members["include"]
	if !ok {
		return ""
	}
	var include []string
	if json.Unmarshal(raw, &include) != nil {
		return "include is not a list of names"
	}
	for _, name := range include {
		switch name {
		case "message.output_text.logprobs":
		case "reasoning.encrypted_content":
			if !reasoning.MatchString(p.model) || strings.HasPrefix(p.model, "gpt-5-chat") {
				return "encrypted content is not supported with this model"
			}
		default:
			return "include has an unknown name"
		}
	}
	return ""
}

// readTools reads the offered functions.
func (p *responsesRequest) readTools(*Request) string {
	raw, ok := p.members["tools"]
	if !ok {
		return ""
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return "tools is not a list with at least one tool"
	}
	for i, raw := range list {
		if problem := p.readTool(raw); problem != "" {
			return fmt.Sprintf("tools[%d] %s", i, problem)
		}
	}
	return ""
}

func (p *responsesRequest) readTool(raw json.RawMessage) string {
	var tool ResponsesTool
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &tool) != nil || json.Unmarshal(raw, &members) != nil {
		return "has members of the wrong type"
	}
	var schema struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	switch problem := unknownMember("tool", members); {
	case problem != "":
		return "has an " + problem
	case tool.Type != "function":
		return "is not of type function"
	case !legalName.MatchString(tool.Name):
		return "has an illegal name"
	case slices.ContainsFunc(p.tools, func(t ResponsesTool) bool { return t.Name == tool.Name }):
		return "has the name of an earlier tool"
	case len([]rune(tool.Description)) > 1024:
		return "has a description of more than 1024 characters"
	case string(members["strict"]) != "false":
		return "is strict, and its schema does not fit that"
	case json.Unmarshal(tool.Parameters, &schema) != nil || schema.Type != "object" || schema.Properties == nil:
		return "has parameters that are no object schema with properties"
	}
	p.tools = append(p.tools, tool)
	return ""
}

// describe says what the request is about in the words that all wires share.
func (p *responsesRequest) describe(r *Request) {
	r.Model, r.System = p.model, p.instructions
	for _, t := range p.tools {
		r.Tools = append(r.Tools, Tool{Name: t.Name, Description: t.Description, Schema: t.Parameters})
	}
	for i, item := range p.items {
		switch {
		case item.kind() == "function_call_output":
			text, _ := item.Output.(string)
			r.Messages = append(r.Messages, Message{Role: "tool", Text: text, CallID: item.CallID})
			continue
		case item.Role == "system" || item.Role == "developer":
			r.System += item.Text()
			continue
		case !item.spoken():
			r.Messages = append(r.Messages, Message{Role: "user", Text: item.Text()})
			continue
		case i == 0 || !p.items[i-1].spoken():
			r.Messages = append(r.Messages, Message{Role: "assistant"})
		}
		last := &r.Messages[len(r.Messages)-1]
		switch item.kind() {
		case "message":
			last.Text += item.Text()
		case "function_call":
			var arguments string
			_ = json.Unmarshal(item.Arguments, &arguments)
			last.Calls = append(last.Calls, Call{ID: item.CallID, Name: item.Name, Arguments: arguments})
		}
	}
}
