package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Encode renders the body of a request, the exact bytes that Decide sends. Equal
// requests give equal bytes, and a request that continues a conversation repeats the
// earlier one's messages unchanged, so that prefix caches hit.
func (c *Client) Encode(request model.Request) ([]byte, error) {
	if request.MaxOutputTokens < 1 {
		return nil, errors.New("encoding a request: MaxOutputTokens must be at least 1")
	}
	messages, err := encodeMessages(request)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	body := wire.Object{
		wire.M("model", wire.Quote(c.model)),
		wire.M("messages", messages),
	}
	if len(request.Tools) > 0 {
		tools, err := c.encodeTools(request.Tools)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		body = append(body, wire.M("tools", tools), wire.M("tool_choice", wire.Quote("auto")))
	}
	limit := strconv.FormatInt(int64(c.limit(request)), 10)
	body = append(body, wire.M(c.parameters.limitMember, json.RawMessage(limit)))
	body = c.address.WithCacheKey(body, request.Conversation, c.parameters.body)
	return append(body, c.parameters.body...).Bytes(), nil
}

// limit of a reply: the least of what is asked for and what the parameters say.
func (c *Client) limit(request model.Request) int32 {
	return min(request.MaxOutputTokens, c.parameters.limit)
}

func encodeMessages(request model.Request) (json.RawMessage, error) {
	spoken, err := wire.Spoken(request.Messages)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if !wire.Blank(request.System) {
		list = append(list, wire.Object{wire.M("role", wire.Quote("system")), wire.M("content", wire.Quote(request.System))}.Bytes())
	}
	for i, m := range merged(spoken) {
		encoded, err := encodeMessage(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list = append(list, encoded)
	}
	return wire.Array(list), nil
}

// merged joins what the user says in a row: the templates of some models refuse a
// conversation in which the two sides don't take turns. It happens where nothing is left
// of a reply but what was wrong with it.
func merged(messages []model.Message) []model.Message {
	var list []model.Message
	for _, m := range messages {
		last := len(list) - 1
		if m.Role == model.RoleUser && last >= 0 && list[last].Role == model.RoleUser {
			list[last].Text += "\n\n" + m.Text
			continue
		}
		list = append(list, m)
	}
	return list
}

func encodeMessage(m model.Message) (json.RawMessage, error) {
	switch m.Role {
	case model.RoleUser:
		return wire.Object{wire.M("role", wire.Quote("user")), wire.M("content", wire.Quote(m.Text))}.Bytes(), nil
	case model.RoleTool:
		if m.CallID == "" {
			return nil, errors.New("a tool message needs the id of its call")
		}
		return wire.Object{
			wire.M("role", wire.Quote("tool")),
			wire.M("tool_call_id", wire.Quote(m.CallID)),
			wire.M("content", wire.Quote(m.Text)),
		}.Bytes(), nil
	case model.RoleAssistant:
		return encodeAssistant(m)
	default:
		return nil, errors.New("unknown role")
	}
}

func encodeAssistant(m model.Message) (json.RawMessage, error) {
	if len(m.Raw) > 0 {
		if !wire.IsObject(m.Raw) {
			return nil, errors.New("the raw assistant message is not a JSON object")
		}
		return m.Raw, nil
	}
	if len(m.Calls) == 0 {
		return wire.Object{wire.M("role", wire.Quote("assistant")), wire.M("content", wire.Quote(m.Text))}.Bytes(), nil
	}
	content := json.RawMessage("null")
	if m.Text != "" {
		content = wire.Quote(m.Text)
	}
	var calls []json.RawMessage
	for _, c := range m.Calls {
		if c.ID == "" {
			return nil, errors.New("a call needs an id")
		}
		calls = append(calls, wire.Object{
			wire.M("id", wire.Quote(c.ID)),
			wire.M("type", wire.Quote("function")),
			wire.M("function", wire.Object{
				wire.M("name", wire.Quote(wire.EchoName(c.Alias))),
				wire.M("arguments", wire.Quote(wire.EchoArguments(c.Arguments))),
			}.Bytes()),
		}.Bytes())
	}
	return wire.Object{
		wire.M("role", wire.Quote("assistant")),
		wire.M("content", content),
		wire.M("tool_calls", wire.Array(calls)),
	}.Bytes(), nil
}

func (c *Client) encodeTools(tools []model.Tool) (json.RawMessage, error) {
	var list []json.RawMessage
	for i, t := range tools {
		function, err := c.address.Tool(t)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		list = append(list, wire.Object{wire.M("type", wire.Quote("function")), wire.M("function", function.Bytes())}.Bytes())
	}
	return wire.Array(list), nil
}
