package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// gate stands between the operator and the API server. It can end the operator at its
// writes to one namespace.
type gate struct {
	server   *httptest.Server
	target   *url.URL
	passing  *httputil.ReverseProxy
	upstream http.RoundTripper
	// token is added to requests: kubeconfigs carry none to where there is no TLS.
	token string
	kill  func()

	// mu lets one write through at a time.
	mu sync.Mutex
	// namespace whose writes are watched, empty for none.
	namespace string
	how       manner
	spares    func(write) bool
	// passed counts the writes of this life, dead is true from its end on. past are the places
	// where earlier lives ended: no two end at the same one, or nothing would go on.
	passed int
	dead   bool
	past   map[write]bool
	ended  chan write
}

// manner is how a life ends.
type manner string

const (
	// unheard carries out a life's first write and ends it before it hears so.
	unheard manner = "its first write is done, unheard"
	// undone lets one write through and ends the life at the next, which is not done.
	undone manner = "its second write is not done"
)

// write is one request that changes something: of a journal the last event and how many
// decisions come with it.
type write struct {
	method, resource, event string
	decisions               int
}

// String names the place in the operator that writes.
func (w write) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", w.method, w.resource, w.event))
}

func openGate(config *rest.Config) *gate {
	GinkgoHelper()
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	anonymous := rest.AnonymousClientConfig(config)
	upstream, err := rest.TransportFor(anonymous)
	Expect(err).NotTo(HaveOccurred())
	g := &gate{target: target, upstream: upstream, token: config.BearerToken, ended: make(chan write, 1)}
	g.passing = httputil.NewSingleHostReverseProxy(target)
	g.passing.Transport, g.passing.FlushInterval = upstream, -1
	// A request that its sender's end has cut off is no news.
	g.passing.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	g.server = httptest.NewServer(g)
	return g
}

func (g *gate) close() {
	g.server.CloseClientConnections()
	g.server.Close()
}

func (g *gate) url() string { return g.server.URL }

// watch ends the operator at its writes to a namespace from now on, but for those that are
// spared.
func (g *gate) watch(namespace string, how manner, spares func(write) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.namespace, g.how, g.spares, g.passed, g.dead, g.past = namespace, how, spares, 0, false, map[write]bool{}
}

// leave lets everything through again.
func (g *gate) leave() { g.watch("", "", nil) }

// born says that the next life begins.
func (g *gate) born() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed, g.dead = 0, false
}

var (
	path      = regexp.MustCompile(`^/apis?/(?:[^/]+/)?[^/]+/namespaces/([^/]+)/([^/]+)(?:/[^/]+(?:/([^/]+))?)?$`)
	eventType = regexp.MustCompile(`\\?"type\\?":\\?"([A-Z][A-Za-z]+)\\?"`)
)

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Authorization", "Bearer "+g.token)
	parts := path.FindStringSubmatch(r.URL.Path)
	if r.Method == http.MethodGet || parts == nil || !g.watches(parts[1], parts[2]) {
		g.passing.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	seen := recognise(r.Method, parts[2], parts[3], body)
	g.mu.Lock()
	defer g.mu.Unlock()
	spared := g.past[seen] || g.spares != nil && g.spares(seen)
	switch {
	case g.dead:
		panic(http.ErrAbortHandler)
	case g.how == undone && g.passed > 0 && !spared:
		g.end(seen)
		panic(http.ErrAbortHandler)
	}
	response := g.carryOut(r, body)
	g.passed++
	if g.how == unheard && !spared {
		g.end(seen)
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
	_ = response.Body.Close()
}

// recognise names the place that a request comes from.
func recognise(method, resource, subresource string, body []byte) write {
	seen := write{method: method, resource: resource}
	if subresource != "" {
		seen.resource += "/" + subresource
	}
	if found := eventType.FindAllSubmatch(body, -1); resource == "configmaps" && len(found) > 0 {
		seen.event = string(found[len(found)-1][1])
		seen.decisions = bytes.Count(body, []byte("DecisionMade"))
	}
	return seen
}

func (g *gate) watches(namespace, resource string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.namespace == namespace && resource != "events"
}

func (g *gate) end(at write) {
	g.kill()
	g.dead, g.past[at] = true, true
	g.ended <- at
}

// carryOut sends a request whether or not its sender lives to hear the answer.
func (g *gate) carryOut(r *http.Request, body []byte) *http.Response {
	request := r.Clone(context.WithoutCancel(r.Context()))
	request.URL.Scheme, request.URL.Host, request.Host, request.RequestURI = g.target.Scheme, g.target.Host, g.target.Host, ""
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := g.upstream.RoundTrip(request)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return response
}
