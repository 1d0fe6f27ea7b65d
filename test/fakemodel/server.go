// Package fakemodel provides servers that stand in for a model provider: one that is as
// strict as the strictest provider about what it is sent and answers what a test tells
// it to, and one that replays recorded exchanges. Both speak every wire, told apart by the
// path of a request, and listen on loopback, so that an operator in a process of its own
// can use them.
package fakemodel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxRequestBytes bounds what the server reads of a request.
const maxRequestBytes = 16 << 20

// Options of a Server. The zero value is a server that accepts every key and answers
// from its queue.
type Options struct {
	// Key is the API key that requests must carry; empty accepts any and none.
	Key string
	// Authorize replaces the check of Key, for platforms that check more than a key. It
	// returns why a request is refused, or "".
	Authorize func(r *http.Request, body []byte) string
	// Answer decides the answer of an accepted request. Nil answers from the queue.
	Answer func(Request) Answer
	// AllowUnknownPrefix accepts a conversation that this server did not see begin,
	// for tests that start it in the middle of a run.
	AllowUnknownPrefix bool
	// RequireOfferedCalls refuses a conversation in which the assistant called a tool
	// that the request does not offer. The vendors accept that, some servers don't.
	RequireOfferedCalls bool
}

// Server is a strict model provider.
type Server struct {
	options  Options
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc
	served   sync.WaitGroup
	names    Names
	left     atomic.Int32

	mu       sync.Mutex
	queue    []Answer
	requests []Request
	seen     *history
}

// Start listens on a free port of 127.0.0.1.
func Start(options Options) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a model server: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{options: options, listener: listener, stop: stop, seen: newHistory()}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
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

// Root is the server's URL without a path.
func (s *Server) Root() string { return "http://" + s.listener.Addr().String() }

// Endpoint is what to configure for a wire.
func (s *Server) Endpoint(wire Wire) string { return wire.Endpoint(s.Root()) }

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
	defer func() {
		if r.Context().Err() != nil {
			s.left.Add(1)
		}
	}()
	s.accept(r, body).write(r.Context(), w)
}

// Left counts the requests that were not answered to the end because the client went away.
func (s *Server) Left() int { return int(s.left.Load()) }

// accept records and checks a request, picks its answer, and puts it into words.
func (s *Server) accept(r *http.Request, body []byte) Answer {
	request := Request{Wire: wireOf(r), URL: r.URL, Header: r.Header.Clone(), Body: body}
	answer, refused := s.admit(r, &request)
	if !refused && s.options.Answer != nil {
		// Outside the lock, so that the function may look at the server.
		answer = s.options.Answer(request)
	}
	return s.say(&request, answer, refused)
}

// admit judges a request and takes its answer out of the queue, if that is where it
// comes from.
func (s *Server) admit(r *http.Request, request *Request) (answer Answer, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request.Number = len(s.requests) + 1
	trouble := s.judge(r, request)
	s.requests = append(s.requests, *request)
	if trouble != nil {
		return Answer{Trouble: trouble}, true
	}
	if s.options.Answer == nil {
		answer = s.next()
	}
	return answer, false
}

// judge fills in the parsed request, or refuses it.
func (s *Server) judge(r *http.Request, request *Request) *Trouble {
	refuse := func(kind TroubleKind, problem string) *Trouble {
		request.Refusal = problem
		return &Trouble{Kind: kind, Message: problem}
	}
	if request.Wire == nil {
		t := refuse(TroubleRequest, "no wire has "+r.Method+" "+r.URL.Path)
		t.Status = http.StatusNotFound
		return t
	}
	if problem := s.authorize(r, request); problem != "" {
		return refuse(TroubleKey, problem)
	}
	if problem := request.Wire.Read(request, s.options); problem != "" {
		return refuse(TroubleRequest, problem)
	}
	if !s.options.AllowUnknownPrefix {
		if problem := s.seen.check(request); problem != "" {
			return refuse(TroubleRequest, problem)
		}
	}
	s.seen.add(request)
	return nil
}

func (s *Server) authorize(r *http.Request, request *Request) string {
	switch {
	case s.options.Authorize != nil:
		return s.options.Authorize(r, request.Body)
	case s.options.Key != "" && request.Wire.Key(r) != s.options.Key:
		return "wrong API key"
	default:
		return ""
	}
}

func (s *Server) next() Answer {
	if len(s.queue) == 0 {
		return Refuse(http.StatusBadRequest, "no_answer_queued", "the test queued no answer for this request")
	}
	answer := s.queue[0]
	s.queue = s.queue[1:]
	return answer
}

// say puts an answer into the words of the request's wire, and remembers what it signed.
func (s *Server) say(request *Request, answer Answer, refused bool) Answer {
	wire := request.Wire
	if wire == nil {
		// Nobody's words.
		return Answer{Status: answer.Trouble.statusOf(), Body: []byte(answer.Trouble.Message)}
	}
	answer, err := answer.in(wire, &s.names)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		// A mistake of the test, which has to see it.
		s.requests[request.Number-1].Refusal = err.Error()
		return Answer{Status: http.StatusNotImplemented, Body: []byte(err.Error())}
	}
	if !refused && max(answer.Status, http.StatusOK) == http.StatusOK {
		s.seen.said(request, signedReply{seals: wire.Seals(answer.Body), whole: answer.Reply == nil || answer.Reply.whole()})
	}
	return answer
}
