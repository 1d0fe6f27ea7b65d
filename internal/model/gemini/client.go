// Package gemini speaks generateContent, as the Gemini API and Vertex AI do. It asks once:
// no retry, no redirect, no stream.
//
// The wire gives calls no ids that can be relied on: a call and its result belong together
// by their place. And what the model thought comes back signed, in the parts that it
// belongs to, so that a reply goes back as it came or not at all.
package gemini

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/model/wire/vertex"
)

// Client asks one model.
type Client struct {
	*wire.Connection
	url        string
	parameters parameters
	// tokens is nil where a key is sent.
	tokens *vertex.Tokens
	// signsCalls is true for models that refuse a call without a signature.
	signsCalls bool
}

var _ model.Client = (*Client)(nil)

// New checks the configuration. Its errors say what to change and hold no values.
func New(config wire.Config) (*Client, error) {
	c := &Client{signsCalls: signsCalls(config.Model)}
	err := wire.CheckModel(config.Model)
	if err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.url, err = requestURL(config); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.parameters, err = parseParameters(config.Parameters); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if c.Connection, err = wire.Connect(config); err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	if config.Platform.Vertex != nil {
		c.tokens = vertex.NewTokens(c.Connection)
	}
	return c, nil
}

// Decide implements model.Client.
func (c *Client) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	body, err := c.Encode(request)
	if err != nil {
		return model.Reply{}, wire.NotEncodable(err)
	}
	key, failure := c.secret(ctx)
	if failure != nil {
		return model.Reply{}, failure
	}
	response, failure := c.Exchange(ctx, func(ctx context.Context, once http.RoundTripper) error {
		return c.send(ctx, once, body, key)
	})
	if failure != nil {
		return model.Reply{}, failure
	}
	reply, failure := Interpret(response, request)
	if failure != nil {
		if c.tokens != nil && failure.Class == model.ClassUnauthorized {
			c.tokens.Forget(key)
		}
		wire.ScrubError(failure, key)
		return model.Reply{}, failure
	}
	wire.Scrub(&reply, key)
	return reply, nil
}

// secret is the API key, or the platform's access token.
func (c *Client) secret(ctx context.Context) (string, *model.Error) {
	if c.tokens != nil {
		return c.tokens.Token(ctx)
	}
	return c.Key()
}

func (c *Client) send(ctx context.Context, once http.RoundTripper, body []byte, key string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "pawl")
	switch {
	case c.tokens != nil:
		request.Header.Set("Authorization", "Bearer "+key)
	case key != "":
		request.Header.Set("X-Goog-Api-Key", key)
	}
	_, err = once.RoundTrip(request)
	return err
}
