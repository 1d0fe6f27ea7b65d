package fakemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	messagesName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	messagesID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

	messagesMembers = []string{
		"cache_control", "container", "diagnostics", "inference_geo", "max_tokens", "messages", "metadata", "model", "output_config",
		"service_tier", "speed", "stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
	}
	// samplers are refused since the newest version of the API, even at their defaults.
	samplers = []string{"temperature", "top_k", "top_p"}
)

const (
	olderVersion  = "2023-06-01"
	newestVersion = "2026-10-21"
	// maxMarks is how much of a request can be marked for the cache.
	maxMarks = 4
)

func checkMessagesMembers(m *messagesRequest) string {
	known := messagesMembers
	switch {
	case modelInPath(m.path):
		known = append(slices.Clone(known), "anthropic_beta", "anthropic_version")
		known = slices.DeleteFunc(known, func(name string) bool { return slices.Contains([]string{"cache_control", "model", "stream"}, name) })
	case m.path == claudeOnMantle:
		known = slices.DeleteFunc(slices.Clone(known), func(name string) bool { return name == "cache_control" })
	}
	for name := range m.members {
		if !slices.Contains(known, name) {
			return name + ": Extra inputs are not permitted"
		}
	}
	if mark, ok := m.members["cache_control"]; ok {
		if problem := m.mark(mark); problem != "" {
			return problem
		}
	}
	if m.modelName() == "" {
		return "model: Field required"
	}
	if json.Unmarshal(m.members["max_tokens"], &m.limit) != nil || m.limit < 1 {
		return "max_tokens: a positive integer is required"
	}
	if string(m.members["stream"]) == "true" {
		return "this server does not stream"
	}
	return ""
}

func checkMessagesVersion(m *messagesRequest) string {
	switch m.version {
	case newestVersion:
		for _, name := range samplers {
			if _, ok := m.members[name]; ok {
				return name + " is not supported in version " + newestVersion
			}
		}
		return ""
	case olderVersion, "bedrock-2023-05-31", "vertex-2023-10-16":
		return ""
	case "":
		return "anthropic-version: header is required, or anthropic_version where the path names the model"
	default:
		return "anthropic-version: there is no such version"
	}
}

func checkThinkingMember(m *messagesRequest) string {
	raw, ok := m.members["thinking"]
	if !ok {
		return ""
	}
	var thinking struct {
		Type   string `json:"type"`
		Budget int64  `json:"budget_tokens"`
	}
	if json.Unmarshal(raw, &thinking) != nil || !slices.Contains([]string{"adaptive", "enabled", "between_tools", "disabled"}, thinking.Type) {
		return "thinking has no known type"
	}
	if thinking.Type == "enabled" && (thinking.Budget < 1024 || thinking.Budget >= m.limit) {
		return "thinking.enabled.budget_tokens must be at least 1024 and less than max_tokens"
	}
	return ""
}

func checkMessagesTools(m *messagesRequest) string {
	var choice struct {
		Type string `json:"type"`
	}
	if raw, ok := m.members["tool_choice"]; ok {
		if len(m.tools) == 0 {
			return "tool_choice may only be specified while providing tools"
		}
		if json.Unmarshal(raw, &choice) != nil || !slices.Contains([]string{"auto", "any", "tool", "none"}, choice.Type) {
			return "tool_choice has no known type"
		}
		if _, thinks := m.members["thinking"]; thinks && choice.Type != "auto" && choice.Type != "none" {
			return "thinking may not be enabled when tool_choice forces tool use"
		}
	}
	names := map[string]bool{}
	for i, t := range m.tools {
		if problem := m.checkTool(t); problem != "" {
			return fmt.Sprintf("tools.%d: %s", i, problem)
		}
		if names[t.Name] {
			return "tools: Tool names must be unique"
		}
		names[t.Name] = true
	}
	return ""
}

