package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/pawl-run/pawl/internal/tool/transport"
)

// discover does what an administrator does who fills in oauth in a ToolPolicy: reads in
// the server's metadata where tokens are had. The operator itself follows no such trail: a
// server must not choose who sees its client's secret.
func discover(ctx context.Context, server, id, secret string) (*transport.OAuth, error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	var resource struct {
		Resource             string   `json:"resource"`
		AuthorizationServers []string `json:"authorization_servers"`
	}
	if err := read(ctx, "http://"+at.Host+"/.well-known/oauth-protected-resource"+at.Path, &resource); err != nil {
		return nil, err
	}
	if len(resource.AuthorizationServers) == 0 {
		return nil, fmt.Errorf("the server names no authorization server")
	}
	issuer, err := url.Parse(resource.AuthorizationServers[0])
	if err != nil {
		return nil, err
	}
	var metadata struct {
		TokenEndpoint string `json:"token_endpoint"`
	}
	if err := read(ctx, "http://"+issuer.Host+"/.well-known/oauth-authorization-server"+issuer.Path, &metadata); err != nil {
		return nil, err
	}
	return &transport.OAuth{
		TokenURL: metadata.TokenEndpoint, Resource: resource.Resource, Tokens: transport.NewTokens(time.Now),
		Client: func() (string, string, error) { return id, secret, nil },
	}, nil
}

func read(ctx context.Context, from string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: HTTP %d", from, resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}
