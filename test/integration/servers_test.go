package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"

	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// gateway stands before the tool server. It can hold answers back after the tool has
// done its work, which is how a crash finds an effect that nobody knows of.
type gateway struct {
	*httptest.Server
	tools *toolserver.Server

	mu   sync.Mutex
	held map[string]bool
}

func newGateway(tools *toolserver.Server) *gateway {
	g := &gateway{tools: tools, held: map[string]bool{}}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	tool := strings.Replace(strings.TrimPrefix(r.URL.Path, "/"), "/", ".", 1)
	g.mu.Lock()
	held := g.held[tool]
	g.mu.Unlock()
	if !held {
		g.tools.ServeHTTP(w, r)
		return
	}
	g.tools.ServeHTTP(httptest.NewRecorder(), r)
	<-r.Context().Done()
}

// hold keeps the answers of a tool back, or no longer; those held already stay held.
func (g *gateway) hold(tool string, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[tool] = held
}

func (g *gateway) stop() {
	g.CloseClientConnections()
	g.Close()
}

// lock is a tool that opens to who has the key.
type lock struct {
	*httptest.Server
	key atomic.Value
}

func newLock(key string) *lock {
	l := &lock{}
	l.change(key)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != l.key.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, `"opened"`)
	}))
	DeferCleanup(l.Close)
	return l
}

func (l *lock) change(key string) { l.key.Store(key) }

// blackHole takes every request and answers none.
type blackHole struct {
	*httptest.Server
}

func newBlackHole() *blackHole {
	b := &blackHole{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// Only after the body was read does the server notice that a client goes away.
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	return b
}

func (b *blackHole) stop() {
	b.CloseClientConnections()
	b.Close()
}
