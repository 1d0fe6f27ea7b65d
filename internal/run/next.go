package run

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/prompt"
)

// Next derives the next step. It is total: every state has a step.
func Next(f Facts) Step { return heed(f, next(f)) }

func next(f Facts) Step {
	s := f.State
	if s.Finished != nil || f.Closed {
		return settleLate(f)
	}
	if step, lost := takeUp(f); lost {
		return step
	}
	if reason, message, ending := ending(f); ending {
		return stopOrFinish(f, reason, message)
	}
	if s.Run == nil {
		return start(f)
	}
	if f.ModelInFlight {
		return await(f)
	}
	step, handled := people(f)
	if handled && step.Kind != Rest {
		return step
	}
	if f.Desired != Suspended {
		if goesOn, handled := background(f); handled {
			return goesOn
		}
	}
	if handled {
		return step
	}
	if step, handled := suspension(f); handled {
		return step
	}
	if turn := s.OpenTurn(); turn != nil {
		return advance(f, turn)
	}
	return decide(f)
}

// ending says whether something outside the conversation ends the run.
func ending(f Facts) (reason, message string, ok bool) {
	s := f.State
	if f.Desired == Cancelled {
		return "Cancelled", cmp.Or(f.Because, "spec.state was set to Cancelled"), true
	}
	if s.Run == nil {
		return "", "", false
	}
	if limit := s.Run.Limits.DeadlineSeconds; !f.Now.Before(s.StartTime.Add(seconds(limit))) {
		return "DeadlineExceeded", fmt.Sprintf("deadlineSeconds (%d) have passed since startTime", limit), true
	}
	if limit := s.Run.Limits.ActiveDeadlineSeconds; f.Active >= seconds(limit) {
		return "DeadlineExceeded", fmt.Sprintf("activeDeadlineSeconds (%d) of work are used up", limit), true
	}
	return "", "", false
}

// What a run that ends waits for.
const (
	stopping  = "the run is ending; a call that may have an effect has up to 10 s to say what became of it"
	unwinding = "the run is ending; the runs below it come to their end"
)

// stopOrFinish stops what is in flight first, so that its outcome is recorded.
func stopOrFinish(f Facts, reason, message string) Step {
	if onlyUnwinding(f) {
		return Step{Kind: Await, Waiting: "Running", Message: unwinding}
	}
	if f.ModelInFlight || len(f.InFlight) > 0 || len(f.Polling) > 0 {
		return Step{Kind: Stop, Waiting: "Running", Message: stopping}
	}
	if calls := toRecall(f); len(calls) > 0 {
		return Step{Kind: Recall, Calls: calls}
	}
	if step, waits := windUp(f); waits {
		return step
	}
	if step, pending := lastCheck(f); pending {
		return step
	}
	return finish(f, reason, message)
}

func start(f Facts) Step {
	if f.Desired == Suspended {
		return rest("Suspended", suspendedBecause(f), time.Time{})
	}
	switch c := f.Configuration; {
	case c == nil:
		return Step{Kind: Resolve}
	case c.Started != nil:
		return commit(*c.Started)
	case c.Invalid != "":
		return finish(f, "InvalidConfiguration", c.Invalid)
	default:
		return rest("ConfigurationNotReady", c.NotReady, time.Time{})
	}
}

// takeUp takes up calls that were announced by an owner which is gone: nothing of
// this process is under way for them.
func takeUp(f Facts) (Step, bool) {
	turn := f.State.OpenTurn()
	if turn == nil {
		return Step{}, false
	}
	var step Step
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if call.Phase == journal.PhaseDispatched && !f.InFlight[call.Call.ID] {
			step.Kind = Commit
			step.Events = append(step.Events, Entry{Payload: takenUp(f, call)})
		}
	}
	return step, step.Kind == Commit
}

// takenUp is what follows for a call whose sender is gone. One that would go on outside
// under a handle that is known may do so, and is asked about before nobody knows.
func takenUp(f Facts, call *journal.CallState) journal.Payload {
	if call.Call.Handle == "" || call.Call.Effect != journal.NonIdempotent {
		return lost(f, call)
	}
	return journal.CallDeferred{
		ID: call.Call.ID, Attempt: call.Attempt, Handle: call.Call.Handle, PollMillis: minPollInterval.Milliseconds(),
		Until: outsideUntil(call).UTC(),
	}
}

