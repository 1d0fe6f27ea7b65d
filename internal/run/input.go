package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

const (
	// maxInputRounds bounds how often a call may ask before it goes on.
	maxInputRounds = 10
	// maxInputBytes bounds what is journalled of what a call asks, its state included.
	maxInputBytes = 128 << 10
	// maxQuestionText is what people are shown of it.
	maxQuestionText = 4096
	// decline is what people answer who give no answer.
	decline = "decline"
)

// Continuation is what a call goes on with.
type Continuation struct {
	Asked   tool.Input
	Answers []tool.Answer
}

// asksInput says whether an outcome is the word that a call waits for input.
func asksInput(call *journal.CallState, outcome tool.Outcome) bool {
	goesOn := outcome.Class == tool.ClassDeferred && call.Phase == journal.PhaseDeferred
	return outcome.Input != nil && (outcome.Class == tool.ClassInputRequired || goesOn)
}

// inputRequired turns the word of an adapter that a call waits for input into an event.
// The word that it still does is no news.
func inputRequired(f Facts, call *journal.CallState, outcome tool.Outcome) (Entry, bool) {
	last, asked := call.Input(), *outcome.Input
	if call.Phase == journal.PhaseDeferred && (call.Asks() || last != nil && sameQuestions(last.Asked.Questions, asked.Questions)) {
		return Entry{}, false
	}
	event := journal.InputRequired{
		ID: call.Call.ID, Attempt: call.Attempt, Round: int32(len(call.Inputs)) + 1,
		State: asked.State, RetryAfterMillis: outcome.RetryAfter.Milliseconds(),
	}
	for _, q := range asked.Questions {
		event.Questions = append(event.Questions, journal.InputQuestion{Key: q.Key, Message: q.Message, Schema: q.Schema})
	}
	switch {
	case event.Round > maxInputRounds:
		return tooMuchInput(f, call, fmt.Sprintf("the tool asked for input more than %d times", maxInputRounds))
	case len(mustJSON(event)) > maxInputBytes:
		return tooMuchInput(f, call, fmt.Sprintf("the tool asks for input in more than %d bytes", maxInputBytes))
	}
	return Entry{Payload: event}, true
}

// tooMuchInput ends a call whose service asks beyond all bounds. Until it is answered it
// does nothing, unless it goes on outside.
func tooMuchInput(f Facts, call *journal.CallState, problem string) (Entry, bool) {
	outcome := tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectRejected, Message: problem + "; nothing was done; give it everything in the arguments, or use another tool"}
	if call.Phase == journal.PhaseDeferred {
		outcome = tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Message: problem}
	}
	return RecordOutcome(f, call.Call.ID, call.Attempt, outcome, 0)
}

// StillAsks says whether a call that goes on outside still waits for what it was given.
func StillAsks(outcome tool.Outcome, given Continuation) bool {
	return outcome.Class == tool.ClassDeferred && outcome.Input != nil &&
		slices.EqualFunc(outcome.Input.Questions, given.Asked.Questions, func(a, b tool.Question) bool { return a.Key == b.Key })
}

func sameQuestions(known []journal.InputQuestion, asked []tool.Question) bool {
	return slices.EqualFunc(known, asked, func(k journal.InputQuestion, a tool.Question) bool { return k.Key == a.Key })
}

// inputs looks after the calls of a turn whose services want to know something first.
func inputs(f Facts, turn *journal.Turn) (Step, bool) {
	for i := range turn.Calls {
		if !turn.Calls[i].Asks() {
			continue
		}
		if step, handled := input(f, turn, i); handled {
			return step, true
		}
	}
	return Step{}, false
}

