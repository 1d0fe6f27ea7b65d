package run

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/status"
)

// checkStep checks what holds for every step, whatever the facts.
func (w *world) checkStep(f Facts, step Step) {
	if waits(step) {
		w.busy = 0
		w.checkUntil(f, step)
	} else if w.busy++; w.busy > 40 {
		w.t.Fatalf("the run goes on without waiting for anything: %v", types(w.records[max(0, len(w.records)-20):]))
	}
	flying := f.ModelInFlight || len(f.InFlight) > 0
	problems := map[string]bool{
		"it changes nothing, or changes something and waits": waits(step) == (len(step.Events) > 0 || step.Kind == AskModel || inquires(step)),
		"the run has ended":                          f.State.Finished != nil && step.Kind != Done && !settles(step),
		"nothing is under way that could be stopped": step.Kind == Stop && !flying && len(f.Polling) == 0,
		"it lets go although something is under way": step.Kind == Rest && flying,
		"it does not say what for":                   (step.Kind == Rest || step.Kind == Await) && step.Waiting == "",
		"its message quotes the conversation":        strings.Contains(step.Message, marker),
	}
	for problem, found := range problems {
		if found {
			w.t.Fatalf("%s %s (%s): %s", step.Kind, step.Waiting, step.Message, problem)
		}
	}
}

func inquires(step Step) bool { return step.Kind == Poll || step.Kind == Recall }

// settles is true for the one thing that may follow an ending.
func settles(step Step) bool {
	return step.Kind == Commit && len(step.Events) == 1 && step.Events[0].Payload.Type() == journal.TypeEffectReconciled
}

// checkUntil checks that a run which waits has nothing to do before the time it names.
func (w *world) checkUntil(f Facts, step Step) {
	if step.Kind != Rest && step.Kind != Await {
		return
	}
	if !step.Until.IsZero() && !step.Until.After(f.Now) {
		w.t.Fatalf("%s until %s, which is not after now", step.Kind, step.Until)
	}
	later := f
	later.Now = f.Now.Add(pick(w.rapid, "meanwhile", time.Second, 10*time.Minute, 25*time.Hour))
	if !step.Until.IsZero() && !later.Now.Before(step.Until) {
		later.Now = step.Until.Add(-time.Millisecond)
	}
	if step.Kind == Await || step.Waiting == journal.WaitingForTool {
		later.Active += later.Now.Sub(f.Now)
	}
	if then := Next(later); then.Kind != step.Kind || then.Waiting != step.Waiting {
		w.t.Fatalf("%s %s until %s, but at %s it is to %s %s", step.Kind, step.Waiting, step.Until, later.Now, then.Kind, then.Waiting)
	}
}

// checkState checks what holds for every state, and its projections.
func (w *world) checkState(step Step) {
	s := w.state()
	if s.Usage.InputTokens < 0 || s.Usage.OutputTokens < 0 {
		w.t.Fatalf("usage is negative: %+v", s.Usage)
	}
	if s.Run != nil && s.Turns > s.Run.Limits.MaxTurns {
		w.t.Fatalf("turn %d of %d", s.Turns, s.Run.Limits.MaxTurns)
	}
	if s.Finished != nil {
		for i := range s.Transcript {
			w.ledger.settled(&s.Transcript[i])
		}
		if err := strict(conversation(s)); err != nil {
			w.t.Fatalf("the transcript of the ended run is not valid: %v", err)
		}
	}
	waiting := v1alpha1.Reason(step.Waiting)
	if waiting == "" {
		waiting = v1alpha1.ReasonRunning
	}
	facts := status.Facts{
		Now: w.facts.Now, Generation: 1, State: s, Segments: 1, Waiting: waiting, Message: step.Message,
		VerdictProblem: w.facts.Verdicts.Problem(s),
	}
	next := stored(w.t, status.Derive(facts, w.status))
	w.checkConditions(next)
	if again := status.Derive(facts, next); !equality.Semantic.DeepEqual(next, again) {
		w.t.Fatalf("the same facts give another status:\n%s", cmp.Diff(next, again))
	}
	w.status = next
}

// conversation is what the model would read next, where the run got so far.
func conversation(s *journal.State) []model.Message {
	if s.Run == nil {
		return []model.Message{{Role: model.RoleUser, Text: "nothing was asked"}}
	}
	return prompt.Project(s).Messages
}

// stored is a status as the API server gives it back.
func stored(t tb, s v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("encoding status: %v", err)
	}
	var back v1alpha1.AgentRunStatus
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatalf("decoding status: %v", err)
	}
	return back
}

