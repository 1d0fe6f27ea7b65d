// Package models provides servers that stand in for a model provider: one that is as
// strict as the strictest provider about what it is sent and answers what a test tells
// it to, and one that replays recorded exchanges. Both listen on loopback, so that an
// operator in a process of its own can use them.
package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxRequestBytes bounds what the server reads of a request.
const maxRequestBytes = 16 << 20

// Options of a Server. The zero value is a server that accepts every key and answers
// from its queue.
type Options struct {
	// Key is the API key that requests must carry; empty accepts any and none.
	Key string
	// Answer decides the answer of an accepted request. Nil answers from the queue.
	Answer func(Request) Answer
	// AllowUnknownPrefix accepts a conversation that this server did not see begin,
	// for tests that start it in the middle of a run.
	AllowUnknownPrefix bool
	// RequireOfferedCalls refuses a conversation in which the assistant called a tool
	// that the request does not offer. The vendor accepts that, some servers don't.
	RequireOfferedCalls bool
}

// Server is a strict Chat Completions server.
type Server struct {
	options  Options
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc
	served   sync.WaitGroup

	mu       sync.Mutex
	queue    []Answer
	requests []Request
	seen     history
	calls    int
}

// Start listens on a free port of 127.0.0.1.
func Start(options Options) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a model server: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{options: options, listener: listener, stop: stop, seen: history{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.serve)
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	s.served.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("serving a model: %v", err))
		}
	})
	return s, nil
}

// URL is the endpoint to configure, with version and without operation.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/v1" }

// Close ends every request at once, the hanging ones too.
func (s *Server) Close() error {
	s.stop()
	err := s.http.Close()
	s.served.Wait()
	return err
}

// Enqueue appends answers for accepted requests, used up in order.
func (s *Server) Enqueue(answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, answers...)
}

// Queued is how many answers were not used yet.
func (s *Server) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Requests returns what arrived so far, refused requests included.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Refusals says why requests were refused, in order of arrival. A test that expects a
// well-behaved client checks that it is empty.
func (s *Server) Refusals() []string {
	var refusals []string
	for _, r := range s.Requests() {
		if r.Refusal != "" {
			refusals = append(refusals, fmt.Sprintf("request %d: %s", r.Number, r.Refusal))
		}
	}
	return refusals
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes))
	if err != nil {
		return
	}
	answer := s.accept(r.Header.Clone(), body)
	answer.write(r.Context(), w)
}

// accept records and checks a request, and picks its answer.
func (s *Server) accept(header http.Header, body []byte) Answer {
	s.mu.Lock()
	request := Request{Number: len(s.requests) + 1, Header: header, Body: body}
	answer, refused := s.judge(&request)
	s.requests = append(s.requests, request)
	if !refused && s.options.Answer == nil {
		answer = s.next()
	}
	s.mu.Unlock()
	if !refused && s.options.Answer != nil {
		// Outside the lock, so that the function may look at the server.
		answer = s.options.Answer(request)
	}
	return answer.named(s.callID)
}

// callID makes an id that no other call of this server has.
func (s *Server) callID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return fmt.Sprintf("call_%024d", s.calls)
}

// judge fills in the parsed request, or refuses it.
func (s *Server) judge(request *Request) (Answer, bool) {
	if s.options.Key != "" && request.Header.Get("Authorization") != "Bearer "+s.options.Key {
		request.Refusal = "wrong API key"
		return Refuse(http.StatusUnauthorized, "invalid_api_key", request.Refusal), true
	}
	if problem := request.parse(); problem != "" {
		request.Refusal = problem
		return Refuse(http.StatusBadRequest, "invalid_request", problem), true
	}
	problem := check(request, s.options)
	if problem == "" && !s.options.AllowUnknownPrefix {
		problem = s.seen.check(request)
	}
	if problem != "" {
		request.Refusal = problem
		return Refuse(http.StatusBadRequest, "invalid_request", problem), true
	}
	s.seen.add(request)
	return Answer{}, false
}

func (s *Server) next() Answer {
	if len(s.queue) == 0 {
		return Refuse(http.StatusBadRequest, "no_answer_queued", "the test queued no answer for this request")
	}
	answer := s.queue[0]
	s.queue = s.queue[1:]
	return answer
}
