// Package openai speaks Chat Completions, as OpenAI does and as the many servers that
// are compatible with it nearly do. It asks once: no retry, no redirect, no stream.
//
// Two kinds of strictness meet here. What is sent is what the strictest server
// accepts; what comes back is read as the sloppiest server writes it, but never
// guessed at: a reply that does not make sense as a whole runs nothing.
package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	sdk "github.com/openai/openai-go/v3"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Client asks one model.
type Client struct {
	*wire.Connection
	address     openaiapi.Address
	model       string
	limitMember string
	parameters  wire.Object
}

var _ model.Client = (*Client)(nil)

// New checks the configuration. Its errors say what to change and hold no values.
func New(config wire.Config) (*Client, error) {
	c := &Client{model: config.Model, limitMember: outputLimitMember(config.Model)}
	if config.Model == "" {
		return nil, errors.New("configuring a model client: the model has no name")
	}
	var err error
	if c.address, err = openaiapi.Resolve(config, openaiapi.ByDeployment); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.parameters, err = wire.ParseParameters(config.Parameters, reserved); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
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
	key, failure := c.address.Credential(c.Connection)
	if failure != nil {
		return model.Reply{}, failure
	}
	response, failure := c.Exchange(ctx, func(ctx context.Context, once http.RoundTripper) error {
		service := sdk.NewChatCompletionService(c.address.Options(once, key, body)...)
		_, err := service.New(ctx, sdk.ChatCompletionNewParams{})
		return err
	})
	if failure != nil {
		return model.Reply{}, failure
	}
	reply, failure := Interpret(response, request)
	if failure != nil {
		failure.Code = wire.WithoutSecret(failure.Code, key)
		return model.Reply{}, failure
	}
	wire.Scrub(&reply, key)
	return reply, nil
}