var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func (w *world) checkConditions(next v1alpha1.AgentRunStatus) {
	byType := map[string]metav1.Condition{}
	for _, c := range next.Conditions {
		byType[c.Type] = c
		if !conditionReason.MatchString(c.Reason) || len(c.Message) > 1024 || strings.Contains(c.Message, marker) || strings.Contains(c.Reason, marker) {
			w.t.Fatalf("condition %+v is not sound", c)
		}
	}
	if len(byType) != 7 || len(next.Conditions) != 7 {
		w.t.Fatalf("there are %d conditions", len(next.Conditions))
	}
	w.checkEnding(byType, next.CompletionTime != nil)
	succeeded := byType[v1alpha1.ConditionSucceeded]
	if known := reasonsOf(succeeded.Status); !slices.Contains(known, v1alpha1.Reason(succeeded.Reason)) {
		w.t.Fatalf("Succeeded is %s because of %s, which is no reason for it", succeeded.Status, succeeded.Reason)
	}
	for _, old := range w.status.Conditions {
		if now := byType[old.Type]; old.Status != now.Status && (old.Type == v1alpha1.ConditionSucceeded && old.Status != metav1.ConditionUnknown) {
			w.t.Fatalf("Succeeded went from %s to %s", old.Status, now.Status)
		}
	}
}

// checkEnding checks that all that says whether the run has ended says the same.
func (w *world) checkEnding(byType map[string]metav1.Condition, completed bool) {
	ended := byType[v1alpha1.ConditionSucceeded].Status != metav1.ConditionUnknown
	finished := byType[v1alpha1.ConditionFinished].Status == metav1.ConditionTrue
	reconciling, stalled := byType[v1alpha1.ConditionReconciling].Status, byType[v1alpha1.ConditionStalled].Status
	if ended != (w.state().Finished != nil) || ended != completed || ended != finished || ended == (reconciling == metav1.ConditionTrue) {
		w.t.Fatalf("the conditions do not agree on whether the run has ended: %+v", byType)
	}
	for _, wait := range []string{v1alpha1.ConditionApprovalRequired, v1alpha1.ConditionInputRequired} {
		if ended && byType[wait].Status == metav1.ConditionTrue {
			w.t.Fatalf("%s is True although the run has ended", wait)
		}
	}
	if reconciling == metav1.ConditionTrue && stalled == metav1.ConditionTrue {
		w.t.Fatalf("Reconciling and Stalled are both True")
	}
}

func reasonsOf(s metav1.ConditionStatus) []v1alpha1.Reason {
	switch s {
	case metav1.ConditionTrue:
		return []v1alpha1.Reason{v1alpha1.ReasonCompleted}
	case metav1.ConditionFalse:
		return []v1alpha1.Reason{
			v1alpha1.ReasonApprovalDenied, v1alpha1.ReasonApprovalExpired, v1alpha1.ReasonPolicyDenied, v1alpha1.ReasonCancelled,
			v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonMaxTurns, v1alpha1.ReasonToolBudgetExhausted, v1alpha1.ReasonTokenBudgetExhausted, v1alpha1.ReasonCostBudgetExhausted,
			v1alpha1.ReasonNoProgress, v1alpha1.ReasonInvalidDecision, v1alpha1.ReasonOutputInvalid, v1alpha1.ReasonModelError,
			v1alpha1.ReasonModelRefused, v1alpha1.ReasonCannotContinue, v1alpha1.ReasonInputExpired, v1alpha1.ReasonToolUnavailable,
			v1alpha1.ReasonOutcomeUnknown, v1alpha1.ReasonContextOverflow, v1alpha1.ReasonCheckpointFailed, v1alpha1.ReasonInvalidConfiguration,
		}
	default:
		return []v1alpha1.Reason{
			v1alpha1.ReasonPending, v1alpha1.ReasonRunning, v1alpha1.ReasonApprovalRequired, v1alpha1.ReasonInputRequired,
			v1alpha1.ReasonOutcomeUnknown, v1alpha1.ReasonModelUnavailable, v1alpha1.ReasonWaitingForTool, v1alpha1.ReasonConfigurationNotReady, v1alpha1.ReasonSuspended,
		}
	}
}

// strict is what a strict provider demands of a conversation.
func strict(messages []model.Message) error {
	if len(messages) == 0 || messages[0].Role != model.RoleUser {
		return fmt.Errorf("the conversation does not begin with the user")
	}
	for i := 0; i < len(messages); i++ {
		switch m := messages[i]; m.Role {
		case model.RoleUser:
			if m.Text == "" {
				return fmt.Errorf("message %d of the user is empty", i)
			}
		case model.RoleAssistant:
			if m.Text == "" && len(m.Calls) == 0 {
				return fmt.Errorf("message %d of the assistant is empty", i)
			}
			if len(messages) < i+1+len(m.Calls) {
				return fmt.Errorf("calls of message %d have no results", i)
			}
			seen := map[string]bool{}
			for j, call := range m.Calls {
				result := messages[i+1+j]
				if call.ID == "" || seen[call.ID] || result.Role != model.RoleTool || result.CallID != call.ID {
					return fmt.Errorf("call %d (%q) of message %d is not followed by its one result", j, call.ID, i)
				}
				seen[call.ID] = true
			}
			i += len(m.Calls)
		default:
			return fmt.Errorf("message %d has role %q and answers no call", i, m.Role)
		}
	}
	return nil
}
