package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// minOutputTokens is the least that the vendor accepts for max_output_tokens.
const minOutputTokens = 16

// Encode renders the body of a request, the exact bytes that Decide sends. Equal requests
// give equal bytes, and a request that continues a conversation repeats the earlier one's
// items unchanged, so that prefix caches hit.
func (c *Client) Encode(request model.Request) ([]byte, error) {
	if request.MaxOutputTokens < 1 {
		return nil, errors.New("encoding a request: MaxOutputTokens must be at least 1")
	}
	input, err := encodeInput(request.Messages)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	body := wire.Object{
		wire.M("model", wire.Quote(c.model)),
		wire.M("store", json.RawMessage("false")),
	}
	if c.include {
		body = append(body, wire.M("include", json.RawMessage(`["reasoning.encrypted_content"]`)))
	}
	if !wire.Blank(request.System) {
		body = append(body, wire.M("instructions", wire.Quote(request.System)))
	}
	body = append(body, wire.M("input", input))
	if len(request.Tools) > 0 {
		tools, err := c.encodeTools(request.Tools)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		body = append(body, wire.M("tools", tools), wire.M("tool_choice", wire.Quote("auto")))
	}
	limit := strconv.FormatInt(int64(max(request.MaxOutputTokens, minOutputTokens)), 10)
	body = append(body, wire.M("max_output_tokens", json.RawMessage(limit)))
	body = c.address.WithCacheKey(body, request.Conversation, c.parameters)
	return append(body, c.parameters...).Bytes(), nil
}

func encodeInput(messages []model.Message) (json.RawMessage, error) {
	spoken, err := wire.Spoken(messages)
	if err != nil {
		return nil, err
	}
	var input []json.RawMessage
	for i, m := range spoken {
		items, err := encodeMessage(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		input = append(input, items...)
	}
	return wire.Array(input), nil
}

func encodeMessage(m model.Message) ([]json.RawMessage, error) {
	switch m.Role {
	case model.RoleUser:
		part := wire.Object{wire.M("type", wire.Quote("input_text")), wire.M("text", wire.Quote(m.Text))}
		return []json.RawMessage{wire.Object{
			wire.M("type", wire.Quote(typeMessage)),
			wire.M("role", wire.Quote("user")),
			wire.M("content", wire.Array([]json.RawMessage{part.Bytes()})),
		}.Bytes()}, nil
	case model.RoleTool:
		if m.CallID == "" {
			return nil, errors.New("a tool message needs the id of its call")
		}
		return []json.RawMessage{wire.Object{
			wire.M("type", wire.Quote("function_call_output")),
			wire.M("call_id", wire.Quote(m.CallID)),
			wire.M("output", wire.Quote(m.Text)),
		}.Bytes()}, nil
	case model.RoleAssistant:
		return encodeAssistant(m)
	default:
		return nil, errors.New("unknown role")
	}
}

// encodeAssistant gives the items that the provider wrote, or such as say the same.
func encodeAssistant(m model.Message) ([]json.RawMessage, error) {
	if len(m.Raw) > 0 {
		items, ok := wire.List(m.Raw)
		if !ok || len(items) == 0 {
			return nil, errors.New("the raw assistant message is not a list of items")
		}
		return items, nil
	}
	var items []json.RawMessage
	if !wire.Blank(m.Text) {
		items = append(items, wire.Object{
			wire.M("type", wire.Quote(typeMessage)),
			wire.M("role", wire.Quote("assistant")),
			wire.M("content", wire.Quote(m.Text)),
		}.Bytes())
	}
	for _, c := range m.Calls {
		if c.ID == "" {
			return nil, errors.New("a call needs an id")
		}
		items = append(items, wire.Object{
			wire.M("type", wire.Quote(typeFunctionCall)),
			wire.M("call_id", wire.Quote(c.ID)),
			wire.M("name", wire.Quote(wire.EchoName(c.Alias))),
			wire.M("arguments", wire.Quote(wire.EchoArguments(c.Arguments))),
		}.Bytes())
	}
	return items, nil
}

func (c *Client) encodeTools(tools []model.Tool) (json.RawMessage, error) {
	var list []json.RawMessage
	for i, t := range tools {
		members, err := c.address.Tool(t)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		list = append(list, append(wire.Object{wire.M("type", wire.Quote("function"))}, members...).Bytes())
	}
	return wire.Array(list), nil
}
