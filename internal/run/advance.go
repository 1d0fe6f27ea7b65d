package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
)

// advance moves an open turn towards its end, where every call has its result.
func advance(f Facts, turn *journal.Turn) Step {
	switch d := turn.Decision; d.Kind {
	case journal.DecisionFinal:
		return answer(f, turn)
	case journal.DecisionRefused:
		return finish(f, "ModelRefused", "the model or its content filter refused to answer")
	case journal.DecisionOverflow:
		// Of a journal from before such a reply became ModelFailed.
		return finish(f, "ContextOverflow", "the conversation is longer than the model accepts")
	case journal.DecisionPaused:
		return commit(journal.TurnCompleted{})
	case journal.DecisionCannotContinue:
		return finish(f, "CannotContinue", "the model said that it can't go on; its words are in the journal")
	case journal.DecisionInvalid:
		return invalid(f, turn)
	case journal.DecisionToolCalls, journal.DecisionQuestion, journal.DecisionRequestApproval:
		return answerCalls(f, turn)
	default:
		return finish(f, "CheckpointFailed", "the journal holds a decision of a kind that is not known")
	}
}

// answerCalls gets every call of the turn its result.
func answerCalls(f Facts, turn *journal.Turn) Step {
	switch {
	case turn.AllDone():
		return complete(f, turn)
	case turn.Decision.Kind == journal.DecisionQuestion:
		return askQuestion(f, turn)
	case turn.Decision.Kind == journal.DecisionRequestApproval:
		return askIntent(f, turn)
	default:
		return batch(f, turn)
	}
}

// invalid explains a decision that is not valid to the model, as often as the limit allows.
func invalid(f Facts, turn *journal.Turn) Step {
	d := turn.Decision
	switch limit := f.State.Run.Limits.MaxInvalidDecisions; {
	case d.Clipped && d.Code == "CutOff":
		return finish(f, "TokenBudgetExhausted", "the reply was cut off by what was left of the token budget (maxTokens)")
	case d.CostClipped && d.Code == "CutOff":
		return finish(f, "CostBudgetExhausted", "the reply was cut off by what was left of the cost budget (maxCost)")
	case f.State.InvalidInRow > limit && d.Code == CodeOutput:
		return finish(f, "OutputInvalid", fmt.Sprintf("the answer did not satisfy spec.output %d times in a row (maxInvalidDecisions)", f.State.InvalidInRow))
	case f.State.InvalidInRow > limit:
		return finish(f, "InvalidDecision", fmt.Sprintf("%d decisions in a row were not valid, the last one %s (maxInvalidDecisions)", f.State.InvalidInRow, d.Code))
	}
	if turn.AllDone() {
		return commit(journal.TurnCompleted{})
	}
	return commit(invalidResults(turn)...)
}

func invalidResults(turn *journal.Turn) []journal.Payload {
	var payloads []journal.Payload
	for i := range turn.Calls {
		if call := &turn.Calls[i]; call.Phase == journal.PhasePrepared && call.Call.Invalid != "" {
			payloads = append(payloads, journal.CallCompleted{
				ID: call.Call.ID, Final: true, Class: "validation", Effect: journal.EffectRejected, Message: call.Call.Invalid,
			})
		}
	}
	return payloads
}

// batch moves a turn of tool calls: refuse what may not run, ask people where a rule
// says so, then send group by group.
func batch(f Facts, turn *journal.Turn) Step {
	if step, reads := readAgain(f, turn); reads {
		return step
	}
	if step, checks := check(f, turn); checks {
		return step
	}
	if step, waits := unsettled(f, callsOf(turn)); waits {
		return step
	}
	if !turn.Dispatched {
		if step, handled := gate(f, turn); handled {
			return step
		}
	}
	if step, detaches := detach(turn); detaches {
		return step
	}
	if step, handled := inputs(f, turn); handled {
		return step
	}
	if step, failed := skipAfterFailure(turn); failed {
		return step
	}
	if step, lapsed := giveUp(f, turn); lapsed {
		return step
	}
	if step, poor := tooPoor(f, turn); poor {
		return step
	}
	return send(f, turn)
}

func callsOf(turn *journal.Turn) []*journal.CallState {
	calls := make([]*journal.CallState, len(turn.Calls))
	for i := range turn.Calls {
		calls[i] = &turn.Calls[i]
	}
	return calls
}