// input moves one such call on: people are asked, then policy looks at the call with the
// answer, then it may be sent again.
func input(f Facts, turn *journal.Turn, position int) (Step, bool) {
	call := &turn.Calls[position]
	in := call.Input()
	quiet := f.State.Question == nil && f.State.Approval == nil
	switch {
	case call.Phase == journal.PhaseInput && call.Call.Effect == journal.Idempotent && call.Doubtful && !keyLives(f.Now, call):
		return withoutInput(f, call, tool.ClassUnknown, "the key of the call lapsed before the tool got its input"), true
	case len(in.Asked.Questions) > 0 && in.Question == "":
		return askInput(f, turn, call), quiet
	case len(in.Asked.Questions) > 0 && in.Answer == nil:
		return Step{}, false
	case in.Answer != nil && in.Answer.Expired:
		return withoutInput(f, call, tool.ClassTimeout, "the tool asked for input and nobody answered it in time; nothing was done"), true
	case in.Answer != nil && in.Answer.Declined:
		return withoutInput(f, call, tool.ClassDenied, "the tool asked for input and a person declined to give it; nothing was done; do not ask for the same again"), true
	case in.Gate == journal.GateDenied:
		return afterDeniedInput(f, call, *in.Denied), true
	}
	return judgeInput(f, turn, position, quiet)
}

// judgeInput looks at a call together with the answer that it goes on with.
func judgeInput(f Facts, turn *journal.Turn, position int, quiet bool) (Step, bool) {
	call := &turn.Calls[position]
	in := call.Input()
	if v := f.Verdicts; in.Gate == journal.GateGranted && v.Deny == in.Granted.Digest && v.DenyBy != "" {
		return commitBy(v.DenyBy, deniedAs(in.Granted, journal.ApprovalDenied{Reason: bounded(v.DenyReason, 1024)})), true
	}
	if f.Policies == nil {
		return Step{}, false
	}
	switch verdict := inputVerdict(f, turn, position); {
	case verdict.Action == journal.ActionDeny && verdict.End:
		return stopOrFinish(f, "PolicyDenied", fmt.Sprintf("rule %s of policy %s denies a call of %s and ends the run", verdict.Rule, verdict.Policy, call.Call.Tool)), true
	case verdict.Action == journal.ActionDeny:
		return withoutInput(f, call, tool.ClassDenied, verdict.Message), true
	case asksAgain(f, in, verdict):
		return askToContinue(f, call, verdict), quiet
	case call.Phase == journal.PhaseDeferred:
		return commit(continued(f, call, false)), true
	}
	return Step{}, false
}

// inputVerdict is what policy says of a call with its answer: the stricter of when it was
// decided and now.
func inputVerdict(f Facts, turn *journal.Turn, position int) journal.Verdict {
	call := &turn.Calls[position]
	live := evaluateAnswered(f, call.Call, given(call), turn.Number, position, len(turn.Calls))
	verdict := stricter(*call.Call.Verdict, live)
	verdict.PolicyDigest, verdict.ApprovedBy = live.PolicyDigest, ""
	return verdict
}

// asksAgain says whether a person has to approve that a call goes on: a rule asks, and
// nobody has approved the call with this answer. Without an answer there is nothing new.
func asksAgain(f Facts, in *journal.CallInput, verdict journal.Verdict) bool {
	if verdict.Action != journal.ActionAsk || in.Answer == nil {
		return false
	}
	granted := in.Gate == journal.GateGranted && f.Now.Before(in.Granted.ExpiresAt)
	return !granted || !grantCovers(in.Granted, in.Asked.ID, verdict) || !samePolicies(in.Granted, map[string]journal.Verdict{in.Asked.ID: verdict})
}

// cleared says whether a call may be sent again with its answer.
func cleared(f Facts, turn *journal.Turn, position int) bool {
	call := &turn.Calls[position]
	if call.Phase != journal.PhaseInput || f.Policies == nil {
		return false
	}
	in := call.Input()
	if len(in.Asked.Questions) > 0 && in.Answer == nil || in.Gate == journal.GatePending {
		return false
	}
	verdict := inputVerdict(f, turn, position)
	return verdict.Action != journal.ActionDeny && !asksAgain(f, in, verdict)
}

// askInput puts what a service asks before people.
func askInput(f Facts, turn *journal.Turn, call *journal.CallState) Step {
	return commit(journal.QuestionAsked{
		ID: questionID(f.State.UID, turn.Number, f.State.Events+1), CallID: call.Call.ID,
		Text:      inputText(call),
		ExpiresAt: f.Now.Add(seconds(f.State.Run.Limits.InputTimeoutSeconds)).UTC().Truncate(time.Second),
	})
}

