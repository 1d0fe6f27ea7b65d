package run

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// Bounds of the wait between two questions about a call that goes on outside, whatever
// its server asks for.
const (
	minPollInterval     = time.Second
	maxPollInterval     = 5 * time.Minute
	defaultPollInterval = 5 * time.Second
	// pollTimeout bounds one such question.
	pollTimeout = 30 * time.Second
	// maxHandleBytes bounds what is journalled of a server's handle.
	maxHandleBytes = 8 << 10
)

// deferred turns the word of an adapter that a call goes on outside into an event. The
// word that it still does is no news.
func deferred(f Facts, call *journal.CallState, d tool.Deferred) (Entry, bool) {
	if d.Handle == "" || len(d.Handle) > maxHandleBytes {
		outcome := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Message: "the server goes on with the call under a handle that can't be kept"}
		return RecordOutcome(f, call.Call.ID, call.Attempt, outcome, 0)
	}
	if known := call.Deferred; known != nil && known.Handle == d.Handle {
		return Entry{}, false
	}
	until := outsideUntil(call)
	if d.Lifetime > 0 {
		until = earliest(until, call.LastSent.Add(d.Lifetime))
	}
	return Entry{Payload: journal.CallDeferred{
		ID: call.Call.ID, Attempt: call.Attempt, Handle: d.Handle,
		PollMillis: pollInterval(d.PollAfter).Milliseconds(), Until: until.UTC(),
	}}, true
}

func pollInterval(asked time.Duration) time.Duration {
	return min(max(cmp.Or(asked, defaultPollInterval), minPollInterval), maxPollInterval)
}

// RecordAnswer turns what an adapter says of a call that goes on outside into an event.
// An outcome that is worth asking for again says nothing of the call.
func RecordAnswer(f Facts, id string, attempt int32, outcome tool.Outcome) (Entry, bool) {
	if call := openCall(f.State, id); call == nil || call.Phase != journal.PhaseDeferred || outcome.Retryable {
		return Entry{}, false
	}
	return RecordOutcome(f, id, attempt, outcome, 0)
}

// outside looks after the calls of a turn that go on outside. Nothing else of the turn can
// start before they end. The run waits for them without a worker, unless it is busy.
func outside(f Facts, turn *journal.Turn, wait Step, busy bool) (Step, bool) {
	var calls []*journal.CallState
	for i := range turn.Calls {
		if !turn.Calls[i].Detached {
			calls = append(calls, &turn.Calls[i])
		}
	}
	w := watchOver(f, calls)
	if step, looks := w.look(); looks {
		return step, true
	}
	w.until = earliest(w.until, wait.Until)
	if w.tool != "" && busy {
		wait.Until = w.until
		return wait, true
	}
	return w.rest(f, "outside")
}

// watch is what the calls of a turn that go on outside need.
type watch struct {
	// tool of one of them, empty while there is none.
	tool string
	// due are to be asked about now, late to be called off.
	due, late []Sending
	// until is when the next of them needs something.
	until time.Time
	// overdue is one that is to be given up, nil for none.
	overdue *journal.CallState
	// people is set where one is a child run that waits for people, work where one does not.
	people *ChildWait
	work   bool
}

// watchOver looks at those of some calls that go on outside and do not ask people.
func watchOver(f Facts, calls []*journal.CallState) watch {
	w := watch{}
	for _, call := range calls {
		if call.Phase == journal.PhaseDeferred && !call.Asks() {
			w.add(f, call)
		}
	}
	return w
}

// look asks about calls where it is time, and gives up those whose time is over.
func (w *watch) look() (Step, bool) {
	switch {
	case w.overdue != nil:
		return commit(overdue(w.overdue)), true
	case len(w.due) > 0:
		return Step{Kind: Poll, Calls: w.due}, true
	case len(w.late) > 0:
		return Step{Kind: Recall, Calls: w.late}, true
	default:
		return Step{}, false
	}
}

// rest is the rest of a run that has nothing to do but wait for them, where they go on.
func (w *watch) rest(f Facts, where string) (Step, bool) {
	switch {
	case w.tool == "":
		return Step{}, false
	case w.people != nil && !w.work:
		// Nobody works on it: that time is not the run's.
		return waitAnew(f, rest(w.people.Reason, w.people.message(), earliest(deadline(f), w.until))), true
	case w.people != nil:
		return waitAnew(f, rest(journal.WaitingForTool, w.people.message(), earliest(workDeadline(f), w.until))), true
	default:
		return waitAnew(f, rest(journal.WaitingForTool, fmt.Sprintf("a call of %s goes on %s", w.tool, where), earliest(workDeadline(f), w.until))), true
	}
}

