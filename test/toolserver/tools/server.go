// Package tools is the handler of the tool server: small HTTP and MCP tools that
// behave well, badly or slowly, and a ledger of every request that came.
//
//	POST   /<server>/<tool>  an HTTP tool
//	GET    /ledger           every request, oldest first
//	DELETE /ledger           forget everything, recorded refunds and counters included
//	GET    /effects/<key>    what became of the effect with that key
//	       /mcp              MCP without sessions
//	       /mcp-sessions     MCP with sessions
//	       /hostile/<name>   an MCP server that means harm
package tools

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// Entry is one request in the ledger.
type Entry struct {
	// Tool is the full name, <server>.<tool>.
	Tool string `json:"tool"`
	// Key, CallID, Attempt, Epoch, Run and RunUID are what the caller sent along.
	Key     string `json:"key"`
	CallID  string `json:"callId"`
	Attempt int64  `json:"attempt"`
	Epoch   int64  `json:"epoch"`
	Run     string `json:"run"`
	RunUID  string `json:"runUID"`
	// Time is when the request had been read.
	Time time.Time `json:"time"`
	// Arguments are the body.
	Arguments json.RawMessage `json:"arguments"`
	// Applied is true where the request changed something, which for refunds is the
	// first request with a key.
	Applied bool `json:"applied"`
	// Disconnected is true where the caller went away before the answer.
	Disconnected bool `json:"disconnected"`
	// Done is when the tool answered; nil while it runs.
	Done *time.Time `json:"done,omitempty"`
}

// Server is an http.Handler with its own state.
type Server struct {
	mux *http.ServeMux

	mu       sync.Mutex
	entries  []*Entry
	refunds  map[string]refund
	effects  map[string]effect
	looks    map[string]int
	counters map[string]int64
}

// New makes a Server with an empty ledger.
func New() *Server {
	s := &Server{mux: http.NewServeMux()}
	s.Reset()
	s.mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Ledger()) })
	s.mux.HandleFunc("DELETE /ledger", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	s.mux.HandleFunc("GET /effects/{key}", s.look)
	s.mux.HandleFunc("GET /slow/never", func(w http.ResponseWriter, _ *http.Request) { accept(w, request{}) })
	for name, handle := range s.httpTools() {
		s.mux.HandleFunc("POST /"+name, s.serve(name, handle))
	}
	s.mux.Handle("/mcp", s.mcpHandler(false))
	s.mux.Handle("/mcp-sessions", s.mcpHandler(true))
	s.mux.HandleFunc("/hostile/{name}", serveHostile)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusNotFound, failure{"no such tool: " + r.Method + " " + r.URL.Path})
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Ledger lists every request so far, oldest first.
func (s *Server) Ledger() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]Entry, len(s.entries))
	for i, e := range s.entries {
		entries[i] = *e
	}
	return entries
}

// Requests lists the requests to one tool.
func (s *Server) Requests(tool string) []Entry {
	return slices.DeleteFunc(s.Ledger(), func(e Entry) bool { return e.Tool != tool })
}

// Reset forgets everything.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.refunds, s.counters = nil, map[string]refund{}, map[string]int64{}
	s.effects, s.looks = map[string]effect{}, map[string]int{}
}

// record adds an entry and gives a function that changes it.
func (s *Server) record(e Entry) func(func(*Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, &e)
	return func(change func(*Entry)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		change(&e)
	}
}

// count increments a counter and gives its value.
func (s *Server) count(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters[name]++
	return s.counters[name]
}

// request is what a tool gets to see.
type request struct {
	*http.Request
	args  map[string]any
	entry Entry
	note  func(func(*Entry))
}

type failure struct {
	Error string `json:"error"`
}

const maxBody = 1 << 20

// serve records a request and hands it to its tool.
func (s *Server) serve(path string, handle func(http.ResponseWriter, request)) http.HandlerFunc {
	name := fullName(path)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return // the caller is gone or sends too much
		}
		args, err := strictjson.Object(body, strictjson.Limits{MaxBytes: maxBody})
		e := Entry{Tool: name, Time: time.Now(), Arguments: body}
		if err != nil {
			e.Arguments = strictjson.Canonical(string(body))
		}
		e.Key, e.CallID = r.Header.Get("Idempotency-Key"), r.Header.Get("Pawl-Call-Id")
		e.Run, e.RunUID = r.Header.Get("Pawl-Run"), r.Header.Get("Pawl-Run-UID")
		e.Attempt, _ = strconv.ParseInt(r.Header.Get("Pawl-Attempt"), 10, 64)
		e.Epoch, _ = strconv.ParseInt(r.Header.Get("Pawl-Epoch"), 10, 64)
		note := s.record(e)
		defer note(func(e *Entry) {
			now := time.Now()
			e.Done = &now
			e.Disconnected = e.Disconnected || r.Context().Err() != nil
		})
		if err != nil {
			reply(w, http.StatusBadRequest, failure{"the body must be a JSON object: " + err.Error()})
			return
		}
		handle(w, request{Request: r, args: args, entry: e, note: note})
	}
}

func reply(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the result can't be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
