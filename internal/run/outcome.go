package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// RecordOutcome turns what an adapter reports of one attempt into an event. Whether
// another attempt follows is decided here, once, and journalled.
func RecordOutcome(f Facts, id string, attempt int32, outcome tool.Outcome, duration time.Duration) (Entry, bool) {
	call := openCall(f.State, id)
	if call == nil || call.Phase != journal.PhaseDispatched && call.Phase != journal.PhaseDeferred || call.Attempt != attempt {
		return Entry{}, false
	}
	switch {
	case asksInput(call, outcome):
		return inputRequired(f, call, outcome)
	case outcome.Class == tool.ClassDeferred && outcome.Deferred != nil:
		return deferred(f, call, *outcome.Deferred)
	}
	return completed(f, call, outcome, duration), true
}

// completed is the event for an attempt that ended.
func completed(f Facts, call *journal.CallState, outcome tool.Outcome, duration time.Duration) Entry {
	if call.Phase == journal.PhaseDeferred {
		duration = f.Now.Sub(call.LastSent)
	}
	outcome = sound(redacted(f, call.Call, outcome), call.Call.Effect)
	event := journal.CallCompleted{
		ID: call.Call.ID, Attempt: call.Attempt, Class: string(outcome.Class), Effect: effectOf(call, outcome),
		RetryAfterMillis: outcome.RetryAfter.Milliseconds(), DurationMillis: duration.Milliseconds(),
		Value: outcome.Value, Truncated: outcome.Truncated, Size: outcome.Size,
		Message: bounded(outcome.Message, 2048), Receipt: bounded(outcome.Receipt, 256),
	}
	if call.Budget != nil && !call.Charged {
		event.Spent = spent(outcome.Spent)
	}
	_, _, ends := ending(f)
	event.Retryable = outcome.Class != tool.ClassOK && outcome.Retryable && !ends && mayRepeat(f.Now, call)
	unknown := event.Effect == journal.EffectUnknown
	event.Final = !event.Retryable && !unknown
	if unknown && outcome.Effect == tool.EffectRejected {
		event.Message = bounded(outcome.Message+"; whether an earlier attempt took effect, nobody knows", 2048)
	}
	if event.Final {
		event.ResultDigest = resultDigest(f, call, event)
		event.Repeats = repeatsOf(f.State, call.Call.PlanDigest, event.ResultDigest)
	}
	k := keep(f.State, event.Value)
	event.Value, event.Artifact = k.value, k.artifact
	if k.cut {
		event.Truncated, event.Size = true, max(event.Size, k.size)
	}
	return Entry{Payload: charged(call, event), Content: k.content}
}

// sound repairs what no adapter should report, so that it can be journalled.
func sound(outcome tool.Outcome, effect string) tool.Outcome {
	switch outcome.Class {
	case tool.ClassOK, tool.ClassValidation, tool.ClassTimeout, tool.ClassDenied, tool.ClassTransport, tool.ClassToolError,
		tool.ClassRejected, tool.ClassThrottled, tool.ClassNotRun:
	default:
		outcome.Class = tool.ClassUnknown
	}
	if outcome.Class == tool.ClassUnknown && effect == journal.ReadOnly {
		outcome.Class = tool.ClassTransport
	}
	switch {
	case len(outcome.Value) == 0 && outcome.Class == tool.ClassOK:
		outcome.Value = json.RawMessage("null")
	case len(outcome.Value) == 0:
		outcome.Value = nil
	case len(outcome.Value) > maxValueBytes:
		outcome.Truncated, outcome.Size = true, max(outcome.Size, int64(len(outcome.Value)))
		outcome.Value = jsonString(bounded(string(outcome.Value), maxValueBytes/8))
	case !json.Valid(outcome.Value):
		outcome.Value = jsonString(string(outcome.Value))
	}
	return outcome
}

// maxValueBytes bounds a result whatever its adapter did: adapters keep to the tool's
// maxResultBytes, which is smaller.
const maxValueBytes = 1<<20 + 4<<10

// effectOf is what an outcome says of the call's effect. What it leaves open is unknown, and
// a refusal speaks of its own attempt alone: a gateway, a token that has expired or a check
// that comes first refuse what an earlier attempt has long done.
func effectOf(call *journal.CallState, outcome tool.Outcome) string {
	switch {
	case call.Call.Effect == journal.ReadOnly:
		return ""
	case outcome.Class == tool.ClassOK:
		return journal.EffectCommitted
	case outcome.Class == tool.ClassUnknown:
		return journal.EffectUnknown
	case outcome.Effect == tool.EffectCommitted:
		return journal.EffectCommitted
	case outcome.Effect == tool.EffectRejected && (!call.Doubtful || canary.Is(canary.DoubtForgotten)):
		return journal.EffectRejected
	default:
		return journal.EffectUnknown
	}
}

// mayRepeat says whether another attempt at the call is allowed.
func mayRepeat(now time.Time, call *journal.CallState) bool {
	switch call.Call.Effect {
	case journal.ReadOnly:
		return call.Attempt < call.Call.MaxAttempts
	case journal.Idempotent:
		return call.Attempt < call.Call.MaxAttempts && keyLives(now, call)
	default:
		return false
	}
}

