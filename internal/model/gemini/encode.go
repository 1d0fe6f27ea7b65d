package gemini

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
// earlier one's contents unchanged, so that prefix caches hit.
func (c *Client) Encode(request model.Request) ([]byte, error) {
	if request.MaxOutputTokens < 1 {
		return nil, errors.New("encoding a request: MaxOutputTokens must be at least 1")
	}
	var body wire.Object
	if !wire.Blank(request.System) {
		body = append(body, wire.M("systemInstruction", contentOf(roleUser, textPart(request.System))))
	}
	if len(request.Tools) > 0 {
		tools, err := encodeTools(request.Tools)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		body = append(body, wire.M("tools", tools),
			wire.M("toolConfig", json.RawMessage(`{"functionCallingConfig":{"mode":"AUTO"}}`)))
	}
	contents, err := c.encodeContents(request.Messages)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	limit := wire.M("maxOutputTokens", json.RawMessage(strconv.FormatInt(int64(request.MaxOutputTokens), 10)))
	body = append(body,
		wire.M("contents", contents),
		wire.M(settings, append(wire.Object{limit}, c.parameters.settings...).Bytes()),
	)
	return append(body, c.parameters.others...).Bytes(), nil
}

func encodeTools(tools []model.Tool) (json.RawMessage, error) {
	var list []json.RawMessage
	for i, t := range tools {
		if !wire.LegalName.MatchString(t.Alias) || !legalName.MatchString(t.Alias) {
			return nil, fmt.Errorf("tool %d: its alias is not a legal name", i)
		}
		declaration := wire.Object{
			wire.M("name", wire.Quote(t.Alias)),
			wire.M("description", wire.Quote(t.Description)),
		}
		schema, err := wire.ParseSchema(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		list = append(list, append(declaration, wire.M("parametersJsonSchema", schema.Bytes())).Bytes())
	}
	return wire.Array([]json.RawMessage{
		wire.Object{wire.M("functionDeclarations", wire.Array(list))}.Bytes(),
	}), nil
}
