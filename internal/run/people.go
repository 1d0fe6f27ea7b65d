package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// people handles what waits for a person. A wait that no verdict ends yields to
// suspension, so that Suspended shows while both hold.
func people(f Facts) (Step, bool) {
	s := f.State
	if step, ok := settlement(f); ok {
		return step, true
	}
	if step, ok := completion(f); ok {
		return step, true
	}
	switch {
	case s.Question != nil:
		return question(f)
	case s.Approval != nil:
		return approval(f)
	default:
		return Step{}, false
	}
}

func question(f Facts) (Step, bool) {
	q := f.State.Question
	if asking := f.State.AskingCall(); asking != nil {
		return inputQuestion(f, q, asking)
	}
	if !f.Now.Before(q.ExpiresAt) {
		return finish(f, "InputExpired", "nobody answered the question in time (inputTimeoutSeconds)"), true
	}
	if text, ok := f.Verdicts.Answers[q.ID]; ok && f.Verdicts.AnswerBy != "" {
		return commitBy(f.Verdicts.AnswerBy,
			journal.QuestionAnswered{ID: q.ID, Text: text},
			answeredResult(q.CallID, text),
		), true
	}
	if f.Desired == Suspended {
		return Step{}, false
	}
	return restForAnswer(f), true
}

func restForAnswer(f Facts) Step {
	q := f.State.Question
	return rest("InputRequired", fmt.Sprintf("question %s waits for an answer in the annotation pawl.run/answer", q.ID), earliest(q.ExpiresAt, deadline(f)))
}

// inputQuestion takes the answer to what a call's service asks. Other calls of the turn go
// on meanwhile, so it does not wait here; and what does not fit is not taken.
func inputQuestion(f Facts, q *journal.QuestionAsked, call *journal.CallState) (Step, bool) {
	if !f.Now.Before(q.ExpiresAt) {
		return commit(journal.QuestionAnswered{ID: q.ID, Expired: true}), true
	}
	text, ok := f.Verdicts.Answers[q.ID]
	if !ok || f.Verdicts.AnswerBy == "" {
		return Step{}, false
	}
	answers, err := readAnswers(call.Input().Asked.Questions, text)
	if err != nil {
		return Step{}, false
	}
	declined := !slices.ContainsFunc(answers, func(a tool.Answer) bool { return a.Action == tool.ActionAccept })
	return commitBy(f.Verdicts.AnswerBy, journal.QuestionAnswered{ID: q.ID, Text: text, Declined: declined}), true
}

// answeredResult tells the model what a person answered.
func answeredResult(callID, text string) journal.CallCompleted {
	return journal.CallCompleted{ID: callID, Final: true, Class: "ok", Value: jsonString(text)}
}

func approval(f Facts) (Step, bool) {
	a, v := f.State.Approval, f.Verdicts
	switch {
	case !f.Now.Before(a.ExpiresAt):
		return denied(f, a, journal.ApprovalDenied{Expired: true}, ""), true
	case v.Deny == a.Digest && v.DenyBy != "":
		return denied(f, a, journal.ApprovalDenied{Reason: bounded(v.DenyReason, 1024)}, v.DenyBy), true
	case v.Approve == a.Digest && v.ApproveBy != "":
		return granted(f, a), true
	case f.Desired == Suspended, a.Continues != "":
		return Step{}, false
	}
	return restForApproval(f), true
}

func restForApproval(f Facts) Step {
	a := f.State.Approval
	return rest("ApprovalRequired", fmt.Sprintf("waiting for approval of %s (calls: %d)", a.Digest, len(a.Calls)), earliest(a.ExpiresAt, deadline(f)))
}

func granted(f Facts, a *journal.ApprovalRequested) Step {
	event := journal.ApprovalGranted{Digest: a.Digest}
	if !a.Intent {
		return commitBy(f.Verdicts.ApproveBy, event)
	}
	return commitBy(f.Verdicts.ApproveBy, event, approvedResult(f.State.OpenTurn()))
}

// approvedResult tells the model that a person agrees with what it intends.
func approvedResult(turn *journal.Turn) journal.CallCompleted {
	return journal.CallCompleted{ID: turn.Calls[0].Call.ID, Final: true, Class: "ok", Value: []byte(`{"approved":true}`)}
}

// denied refuses a batch, or what the model intended.
func denied(f Facts, a *journal.ApprovalRequested, event journal.ApprovalDenied, by string) Step {
	event = deniedAs(a, event)
	if a.Continues != "" {
		return commitBy(by, event)
	}
	if _, first := callOff(f); first && event.End {
		return commitBy(by, event)
	}
	return commitBy(by, event, afterDenial(f, f.State.OpenTurn(), event)...)
}

// deniedAs is a denial of what was asked, on its terms.
func deniedAs(a *journal.ApprovalRequested, event journal.ApprovalDenied) journal.ApprovalDenied {
	event.Digest = a.Digest
	event.End = event.Expired && a.EndOnTimeout || !event.Expired && a.EndOnDeny
	return event
}

