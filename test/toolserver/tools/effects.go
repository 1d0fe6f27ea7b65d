package tools

import (
	"encoding/json"
	"net/http"
	"time"
)

// States of an effect, as GET /effects/<key> gives them.
const (
	Committed = "committed"
	Rejected  = "rejected"
	Pending   = "pending"
	NotFound  = "notFound"
)

// effect is what became of one effect key.
type effect struct {
	State  string `json:"state"`
	Result any    `json:"result,omitempty"`
}

// look says what became of an effect. It goes by what this server has seen; a request
// that is still on its way is not found.
func (s *Server) look(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	s.mu.Lock()
	found, known := s.effects[key]
	s.looks[key]++
	s.mu.Unlock()
	if !known {
		reply(w, http.StatusNotFound, effect{State: NotFound})
		return
	}
	reply(w, http.StatusOK, found)
}

// Effect says what GET /effects/<key> would.
func (s *Server) Effect(key string) (state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, known := s.effects[key]; known {
		return found.State
	}
	return NotFound
}

// Looks counts the requests of GET /effects/<key>.
func (s *Server) Looks(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks[key]
}

func (s *Server) setEffect(key string, e effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[key] = e
}

// commit applies an effect, again each time it is asked: these tools know no idempotency,
// so that a second request shows.
func (s *Server) commit(r request) any {
	result := map[string]any{"receipt": s.count("effects")}
	r.note(func(e *Entry) { e.Applied = true })
	s.setEffect(r.entry.Key, effect{State: Committed, Result: result})
	return result
}

// apply applies its effect at once and answers after {"seconds": n}.
func (s *Server) apply(w http.ResponseWriter, r request) {
	result := s.commit(r)
	timer := time.NewTimer(secondsOf(r))
	defer timer.Stop()
	select {
	case <-timer.C:
		reply(w, http.StatusOK, result)
	case <-r.Context().Done():
		r.note(func(e *Entry) { e.Disconnected = true })
	}
}

// later applies its effect after {"seconds": n}, whether or not the caller is still there.
func (s *Server) later(w http.ResponseWriter, r request) {
	s.setEffect(r.entry.Key, effect{State: Pending})
	time.Sleep(secondsOf(r))
	reply(w, http.StatusOK, s.commit(r))
}

// applyAndCut applies its effect and breaks the connection.
func (s *Server) applyAndCut(w http.ResponseWriter, r request) {
	s.commit(r)
	hijack(w, "")
}

// applyAndFail applies its effect and says that something went wrong.
func (s *Server) applyAndFail(w http.ResponseWriter, r request) {
	s.commit(r)
	reply(w, http.StatusInternalServerError, failure{"something went wrong"})
}

// refuse does nothing, and remembers that it did not.
func (s *Server) refuse(w http.ResponseWriter, r request) {
	s.setEffect(r.entry.Key, effect{State: Rejected})
	reply(w, http.StatusUnprocessableEntity, failure{"this is never done"})
}

// secondsOf is how long a request wants to take, a minute at most.
func secondsOf(r request) time.Duration {
	number, _ := r.args["seconds"].(json.Number)
	seconds, _ := number.Float64()
	return time.Duration(min(max(seconds, 0), 60) * float64(time.Second))
}