func (m *messagesRequest) checkTool(t messagesTool) string {
	var root string
	switch {
	case t.Type != "" && t.Type != "custom":
		return "a tool of the provider's own"
	case !messagesName.MatchString(t.Name):
		return "name should match the pattern " + messagesName.String()
	case json.Unmarshal(t.Schema["type"], &root) != nil || root != "object":
		return "input_schema.type: Field required, and must be object"
	}
	for _, name := range []string{"oneOf", "allOf", "anyOf"} {
		if _, ok := t.Schema[name]; ok {
			return "input_schema does not support oneOf, allOf, or anyOf at the top level"
		}
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(t.raw, &members)
	if mark, ok := members["cache_control"]; ok {
		return m.mark(mark)
	}
	return ""
}

// checkTurns checks who speaks, and each block by itself.
func checkTurns(m *messagesRequest) string {
	for _, b := range m.system {
		if problem := checkText(b); b.Type != "text" || problem != "" {
			return "system: text content blocks must be non-empty"
		}
	}
	for i, t := range m.turns {
		switch {
		case t.role != "user" && t.role != "assistant":
			return fmt.Sprintf("messages.%d: unknown role", i)
		case (t.role == "user") != (i%2 == 0):
			return "messages: roles must alternate between user and assistant, and the first must be user"
		case len(t.blocks) == 0:
			return fmt.Sprintf("messages.%d: content must be non-empty", i)
		}
		for j, b := range t.blocks {
			if problem := checkBlock(t.role, b); problem != "" {
				return fmt.Sprintf("messages.%d.content.%d: %s", i, j, problem)
			}
		}
		if last := t.blocks[len(t.blocks)-1]; last.seals() != nil {
			return fmt.Sprintf("messages.%d: The final block in an assistant message cannot be `thinking`", i)
		}
	}
	return checkEnd(m.turns[len(m.turns)-1])
}

// checkEnd refuses to have the model's words put into its mouth. A turn that was paused in
// the middle of a tool of the provider's own is its own to go on with.
func checkEnd(last messagesTurn) string {
	end := last.blocks[len(last.blocks)-1].Type
	if last.role == "assistant" && end != "server_tool_use" && end != "compaction" && !strings.HasSuffix(end, "_tool_result") {
		return "this model does not support assistant message prefill: the conversation must end with a user message"
	}
	return ""
}

func checkText(b messagesBlock) string {
	if strings.TrimSpace(b.Text) == "" {
		return "text content blocks must contain non-whitespace text"
	}
	return ""
}

func checkBlock(role string, b messagesBlock) string {
	spoken := role == "assistant"
	switch b.Type {
	case "text":
		return checkText(b)
	case "thinking":
		if !spoken || b.Signature == "" || b.Thinking == nil {
			return "thinking belongs to the assistant and has a text and a signature"
		}
	case "redacted_thinking":
		if !spoken || b.Data == "" {
			return "redacted_thinking belongs to the assistant and has data"
		}
	case "tool_use":
		if !spoken {
			return "tool_use blocks can only be in assistant messages"
		}
		return checkCall(b)
	case "tool_result":
		if spoken {
			return "tool_result blocks can only be in user messages"
		}
		return checkResult(b)
	default:
		if !spoken {
			return "a block of an unknown type"
		}
	}
	return ""
}

func checkCall(b messagesBlock) string {
	var object map[string]json.RawMessage
	switch {
	case !messagesID.MatchString(b.ID):
		return "tool_use.id should match the pattern " + messagesID.String()
	case !messagesName.MatchString(b.Name):
		return "tool_use.name should match the pattern " + messagesName.String()
	case json.Unmarshal(b.Input, &object) != nil || object == nil:
		return "tool_use.input is not an object"
	}
	return ""
}

func checkResult(b messagesBlock) string {
	parsed := &messagesRequest{}
	var text string
	if b.Content == nil || json.Unmarshal(b.Content, &text) == nil {
		return ""
	}
	blocks, problem := parsed.parseContent(b.Content)
	if problem != "" {
		return problem
	}
	for _, b := range blocks {
		if b.Type != "text" {
			return "a result with something else than text"
		}
		if problem := checkText(b); problem != "" {
			return problem
		}
	}
	return ""
}

// checkMessagesPairing checks that the calls of each turn are answered in the next: all of
// them, once, in their order, before anything else is said. No id comes twice.
func checkMessagesPairing(m *messagesRequest) string {
	used := map[string]bool{}
	var open []string
	for i, t := range m.turns {
		if t.role == "user" {
			if problem := checkAnswers(t, open); problem != "" {
				return fmt.Sprintf("messages.%d: %s", i, problem)
			}
		}
		open = t.calls()
		for _, id := range open {
			if used[id] {
				return fmt.Sprintf("messages.%d: tool_use ids must be unique: %s", i, id)
			}
			used[id] = true
		}
	}
	if len(open) > 0 {
		return "tool_use ids were found without tool_result blocks: " + strings.Join(open, ", ")
	}
	return ""
}

func checkAnswers(t messagesTurn, open []string) string {
	var answered []string
	said := false
	for _, b := range t.blocks {
		if b.Type != "tool_result" {
			said = true
			continue
		}
		if said {
			return "tool_result blocks must come before everything else in the message after their calls"
		}
		if !slices.Contains(open, b.ToolUseID) {
			return "unexpected tool_use_id in tool_result blocks: " + b.ToolUseID
		}
		if slices.Contains(answered, b.ToolUseID) {
			return "each tool_use must have a single result: " + b.ToolUseID
		}
		answered = append(answered, b.ToolUseID)
	}
	if len(answered) < len(open) {
		return "tool_use ids were found without tool_result blocks immediately after: " + strings.Join(open, ", ")
	}
	if !slices.Equal(answered, open) {
		return "the results are in another order than the calls"
	}
	return ""
}

func checkMarks(m *messagesRequest) string {
	if m.marks > maxMarks {
		return fmt.Sprintf("a maximum of %d blocks with cache_control may be provided, found %d", maxMarks, m.marks)
	}
	return ""
}