// nextAttempt is when a call may be sent: at once the first time, else after what the
// service asked for or a back-off that doubles from one second to one minute.
func nextAttempt(call *journal.CallState) time.Time {
	if in := call.Input(); call.Phase == journal.PhaseInput {
		if len(in.Asked.Questions) > 0 {
			return time.Time{}
		}
		return call.EndedAt.Add(max(time.Duration(in.Asked.RetryAfterMillis)*time.Millisecond, backoff(in.Asked.Round)))
	}
	if call.Phase != journal.PhaseRetrying {
		return time.Time{}
	}
	wait := time.Duration(call.Last.RetryAfterMillis) * time.Millisecond
	return call.EndedAt.Add(max(wait, backoff(call.Attempt)))
}

func backoff(attempt int32) time.Duration {
	return min(time.Second<<min(max(attempt-1, 0), 6), time.Minute)
}

func openCall(s *journal.State, id string) *journal.CallState {
	_, call := s.Live(id)
	return call
}

// resultDigest covers what counts as the same result: class and value, less the
// members that the policy names.
func resultDigest(f Facts, call *journal.CallState, event journal.CallCompleted) string {
	value, err := strictjson.Parse(event.Value, strictjson.Limits{MaxBytes: maxValueBytes})
	if err != nil {
		return strictjson.Digest(append([]byte(event.Class+"\n"), event.Value...))
	}
	if f.Policies != nil {
		value = strictjson.Without(value, f.Policies.Properties(call.Call.Tool).IgnoreForProgress)
	}
	return strictjson.Digest(append([]byte(event.Class+"\n"), strictjson.Canonical(value)...))
}

func repeatsOf(s *journal.State, plan, digest string) int32 {
	last, found := "", false
	for i := len(s.History) - 1; i >= 0 && !found; i-- {
		last, found = callResult(plan)(s.History[i])
	}
	if !found || last != digest {
		return 1
	}
	return repeats(s.History, callResult(plan)) + 1
}

// complete closes a turn whose calls all have their results.
func complete(f Facts, turn *journal.Turn) Step {
	if turn.Denied != nil && turn.Denied.End {
		return conclude(f, turn)
	}
	if denied := deniedInput(turn); denied != nil {
		return afterDeniedInput(f, nil, *denied)
	}
	event := journal.TurnCompleted{Failed: len(turn.Calls) > 0}
	var plans, results []string
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if call.Detached {
			// That it was begun again and again shows, whatever it comes to.
			event.Failed = false
			plans, results = append(plans, call.Call.PlanDigest), append(results, call.Call.PlanDigest+" "+begun)
			event.Calls = append(event.Calls, journal.CallResult{Plan: call.Call.PlanDigest, Result: begun})
			continue
		}
		if call.Last.Class == "ok" {
			event.Failed = false
		}
		if unavailable(call) {
			return finish(f, "ToolUnavailable", fmt.Sprintf("%s is required and could not be used in %d attempts", call.Call.Tool, call.Attempt))
		}
		if call.Attempt == 0 && !answeredHere(call.Call.Tool) || call.Last.Class == string(tool.ClassThrottled) || stillRuns(call.Last) {
			continue
		}
		plans = append(plans, call.Call.PlanDigest)
		results = append(results, call.Call.PlanDigest+" "+call.Last.ResultDigest)
		event.Calls = append(event.Calls, journal.CallResult{Plan: call.Call.PlanDigest, Result: call.Last.ResultDigest})
	}
	if len(plans) > 0 {
		event.Plan, event.Results = digestOf(plans), digestOf(results)
		event.Progress = progress(f.State, turn)
	}
	return commit(event)
}

// begun stands for the result of a call in the background.
const begun = "begun"

// unavailable says whether a required tool could not be used.
func unavailable(call *journal.CallState) bool {
	if !call.Call.Required || call.Attempt == 0 {
		return false
	}
	switch tool.Class(call.Last.Class) {
	case tool.ClassTransport, tool.ClassTimeout, tool.ClassThrottled:
		return true
	default:
		return false
	}
}

// progress is the digest of the goal measure after a turn. A measure that can't be
// computed stands still, so that it can't hide a run that gets nowhere.
func progress(s *journal.State, turn *journal.Turn) string {
	if s.Run.Progress == nil {
		return ""
	}
	value, err := measure(s, turn)
	if err != nil {
		return cmp.Or(s.Progress, strictjson.Digest([]byte("error")))
	}
	return strictjson.Digest(mustJSON(value))
}

func measure(s *journal.State, turn *journal.Turn) (any, error) {
	program, err := expression.CompileProgress(s.Run.Progress.Expression)
	if err != nil {
		return nil, err
	}
	results := make([]any, len(turn.Calls))
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if about := looked(s, call); about != nil {
			call = about
		}
		if call.Detached && call == &turn.Calls[i] || call.Last.Class != "ok" {
			continue
		}
		parsed, err := strictjson.Parse(call.Last.Value, strictjson.Limits{})
		if err != nil {
			return nil, err
		}
		if results[i], err = expression.FromJSON(parsed); err != nil {
			return nil, err
		}
	}
	return program.Eval(map[string]any{"results": results})
}
