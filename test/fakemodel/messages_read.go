package fakemodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// messagesRequest is a request body.
type messagesRequest struct {
	// members of the body, by name.
	members map[string]json.RawMessage
	path    string
	version string
	turns   []messagesTurn
	system  []messagesBlock
	tools   []messagesTool
	limit   int64
	// marks counts what asks for caching.
	marks int
}

// messagesTurn is one message of a request.
type messagesTurn struct {
	role   string
	blocks []messagesBlock
}

// messagesBlock is one block of content.
type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  *string         `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`

	members map[string]json.RawMessage
}

// messagesTool is an offered tool.
type messagesTool struct {
	Type        string                     `json:"type"`
	Name        string                     `json:"name"`
	Description string                     `json:"description"`
	Schema      map[string]json.RawMessage `json:"input_schema"`

	raw json.RawMessage
}

// seals of a thought: its text is what was signed, and redacted data is its own signature.
func (b messagesBlock) seals() []Seal {
	switch b.Type {
	case "thinking":
		text := ""
		if b.Thinking != nil {
			text = *b.Thinking
		}
		return []Seal{{Signature: b.Signature, Content: text}}
	case "redacted_thinking":
		return []Seal{{Signature: b.Data}}
	default:
		return nil
	}
}

// canonical is the block without its mark for the cache, which may move.
func (b messagesBlock) canonical() string {
	members := maps.Clone(b.members)
	delete(members, "cache_control")
	return canonical(encode(members))
}

// Read implements Wire.
func (messages) Read(r *Request, options Options) string {
	parsed, problem := parseMessages(r)
	if problem != "" {
		return problem
	}
	checks := []func(*messagesRequest) string{
		checkMessagesMembers, checkMessagesVersion, checkThinkingMember, checkMessagesTools, checkTurns, checkMessagesPairing, checkMarks,
	}
	if options.RequireOfferedCalls {
		checks = append(checks, checkMessagesOffered)
	}
	for _, c := range checks {
		if problem := c(parsed); problem != "" {
			return problem
		}
	}
	parsed.describe(r)
	return ""
}

// parseMessages reads the body.
func parseMessages(r *Request) (*messagesRequest, string) {
	parsed := &messagesRequest{path: r.URL.Path, version: r.Header.Get("Anthropic-Version")}
	if json.Unmarshal(r.Body, &parsed.members) != nil {
		return nil, "the body is not a JSON object"
	}
	if modelInPath(parsed.path) {
		parsed.version = ""
		_ = json.Unmarshal(parsed.members["anthropic_version"], &parsed.version)
	}
	var problem string
	if parsed.system, problem = parsed.parseContent(parsed.members["system"]); problem != "" {
		return nil, "system: " + problem
	}
	var list []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(parsed.members["messages"], &list) != nil || len(list) == 0 {
		return nil, "messages: at least one message is required"
	}
	for i, m := range list {
		blocks, problem := parsed.parseContent(m.Content)
		if problem != "" {
			return nil, fmt.Sprintf("messages.%d: %s", i, problem)
		}
		parsed.turns = append(parsed.turns, messagesTurn{m.Role, blocks})
	}
	var tools []json.RawMessage
	if raw, ok := parsed.members["tools"]; ok && json.Unmarshal(raw, &tools) != nil {
		return nil, "tools is not a list"
	}
	for i, raw := range tools {
		tool := messagesTool{raw: raw}
		if json.Unmarshal(raw, &tool) != nil {
			return nil, fmt.Sprintf("tools.%d has members of the wrong type", i)
		}
		parsed.tools = append(parsed.tools, tool)
	}
	return parsed, ""
}