// afterDenial gives each call a denied result and ends the run where the rule says so.
func afterDenial(f Facts, turn *journal.Turn, event journal.ApprovalDenied) []journal.Payload {
	payloads := refuseOpen(turn, denialText(event))
	if event.End {
		payloads = append(payloads, closeHandles(f)...)
	}
	switch {
	case event.End && event.Expired:
		payloads = append(payloads, journal.Finished{Reason: "ApprovalExpired", Message: "nobody answered the request for approval in time"})
	case event.End:
		payloads = append(payloads, journal.Finished{Reason: "ApprovalDenied", Message: "a person denied the pending calls"})
	}
	return payloads
}

func denialText(event journal.ApprovalDenied) string {
	message := "a person denied it; do not ask for the same again"
	if event.Reason != "" {
		message += ": " + event.Reason
	}
	if event.Expired {
		message = "nobody approved it in time"
	}
	return message
}

func refuseOpen(turn *journal.Turn, message string) []journal.Payload {
	var payloads []journal.Payload
	for i := range turn.Calls {
		if call := &turn.Calls[i]; call.Phase != journal.PhaseDone && !call.Detached {
			payloads = append(payloads, refused(call.Call, message))
		}
	}
	return payloads
}

func refused(call journal.Call, message string) journal.CallCompleted {
	return journal.CallCompleted{ID: call.ID, Final: true, Class: "denied", Effect: journal.EffectRejected, Message: message}
}

// askApproval puts the batch before people, exactly as it will run.
func askApproval(f Facts, calls []journal.PendingCall, arguments map[string]string, terms terms) Step {
	request := journal.ApprovalRequested{
		ExpiresAt:    f.Now.Add(terms.timeout).UTC().Truncate(time.Second),
		EndOnTimeout: terms.endOnTimeout, EndOnDeny: terms.endOnDeny,
		Message: bounded(terms.message, 2048), Calls: calls, Intent: terms.intent, Continues: terms.continues,
	}
	request.Digest = pendingDigest(f, request, arguments)
	return commit(request)
}

// terms are the conditions of one request for approval.
type terms struct {
	timeout                 time.Duration
	endOnTimeout, endOnDeny bool
	message                 string
	intent                  bool
	// continues is the id of the call that is to go on with an answer, empty for none.
	continues string
}

// pendingDigest binds a verdict to what was shown: the run, the place in its journal,
// the exact bytes that will be sent, and the rules that asked. Nothing used once,
// copied or written in advance can match again.
func pendingDigest(f Facts, request journal.ApprovalRequested, arguments map[string]string) string {
	parts := []any{f.State.UID, f.State.Events + 1, request.ExpiresAt.Format(time.RFC3339), request.Intent, request.Message}
	for _, call := range request.Calls {
		parts = append(parts, call.ID, call.Tool, call.Rule, call.RuleDigest, call.PolicyDigest, call.EffectKey, arguments[call.ID])
	}
	return strictjson.Digest(mustJSON(parts))
}

// questionID can't be known in advance and fits no other question.
func questionID(uid string, turn int32, seq int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "pawl.run/question\n%s\n%d", uid, seq))
	return fmt.Sprintf("q-%d-%s", turn, hex.EncodeToString(sum[:4]))
}

// alreadyAsked is the rest of a run that has to ask people, who are asked something about a
// call in the background: one thing at a time.
func alreadyAsked(f Facts) (Step, bool) {
	switch {
	case f.State.Question != nil:
		return restForAnswer(f), true
	case f.State.Approval != nil:
		return restForApproval(f), true
	default:
		return Step{}, false
	}
}

// askQuestion puts the model's question before people.
func askQuestion(f Facts, turn *journal.Turn) Step {
	if turn.Answer != nil {
		return commit(answeredResult(turn.Calls[0].Call.ID, turn.Answer.Text))
	}
	if step, waits := alreadyAsked(f); waits {
		return step
	}
	return commit(journal.QuestionAsked{
		ID: questionID(f.State.UID, turn.Number, f.State.Events+1), CallID: turn.Calls[0].Call.ID,
		Text:      bounded(turn.Decision.Text, 4096),
		ExpiresAt: f.Now.Add(seconds(f.State.Run.Limits.InputTimeoutSeconds)).UTC().Truncate(time.Second),
	})
}

// askIntent puts what the model intends before people.
func askIntent(f Facts, turn *journal.Turn) Step {
	switch turn.Gate {
	case journal.GateGranted:
		return commit(approvedResult(turn))
	case journal.GateDenied:
		return conclude(f, turn)
	case journal.GateNone, journal.GatePending:
	}
	if step, waits := alreadyAsked(f); waits {
		return step
	}
	for _, intent := range turn.Decision.Intents {
		if f.State.Refused[intent.PlanDigest] {
			return commit(refused(turn.Calls[0].Call, "a person has denied exactly this before; do not ask for it again"))
		}
	}
	arguments := map[string]string{}
	calls := make([]journal.PendingCall, 0, len(turn.Decision.Intents))
	for i, intent := range turn.Decision.Intents {
		id := fmt.Sprintf("%s-%d", turn.Calls[0].Call.ID, i)
		arguments[id] = intent.Arguments
		calls = append(calls, journal.PendingCall{ID: id, Tool: intent.Tool, Asks: true, ArgumentsDigest: intent.ArgumentsDigest})
	}
	return askApproval(f, slices.Clip(calls), arguments, terms{
		timeout: seconds(f.State.Run.Limits.InputTimeoutSeconds), endOnTimeout: true,
		message: turn.Decision.Text, intent: true,
	})
}
