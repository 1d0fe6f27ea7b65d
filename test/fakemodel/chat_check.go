package fakemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxIDBytes is the longest call id that the vendor reads.
const maxIDBytes = 40

var (
	legalName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	reasoning = regexp.MustCompile(`^(o[134]|gpt-5)([-.]|$)`)

	knownMembers = []string{
		"audio", "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "messages",
		"metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction", "presence_penalty",
		"prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop",
		"store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
		"verbosity", "web_search_options",
	}
)

// chatRequest is a request body.
type chatRequest struct {
	members map[string]json.RawMessage
	model   string
	// onPlatform is true where the model is the name of a deployment, of whichever model.
	onPlatform bool
	messages   []ChatMessage
	tools      []ChatTool
}

// Read implements Wire.
func (chat) Read(r *Request, options Options) string {
	if problem := checkVersion(r); problem != "" {
		return problem
	}
	parsed, problem := parseChat(r)
	if problem != "" {
		return problem
	}
	checks := []func(*chatRequest) string{checkMembers, checkTools, checkRoles, checkPairing}
	if options.RequireOfferedCalls {
		checks = append(checks, checkOffered)
	}
	for _, c := range checks {
		if problem := c(parsed); problem != "" {
			return problem
		}
	}
	if problem := checkCacheKey(r, parsed.members); problem != "" {
		return problem
	}
	parsed.describe(r)
	return ""
}

// parseChat reads the body, and its pieces for comparing.
func parseChat(r *Request) (*chatRequest, string) {
	parsed := &chatRequest{onPlatform: r.URL != nil && strings.HasPrefix(r.URL.Path, "/openai/")}
	if json.Unmarshal(r.Body, &parsed.members) != nil {
		return nil, "the body is not a JSON object"
	}
	var messages []json.RawMessage
	if json.Unmarshal(parsed.members["messages"], &messages) != nil || len(messages) == 0 {
		return nil, "messages is not a list with at least one message"
	}
	if json.Unmarshal(parsed.members["model"], &parsed.model) != nil || parsed.model == "" {
		return nil, "model is not a name"
	}
	for _, raw := range messages {
		var m ChatMessage
		if json.Unmarshal(raw, &m) != nil || json.Unmarshal(raw, &m.members) != nil {
			return nil, "a message has members of the wrong type"
		}
		parsed.messages = append(parsed.messages, m)
		spoken := m.Role == "assistant"
		r.Pieces = append(r.Pieces, Piece{Text: canonical(raw), Turn: spoken, Assistant: spoken})
	}
	if tools, ok := parsed.members["tools"]; ok {
		if json.Unmarshal(tools, &parsed.tools) != nil {
			return nil, "tools has members of the wrong type"
		}
		r.Head = canonical(tools)
	}
	return parsed, ""
}