// unsettled handles calls of which nobody knows whether they took effect.
func unsettled(f Facts, calls []*journal.CallState) (Step, bool) {
	waiting := ""
	for _, call := range calls {
		if call.Phase != journal.PhaseUnknown {
			continue
		}
		if call.Settled != nil {
			return commit(settledResult(call)), true
		}
		waiting = call.Call.Tool
	}
	if waiting == "" {
		return Step{}, false
	}
	if len(f.InFlight) > 0 {
		return await(f), true
	}
	if due := checksDue(f); len(due) > 0 {
		return Step{Kind: Check, Unknown: due}, true
	}
	until := f.Now
	for _, unknown := range f.State.Unknown {
		until = unknown.NotedAt.Add(seconds(f.State.Run.Limits.InputTimeoutSeconds))
		break
	}
	if !f.Now.Before(until) {
		return finish(f, "OutcomeUnknown", "nobody settled the unknown outcome in time (inputTimeoutSeconds)"), true
	}
	return rest("OutcomeUnknown", fmt.Sprintf("nobody knows whether a call of %s took effect; settle it in the annotation pawl.run/settle", waiting), earliest(nextCheck(f), earliest(until, expiry(f)))), true
}

// skipAfterFailure leaves out the Sequential calls that follow a call whose effect did
// not come about: they were planned on the belief that it would.
func skipAfterFailure(turn *journal.Turn) (Step, bool) {
	failed := ""
	var payloads []journal.Payload
	for i := range turn.Calls {
		call := &turn.Calls[i]
		switch {
		case call.Phase == journal.PhaseDone && call.Attempt > 0 && call.Call.Effect != journal.ReadOnly && call.Last.Effect != journal.EffectCommitted:
			failed = call.Call.Tool
		case call.Phase == journal.PhasePrepared && failed != "" && !call.Call.Parallel:
			payloads = append(payloads, journal.CallCompleted{
				ID: call.Call.ID, Final: true, Class: "not_run", Effect: journal.EffectRejected,
				Message: fmt.Sprintf("not sent, because the call of %s before it did not succeed; propose it again if it is still wanted", failed),
			})
		}
	}
	return commit(payloads...), len(payloads) > 0
}

// giveUp ends the calls whose next attempt would come after their key's lifetime: the
// service may have forgotten the key, so that the call could take effect twice.
func giveUp(f Facts, turn *journal.Turn) (Step, bool) {
	var payloads []journal.Payload
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if call.Phase != journal.PhaseRetrying || call.Call.Effect != journal.Idempotent {
			continue
		}
		if keyLives(f.Now, call) && keyLives(nextAttempt(call), call) {
			continue
		}
		last := *call.Last
		last.Retryable, last.RetryAfterMillis, last.DurationMillis = false, 0, 0
		last.Final = last.Effect != journal.EffectUnknown
		if last.Final {
			last.ResultDigest = resultDigest(f, call, last)
			last.Repeats = repeatsOf(f.State, call.Call.PlanDigest, last.ResultDigest)
		}
		last.Spent = nil // what was said of it was charged then
		payloads = append(payloads, charged(call, last))
	}
	return commit(payloads...), len(payloads) > 0
}

// send starts what may start now. Groups run one after another: neighbours that are
// Parallel form one, every other call is one of its own.
func send(f Facts, turn *journal.Turn) Step {
	step, wait, due := begin(f, turn)
	if len(step.Calls) > 0 {
		return step
	}
	if turn.AllDone() {
		return complete(f, turn)
	}
	// Something of this process itself is under way, or has its time: the time until then is
	// work, also where the run may not live to see it.
	busy := len(f.InFlight) > 0 || due
	wait.Until = earliest(wait.Until, earliest(expiry(f), inputLapses(turn)))
	if step, outside := outside(f, turn, wait, busy); outside {
		return step
	}
	if step, waits := awaitPeople(f, turn); waits && !busy {
		return step
	}
	if step, waits := awaitHandles(f); waits && !busy {
		return step
	}
	return wait
}

