package run

import (
	"encoding/json"
	"slices"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/prompt"
)

// CheckTool is offered where a tool runs in the background: it looks at such a call, or
// waits for it.
func CheckTool() journal.Tool {
	return builtInTool(prompt.CheckCall, "Look at a call that goes on in the background: its result, or that it still runs. With wait it is waited for. So it is when you look again and do nothing else.",
		`{"type":"object","properties":{"call":{"type":"string","minLength":1,"maxLength":64,"description":"The id of the call."},"wait":{"type":"boolean","description":"Wait until it has ended."}},"required":["call"],"additionalProperties":false}`)
}

// answeredHere says whether a tool is answered out of the journal, so that nothing is sent.
func answeredHere(tool string) bool { return tool == prompt.ReadResult || tool == prompt.CheckCall }

// mayDetach says whether calls of a run can go on in the background: the model must have
// been given the means to look at them.
func mayDetach(run *journal.RunStarted) bool {
	return slices.ContainsFunc(run.Tools, func(t journal.Tool) bool { return t.Name == prompt.CheckCall })
}

// background looks after the calls in the background, whatever else the run does.
func background(f Facts) (Step, bool) {
	handles := f.State.Handles()
	if len(handles) == 0 {
		return Step{}, false
	}
	if step, waits := unsettled(f, handles); waits {
		return step, true
	}
	for _, call := range handles {
		turn, _ := f.State.Live(call.Call.ID)
		if step, handled := inputs(f, turn); handled {
			return step, true
		}
	}
	w := watchOver(f, handles)
	return w.look()
}

// heed has a run that waits look again in time for its calls in the background.
func heed(f Facts, step Step) Step {
	if step.Kind != Rest && step.Kind != Await || f.State.Finished != nil || f.State.Run == nil || f.ModelInFlight {
		return step
	}
	handles := f.State.Handles()
	if len(handles) == 0 {
		return step
	}
	step.Until = earliest(step.Until, expiry(f))
	if f.Desired == Suspended {
		return step
	}
	for _, call := range handles {
		turn, _ := f.State.Live(call.Call.ID)
		step.Until = earliest(step.Until, inputLapses(turn))
	}
	step.Until = earliest(step.Until, watchOver(f, handles).until)
	return step
}

// awaitHandles is the rest of a run in which nothing but calls in the background has to
// end.
func awaitHandles(f Facts) (Step, bool) {
	handles := f.State.Handles()
	if len(handles) == 0 {
		return Step{}, false
	}
	w := watchOver(f, handles)
	if step, waits := w.rest(f, "in the background"); waits {
		return step, true
	}
	turn, _ := f.State.Live(handles[0].Call.ID)
	return awaitPeople(f, turn)
}

// detach lets the model work on while calls of the turn go on outside.
func detach(turn *journal.Turn) (Step, bool) {
	var payloads []journal.Payload
	for i := range turn.Calls {
		if call := &turn.Calls[i]; call.Call.Background && call.Phase == journal.PhaseDeferred && !call.Detached {
			payloads = append(payloads, journal.CallDetached{ID: call.Call.ID, Attempt: call.Attempt})
		}
	}
	return commit(payloads...), len(payloads) > 0
}

// check answers calls of the tool check. Nothing is sent, so nothing is asked of policy or
// people. One that waits has no answer yet.
func check(f Facts, turn *journal.Turn) (Step, bool) {
	var payloads []journal.Payload
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if call.Phase != journal.PhasePrepared || call.Call.Tool != prompt.CheckCall || call.Call.Invalid != "" {
			continue
		}
		if result, answered := checked(f, turn, call); answered {
			payloads = append(payloads, result)
		}
	}
	if what := repetition(f.State, turn, f.State.Run.Limits.MaxRepeatedPlans); len(payloads) > 0 && what != "" {
		return finish(f, "NoProgress", what), true
	}
	return commit(payloads...), len(payloads) > 0
}

// checked is what one of them gives: the other call's result, that it runs, or nothing yet.
func checked(f Facts, turn *journal.Turn, call *journal.CallState) (journal.CallCompleted, bool) {
	var input struct {
		Call string `json:"call"`
		Wait bool   `json:"wait"`
	}
	result := journal.CallCompleted{ID: call.Call.ID, Final: true, Class: "tool_error"}
	if json.Unmarshal(ArgumentBytes(call.Call.Arguments), &input) != nil {
		result.Message = "the arguments can't be read"
		return result, true
	}
	about := f.State.Call(input.Call)
	switch {
	case about == nil || !about.Detached:
		result.Message = "no call with that id goes on in the background, or did: give the id from its result"
	case about.Phase == journal.PhaseDone:
		result.Class, result.Of, result.ResultDigest = about.Last.Class, input.Call, about.Last.ResultDigest
		result.Repeats = repeatsOf(f.State, call.Call.PlanDigest, result.ResultDigest)
		return result, true
	case input.Wait || about.Looks > 0 && onlyChecks(turn):
		return result, false
	default:
		result.Class, result.Of, result.Value = "ok", input.Call, prompt.Running(input.Call)
	}
	result.ResultDigest = resultDigest(f, call, result)
	return result, true
}

// onlyChecks says whether a model does nothing but look at calls in the background.
func onlyChecks(turn *journal.Turn) bool {
	for i := range turn.Calls {
		if turn.Calls[i].Call.Tool != prompt.CheckCall {
			return false
		}
	}
	return true
}

// stillRuns says whether a result is that a call in the background runs: it is no sign of
// no progress, however often it is read.
func stillRuns(result *journal.CallCompleted) bool { return result.Of != "" && len(result.Value) > 0 }

// answer ends the run with the model's answer, once its calls in the background have ended
// and the model has seen what they came to.
func answer(f Facts, turn *journal.Turn) Step {
	if step, waits := awaitHandles(f); waits {
		return step
	}
	text := turn.Decision.Text
	ended := journal.Finished{Reason: "Completed", Message: "the model gave an answer", Answer: &text}
	untold := f.State.Untold()
	if len(untold) == 0 || f.State.Turns >= f.State.Run.Limits.MaxTurns {
		return commit(ended)
	}
	event := journal.TurnCompleted{}
	for _, call := range untold {
		event.Reported = append(event.Reported, call.Call.ID)
	}
	return commit(event)
}

// callOff stops the calls in the background of a run that ends.
func callOff(f Facts) (Step, bool) {
	handles := f.State.Handles()
	if len(handles) == 0 {
		return Step{}, false
	}
	if onlyUnwinding(f) {
		return Step{Kind: Await, Waiting: "Running", Message: unwinding}, true
	}
	var calls []Sending
	for _, call := range handles {
		switch {
		case f.Polling[call.Call.ID]:
			return Step{Kind: Stop, Waiting: "Running", Message: stopping}, true
		case call.Phase == journal.PhaseDeferred && f.Recalled[call.Call.ID].IsZero():
			calls = append(calls, inquiryInto(call))
		}
	}
	if len(calls) > 0 {
		return Step{Kind: Recall, Calls: calls}, true
	}
	return windUp(f)
}

// conclude denies a batch, or what the model intended, and ends the run where the rule says
// so.
func conclude(f Facts, turn *journal.Turn) Step {
	if turn.Denied.End {
		if step, first := callOff(f); first {
			return step
		}
	}
	return commit(afterDenial(f, turn, *turn.Denied)...)
}

// looked is the call in the background whose result a call gives, nil for none.
func looked(s *journal.State, call *journal.CallState) *journal.CallState {
	if call.Last == nil || call.Last.Of == "" || stillRuns(call.Last) {
		return nil
	}
	return s.Call(call.Last.Of)
}
