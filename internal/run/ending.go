package run

import (
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// finish ends the run, once its calls in the background are called off. Every call that is
// still open gets its one result first, so that the transcript is valid whatever ended it.
func finish(f Facts, reason, message string) Step {
	if step, first := callOff(f); first {
		return step
	}
	return commit(append(closeCalls(f), journal.Finished{Reason: reason, Message: message})...)
}

func closeCalls(f Facts) []journal.Payload {
	payloads := closeHandles(f)
	turn := f.State.OpenTurn()
	if turn == nil {
		return payloads
	}
	for i := range turn.Calls {
		if call := &turn.Calls[i]; call.Phase != journal.PhaseDone && !call.Detached {
			payloads = append(payloads, closing(call))
		}
	}
	return payloads
}

// closeHandles gives the calls in the background their results.
func closeHandles(f Facts) []journal.Payload {
	var payloads []journal.Payload
	for _, call := range f.State.Handles() {
		payloads = append(payloads, closing(call))
	}
	return payloads
}

// closing is the result of a call whose run ends.
func closing(call *journal.CallState) journal.CallCompleted {
	result := journal.CallCompleted{
		ID: call.Call.ID, Attempt: call.Attempt, Final: true,
		Class: "not_run", Effect: journal.EffectRejected, Message: "the run ended before the call was sent",
	}
	switch {
	case call.Call.Invalid != "" && call.Attempt == 0:
		result.Class, result.Message = "validation", call.Call.Invalid
	case call.Attempt == 0:
	case call.Settled != nil:
		result = settledResult(call)
	case call.Phase == journal.PhaseInput && !call.Doubtful:
		result.Message = "the run ended before the tool got the input that it asked for; nothing was done"
	case call.Call.Effect == journal.ReadOnly:
		result.Class, result.Effect, result.Message = "transport", "", "the run ended while the call was under way"
	case call.Phase == journal.PhaseRetrying && call.Last.Effect == journal.EffectRejected:
		result.Class, result.Message = call.Last.Class, call.Last.Message
	default:
		result.Class, result.Effect, result.Message = "unknown", journal.EffectUnknown, "the run ended before anybody knew whether the call took effect"
	}
	return charged(call, result)
}

// settleLate records what people say about unknown effects after the end. It changes
// nothing else.
func settleLate(f Facts) Step {
	if step, ok := settlement(f); ok {
		return step
	}
	if f.Closed && f.State.Finished == nil {
		if calls := doubted(f); len(calls) > 0 {
			return commit(calls...)
		}
	}
	return Step{Kind: Done}
}

// doubted calls those unknown that were under way when the run ended in status alone, and
// of which a person says now what became of them.
func doubted(f Facts) []journal.Payload {
	var payloads []journal.Payload
	if f.Verdicts.SettleBy == "" {
		return nil
	}
	for _, call := range f.State.UnderWay() {
		switch f.Verdicts.Settlements[call.Call.EffectKey] {
		case journal.EffectCommitted, journal.EffectRejected:
			payloads = append(payloads, journal.CallCompleted{
				ID: call.Call.ID, Attempt: call.Attempt, Class: "unknown", Effect: journal.EffectUnknown,
				Message: "the run ended before anybody knew whether the call took effect",
			})
		}
	}
	return payloads
}

// settlement turns the first settlement that fits an unknown effect into an event.
func settlement(f Facts) (Step, bool) {
	if f.Verdicts.SettleBy == "" {
		return Step{}, false
	}
	for _, unknown := range f.State.Unknown {
		effect := f.Verdicts.Settlements[unknown.EffectKey]
		if effect != journal.EffectCommitted && effect != journal.EffectRejected {
			continue
		}
		return commitBy(f.Verdicts.SettleBy, journal.EffectReconciled{
			ID: unknown.CallID, EffectKey: unknown.EffectKey, Effect: effect, Source: journal.SourcePerson,
		}), true
	}
	return Step{}, false
}

// settledResult is what the model reads of a call whose unknown effect was settled.
func settledResult(call *journal.CallState) journal.CallCompleted {
	settled := call.Settled
	result := journal.CallCompleted{ID: call.Call.ID, Attempt: call.Attempt, Final: true, Effect: settled.Effect, Receipt: settled.Receipt}
	switch {
	case settled.Effect == journal.EffectRejected:
		result.Class, result.Message = "rejected", "The call did not take effect, as was found out later."
	case len(settled.Value) > 0:
		result.Class, result.Value, result.Artifact = "ok", settled.Value, settled.Artifact
	default:
		result.Class = "ok"
		result.Value = []byte(`"The call took effect, as was found out later; its own result was lost."`)
	}
	result.ResultDigest = strictjson.Digest([]byte("settled\n" + settled.Effect))
	return charged(call, result)
}