// lost is what is known of a call whose sender is gone: ReadOnly and Idempotent calls
// may be sent again, and of all others nobody knows.
func lost(f Facts, call *journal.CallState) journal.CallCompleted {
	completed := journal.CallCompleted{
		ID: call.Call.ID, Attempt: call.Attempt, Class: "transport", Effect: journal.EffectUnknown,
		Message: "the worker that sent it is gone, or was suspended for too long, while the call was under way",
	}
	switch call.Call.Effect {
	case journal.ReadOnly:
		completed.Retryable, completed.Effect = spared(call), ""
		completed.Final = !completed.Retryable
	case journal.Idempotent:
		completed.Retryable = spared(call) && keyLives(f.Now, call)
	case journal.NonIdempotent:
		if canary.Is(canary.AssumedFailed) {
			completed.Effect, completed.Final = journal.EffectRejected, true
		}
	}
	return charged(call, completed)
}

// sparedAttempts is how many attempts may be lost with their sender before they count
// against maxAttempts: a restart is not the tool's failure, but a call that takes the
// operator down each time must come to an end.
const sparedAttempts = 10

func spared(call *journal.CallState) bool {
	return call.Attempt < call.Call.MaxAttempts+sparedAttempts
}

// keyMargin is subtracted from an idempotency key's lifetime, since clocks differ.
const keyMargin = 5 * time.Minute

func keyLives(now time.Time, call *journal.CallState) bool {
	return canary.Is(canary.KeyOutlived) || now.Before(keyLapses(call))
}

// keyLapses is when the service may have forgotten the key of a call that was sent.
func keyLapses(call *journal.CallState) time.Time {
	return call.FirstSent.Add(seconds(call.Call.KeyLifetimeSeconds) - keyMargin)
}

// suspension stops a run between steps, never within one.
func suspension(f Facts) (Step, bool) {
	s := f.State
	switch {
	case f.Desired == Suspended && len(f.InFlight) > 0:
		return await(f), true
	case f.Desired == Suspended && !s.Suspended:
		return commit(journal.Suspended{}), true
	case f.Desired == Suspended:
		return rest("Suspended", suspendedBecause(f), expiry(f)), true
	case s.Suspended:
		return commit(journal.Resumed{}), true
	default:
		return Step{}, false
	}
}

func suspendedBecause(f Facts) string { return cmp.Or(f.Because, "spec.state is Suspended") }

// decide asks the model, unless a limit or the last turn forbids it.
func decide(f Facts) Step {
	s := f.State
	limits := s.Run.Limits
	switch {
	case s.FailuresInRow >= limits.MaxConsecutiveFailures:
		return finish(f, "NoProgress", fmt.Sprintf("every call failed in %d turns in a row (maxConsecutiveFailures)", s.FailuresInRow))
	case s.Run.Progress != nil && s.UnchangedTurns >= s.Run.Progress.MaxUnchangedTurns:
		return finish(f, "NoProgress", fmt.Sprintf("the progress expression has not changed for %d turns (progress.maxUnchangedTurns)", s.UnchangedTurns))
	case s.Turns >= limits.MaxTurns:
		return finish(f, "MaxTurns", fmt.Sprintf("%d turns did not lead to an answer (maxTurns)", s.Turns))
	}
	if step, waits := afterFailure(f); waits {
		return step
	}
	if f.Policies == nil {
		return rest("ConfigurationNotReady", f.PoliciesProblem, deadline(f))
	}
	request := prompt.Project(s)
	if step, shortened := shorten(f, request); shortened {
		return step
	}
	return afford(f, request)
}

// await keeps the run until something in flight ends or a deadline comes.
func await(f Facts) Step {
	return Step{Kind: Await, Waiting: "Running", Until: workDeadline(f)}
}

// Hold keeps a run that may not start something yet, such as a request to a model that has
// enough of them, until a time, or the end of its working time if that comes first.
func Hold(f Facts, message string, until time.Time) Step {
	return Step{Kind: Await, Waiting: "Running", Message: message, Until: earliest(workDeadline(f), until)}
}

// HandOver lets go of a run that can't go on here, until a time, or the end of the run if
// that comes first.
func HandOver(f Facts, message string, until time.Time) Step {
	return rest("Running", message, earliest(deadline(f), until))
}

// deadline is the wall-clock end of the run.
func deadline(f Facts) time.Time {
	return f.State.StartTime.Add(seconds(f.State.Run.Limits.DeadlineSeconds))
}

// expiry is when what people were asked lapses, which no suspension puts off, or the
// end of the run if that comes first.
func expiry(f Facts) time.Time {
	until := deadline(f)
	if a := f.State.Approval; a != nil {
		until = earliest(until, a.ExpiresAt)
	}
	if q := f.State.Question; q != nil {
		until = earliest(until, q.ExpiresAt)
	}
	return until
}

// workDeadline is when the run ends if it goes on working.
func workDeadline(f Facts) time.Time {
	return earliest(deadline(f), f.Now.Add(seconds(f.State.Run.Limits.ActiveDeadlineSeconds)-f.Active))
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func seconds[N ~int32 | ~int64](n N) time.Duration { return time.Duration(n) * time.Second }
