package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
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

// Connection reaches one provider. It sends each request once: no retry, no redirect.
type Connection struct {
	transport     http.RoundTripper
	apiKey        func() (string, error)
	timeout       time.Duration
	maxReplyBytes int64
	now           func() time.Time
}

// Connect prepares a connection. Nothing is sent yet.
func Connect(config Config) (*Connection, error) {
	transport := config.Transport
	if transport == nil {
		var err error
		if transport, err = newTransport(config.CABundle); err != nil {
			return nil, err
		}
	}
	c := &Connection{
		transport: transport, apiKey: config.APIKey,
		timeout: config.Timeout, maxReplyBytes: config.MaxReplyBytes, now: config.Now,
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

// CloseIdleConnections lets go of connections that are not in use. A connection with a
// CA bundle or a transport of its own is done with by calling it; otherwise they close
// by themselves half a minute after their last use.
func (c *Connection) CloseIdleConnections() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Transport is for requests beside the one to the model, such as fetching a token.
func (c *Connection) Transport() http.RoundTripper { return c.transport }

// Now is the time, by the configured clock.
func (c *Connection) Now() time.Time { return c.now() }

// Key reads the API key, empty where there is none to read. Secrets often end in a
// newline that nobody meant.
func (c *Connection) Key() (string, *model.Error) {
	key, failure := c.Credential()
	if failure == nil && !FitsHeader(key) {
		return "", Unauthorized("the API key has characters that no header can carry")
	}
	return key, failure
}

// FitsHeader reports whether a header can carry a key or token.
func FitsHeader(key string) bool {
	return strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Credential reads what the Secret holds where that is more than a key, such as a
// service account.
func (c *Connection) Credential() (string, *model.Error) {
	if c.apiKey == nil {
		return "", nil
	}
	key, err := c.apiKey()
	if err != nil {
		return "", Unauthorized("the API key could not be read")
	}
	key = strings.TrimSpace(key)
	if key == "" {
		return "", Unauthorized("the API key is empty")
	}
	return key, nil
}

// Unauthorized is a request that was not sent for want of a credential.
func Unauthorized(detail string) *model.Error {
	return &model.Error{Class: model.ClassUnauthorized, Code: "no_api_key", Detail: detail}
}

// NotEncodable is a request that could not be written down.
func NotEncodable(err error) *model.Error {
	return &model.Error{Class: model.ClassRequest, Code: "not_encodable", Detail: err.Error()}
}

// Send makes a request by means of a transport that works once. A client library may
// be between the two; what it makes of the answer is of no interest.
type Send func(ctx context.Context, once http.RoundTripper) error

// Exchange makes the one attempt and reads the whole answer.
func (c *Connection) Exchange(parent context.Context, send Send) (Response, *model.Error) {
	if parent.Err() != nil {
		return Response{}, failed(parent, parent, parent.Err(), false, 0)
	}
	ctx, cancel := context.WithTimeoutCause(parent, c.timeout, errTimeout)
	defer cancel()
	attempt := &once{connection: c, parent: parent, own: ctx}
	err := send(ctx, attempt)
	if attempt.used {
		return attempt.response, attempt.failure
	}
	var failure *model.Error
	switch {
	case errors.As(err, &failure):
		return Response{}, failure
	case context.Cause(ctx) != nil:
		return Response{}, failed(parent, ctx, context.Cause(ctx), false, 0)
	default:
		return Response{}, NotEncodable(errors.New("the request could not be built for this endpoint"))
	}
}

// once is a transport that makes one attempt and keeps the whole answer.
type once struct {
	connection  *Connection
	parent, own context.Context
	used        bool
	response    Response
	failure     *model.Error
}

var errUsed = errors.New("the one attempt is used up")

// RoundTrip implements http.RoundTripper. It is the transport alone, since http.Client
// follows redirects: that would send the conversation, and perhaps the key, somewhere
// else. A redirect is an answer.
func (o *once) RoundTrip(request *http.Request) (*http.Response, error) {
	if o.used {
		return nil, errUsed
	}
	o.used = true
	ctx, sent := watchSending(request.Context(), o.connection.transport)
	request = request.Clone(ctx)
	// Without it no library below can send the request a second time.
	request.GetBody = nil
	answer, err := o.connection.transport.RoundTrip(request)
	if err != nil {
		o.failure = failed(o.parent, o.own, err, sent(), 0)
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := o.read(answer); err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(strings.NewReader(string(o.response.Body)))
	return answer, nil
}

func (o *once) read(answer *http.Response) (err error) {
	limit := o.connection.maxReplyBytes
	o.response = Response{Status: answer.StatusCode, Header: answer.Header, ReceivedAt: o.connection.now()}
	if !o.response.Success() {
		// The status alone says most of it, so a body that breaks off is no matter.
		o.response.Body, _ = io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes))
		o.response.Body = bytes.TrimPrefix(o.response.Body, byteOrderMark)
		if o.parent.Err() != nil {
			o.failure = failed(o.parent, o.own, o.parent.Err(), true, o.response.Status)
		}
		return o.parent.Err()
	}
	o.response.Body, err = io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err != nil {
		o.failure = failed(o.parent, o.own, err, true, o.response.Status)
		o.failure.Cut = true
		return err
	}
	o.response.TooLarge = int64(len(o.response.Body)) > limit
	o.response.Body = bytes.TrimPrefix(o.response.Body, byteOrderMark)
	return nil
}