// add looks at one call.
func (w *watch) add(f Facts, call *journal.CallState) {
	w.tool = call.Call.Tool
	if child, waiting := f.ChildWaits[call.Call.ID]; waiting {
		w.people = &child
	} else {
		w.work = true
	}
	switch at := pollAt(f, call); {
	case f.Polling[call.Call.ID], f.InFlight[call.Call.ID]:
	case !f.Now.Before(at):
		w.due = append(w.due, inquiryInto(call))
	case expired(f, call) && f.Recalled[call.Call.ID].IsZero():
		w.late = append(w.late, inquiryInto(call))
	case expired(f, call) && !windsUp(f, call):
		w.overdue = call
	default:
		w.until = earliest(w.until, at)
	}
}

// waitAnew marks a wait that counts as work where the one that the run was released for does
// not, or the reverse.
func waitAnew(f Facts, step Step) Step {
	step.Anew = f.State.Owner == "" && (f.State.Waiting == journal.WaitingForTool) != (step.Waiting == journal.WaitingForTool)
	return step
}

// LeaveAsking is what a run is to do, until a time, where somebody else asks about its calls
// that go on outside.
func LeaveAsking(f Facts, poll Step, until time.Time) Step {
	asked := map[string]time.Time{}
	maps.Copy(asked, f.Polled)
	for _, sending := range poll.Calls {
		asked[sending.Call.ID] = f.Now
	}
	f.Polled, f.Stirred = asked, false
	step := Next(f)
	if step.Kind != Rest {
		step = rest(journal.WaitingForTool, "a call goes on outside", until)
	}
	step.Until, step.Anew = earliest(step.Until, until), false
	return step
}

func inquiryInto(call *journal.CallState) Sending {
	return Sending{Call: call.Call, Attempt: call.Attempt, Timeout: pollTimeout, Deferred: call.Deferred, Continues: continuation(call)}
}

// pollAt is when to ask about a call: at intervals from when it was deferred, when
// something is heard of it, and once more at its deadline.
func pollAt(f Facts, call *journal.CallState) time.Time {
	last, asked := f.Polled[call.Call.ID]
	if asked && !last.Before(call.Deferred.Until) && !windsUp(f, call) {
		return f.Now.Add(maxPollInterval) // its time is over: nothing is asked any more
	}
	if f.Stirred {
		return f.Now
	}
	if !asked || last.Before(call.DeferredAt) {
		last = call.DeferredAt
	}
	interval := time.Duration(call.Deferred.PollMillis) * time.Millisecond
	switch {
	case windsUp(f, call):
		return last.Add(minPollInterval)
	case call.Call.Handle != "":
		// That it ends is heard: the longer it goes on, the less often it is looked at.
		interval = max(interval, min(last.Sub(call.DeferredAt), watchedPollInterval))
	}
	return earliest(last.Add(interval), call.Deferred.Until)
}

func expired(f Facts, call *journal.CallState) bool { return !f.Now.Before(call.Deferred.Until) }

// overdue is the result of a call that did not end outside in its time, although it was
// called off.
func overdue(call *journal.CallState) journal.CallCompleted {
	completed := journal.CallCompleted{
		ID: call.Call.ID, Attempt: call.Attempt, Class: string(tool.ClassTimeout), Effect: journal.EffectUnknown,
		Message: "the call goes on outside and did not end in its time (timeoutSeconds); it was called off",
	}
	switch {
	case call.Call.Effect == journal.ReadOnly:
		completed.Effect, completed.Final = "", true
	case canary.Is(canary.OverdueRejected):
		completed.Effect, completed.Final = journal.EffectRejected, true
	}
	return charged(call, completed)
}

// toRecall lists the calls that go on outside and were not called off yet.
func toRecall(f Facts) []Sending {
	var calls []Sending
	for _, call := range f.State.Outside() {
		if f.Recalled[call.Call.ID].IsZero() {
			calls = append(calls, inquiryInto(call))
		}
	}
	return calls
}

// completion takes the result that somebody delivers of a call that goes on outside.
func completion(f Facts) (Step, bool) {
	if f.Verdicts.CompleteBy == "" {
		return Step{}, false
	}
	for _, call := range f.State.Outside() {
		value, given := f.Verdicts.Completions[call.Call.ID]
		if !given || call.Call.Child != nil {
			continue // a child run gives its own result
		}
		outcome := tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: value}
		entry, ok := RecordOutcome(f, call.Call.ID, call.Attempt, outcome, 0)
		if ok {
			entry.By = f.Verdicts.CompleteBy
			return Step{Kind: Commit, Events: []Entry{entry}}, true
		}
	}
	return Step{}, false
}
