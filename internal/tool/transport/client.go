package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
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

// Options of a Client.
type Options struct {
	// Headers gives the configured headers; it is asked for every request, so that a
	// rotated Secret takes effect. Nil means none.
	Headers func() (http.Header, error)
	// OAuth adds an access token to every request. Nil means none.
	OAuth *OAuth
	// CABundle holds PEM certificates trusted instead of the system's.
	CABundle []byte
}

// Client sends requests to one service.
type Client struct {
	headers func() (http.Header, error)
	oauth   *OAuth
	// kept reuses connections; fresh opens one for each request, and so does tokens, to
	// the authorization server.
	kept, fresh, tokens *http.Transport
}

// New makes a client. It opens no connection.
func New(o Options) (*Client, error) {
	config, err := tlsConfig(o.CABundle)
	if err != nil {
		return nil, err
	}
	c := &Client{headers: o.Headers, oauth: o.OAuth, kept: newTransport(config, true), fresh: newTransport(config, false)}
	if o.OAuth != nil {
		config, err := tlsConfig(o.OAuth.CABundle)
		if err != nil {
			return nil, err
		}
		c.tokens = newTransport(config, false)
	}
	return c, nil
}

func tlsConfig(bundle []byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, errors.New("the CA bundle holds no usable certificate: give PEM blocks of type CERTIFICATE")
		}
	}
	return config, nil
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
	credentials, err := c.Credentials(req.Context())
	if err != nil {
		return unsent(req, err)
	}
	return c.SendAs(credentials, req, once)
}

// SendAs is Send with credentials that were read before.
func (c *Client) SendAs(credentials Credentials, req *http.Request, once bool) (*http.Response, *Sending, error) {
	req = req.Clone(req.Context())
	credentials.addTo(req.Header)
	transport := c.kept
	if once {
		transport = c.fresh
	}
	resp, sending, err := send(transport, req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized && credentials.token != "" && c.oauth.Tokens != nil {
		c.oauth.Tokens.forget(credentials.token)
		sending.tokenRefused = true
	}
	return resp, sending, err
}

// send sends req exactly once.
func send(transport *http.Transport, req *http.Request) (*http.Response, *Sending, error) {
	sending := &Sending{gate: GateOf(req.Context())}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if used, ok := info.Conn.(*conn); ok {
			used.assign(sending)
		}
	}}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	req.GetBody = nil
	resp, err := transport.RoundTrip(req)
	return resp, sending, err
}
