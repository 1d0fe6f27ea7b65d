// Package status derives everything that an AgentRun's status says from facts. It is
// pure: the same facts always give the same status, and no condition depends on one
// that was written before, except that an ending is never taken back.
package status

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// Bounds of what status shows.
const (
	maxResultText   = 4096
	maxPreview      = 1024
	maxQuestion     = 4096
	maxPendingCalls = 64
	maxUnknown      = 64
	maxMessage      = 1024
)

// Facts are what a status is derived from.
type Facts struct {
	Now        time.Time
	Generation int64
	// State of the journal; the zero journal before it began.
	State *journal.State
	// Segments is the number of the journal's ConfigMaps.
	Segments int32
	// Waiting and Message are what the turn machine said last, a reason of Succeeded
	// while the run is open.
	Waiting v1alpha1.Reason
	Message string
	// VerdictProblem says why a verdict that somebody gave does not act, empty where
	// there is none.
	VerdictProblem string
	// Checked says when unknown effects were last looked up, by call id.
	Checked map[string]time.Time
	// Children are the child runs that wait for people, and what for.
	Children []v1alpha1.PendingChild
	// CheckpointFailed, when not empty, says where the journal can't be relied on. It
	// is the one ending that the journal itself can't carry.
	CheckpointFailed string
	// Broken is true where State is not all that was recorded: the journal is gone, cut off
	// or altered, not merely refused.
	Broken bool
	// Held is true for a run with the finalizer that it gets before its first call which may
	// have an effect: a broken journal may then hide such a call.
	Held bool
	// Settled are the effect keys that people settled of a run which ended as
	// CheckpointFailed, where the journal can't take it.
	Settled map[string]bool
}

// Derive returns the status that follows from the facts. Previous is the status as it
// stands; only its transition times, and an ending it holds, are taken from it.
func Derive(f Facts, previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
	ended := find(previous.Conditions, v1alpha1.ConditionSucceeded)
	switch final := ended != nil && ended.Status != metav1.ConditionUnknown; {
	case final && ended.Reason == string(v1alpha1.ReasonCheckpointFailed):
		return afterCheckpointFailed(f, previous)
	case final && (f.CheckpointFailed != "" || f.State.Finished == nil):
		// An ending stays, whatever has become of the journal.
		return Observed(previous, f.Generation)
	case f.CheckpointFailed != "":
		return deriveCheckpointFailed(f, previous)
	}
	s := f.State
	status := v1alpha1.AgentRunStatus{
		ObservedGeneration: f.Generation,
		Turns:              s.Turns,
		ToolCalls:          s.ToolCalls,
		UnknownEffects:     unknownEffects(s, f.Checked),
		Pending:            pending(s, f.Children),
		Question:           question(s),
		Result:             result(s),
	}
	if s.Events > 0 {
		status.StartTime = ptr.To(stamp(s.StartTime))
		status.Journal = &v1alpha1.Journal{Events: s.Events, Segments: f.Segments, Bytes: s.Bytes, Head: s.Head}
	}
	if s.Owner != "" {
		status.Owner = &v1alpha1.Owner{Worker: s.Owner, Epoch: s.Epoch}
	}
	if u := s.TotalUsage(); u.Total() > 0 {
		status.Usage = &v1alpha1.Usage{TotalTokens: u.Total(), InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
			CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens, ReasoningTokens: u.ReasoningTokens,
			Estimated: u.Estimated, Cost: cost(s)}
	}
	if s.Finished != nil {
		status.CompletionTime = ptr.To(stamp(s.FinishedAt))
	}
	status.Conditions = conditions(f, previous.Conditions)
	return status
}

// Observed is the status of a run that has ended, said of a newer generation: whoever
// waits for a condition, or goes by kstatus, believes nothing that speaks of an older one.
func Observed(previous v1alpha1.AgentRunStatus, generation int64) v1alpha1.AgentRunStatus {
	status := *previous.DeepCopy()
	status.ObservedGeneration = generation
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = generation
	}
	return status
}

// deriveCheckpointFailed keeps what was known, since the journal can't be asked.
func deriveCheckpointFailed(f Facts, previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
	status := *previous.DeepCopy()
	status.ObservedGeneration = f.Generation
	status.Owner, status.Pending, status.Question = nil, nil, nil
	if status.CompletionTime == nil {
		status.CompletionTime = ptr.To(stamp(f.Now))
	}
	if status.StartTime == nil {
		status.StartTime = status.CompletionTime
	}
	if f.State != nil {
		status.ToolCalls, status.Turns = max(status.ToolCalls, f.State.ToolCalls), max(status.Turns, f.State.Turns)
	}
	status.UnknownEffects = lastKnown(f, previous)
	status.Conditions = set(previous.Conditions, f, []fact{
		{v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonCheckpointFailed, f.CheckpointFailed},
		{v1alpha1.ConditionFinished, metav1.ConditionTrue, v1alpha1.ReasonCheckpointFailed, "the run has ended"},
		approvalFact(nil, ""),
		inputFact(nil, ""),
		outcomeFact(len(status.UnknownEffects) > 0, unsure(f), ""),
		{v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonCheckpointFailed, "the run has ended"},
		{v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonCheckpointFailed, f.CheckpointFailed},
	})
	return status
}

