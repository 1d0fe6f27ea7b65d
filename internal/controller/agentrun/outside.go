package agentrun

import (
	"context"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
)

// inquiry is a question about a call that goes on outside.
type inquiry string

const (
	// polls asks how it stands.
	polls inquiry = "poll"
	// recalls asks for it to be called off.
	recalls inquiry = "recall"
)

// unasked says of an inquiry that brought no answer why; nobody is shown it.
const unasked = "nobody could be asked"

// inquire asks about calls that go on outside. Nothing is begun by it, so it needs no
// claim; whoever records an answer claims the run.
func (r *Reconciler) inquire(object *v1alpha1.AgentRun, s *session, kind inquiry, calls []run.Sending) {
	policies := policyNames(object)
	cancelled := s.wish.desired == run.Cancelled
	r.memory.calm(s.uid)
	for _, sending := range calls {
		if kind == recalls {
			r.memory.of(s.uid).recalled[sending.Call.ID] = r.clock.Now()
		}
		request := r.request(object, s, sending)
		entry := &flight{call: sending.Call.ID, attempt: sending.Attempt, inquiry: kind, epoch: request.Epoch}
		handle := sending.Deferred.Handle
		r.flights.start(s.uid, s.key, entry, sending.Timeout, func(ctx context.Context, landed *flight) {
			landed.outcome = tool.NothingLearned(unasked)
			outside := r.clients.Children()
			if sending.Call.Child == nil {
				server, name, err := r.clients.Tool(ctx, object.Namespace, policies, sending.Call.Tool)
				if err != nil {
					return
				}
				defer closeServer(server)
				declared, ok := server.(tool.Deferrer)
				if !ok {
					return
				}
				outside, request.Tool = declared, name
			}
			// Children hear by themselves that the run above them was cancelled.
			if kind == recalls && (sending.Call.Child == nil || !cancelled) {
				// Whether it was heard shows in what the call comes to.
				_ = outside.CancelDeferred(ctx, request, handle)
			}
			landed.outcome = outside.Poll(ctx, request, handle)
			if c := sending.Continues; c != nil && kind == polls && run.StillAsks(landed.outcome, *c) {
				// It has not heard the answer. The next question shows whether it has.
				_ = outside.Answer(ctx, request, handle, c.Asked, c.Answers)
			}
		})
	}
}

// interpretInquiry takes the answer to an inquiry.
func (r *Reconciler) interpretInquiry(facts run.Facts, s *session, landed *flight) (run.Entry, bool) {
	r.memory.of(s.uid).polled[landed.call] = r.clock.Now()
	if facts.State.Finished != nil {
		return run.Entry{}, false
	}
	return run.RecordAnswer(facts, landed.call, landed.attempt, landed.outcome)
}