// parseContent reads blocks, or the text that stands for one.
func (m *messagesRequest) parseContent(raw json.RawMessage) ([]messagesBlock, string) {
	var text string
	if raw != nil && json.Unmarshal(raw, &text) == nil {
		raw = encode([]any{map[string]any{"type": "text", "text": text}})
	}
	var list []json.RawMessage
	if raw != nil && json.Unmarshal(raw, &list) != nil {
		return nil, "content is neither text nor a list of blocks"
	}
	var blocks []messagesBlock
	for i, one := range list {
		var b messagesBlock
		if json.Unmarshal(one, &b) != nil || json.Unmarshal(one, &b.members) != nil || b.Type == "" {
			return nil, fmt.Sprintf("content.%d has no type, or members of the wrong type", i)
		}
		if mark, ok := b.members["cache_control"]; ok {
			if problem := m.mark(mark); problem != "" {
				return nil, problem
			}
			if b.seals() != nil {
				return nil, "cache_control: thoughts can't be marked"
			}
		}
		blocks = append(blocks, b)
	}
	return blocks, ""
}

// mark counts a mark for the cache.
func (m *messagesRequest) mark(raw json.RawMessage) string {
	var mark struct {
		Type string  `json:"type"`
		TTL  *string `json:"ttl"`
	}
	if json.Unmarshal(raw, &mark) != nil || mark.Type != "ephemeral" || (mark.TTL != nil && *mark.TTL != "5m" && *mark.TTL != "1h") {
		return "cache_control is not ephemeral"
	}
	m.marks++
	return ""
}

// describe says what the request is about in the words that all wires share. The prefix
// that thoughts are bound to is tools, system and all earlier blocks.
func (m *messagesRequest) describe(r *Request) {
	r.Model = m.modelName()
	var head []string
	for _, t := range m.tools {
		schema, _ := json.Marshal(t.Schema)
		r.Tools = append(r.Tools, Tool{Name: t.Name, Description: t.Description, Schema: schema})
		var members map[string]json.RawMessage
		_ = json.Unmarshal(t.raw, &members)
		delete(members, "cache_control")
		head = append(head, canonical(encode(members)))
	}
	for _, b := range m.system {
		r.System += b.Text
		head = append(head, b.canonical())
	}
	r.Head = strings.Join(head, "\n")
	for _, t := range m.turns {
		spoken := t.role == "assistant"
		for i, b := range t.blocks {
			r.Pieces = append(r.Pieces, Piece{
				Text: t.role + " " + b.canonical(), Turn: spoken && i == 0, Assistant: spoken, Seals: b.seals(),
			})
		}
		r.Messages = append(r.Messages, t.messages()...)
	}
}

func (m *messagesRequest) modelName() string {
	var name string
	switch {
	case claudeOnBedrock.MatchString(m.path):
		name = strings.TrimSuffix(strings.TrimPrefix(m.path, "/model/"), "/invoke")
	case claudeOnVertex.MatchString(m.path):
		name = strings.TrimSuffix(m.path[strings.LastIndexByte(m.path, '/')+1:], ":rawPredict")
	default:
		_ = json.Unmarshal(m.members["model"], &name)
	}
	return name
}

// messages are the results in a turn, one by one, and what else is said in it.
func (t messagesTurn) messages() []Message {
	var list []Message
	said := Message{Role: t.role}
	for _, b := range t.blocks {
		switch b.Type {
		case "text":
			said.Text += b.Text
		case "tool_use":
			said.Calls = append(said.Calls, Call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		case "tool_result":
			list = append(list, Message{Role: "tool", Text: b.resultText(), CallID: b.ToolUseID, Failed: b.IsError})
		}
	}
	if said.Text != "" || len(said.Calls) > 0 {
		list = append(list, said)
	}
	return list
}

func (b messagesBlock) resultText() string {
	var text string
	if json.Unmarshal(b.Content, &text) == nil {
		return text
	}
	var blocks []messagesBlock
	_ = json.Unmarshal(b.Content, &blocks)
	for _, b := range blocks {
		text += b.Text
	}
	return text
}

// calls of a turn, by id.
func (t messagesTurn) calls() []string {
	var ids []string
	for _, b := range t.blocks {
		if b.Type == "tool_use" {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

func checkMessagesOffered(m *messagesRequest) string {
	for i, t := range m.turns {
		for _, b := range t.blocks {
			if b.Type == "tool_use" && !slices.ContainsFunc(m.tools, func(t messagesTool) bool { return t.Name == b.Name }) {
				return fmt.Sprintf("messages.%d calls %s, which is not offered", i, b.Name)
			}
		}
	}
	return ""
}