// describe says what the request is about in the words that all wires share.
func (c *chatRequest) describe(r *Request) {
	r.Model = c.model
	for _, t := range c.tools {
		r.Tools = append(r.Tools, Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	for _, m := range c.messages {
		if m.Role == "system" || m.Role == "developer" {
			r.System += m.Text()
			continue
		}
		message := Message{Role: m.Role, Text: m.Text(), CallID: m.ToolCallID}
		for _, call := range m.ToolCalls {
			var arguments string
			_ = json.Unmarshal(call.Function.Arguments, &arguments)
			message.Calls = append(message.Calls, Call{ID: call.ID, Name: call.Function.Name, Arguments: arguments})
		}
		r.Messages = append(r.Messages, message)
	}
}

func checkMembers(r *chatRequest) string {
	for name := range r.members {
		if !slices.Contains(knownMembers, name) {
			return fmt.Sprintf("unrecognised member %q", name)
		}
	}
	limit, other := "max_tokens", "max_completion_tokens"
	if reasoning.MatchString(r.model) || r.onPlatform {
		limit, other = other, limit
	}
	if _, ok := r.members[other]; ok {
		return fmt.Sprintf("%s is not supported with this model: use %s", other, limit)
	}
	if value, ok := r.members[limit]; ok {
		var n int64
		if json.Unmarshal(value, &n) != nil || n < 1 {
			return limit + " is not a positive integer"
		}
	}
	if _, ok := r.members["tool_choice"]; ok && len(r.tools) == 0 {
		return "tool_choice is allowed only with tools"
	}
	if string(r.members["stream"]) == "true" {
		return "this server does not stream"
	}
	return ""
}

func checkTools(r *chatRequest) string {
	if r.members["tools"] == nil {
		return ""
	}
	if len(r.tools) == 0 {
		return "tools is empty"
	}
	names := map[string]bool{}
	for i, t := range r.tools {
		name := t.Function.Name
		switch {
		case t.Type != "function":
			return fmt.Sprintf("tools[%d] is not of type function", i)
		case !legalName.MatchString(name):
			return fmt.Sprintf("tools[%d] has an illegal name", i)
		case names[name]:
			return fmt.Sprintf("tools[%d] has the name of an earlier tool", i)
		case len([]rune(t.Function.Description)) > 1024:
			return fmt.Sprintf("tools[%d] has a description of more than 1024 characters", i)
		}
		names[name] = true
		var schema struct {
			Type       string                     `json:"type"`
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if json.Unmarshal(t.Function.Parameters, &schema) != nil || schema.Type != "object" || schema.Properties == nil {
			return fmt.Sprintf("tools[%d] has parameters that are no object schema with properties", i)
		}
	}
	return ""
}

// checkRoles checks each message by itself, and who speaks first.
func checkRoles(r *chatRequest) string {
	first := true
	for i, m := range r.messages {
		if m.Role != "system" && m.Role != "developer" && first {
			if m.Role != "user" {
				return "the first message after the instructions does not come from the user"
			}
			first = false
		}
		if i > 0 && m.Role == r.messages[i-1].Role && (m.Role == "user" || m.Role == "assistant") {
			// Of the templates that compatible servers fill in, some check it.
			return fmt.Sprintf("messages[%d]: conversation roles must alternate between user and assistant", i)
		}
		if problem := checkMessage(m); problem != "" {
			return fmt.Sprintf("messages[%d]: %s", i, problem)
		}
	}
	if first {
		return "there is no message from the user"
	}
	return ""
}

func checkMessage(m ChatMessage) string {
	_, hasCalls := m.members["tool_calls"]
	switch m.Role {
	case "system", "developer", "user", "tool":
		if hasCalls {
			return "tool_calls belong to the assistant"
		}
		if !isContent(m.Content) {
			return "content is neither text nor a list of parts"
		}
		return ""
	case "assistant":
		if hasCalls && len(m.ToolCalls) == 0 {
			return "tool_calls is empty: leave it out"
		}
		if !hasCalls && !isContent(m.Content) {
			return "an assistant message without calls needs content"
		}
		return checkCalls(m.ToolCalls)
	default:
		return "unknown role"
	}
}

func isContent(content any) bool {
	switch c := content.(type) {
	case string:
		return true
	case []any:
		return len(c) > 0
	default:
		return false
	}
}

func checkCalls(calls []ChatCall) string {
	for i, c := range calls {
		var arguments string
		var object map[string]json.RawMessage
		switch {
		case c.Type != "function":
			return fmt.Sprintf("tool_calls[%d] is not of type function", i)
		case c.ID == "":
			return fmt.Sprintf("tool_calls[%d] has no id", i)
		case len(c.ID) > maxIDBytes:
			return fmt.Sprintf("tool_calls[%d] has an id of more than %d bytes", i, maxIDBytes)
		case !legalName.MatchString(c.Function.Name):
			return fmt.Sprintf("tool_calls[%d] has an illegal name", i)
		case json.Unmarshal(c.Function.Arguments, &arguments) != nil:
			return fmt.Sprintf("the arguments of tool_calls[%d] are not a string", i)
		case json.Unmarshal([]byte(arguments), &object) != nil:
			return fmt.Sprintf("the arguments of tool_calls[%d] are not a JSON object", i)
		}
	}
	return ""
}

// checkPairing checks that the calls of each assistant message are answered, each by
// one message, before anybody else speaks, and that no id comes twice.
func checkPairing(r *chatRequest) string {
	used := map[string]bool{}
	var open []string
	for i, m := range r.messages {
		if m.Role == "tool" {
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return fmt.Sprintf("messages[%d] answers no call that is open", i)
			}
			open = slices.Delete(open, at, at+1)
			continue
		}
		if len(open) > 0 {
			return fmt.Sprintf("messages[%d] comes before the calls %s were answered", i, strings.Join(open, ", "))
		}
		for _, c := range m.ToolCalls {
			if used[c.ID] {
				return fmt.Sprintf("messages[%d] uses the call id %s again", i, c.ID)
			}
			used[c.ID] = true
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("the calls %s are not answered", strings.Join(open, ", "))
	}
	return ""
}

func checkOffered(r *chatRequest) string {
	for i, m := range r.messages {
		for _, c := range m.ToolCalls {
			if !slices.ContainsFunc(r.tools, func(t ChatTool) bool { return t.Function.Name == c.Function.Name }) {
				return fmt.Sprintf("messages[%d] calls %s, which is not offered", i, c.Function.Name)
			}
		}
	}
	return ""
}
