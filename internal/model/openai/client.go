// Package openai speaks Chat Completions, as OpenAI does and as the many servers that
// are compatible with it nearly do. It asks once: no retry, no redirect, no stream.
//
// Two kinds of strictness meet here. What is sent is what the strictest server
// accepts; what comes back is read as the sloppiest server writes it, but never
// guessed at: a reply that does not make sense as a whole runs nothing.
package openai

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pawl-run/pawl/internal/model"
)

// maxErrorBytes bounds what is read of an error's body.
const maxErrorBytes = 256 << 10

// errTimeout tells our own time limit from the caller's.
var errTimeout = errors.New("the request took longer than its timeout")

// Client asks one model.
type Client struct {
	transport          http.RoundTripper
	url                string
	model              string
	limitMember        string
	limitsDescriptions bool
	parameters         object
	apiKey             func() (string, error)
	timeout            time.Duration
	maxReplyBytes      int64
	now                func() time.Time
}

var _ model.Client = (*Client)(nil)

// New checks the configuration. Its errors say what to change and hold no values.
func New(config Config) (*Client, error) {
	if config.Model == "" {
		return nil, errors.New("configuring a model client: the model has no name")
	}
	url, err := requestURL(config.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	parameters, err := parseParameters(config.Parameters)
	if err != nil {
		return nil, fmt.Errorf("configuring a model client: %w", err)
	}
	transport := config.Transport
	if transport == nil {
		if transport, err = newTransport(config.CABundle); err != nil {
			return nil, fmt.Errorf("configuring a model client: %w", err)
		}
	}
	c := &Client{
		transport:          transport,
		url:                url,
		model:              config.Model,
		limitMember:        outputLimitMember(config.Model),
		limitsDescriptions: limitsDescriptions(url),
		parameters:         parameters,
		apiKey:             config.APIKey,
		timeout:            config.Timeout,
		maxReplyBytes:      config.MaxReplyBytes,
		now:                config.Now,
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	if c.maxReplyBytes <= 0 {
		c.maxReplyBytes = DefaultMaxReplyBytes
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}

// systemTransport is shared by all clients that trust the system's certificates, so
// that a client may be built for a single request and still find a kept connection.
var systemTransport = sync.OnceValue(func() *http.Transport { return transportWith(nil) })

func newTransport(caBundle []byte) (http.RoundTripper, error) {
	if len(caBundle) == 0 {
		return systemTransport(), nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caBundle) {
		return nil, errors.New("the CA bundle holds no PEM certificate")
	}
	return transportWith(pool), nil
}

// transportWith trusts the pool, or the system's certificates if it is nil.
func transportWith(pool *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
	}
}

// CloseIdleConnections lets go of connections that are not in use. A client with a CA
// bundle or a transport of its own is done with by calling it; otherwise they close by
// themselves half a minute after their last use.
func (c *Client) CloseIdleConnections() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Decide implements model.Client.
func (c *Client) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	body, err := c.Encode(request)
	if err != nil {
		return model.Reply{}, &model.Error{Class: model.ClassRequest, Code: "not_encodable", Detail: err.Error()}
	}
	key, failure := c.key()
	if failure != nil {
		return model.Reply{}, failure
	}
	response, failure := c.send(ctx, body, key)
	if failure != nil {
		return model.Reply{}, failure
	}
	if int64(len(response.Body)) > c.maxReplyBytes {
		return malformed("it is larger than a reply may be"), nil
	}
	reply, failure := Interpret(response, request)
	if failure != nil {
		failure.Code = withoutSecret(failure.Code, key)
		return model.Reply{}, failure
	}
	reply.RequestID = withoutSecret(reply.RequestID, key)
	reply.StopReason = withoutSecret(reply.StopReason, key)
	return reply, nil
}

// key reads the API key. Secrets often end in a newline that nobody meant.
func (c *Client) key() (string, *model.Error) {
	if c.apiKey == nil {
		return "", nil
	}
	refused := func(detail string) *model.Error {
		return &model.Error{Class: model.ClassUnauthorized, Code: "no_api_key", Detail: detail}
	}
	key, err := c.apiKey()
	if err != nil {
		return "", refused("the API key could not be read")
	}
	key = strings.TrimSpace(key)
	if key == "" {
		return "", refused("the API key is empty")
	}
	if strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return "", refused("the API key has characters that no header can carry")
	}
	return key, nil
}

// withoutSecret drops a word that holds the key: some servers quote it.
func withoutSecret(word, key string) string {
	const telling = 8
	if len(key) >= telling && (strings.Contains(word, key) || (len(word) >= telling && strings.Contains(key, word))) {
		return ""
	}
	return word
}

// send makes the one attempt and reads the whole answer.
func (c *Client) send(parent context.Context, body []byte, key string) (Response, *model.Error) {
	if parent.Err() != nil {
		return Response{}, failed(parent, parent, parent.Err(), false, 0)
	}
	ctx, cancel := context.WithTimeoutCause(parent, c.timeout, errTimeout)
	defer cancel()
	ctx, sent := watchSending(ctx, c.transport)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return Response{}, &model.Error{Class: model.ClassRequest, Code: "not_encodable", Detail: "the endpoint can't be requested"}
	}
	// Without it no library below can send the request a second time.
	request.GetBody = nil
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "pawl")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	// The transport alone, since http.Client follows redirects: that would send the
	// conversation, and perhaps the key, somewhere else. A redirect is an answer.
	answer, err := c.transport.RoundTrip(request)
	if err != nil {
		return Response{}, failed(parent, ctx, err, sent(), 0)
	}
	defer func() { _ = answer.Body.Close() }()
	response := Response{Status: answer.StatusCode, Header: answer.Header, ReceivedAt: c.now()}
	if response.Status < 200 || response.Status >= 300 {
		// The status alone says most of it, so a body that breaks off is no matter.
		response.Body, _ = io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes))
		if context.Cause(ctx) != nil && parent.Err() != nil {
			return Response{}, failed(parent, ctx, context.Cause(ctx), true, response.Status)
		}
		return response, nil
	}
	response.Body, err = io.ReadAll(io.LimitReader(answer.Body, c.maxReplyBytes+1))
	if err != nil {
		return Response{}, failed(parent, ctx, err, true, response.Status)
	}
	return response, nil
}
