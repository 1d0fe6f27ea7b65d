// Package anthropic speaks Messages, as Anthropic does, as Amazon Bedrock and Google's
// Vertex AI do for the same models, and as servers compatible with it nearly do. It asks
// once: no retry, no redirect, no stream.
//
// The official SDK makes the request: path, version header, authentication. What is in
// the request is written here, since the blocks of earlier replies have to go back byte
// for byte, and what comes back is read here, from the bytes that the transport kept.
package anthropic

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Client asks one model.
type Client struct {
	*wire.Connection
	platform   platform
	sdk        sdk.Client
	model      string
	parameters parameters
}

var _ model.Client = (*Client)(nil)

// New checks the configuration. Its errors say what to change and hold no values.
func New(config wire.Config) (*Client, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	return c, nil
}

func newClient(config wire.Config) (*Client, error) {
	err := wire.CheckModel(config.Model)
	if err != nil {
		return nil, err
	}
	c := &Client{model: config.Model}
	if c.parameters, err = readParameters(config.Parameters); err != nil {
		return nil, err
	}
	if c.Connection, err = wire.Connect(config); err != nil {
		return nil, err
	}
	if c.platform, err = newPlatform(config, c.Connection); err != nil {
		return nil, err
	}
	c.sdk = sdk.NewClient(sdkOptions()...)
	return c, nil
}

// foreignHeaders are what the SDK tells about the machine that it runs on.
var foreignHeaders = []string{
	"X-Stainless-Arch", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version", "X-Stainless-Retry-Count",
	"X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout",
}

// sdkOptions takes everything from the SDK that is not the request itself: what it reads
// from the environment, its retries, its spans.
func sdkOptions() []option.RequestOption {
	options := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),
		option.WithHeader("User-Agent", "pawl"),
	}
	for _, name := range foreignHeaders {
		options = append(options, option.WithHeaderDel(name))
	}
	return options
}

// Decide implements model.Client.
func (c *Client) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	body, err := c.Encode(request)
	if err != nil {
		return model.Reply{}, wire.NotEncodable(err)
	}
	grant, failure := c.platform.authorize(ctx, body)
	if failure != nil {
		return model.Reply{}, failure
	}
	response, failure := c.Exchange(ctx, func(ctx context.Context, once http.RoundTripper) error {
		return c.send(ctx, once, body, grant)
	})
	if failure != nil {
		return model.Reply{}, failure
	}
	if response.Status == http.StatusUnauthorized && grant.forget != nil {
		grant.forget()
	}
	reply, failure := Interpret(response, request)
	for _, secret := range grant.secrets {
		wire.Scrub(&reply, secret)
		if failure != nil {
			wire.ScrubError(failure, secret)
		}
	}
	if failure != nil {
		return model.Reply{}, failure
	}
	return reply, nil
}

func (c *Client) send(ctx context.Context, once http.RoundTripper, body []byte, grant grant) error {
	options := []option.RequestOption{option.WithHTTPClient(&http.Client{
		Transport: once,
		// A redirect is an answer: following it would send the conversation elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})}
	if c.platform.versionInBody() {
		options = append(options, option.WithHeaderDel("Anthropic-Version"))
	} else if len(c.parameters.betas) > 0 {
		options = append(options, option.WithHeader("Anthropic-Beta", strings.Join(c.parameters.betas, ",")))
	}
	options = append(options, grant.options...)
	return c.sdk.Post(ctx, c.platform.url(), body, nil, options...)
}
