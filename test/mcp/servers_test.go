package mcp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/npm"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// server is an MCP server with everything about it that a spec wants to know.
type server interface {
	// requests, calls, sessions and the rest of it come from the spy before it.
	requests() []seen
	calls() []string
	sessions() []string
	// loseSessions makes the server forget every session.
	loseSessions(ctx context.Context)
}

// sdkServer is the Go SDK's server, with sessions and without.
type sdkServer struct {
	*spy
	current atomic.Pointer[toolserver.Server]
}

func newSDKServer() *sdkServer {
	s := &sdkServer{}
	s.current.Store(toolserver.New())
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.current.Load().ServeHTTP(w, r) }))
	DeferCleanup(func() {
		backend.CloseClientConnections()
		backend.Close()
	})
	s.spy = newSpy(backend.Listener.Addr().String(), http.DefaultTransport)
	DeferCleanup(s.stop)
	return s
}

// loseSessions puts a new server in the place of the old one.
func (s *sdkServer) loseSessions(context.Context) { s.current.Store(toolserver.New()) }

// nodeServer is the Node package's server in its network namespace.
type nodeServer struct {
	*spy
	dir, script string
	end         func()
}

func newNodeServer(ctx context.Context) *nodeServer {
	GinkgoHelper()
	script, err := npm.Script(ctx, "npm", "mcp", "@modelcontextprotocol/server-everything/dist/index.js")
	if err != nil {
		Skip("the MCP server of the npm package server-everything can't be had here: " + err.Error())
	}
	s := &nodeServer{dir: GinkgoT().TempDir(), script: script}
	if s.end, err = s.start(ctx); err != nil {
		Skip("the MCP server of the npm package server-everything can't run here: " + err.Error())
	}
	DeferCleanup(func() { s.end() })
	dialer := &net.Dialer{}
	s.spy = newSpy("127.0.0.1:"+guestPort, &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", filepath.Join(s.dir, socketName))
	}})
	DeferCleanup(s.stop)
	return s
}

func (s *nodeServer) start(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return startGuest(ctx, s.dir, s.script, GinkgoWriter)
}

// loseSessions starts the server anew.
func (s *nodeServer) loseSessions(ctx context.Context) {
	GinkgoHelper()
	s.end()
	s.end = func() {}
	end, err := s.start(ctx)
	Expect(err).NotTo(HaveOccurred())
	s.end = end
}
