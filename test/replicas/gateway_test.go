package replicas

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// hook sees a request to a tool before the tool does. It may give a function that is
// called once the tool has answered, before the caller gets the answer. A request that
// does not go on reaches nobody, and an answer likewise.
type hook func(tool string, r *http.Request) (goOn bool, done func() (goOn bool))

// gateway stands before the tool server.
type gateway struct {
	*httptest.Server
	tools *toolserver.Server

	mu   sync.Mutex
	hook hook
}

func newGateway(tools *toolserver.Server) *gateway {
	g := &gateway{tools: tools}
	g.Server = httptest.NewServer(g)
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

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	h := g.hook
	g.mu.Unlock()
	if h == nil {
		g.tools.ServeHTTP(w, r)
		return
	}
	goOn, done := h(strings.Replace(strings.TrimPrefix(r.URL.Path, "/"), "/", ".", 1), r)
	if !goOn {
		panic(http.ErrAbortHandler)
	}
	if done == nil {
		g.tools.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	g.tools.ServeHTTP(answer, r)
	if !done() {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
