package mcptool

import (
	"context"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pawl-run/pawl/internal/tool/transport"
)

// session is an agreement with a server on a revision, and in the older ones on a
// session id.
type session struct {
	id      string
	version string
	// known is true where the server is known to speak the revision.
	known bool
	// place whose credentials it was opened with.
	place *place
	// sdk and gate are nil in the current revision, where nothing is opened.
	sdk  *mcp.ClientSession
	gate *handshake
}

func (s *session) modern() bool { return s.version >= modernVersion }

// end tells the server that the session is over.
func (s *session) end() {
	if s.sdk != nil {
		_ = s.sdk.Close() // nobody can do anything about a session that won't end
	}
}

// lost ends the session on this side alone.
func (s *session) lost() {
	if s.gate != nil {
		s.gate.shut()
	}
	s.end()
}

// session gives what requests are made in. In the current revision, and as long as
// nothing speaks against it, that takes no request.
func (v *visit) session(ctx context.Context) (*session, error) {
	if v.version == "" || v.version >= modernVersion {
		return &session{version: modernVersion, known: v.version != "", place: v.place}, nil
	}
	select {
	case v.opening <- struct{}{}:
		defer func() { <-v.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	v.mu.Lock()
	current := v.current
	v.mu.Unlock()
	if current != nil && current.place == v.place {
		return current, nil
	}
	opened, err := v.open(transport.WithGate(ctx, nil))
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.current = opened
	v.mu.Unlock()
	if current != nil {
		current.end()
	}
	return opened, nil
}

// forget drops a session that the server doesn't know any more.
func (s *Server) forget(current *session) {
	s.mu.Lock()
	if s.current == current {
		s.current = nil
	}
	s.mu.Unlock()
	current.lost()
}

// open agrees on a session.
func (v *visit) open(ctx context.Context) (opened *session, err error) {
	gate := &handshake{visit: v}
	defer func() {
		// The SDK decodes what a server sent. If that panics the server is at fault.
		if r := recover(); r != nil {
			opened, err = nil, &handshakeError{"its answer to the handshake can't be read"}
		}
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: clientName, Version: clientVersion}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	sdk, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: v.endpoint.String(),
		HTTPClient: &http.Client{
			Transport:     gate,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxRetries:           -1,
		DisableStandaloneSSE: true,
		MaxEventSize:         maxHandshakeBytes,
	}, &mcp.ClientSessionOptions{ProtocolVersion: v.version})
	if err != nil {
		return nil, gate.explain(ctx, err)
	}
	opened = &session{id: sdk.ID(), version: sdk.InitializeResult().ProtocolVersion, known: true, place: v.place, sdk: sdk, gate: gate}
	if strings.ContainsAny(opened.id, "\r\n\x00") {
		opened.lost()
		return nil, &handshakeError{"its session id is not valid"}
	}
	return opened, nil
}
