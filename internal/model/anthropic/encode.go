package anthropic

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
// earlier one's blocks unchanged, so that prefix caches hit and the provider's check of
// what its own thinking was based on passes.
func (c *Client) Encode(request model.Request) ([]byte, error) {
	body, err := c.encode(request)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	return body, nil
}

func (c *Client) encode(request model.Request) ([]byte, error) {
	if request.MaxOutputTokens < 1 {
		return nil, errors.New("MaxOutputTokens must be at least 1")
	}
	turns, err := turnsOf(request.Messages)
	if err != nil {
		return nil, err
	}
	tools, err := encodeTools(request.Tools)
	if err != nil {
		return nil, err
	}
	var system []json.RawMessage
	if !wire.Blank(request.System) {
		system = []json.RawMessage{textBlock(request.System)}
	}
	if c.parameters.breakpoint != nil && !c.platform.cachesRequests() {
		c.markCached(system, tools, turns)
	}
	body := c.head(request.MaxOutputTokens)
	if len(system) > 0 {
		body = append(body, wire.M("system", wire.Array(system)))
	}
	body = append(body, wire.M("messages", encodeTurns(turns)))
	if len(tools) > 0 {
		body = append(body, wire.M("tools", wire.Array(tools)), wire.M("tool_choice", c.parameters.toolChoice))
	}
	if c.parameters.breakpoint != nil && c.platform.cachesRequests() {
		body = append(body, wire.M("cache_control", c.parameters.breakpoint))
	}
	return append(body, c.parameters.bodyFor(request.MaxOutputTokens)...).Bytes(), nil
}

// head names the model where the path doesn't, and the version where no header does.
func (c *Client) head(limit int32) wire.Object {
	maxTokens := wire.M("max_tokens", json.RawMessage(strconv.FormatInt(int64(limit), 10)))
	if !c.platform.versionInBody() {
		return wire.Object{wire.M("model", wire.Quote(c.model)), maxTokens}
	}
	body := wire.Object{wire.M("anthropic_version", wire.Quote(version))}
	if len(c.parameters.betas) > 0 {
		var betas []json.RawMessage
		for _, beta := range c.parameters.betas {
			betas = append(betas, wire.Quote(beta))
		}
		body = append(body, wire.M("anthropic_beta", wire.Array(betas)))
	}
	return append(body, maxTokens)
}

// cachedTurns is how many of the user's turns end in a breakpoint: the last, for the next
// request, and the one before, where the last request's was. The provider by itself looks
// no further than twenty blocks back, and one turn may have more.
const cachedTurns = 2

// markCached sets breakpoints: one behind tools and system prompt, which never moves, and
// two that move on with the conversation. A breakpoint is no part of what the model
// reads; those that move are the only bytes in which a request differs from the one that
// it continues.
func (c *Client) markCached(system, tools []json.RawMessage, turns []turn) {
	switch {
	case len(system) > 0:
		system[0] = marked(system[0], c.parameters.breakpoint)
	case len(tools) > 0:
		tools[len(tools)-1] = marked(tools[len(tools)-1], c.parameters.breakpoint)
	}
	left := cachedTurns
	for i := len(turns) - 1; i >= 0 && left > 0; i-- {
		if turns[i].role != roleUser {
			continue
		}
		last := len(turns[i].blocks) - 1
		turns[i].blocks[last] = marked(turns[i].blocks[last], c.parameters.breakpoint)
		left--
	}
}

// marked adds a breakpoint to an object that this package wrote.
func marked(block, breakpoint json.RawMessage) json.RawMessage {
	members, err := wire.ParseObject(block)
	if err != nil {
		return block
	}
	return members.With("cache_control", breakpoint).Bytes()
}

func encodeTools(tools []model.Tool) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for i, t := range tools {
		if !wire.LegalName.MatchString(t.Alias) {
			return nil, fmt.Errorf("tool %d: its alias is not a legal name", i)
		}
		schema, err := wire.ParseSchema(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		tool := wire.Object{wire.M("name", wire.Quote(t.Alias))}
		if t.Description != "" {
			tool = append(tool, wire.M("description", wire.Quote(t.Description)))
		}
		list = append(list, append(tool, wire.M("input_schema", schema.Bytes())).Bytes())
	}
	return list, nil
}