// askToContinue puts a call with the answer that it goes on with before people.
func askToContinue(f Facts, call *journal.CallState, verdict journal.Verdict) Step {
	asked := terms{}.and(verdict)
	asked.message, asked.continues = verdict.Message, call.Call.ID
	arguments := map[string]string{call.Call.ID: call.Call.Arguments + "\n" + call.Input().Answer.Text}
	return askApproval(f, []journal.PendingCall{{
		ID: call.Call.ID, Tool: call.Call.Tool, Policy: verdict.Policy, Rule: verdict.Rule,
		RuleDigest: verdict.RuleDigest, PolicyDigest: verdict.PolicyDigest, Asks: true,
		Effect: call.Call.Effect, EffectKey: call.Call.EffectKey, ArgumentsDigest: call.Call.ArgumentsDigest,
	}}, arguments, asked)
}

// continued announces that a service is given what it asked for, or told that it won't.
func continued(f Facts, call *journal.CallState, refused bool) journal.CallContinued {
	return journal.CallContinued{
		ID: call.Call.ID, Attempt: call.Attempt, Round: call.Input().Asked.Round,
		Deadline: f.Now.Add(seconds(call.Call.TimeoutSeconds)).UTC(), Refused: refused,
	}
}

// withoutInput is what follows for a call that does not get its input. It is not sent again,
// so that nothing is done; one that goes on outside is told, and ends by itself.
func withoutInput(f Facts, call *journal.CallState, class tool.Class, message string) Step {
	if call.Phase == journal.PhaseDeferred {
		return commit(continued(f, call, true))
	}
	result := journal.CallCompleted{ID: call.Call.ID, Attempt: call.Attempt, Final: true, Class: string(class), Effect: journal.EffectRejected, Message: message}
	switch {
	case call.Call.Effect == journal.ReadOnly:
		result.Effect = ""
	case call.Doubtful:
		// Of an earlier attempt nobody knows.
		result.Effect, result.Final = journal.EffectUnknown, false
	}
	if result.Final {
		result.ResultDigest = resultDigest(f, call, result)
		result.Repeats = repeatsOf(f.State, call.Call.PlanDigest, result.ResultDigest)
	}
	return commit(result)
}

// afterDeniedInput ends a call that may not go on, and the run where the rule says so.
func afterDeniedInput(f Facts, call *journal.CallState, denied journal.ApprovalDenied) Step {
	switch {
	case denied.End && denied.Expired:
		return stopOrFinish(f, "ApprovalExpired", "nobody answered the request for approval in time")
	case denied.End:
		return stopOrFinish(f, "ApprovalDenied", "a person denied the pending calls")
	}
	return withoutInput(f, call, tool.ClassDenied, denialText(denied))
}

// deniedInput is the denial that ends the run although its call came to an end by itself
// before it was called off, nil for none.
func deniedInput(turn *journal.Turn) *journal.ApprovalDenied {
	for i := range turn.Calls {
		if in := turn.Calls[i].Input(); in != nil && in.Denied != nil && in.Denied.End {
			return in.Denied
		}
	}
	return nil
}

// awaitPeople is the rest of a run in which nothing but people, or a policy, has to move
// before calls go on.
func awaitPeople(f Facts, turn *journal.Turn) (Step, bool) {
	var step Step
	switch s := f.State; {
	case s.AskingCall() != nil:
		step = restForAnswer(f)
	case s.ContinuedCall() != nil:
		step = restForApproval(f)
	case f.Policies == nil && slices.ContainsFunc(turn.Calls, func(c journal.CallState) bool { return c.Asks() }):
		step = rest("ConfigurationNotReady", f.PoliciesProblem, deadline(f))
	default:
		return Step{}, false
	}
	step.Until = earliest(step.Until, inputLapses(turn))
	return step, true
}

// inputLapses is when a call that asked may no longer go on as it is, zero for never.
func inputLapses(turn *journal.Turn) time.Time {
	var lapses time.Time
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if !call.Asks() {
			continue
		}
		if call.Phase == journal.PhaseInput && call.Call.Effect == journal.Idempotent && call.Doubtful {
			lapses = earliest(lapses, keyLapses(call))
		}
		if in := call.Input(); in.Gate == journal.GateGranted {
			lapses = earliest(lapses, in.Granted.ExpiresAt)
		}
	}
	return lapses
}
