package tools

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// hugeResult is the size of what fail.huge answers.
const hugeResult = 8 << 20

func fullName(path string) string { return strings.Replace(path, "/", ".", 1) }

// httpTools are the tools by their path.
func (s *Server) httpTools() map[string]func(http.ResponseWriter, request) {
	return map[string]func(http.ResponseWriter, request){
		"profiles/lookup": lookup,
		"billing/refund":  s.refund,
		"status/get":      func(w http.ResponseWriter, _ request) { reply(w, 200, map[string]any{"status": "pending"}) },
		"status/timed": func(w http.ResponseWriter, _ request) {
			reply(w, 200, map[string]any{"status": "pending", "time": time.Now()})
		},
		"slow/wait":      wait,
		"slow/never":     accept,
		"counter/next":   s.next,
		"effect/apply":   s.apply,
		"effect/later":   s.later,
		"effect/cut":     s.applyAndCut,
		"effect/fail":    s.applyAndFail,
		"effect/refuse":  s.refuse,
		"calc/add":       arithmetic((*big.Int).Add),
		"calc/multiply":  arithmetic((*big.Int).Mul),
		"calc/weather":   func(w http.ResponseWriter, _ request) { reply(w, 200, "40 C") },
		"fail/internal":  func(w http.ResponseWriter, _ request) { reply(w, 500, failure{"this tool always fails"}) },
		"fail/not_found": func(w http.ResponseWriter, _ request) { reply(w, 404, failure{"this tool never finds anything"}) },
		"fail/throttled": s.throttled,
		"fail/cut":       func(w http.ResponseWriter, _ request) { hijack(w, "") },
		"fail/garbage":   func(w http.ResponseWriter, _ request) { hijack(w, "this is not HTTP\r\n\r\n") },
		"fail/huge": func(w http.ResponseWriter, _ request) {
			reply(w, 200, map[string]any{"text": strings.Repeat("0123456789abcdef", hugeResult/16)})
		},
	}
}

// lookup knows two keys.
func lookup(w http.ResponseWriter, r request) {
	known := map[string]string{"profile": "active", "policy": "refund-under-100"}
	key, _ := r.args["key"].(string)
	value, ok := known[key]
	if !ok {
		reply(w, http.StatusNotFound, failure{"key must be profile or policy"})
		return
	}
	reply(w, http.StatusOK, map[string]any{"value": value})
}

// refund is one that was made.
type refund struct {
	arguments string
	result    any
	id        string
}

// refund applies each key once. The same key with other arguments is refused.
func (s *Server) refund(w http.ResponseWriter, r request) {
	if r.entry.Key == "" {
		reply(w, http.StatusBadRequest, failure{"the header Idempotency-Key is required"})
		return
	}
	arguments := string(strictjson.Canonical(r.args))
	made, applied := s.makeRefund(r, arguments)
	if made.arguments != arguments {
		reply(w, http.StatusUnprocessableEntity, failure{"this key was used with other arguments"})
		return
	}
	r.note(func(e *Entry) { e.Applied = applied })
	w.Header().Set("Effect-Id", made.id)
	reply(w, http.StatusOK, made.result)
}

func (s *Server) makeRefund(r request, arguments string) (made refund, applied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, ok := s.refunds[r.entry.Key]; ok {
		return made, false
	}
	made = refund{
		arguments: arguments,
		result:    map[string]any{"refunded": r.args["amount"], "order_id": r.args["order_id"]},
		id:        fmt.Sprintf("re_%d", len(s.refunds)+1),
	}
	s.refunds[r.entry.Key] = made
	s.effects[r.entry.Key] = effect{State: Committed, Result: made.result}
	return made, true
}

// accept accepts a call that never ends; GET /slow/never says so each time.
func accept(w http.ResponseWriter, _ request) {
	w.Header().Set("Location", "/slow/never")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusAccepted)
}

// wait answers after {"seconds": n} and records whether the caller was still there.
func wait(w http.ResponseWriter, r request) {
	number, _ := r.args["seconds"].(json.Number)
	seconds, err := number.Float64()
	if err != nil || seconds < 0 || seconds > 86400 {
		reply(w, http.StatusBadRequest, failure{"seconds must be a number from 0 to 86400"})
		return
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		reply(w, http.StatusOK, map[string]any{"waited": number})
	case <-r.Context().Done():
		r.note(func(e *Entry) { e.Disconnected = true })
	}
}

// next counts the calls.
func (s *Server) next(w http.ResponseWriter, r request) {
	r.note(func(e *Entry) { e.Applied = true })
	reply(w, http.StatusOK, map[string]any{"value": s.count("next")})
}

// throttled asks for patience the first {"times": k} times that a run calls.
func (s *Server) throttled(w http.ResponseWriter, r request) {
	times, _ := r.args["times"].(json.Number)
	limit, _ := times.Int64()
	n := s.count("throttled/" + r.entry.RunUID)
	if n <= limit {
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusTooManyRequests, failure{"too many requests"})
		return
	}
	reply(w, http.StatusOK, map[string]any{"requests": n})
}

// arithmetic works on the integers a and b.
func arithmetic(operate func(z, a, b *big.Int) *big.Int) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, r request) {
		a, okA := integer(r.args["a"])
		b, okB := integer(r.args["b"])
		if !okA || !okB {
			reply(w, http.StatusBadRequest, failure{"a and b must be integers"})
			return
		}
		reply(w, http.StatusOK, json.Number(operate(new(big.Int), a, b).String()))
	}
}

func integer(v any) (*big.Int, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	return new(big.Int).SetString(number.String(), 10)
}

// hijack writes raw text, if any, and closes the connection.
func hijack(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}
