package mcptool

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Options of a Server.
type Options struct {
	// URL of the MCP endpoint: http or https, without user or fragment.
	URL string
	// Connection says with what credentials and trust the service is reached.
	Connection transport.Options
}

// Server is one MCP server. It opens a session when it first needs one, shares it
// between its calls and replaces it when the server has forgotten it, so runs that
// must not see each other's session need a Server each. Safe for concurrent use.
type Server struct {
	endpoint string
	client   *transport.Client
	ids      atomic.Int64

	// opening lets one caller at a time open a session.
	opening chan struct{}

	mu      sync.Mutex
	current *session
	// version is what the server spoke last, "" when that is to be found out.
	version string
}

var _ tool.Server = (*Server)(nil)

// New makes a Server. It opens no connection.
func New(o Options) (*Server, error) {
	endpoint, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("url is not a valid URL: correct it")
	case endpoint.Scheme != "http" && endpoint.Scheme != "https", endpoint.Host == "":
		return nil, errors.New("url must be absolute and start with http:// or https://")
	case endpoint.User != nil, endpoint.Fragment != "":
		return nil, errors.New("url must have no user or fragment: remove them")
	}
	client, err := transport.New(o.Connection)
	if err != nil {
		return nil, err
	}
	return &Server{endpoint: endpoint.String(), client: client, opening: make(chan struct{}, 1)}, nil
}

// Close ends the session, if there is one. The Server stays usable.
func (s *Server) Close() {
	s.mu.Lock()
	current := s.current
	s.current = nil
	s.mu.Unlock()
	if current != nil {
		current.end()
	}
	s.client.Close()
}

// Call implements tool.Server. A request goes out a second time only where the first
// was refused because the server no longer knew the session.
func (s *Server) Call(ctx context.Context, call tool.Call) tool.Outcome {
	if !toolName.MatchString(call.Tool) {
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Message: "not sent: the tool's name is not one that MCP allows"}
	}
	for repaired := false; ; repaired = true {
		current, fresh, err := s.acquire(ctx)
		if err != nil {
			return noSession(ctx, call, err)
		}
		a := s.exchange(ctx, current, "tools/call", callParams(current, call), !call.Repeatable)
		s.release(current)
		if a.sessionLost(current) {
			s.forget(current)
			// A session with an id that the server does not know is lost even if it was opened
			// just now: one behind a balancer, say, or one that was restarted in between.
			if !repaired && (!fresh || current.id != "") {
				continue
			}
			if current.id != "" && a.status() == http.StatusNotFound {
				return forgetful(call)
			}
		}
		return outcome(ctx, call, a)
	}
}

// forgetful is the outcome of a call to a server that keeps losing its sessions.
func forgetful(call tool.Call) tool.Outcome {
	return tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: call.Repeatable,
		Message: "the server does not know the session that it has just opened (HTTP 404); nothing was done"}
}

// noSession is the outcome of a call that found no session to be made in.
func noSession(ctx context.Context, call tool.Call, err error) tool.Outcome {
	var refused *statusError
	if ctx.Err() == nil && errors.As(err, &refused) && (refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden) {
		return tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected, Message: "not sent: " + refused.Error() + "; an administrator has to correct the credentials"}
	}
	out := transport.NotSent(ctx, call, err)
	var handshake *handshakeError
	if out.Class == tool.ClassTransport && errors.As(err, &handshake) {
		out.Message = "not sent: " + handshake.Error() + "; nothing was done"
	}
	return out
}
