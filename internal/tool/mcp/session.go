package mcptool

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// session is an agreement with a server on a revision, and in the older ones on a
// session id.
type session struct {
	id      string
	version string
	sdk     *mcp.ClientSession
	gate    *handshake

	mu   sync.Mutex
	busy int
	idle *time.Timer
}

func (s *session) modern() bool { return s.version >= modernVersion }

// end tells the server that the session is over.
func (s *session) end() {
	s.mu.Lock()
	if s.idle != nil {
		s.idle.Stop()
	}
	s.mu.Unlock()
	_ = s.sdk.Close() // nobody can do anything about a session that won't end
}

// lost ends the session on this side alone.
func (s *session) lost() {
	s.gate.shut()
	s.end()
}

// acquire gives the current session, or opens one; fresh says that it was opened
// just now. Each session acquired has to be released.
func (s *Server) acquire(ctx context.Context) (current *session, fresh bool, err error) {
	if current := s.use(); current != nil {
		return current, false, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if current := s.use(); current != nil {
		return current, false, nil
	}
	opened, err := s.open(ctx)
	if err != nil {
		return nil, false, err
	}
	opened.busy = 1
	s.mu.Lock()
	s.current, s.version = opened, opened.version
	s.mu.Unlock()
	return opened, true, nil
}

// use counts the caller in, if there is a session.
func (s *Server) use() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.current
	if current == nil {
		return nil
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	current.busy++
	if current.idle != nil {
		current.idle.Stop()
	}
	return current
}

// release counts the caller out. The last one starts the clock after which the
// session ends.
func (s *Server) release(current *session) {
	current.mu.Lock()
	defer current.mu.Unlock()
	current.busy--
	if current.busy > 0 {
		return
	}
	if current.idle != nil {
		current.idle.Stop()
	}
	current.idle = time.AfterFunc(idleTimeout, func() { s.expire(current) })
}

// expire ends a session that is not in use.
func (s *Server) expire(current *session) {
	s.mu.Lock()
	current.mu.Lock()
	idle := current.busy == 0 && s.current == current
	if idle {
		s.current = nil
	}
	current.mu.Unlock()
	s.mu.Unlock()
	if idle {
		current.end()
	}
}

// forget drops a session that the server doesn't know any more, and what was known
// of the server's revision with it.
func (s *Server) forget(current *session) {
	s.mu.Lock()
	if s.current == current {
		s.current, s.version = nil, ""
	}
	s.mu.Unlock()
	current.lost()
}

// open finds out what the server speaks and agrees on a session.
func (s *Server) open(ctx context.Context) (opened *session, err error) {
	gate := &handshake{client: s.client}
	defer func() {
		// The SDK decodes what a server sent. If that panics the server is at fault.
		if r := recover(); r != nil {
			opened, err = nil, &handshakeError{"its answer to the handshake can't be read"}
		}
	}()
	s.mu.Lock()
	hint := s.version
	s.mu.Unlock()
	if hint >= modernVersion {
		hint = "" // the newest is tried first anyway
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "pawl", Version: "v1alpha1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	sdk, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: s.endpoint,
		HTTPClient: &http.Client{
			Transport:     gate,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxRetries:           -1,
		DisableStandaloneSSE: true,
		MaxEventSize:         maxHandshakeBytes,
	}, &mcp.ClientSessionOptions{ProtocolVersion: hint})
	if err != nil {
		s.mu.Lock()
		s.version = ""
		s.mu.Unlock()
		return nil, gate.explain(ctx, err)
	}
	opened = &session{id: sdk.ID(), version: sdk.InitializeResult().ProtocolVersion, sdk: sdk, gate: gate}
	if strings.ContainsAny(opened.id, "\r\n\x00") {
		opened.lost()
		return nil, &handshakeError{"its session id is not valid"}
	}
	return opened, nil
}

// handshakeError says why there is no session. Its text is ours.
type handshakeError struct{ text string }

func (e *handshakeError) Error() string { return "no MCP session: " + e.text }

// statusError is an HTTP status that is no success.
type statusError struct{ status int }

func (e *statusError) Error() string {
	text := "the server answered with HTTP " + fmt.Sprint(e.status)
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		text = fmt.Sprintf("the server refused the credentials it was given (HTTP %d)", e.status)
	case e.status >= 300 && e.status < 400:
		text += ", a redirect, which is never followed: correct the server's url"
	case e.status == http.StatusNotFound || e.status == http.StatusMethodNotAllowed:
		text += ": check that the server's url is its MCP endpoint"
	}
	return text
}

// fault is an error whose text is ours: it quotes nothing that a server sent.
type fault string

func (f fault) Error() string { return string(f) }

const (
	errUnreadable = fault("its answer is not a valid MCP message")
	errTooLarge   = fault("its answer is too large")
	errNoReply    = fault("its answer ended without a reply")
	errNotResumed = fault("its answer broke off and could not be taken up again")
	errClosed     = fault("the session is gone")
)
