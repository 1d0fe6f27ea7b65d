package crash

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// hook sees a request to a tool before the tool does, and again when the tool has
// answered, before the caller gets the answer. It says whether to go on; a request that
// does not go on reaches nobody, and an answer likewise.
type hook func(tool string, done bool) (goOn bool)

// gateway stands before the tool server.
type gateway struct {
	*httptest.Server
	tools *toolserver.Server

	mu   sync.Mutex
	hook hook
	// header must have the value key; others are refused and counted.
	header, key string
	refusals    int
}

func newGateway(tools *toolserver.Server) *gateway {
	g := &gateway{tools: tools}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	return g
}

func (g *gateway) stop() {
	g.CloseClientConnections()
	g.Close()
}

// use sets what sees the requests from now on, nil for nobody.
func (g *gateway) use(h hook) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = h
}

// require refuses requests without a header from now on; "" requires none.
func (g *gateway) require(header, key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.header, g.key = header, key
}

// refused counts the requests that were refused.
func (g *gateway) refused() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusals
}

func (g *gateway) admit(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.header == "" || r.Header.Get(g.header) == g.key {
		return true
	}
	g.refusals++
	return false
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	h := g.hook
	g.mu.Unlock()
	if !g.admit(r) {
		http.Error(w, "wrong key", http.StatusUnauthorized)
		return
	}
	if h == nil {
		g.tools.ServeHTTP(w, r)
		return
	}
	tool := strings.Replace(strings.TrimPrefix(r.URL.Path, "/"), "/", ".", 1)
	if !h(tool, false) {
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	g.tools.ServeHTTP(answer, r)
	if !h(tool, true) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
