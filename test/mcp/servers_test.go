package mcp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
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

// nodeServer is the server of a Node package in its network namespace.
type nodeServer struct {
	*spy
	dir       string
	arguments []string
	end       func()
}

// newNodeServer runs a script of the packages in npm.
func newNodeServer(ctx context.Context, script string, arguments ...string) *nodeServer {
	GinkgoHelper()
	path := scriptOf(ctx, script)
	s := &nodeServer{dir: GinkgoT().TempDir(), arguments: append([]string{path}, arguments...)}
	var err error
	if s.end, err = s.start(ctx); err != nil {
		Skip("a server of an npm package can't run here: " + err.Error())
	}
	DeferCleanup(func() { s.end() })
	dialer := &net.Dialer{}
	s.spy = newSpy("127.0.0.1:"+guestPort, &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", filepath.Join(s.dir, socketName))
	}})
	DeferCleanup(s.stop)
	return s
}

// scriptOf gives the path of a script below node_modules.
func scriptOf(ctx context.Context, script string) string {
	GinkgoHelper()
	path, err := npm.Script(ctx, "npm", "mcp", script)
	if err != nil {
		Skip("the MCP servers of npm packages can't be had here: " + err.Error())
	}
	return path
}

// newStdioServer runs a script that speaks MCP over its standard input and output, behind
// a proxy that speaks it over HTTP. The variable is one of its environment, as NAME=value.
func newStdioServer(ctx context.Context, variable, script string, arguments ...string) *nodeServer {
	GinkgoHelper()
	command := strings.Join(append([]string{"env", variable, "node", scriptOf(ctx, script)}, arguments...), " ")
	return newNodeServer(ctx, "supergateway/dist/index.js", "--stdio", command, "--outputTransport", "streamableHttp", "--port", guestPort, "--logLevel", "none")
}

func (s *nodeServer) start(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return startGuest(ctx, s.dir, s.arguments, GinkgoWriter)
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

// everythingServer is the Go SDK's own server for conformance tests, without sessions.
type everythingServer struct {
	*spy
	program, address string
	stop             func()
}

func newEverythingServer(ctx context.Context) *everythingServer {
	GinkgoHelper()
	s := &everythingServer{program: filepath.Join(GinkgoT().TempDir(), "everything-server")}
	build := exec.CommandContext(ctx, "go", "build", "-o", s.program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	output, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	s.address = listener.Addr().String()
	Expect(listener.Close()).To(Succeed())
	s.start(ctx)
	DeferCleanup(func() { s.stop() })
	s.spy = newSpy(s.address, http.DefaultTransport)
	DeferCleanup(s.spy.stop)
	return s
}

func (s *everythingServer) start(ctx context.Context) {
	GinkgoHelper()
	command := exec.Command(s.program, "-http="+s.address, "-stateless")
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(command.Start()).To(Succeed())
	s.stop = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	dialer := &net.Dialer{}
	Eventually(func() error {
		conn, err := dialer.DialContext(ctx, "tcp", s.address)
		if err == nil {
			err = conn.Close()
		}
		return err
	}).WithContext(ctx).WithTimeout(10 * time.Second).Should(Succeed())
}

// loseSessions starts the server anew.
func (s *everythingServer) loseSessions(ctx context.Context) {
	GinkgoHelper()
	s.stop()
	s.start(ctx)
}
