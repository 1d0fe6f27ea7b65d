package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	// idleTimeout stays below what common servers allow (Node closes after 5 s), so
	// that a kept connection is rarely found broken.
	idleTimeout       = 4 * time.Second
	maxHeaderBytes    = 64 << 10
	maxIdlePerService = 16
)

// ErrHeaders wraps what the function for configured headers reports.
var ErrHeaders = errors.New("the configured headers can't be read")

// Options of a Client.
type Options struct {
	// Headers gives the configured headers; it is asked for every request, so that a
	// rotated Secret takes effect. Nil means none.
	Headers func() (http.Header, error)
	// CABundle holds PEM certificates trusted instead of the system's.
	CABundle []byte
}

// Client sends requests to one service.
type Client struct {
	headers func() (http.Header, error)
	// kept reuses connections; fresh opens one for each request.
	kept, fresh *http.Transport
}

// New makes a client. It opens no connection.
func New(o Options) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(o.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(o.CABundle) {
			return nil, errors.New("the CA bundle holds no usable certificate: give PEM blocks of type CERTIFICATE")
		}
	}
	return &Client{headers: o.Headers, kept: newTransport(config, true), fresh: newTransport(config, false)}, nil
}

func newTransport(config *tls.Config, keep bool) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: plain}, nil
	}
	dialTLS := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
		defer cancel()
		secure, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: secure}, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            dial,
		DialTLSContext:         dialTLS,
		DisableKeepAlives:      !keep,
		DisableCompression:     true,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdlePerService,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              protocols,
	}
}

// Close closes connections that nobody uses.
func (c *Client) Close() {
	c.kept.CloseIdleConnections()
	c.fresh.CloseIdleConnections()
}

// Send sends req exactly once, with the configured headers below those it has, and
// follows no redirect. Where once is true nothing else ever uses its connection. The
// Sending is never nil. It is up to the caller to close the response's body.
func (c *Client) Send(req *http.Request, once bool) (*http.Response, *Sending, error) {
	sending := &Sending{gate: GateOf(req.Context())}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if used, ok := info.Conn.(*conn); ok {
			used.assign(sending)
		}
	}}
	req = req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	req.GetBody = nil
	if err := c.configure(req.Header); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, sending, err
	}
	transport := c.kept
	if once {
		transport = c.fresh
	}
	resp, err := transport.RoundTrip(req)
	return resp, sending, err
}

// configure adds the configured headers; what is set already stays.
func (c *Client) configure(header http.Header) error {
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "pawl")
	}
	if c.headers == nil {
		return nil
	}
	configured, err := c.headers()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHeaders, err)
	}
	for name, values := range configured {
		name = http.CanonicalHeaderKey(name)
		if _, ok := header[name]; ok || reserved(name) {
			continue
		}
		for _, value := range values {
			// Secrets made from files often end in a line break.
			value = strings.TrimRight(value, "\r\n")
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("%w: the value of %s holds a control character", ErrHeaders, name)
			}
			header.Add(name, value)
		}
	}
	return nil
}

// reserved names are set by the adapters or by net/http alone.
func reserved(name string) bool {
	switch name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Upgrade", "Expect":
		return true
	}
	return strings.HasPrefix(name, "Pawl-") || strings.HasPrefix(name, "Mcp-") || name == "Idempotency-Key"
}
