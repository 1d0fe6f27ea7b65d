package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
)

// seen is one request with the status of its answer, 0 before there is one.
type seen struct {
	// method is the JSON-RPC method, tool the tool of tools/call.
	method, tool string
	session      string
	status       int
}

// spy passes requests on to a server and remembers them.
type spy struct {
	*httptest.Server

	mu   sync.Mutex
	list []seen
	// before sees each request before the server does, where it is set.
	before func(seen)
}

func newSpy(target string, transport http.RoundTripper) *spy {
	s := &spy{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: target})
		},
		Transport:     transport,
		FlushInterval: -1,
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct {
			Method string `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		_ = json.Unmarshal(body, &message) // what is no message has no method
		entry := seen{method: message.Method, tool: message.Params.Name, session: r.Header.Get("Mcp-Session-Id")}
		s.announce(entry)
		proxy.ServeHTTP(&statusRecorder{ResponseWriter: w, note: s.add(entry)}, r)
	}))
	return s
}

// intercept sets what sees each request before the server does.
func (s *spy) intercept(before func(seen)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *spy) announce(entry seen) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(entry)
	}
}

// add remembers a request and gives what notes its status.
func (s *spy) add(entry seen) func(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, entry)
	n := len(s.list) - 1
	return func(status int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list[n].status = status
	}
}

func (s *spy) stop() {
	s.CloseClientConnections()
	s.Close()
}

// requests are those that came so far.
func (s *spy) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// sessions are the ids under which tools were called.
func (s *spy) sessions() []string {
	var ids []string
	for _, r := range s.requests() {
		if r.method == "tools/call" {
			ids = append(ids, r.session)
		}
	}
	return ids
}

// calls are the tools whose calls were taken.
func (s *spy) calls() []string {
	var tools []string
	for _, r := range s.requests() {
		if r.method == "tools/call" && r.status == http.StatusOK {
			tools = append(tools, r.tool)
		}
	}
	return tools
}

// statusRecorder notes the status before anybody else can see it.
type statusRecorder struct {
	http.ResponseWriter
	note func(status int)
}

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(status int) {
	r.note(status)
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the real writer.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
