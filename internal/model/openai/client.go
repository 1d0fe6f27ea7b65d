// Package openai speaks Chat Completions, as OpenAI does and as the many servers that
// are compatible with it nearly do. It asks once: no retry, no redirect, no stream.
//
// Two kinds of strictness meet here. What is sent is what the strictest server
// accepts; what comes back is read as the sloppiest server writes it, but never
// guessed at: a reply that does not make sense as a whole runs nothing.
package openai

import (
	"context"
	"fmt"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Client asks one model.
type Client struct {
	*wire.Connection
	address    openaiapi.Address
	model      string
	parameters parameters
}

var _ model.Client = (*Client)(nil)

// New checks the configuration. Its errors say what to change and hold no values.
func New(config wire.Config) (*Client, error) {
	c := &Client{model: config.Model}
	err := wire.CheckModel(config.Model)
	if err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.address, err = openaiapi.Resolve(config, openaiapi.ByDeployment); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.parameters, err = readParameters(config.Parameters); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.parameters.limitMember == "" {
		c.parameters.limitMember = outputLimitMember(config, c.address)
	}
	if c.Connection, err = wire.Connect(config); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	return c, nil
}

// Decide implements model.Client.
func (c *Client) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	body, err := c.Encode(request)
	if err != nil {
		return model.Reply{}, wire.NotEncodable(err)
	}
	send := func(ctx context.Context, options []option.RequestOption) error {
		service := sdk.NewChatCompletionService(options...)
		_, err := service.New(ctx, sdk.ChatCompletionNewParams{})
		return err
	}
	request.MaxOutputTokens = c.limit(request)
	return c.address.Ask(ctx, c.Connection, body, send, func(response wire.Response) (model.Reply, *model.Error) {
		return Interpret(response, request)
	})
}
