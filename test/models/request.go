package models

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// Request is a request as it arrived.
type Request struct {
	// Number counts the server's requests, starting at 1.
	Number int
	Header http.Header
	Body   []byte
	// Refusal says why the request was refused; empty for an accepted one.
	Refusal string

	// Model, Messages and Tools are read from the body.
	Model    string
	Messages []ChatMessage
	Tools    []ChatTool

	members map[string]json.RawMessage
	// rawMessages and rawTools are in canonical form, for comparing.
	rawMessages []string
	rawTools    string
}

// ChatMessage is one message of a request.
type ChatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	ToolCalls  []ChatCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`

	members map[string]json.RawMessage
}

// Text is the content, if it is text.
func (m ChatMessage) Text() string {
	text, _ := m.Content.(string)
	return text
}

// ChatCall is a call in an assistant message.
type ChatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// ChatTool is an offered tool.
type ChatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// Last is the newest message.
func (r Request) Last() ChatMessage {
	if len(r.Messages) == 0 {
		return ChatMessage{}
	}
	return r.Messages[len(r.Messages)-1]
}

// parse reads the body; it returns a problem.
func (r *Request) parse() string {
	if json.Unmarshal(r.Body, &r.members) != nil {
		return "the body is not a JSON object"
	}
	var messages []json.RawMessage
	if json.Unmarshal(r.members["messages"], &messages) != nil || len(messages) == 0 {
		return "messages is not a list with at least one message"
	}
	if json.Unmarshal(r.members["model"], &r.Model) != nil || r.Model == "" {
		return "model is not a name"
	}
	for _, raw := range messages {
		var m ChatMessage
		if json.Unmarshal(raw, &m) != nil || json.Unmarshal(raw, &m.members) != nil {
			return "a message has members of the wrong type"
		}
		r.Messages = append(r.Messages, m)
		r.rawMessages = append(r.rawMessages, canonical(raw))
	}
	if tools, ok := r.members["tools"]; ok {
		if json.Unmarshal(tools, &r.Tools) != nil {
			return "tools has members of the wrong type"
		}
		r.rawTools = canonical(tools)
	}
	return ""
}

// canonical renders JSON with sorted members, numbers as they were written.
func canonical(raw []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return string(raw)
	}
	return string(encode(v))
}