func pending(s *journal.State, children []v1alpha1.PendingChild) *v1alpha1.Pending {
	if s.Finished != nil || s.Approval == nil && len(children) == 0 {
		return nil
	}
	shown := &v1alpha1.Pending{Children: children, ExpiresAt: firstExpiry(children)}
	if s.Approval == nil {
		return shown
	}
	shown.Digest, shown.ExpiresAt = s.Approval.Digest, stamp(s.Approval.ExpiresAt)
	shown.Message = strictjson.Preview([]byte(s.Approval.Message), maxPreview)
	arguments := pendingArguments(s)
	for _, call := range s.Approval.Calls {
		if len(shown.Calls) == maxPendingCalls {
			break
		}
		shown.Calls = append(shown.Calls, v1alpha1.PendingCall{
			ID: call.ID, Tool: call.Tool, Rule: call.Rule, Effect: v1alpha1.Effect(call.Effect), EffectKey: call.EffectKey,
			ArgumentsPreview: preview(arguments[call.ArgumentsDigest]),
			ArgumentsDigest:  call.ArgumentsDigest,
			AnswerPreview:    answerPreview(s, call.ID),
		})
	}
	return shown
}

// answerPreview shows the answer that a pending call is to go on with.
func answerPreview(s *journal.State, id string) string {
	call := s.ContinuedCall()
	if call == nil || call.Call.ID != id {
		return ""
	}
	return preview(call.Input().Answer.Text)
}

// firstExpiry is when the first of what children wait for lapses.
func firstExpiry(children []v1alpha1.PendingChild) metav1.Time {
	var first metav1.Time
	for _, child := range children {
		if child.ExpiresAt != nil && (first.IsZero() || child.ExpiresAt.Before(&first)) {
			first = *child.ExpiresAt
		}
	}
	return first
}

// preview shows the beginning of arguments, and says so where that is not all.
func preview(arguments string) string {
	if shown := strictjson.Preview([]byte(arguments), maxPreview); len(arguments) <= maxPreview {
		return shown
	}
	note := fmt.Sprintf(" [cut: %d bytes in all; the journal has the rest]", len(arguments))
	return strictjson.Preview([]byte(arguments), maxPreview-len(note)) + note
}

// pendingArguments finds the arguments of what is pending by digest, calls and intents alike.
func pendingArguments(s *journal.State) map[string]string {
	arguments := map[string]string{}
	if turn := s.OpenTurn(); turn != nil {
		for _, call := range turn.Decision.Calls {
			arguments[call.ArgumentsDigest] = call.Arguments
		}
		for _, intent := range turn.Decision.Intents {
			arguments[intent.ArgumentsDigest] = intent.Arguments
		}
	}
	return arguments
}

func question(s *journal.State) *v1alpha1.Question {
	if s.Question == nil {
		return nil
	}
	shown := &v1alpha1.Question{ID: s.Question.ID, Text: strictjson.Preview([]byte(s.Question.Text), maxQuestion), ExpiresAt: stamp(s.Question.ExpiresAt)}
	if call := s.AskingCall(); call != nil {
		shown.Tool, shown.CallID, shown.Digest = call.Call.Tool, call.Call.ID, askedDigest(call)
	}
	return shown
}

// askedDigest covers a call and everything that its service asks.
func askedDigest(call *journal.CallState) string {
	asked, err := json.Marshal(call.Input().Asked)
	if err != nil {
		return "" // it was read from JSON
	}
	return strictjson.Digest(append([]byte(call.Call.ArgumentsDigest+"\n"), asked...))
}

func result(s *journal.State) *v1alpha1.Result {
	if s.Finished == nil || s.Finished.Answer == nil {
		return nil
	}
	whole := *s.Finished.Answer
	text := cut(whole, maxResultText)
	return &v1alpha1.Result{Text: text, Truncated: len(text) < len(whole), Digest: strictjson.Digest([]byte(whole))}
}

// stamp is a time as the API server keeps it, so that a status which was stored equals
// the one it was derived as.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func waitingMessage(f Facts) string {
	switch {
	case f.Message != "":
		return f.Message
	case f.Waiting == v1alpha1.ReasonRunning && f.State.OpenTurn() != nil:
		return fmt.Sprintf("the calls of turn %d run", f.State.Turns)
	case f.Waiting == v1alpha1.ReasonRunning:
		return fmt.Sprintf("the model decides on turn %d", f.State.Turns+1)
	case f.Waiting == v1alpha1.ReasonPending:
		return "the operator has not begun yet"
	default:
		return string(f.Waiting)
	}
}

// cost in dollars, children included; empty where no Model has prices.
func cost(s *journal.State) string {
	if s.Run == nil || s.Run.Model.Prices == nil && s.Children.Cost == 0 {
		return ""
	}
	return s.TotalCost().String()
}
