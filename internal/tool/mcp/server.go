package mcptool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Options of a Server.
type Options struct {
	// URL of the MCP endpoint: http or https, without user or fragment.
	URL string
	// Connection says with what credentials and trust the server is reached.
	Connection transport.Options
	// Memory is shared by the Servers of a process, nil for one of its own.
	Memory *Memory
	// Capabilities that are declared to the server.
	Capabilities Capabilities
}

// Capabilities are what a server may ask of whoever calls it. What is not declared here a
// server must not use, and an answer that does is not followed.
type Capabilities struct {
	// Elicitation lets a call end with questions to people (tool.ClassInputRequired).
	Elicitation bool
	// Tasks lets a call end with the handle of a task (tool.ClassDeferred).
	Tasks bool
}

// Server is one MCP server. A session that it opens is shared by its calls and ends with
// Close, so runs that must not see each other's session need a Server each. Safe for
// concurrent use.
type Server struct {
	endpoint *url.URL
	// trust names the CA bundle: what was learned under one tells nothing under another.
	trust    string
	client   *transport.Client
	memory   *Memory
	declared Capabilities
	// ids makes the ids of requests, unique beyond this Server: an answer to a question
	// must not be sent under the id of the call that asked.
	ids   atomic.Int64
	nonce string

	// opening lets one caller at a time open a session.
	opening chan struct{}
	mu      sync.Mutex
	current *session
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
	if o.Memory == nil {
		o.Memory = NewMemory(time.Now)
	}
	trust := sha256.Sum256(o.Connection.CABundle)
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	return &Server{
		endpoint: endpoint, trust: hex.EncodeToString(trust[:]), client: client, memory: o.Memory, declared: o.Capabilities,
		nonce: hex.EncodeToString(nonce), opening: make(chan struct{}, 1),
	}, nil
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

// visit is one use of the server, with the credentials that were current when it began.
type visit struct {
	*Server
	credentials transport.Credentials
	place       *place
	// version is what the server is thought to speak, "" when that is to be found out.
	version string
}

// visit begins one. Neither it nor anything else before a call is what the right to send
// is about.
func (s *Server) visit(ctx context.Context) (*visit, error) {
	credentials, err := s.client.Credentials(transport.WithGate(ctx, nil))
	if err != nil {
		return nil, err
	}
	at := s.memory.place(s.endpoint.String()+" "+s.trust, credentials.Digest(s.memory.key))
	return &visit{Server: s, credentials: credentials, place: at, version: s.memory.version(at)}, nil
}