// begin gives the step that starts what may start now, which may be nothing, and what the
// run waits for otherwise. Due is true where some call has a time at which it starts.
func begin(f Facts, turn *journal.Turn) (step, wait Step, due bool) {
	var dispatch journal.CallDispatched
	step = Step{Kind: Send, Until: workDeadline(f)}
	wait = await(f)
	budgets := reserve(f, turn)
	for _, call := range startable(f, turn) {
		if at := nextAttempt(call); f.Now.Before(at) {
			wait.Until, due = earliest(wait.Until, at), true
			continue
		}
		if at := f.Throttled[call.Call.ID]; f.Now.Before(at) {
			wait.Until, due = earliest(wait.Until, earliest(at, lapses(turn, call))), true
			wait.Message = fmt.Sprintf("waiting to call %s as often as its policy allows (requestsPerMinute)", call.Call.Tool)
			continue
		}
		budget, timeout := budgets[call.Call.ID], seconds(call.Call.TimeoutSeconds)
		switch {
		case call.Phase == journal.PhaseInput:
			step.Events = append(step.Events, Entry{Payload: continued(f, call, false)})
			step.Calls = append(step.Calls, Sending{Call: call.Call, Attempt: call.Attempt, Timeout: timeout, Continues: continuation(call)})
			continue
		case call.Call.Child != nil && budget == nil:
			continue // others have it, and give back what they do not use
		case call.Call.Child != nil:
			timeout = pollTimeout // it is only created
		}
		dispatch.Calls = append(dispatch.Calls, journal.Dispatch{
			ID: call.Call.ID, Attempt: call.Attempt + 1, Deadline: f.Now.Add(timeout).UTC(), Budget: budget,
		})
		step.Calls = append(step.Calls, Sending{Call: call.Call, Attempt: call.Attempt + 1, Timeout: timeout, Budget: budget, Continues: continuation(call)})
	}
	if len(dispatch.Calls) > 0 {
		step.Events = append(step.Events, Entry{Payload: dispatch})
	}
	return step, wait, due
}

// lapses is when a call that waits may no longer be sent as it is, zero for never.
func lapses(turn *journal.Turn, call *journal.CallState) time.Time {
	switch {
	case call.Phase == journal.PhaseRetrying && call.Call.Effect == journal.Idempotent:
		return keyLapses(call)
	case call.Phase == journal.PhaseInput && call.Input().Granted != nil:
		return call.Input().Granted.ExpiresAt
	case turn.Gate == journal.GateGranted && !turn.Dispatched:
		return turn.Granted.ExpiresAt
	default:
		return time.Time{}
	}
}

// startable lists the calls of the current group that are ready and whose conflict
// key nobody in the group holds.
func startable(f Facts, turn *journal.Turn) []*journal.CallState {
	group, begin := currentGroup(turn)
	held := map[string]bool{}
	for _, handle := range f.State.Handles() {
		held[handle.Call.ConflictKey] = true
	}
	var ready []*journal.CallState
	for i, call := range group {
		switch call.Phase {
		case journal.PhaseInput:
			held[call.Call.ConflictKey] = true
			if cleared(f, turn, begin+i) {
				ready = append(ready, call)
			}
		case journal.PhaseDispatched, journal.PhaseDeferred, journal.PhaseUnknown:
			held[call.Call.ConflictKey] = true
		default:
		}
	}
	for _, call := range group {
		if call.Phase != journal.PhasePrepared && call.Phase != journal.PhaseRetrying || answeredHere(call.Call.Tool) {
			continue
		}
		if key := call.Call.ConflictKey; key != "" {
			if held[key] {
				continue
			}
			held[key] = true
		}
		ready = append(ready, call)
	}
	return ready
}

// currentGroup is the first group with a call that is not done, and where it begins.
func currentGroup(turn *journal.Turn) ([]*journal.CallState, int) {
	for start := 0; start < len(turn.Calls); {
		end := start + 1
		for turn.Calls[start].Call.Parallel && end < len(turn.Calls) && turn.Calls[end].Call.Parallel {
			end++
		}
		var group []*journal.CallState
		open := false
		for i := start; i < end; i++ {
			group = append(group, &turn.Calls[i])
			open = open || turn.Calls[i].Phase != journal.PhaseDone && !turn.Calls[i].Detached
		}
		if open {
			return group, start
		}
		start = end
	}
	return nil, 0
}

// bounded cuts a text that people wrote to at most limit bytes.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
