package transport

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errSealed = errors.New("the request was given up before it was sent")

// Sending follows one request through the socket.
type Sending struct {
	gate func() error
	// tokenRefused is true for an answer 401 to an access token that was forgotten then.
	tokenRefused bool

	mu       sync.Mutex
	sealed   bool
	started  bool
	writing  int
	written  int64
	gateFail error
}

// MayHaveArrived says whether any byte of the request may have reached the other
// side. It also ends the sending: what has not been written by then never will be,
// so a false is final.
func (s *Sending) MayHaveArrived() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
	return s.writing > 0 || s.written > 0
}

// Refused is the error of the gate that kept the request from being sent.
func (s *Sending) Refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateFail
}

// TokenRefused says whether the service refused the access token. Another attempt is made
// with a new one.
func (s *Sending) TokenRefused() bool { return s.tokenRefused }

// begin asks leave to write.
func (s *Sending) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed {
		return errSealed
	}
	if !s.started && s.gate != nil {
		if err := s.gate(); err != nil {
			s.sealed, s.gateFail = true, err
			return err
		}
	}
	s.started = true
	s.writing++
	return nil
}

func (s *Sending) end(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing--
	s.written += int64(n)
}

// conn reports what is written to the request that uses it. Under TLS it wraps the
// encrypted connection, so that a handshake counts for nothing: a record that was
// not written completely can't be read by the other side.
type conn struct {
	net.Conn

	mu  sync.Mutex
	use *Sending
}

func (c *conn) assign(s *Sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use = s
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	s := c.use
	c.mu.Unlock()
	if s == nil {
		return 0, errSealed
	}
	if err := s.begin(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	s.end(n)
	return n, err
}

type gateKey struct{}

// WithGate makes requests under ctx ask gate immediately before their first byte is
// written. An error means that nothing is sent.
func WithGate(ctx context.Context, gate func() error) context.Context {
	return context.WithValue(ctx, gateKey{}, gate)
}

// GateOf is the gate that WithGate put into ctx, nil for none. A socket of another kind
// than this package's has to ask it in the same place.
func GateOf(ctx context.Context) func() error {
	gate, _ := ctx.Value(gateKey{}).(func() error)
	return gate
}
