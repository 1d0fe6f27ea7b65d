// Package responses speaks OpenAI's Responses without any state at the vendor: every
// request carries the whole conversation, and what the model has thought travels in it,
// encrypted. It asks once: no retry, no redirect, no stream, no background.
package responses

import (
	"context"
	"fmt"

	"github.com/openai/openai-go/v3/option"
	sdk "github.com/openai/openai-go/v3/responses"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Client asks one model.
type Client struct {
	*wire.Connection
	address    openaiapi.Address
	model      string
	include    bool
	parameters wire.Object
}

var _ model.Client = (*Client)(nil)

// New checks the configuration. Its errors say what to change and hold no values.
func New(config wire.Config) (*Client, error) {
	c := &Client{model: config.Model}
	err := wire.CheckModel(config.Model)
	if err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.address, err = openaiapi.Resolve(config, openaiapi.ByModel); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.parameters, err = wire.ParseParameters(config.Parameters, reserved); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.Connection, err = wire.Connect(config); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	c.include = includesReasoning(config.Model, c.parameters)
	return c, nil
}

// Decide implements model.Client.
func (c *Client) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	body, err := c.Encode(request)
	if err != nil {
		return model.Reply{}, wire.NotEncodable(err)
	}
	send := func(ctx context.Context, options []option.RequestOption) error {
		service := sdk.NewResponseService(options...)
		_, err := service.New(ctx, sdk.ResponseNewParams{})
		return err
	}
	return c.address.Ask(ctx, c.Connection, body, send, func(response wire.Response) (model.Reply, *model.Error) {
		return Interpret(response, request)
	})
}
