package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	began  = time.Date(2026, 3, 1, 8, 0, 0, 250_000_000, time.UTC)
	now    = time.Date(2026, 3, 1, 9, 30, 0, 750_000_000, time.UTC)
	before = metav1.NewTime(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))
)

// running is a run in its third turn.
func running(edits ...func(*journal.State)) *journal.State {
	s := journal.NewState("uid-1")
	s.Events, s.Bytes, s.Head, s.StartTime, s.Epoch, s.Owner = 9, 8120, "sha256:head", began, 3, "pawl-a"
	s.Run = &journal.RunStarted{Prompt: "secret prompt"}
	s.Turns, s.ToolCalls = 2, 2
	s.Usage = journal.Usage{InputTokens: 900, OutputTokens: 100, CacheReadTokens: 300, ReasoningTokens: 40, Estimated: true}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// asking has a call before people.
func asking(s *journal.State) {
	call := journal.Call{ID: "c1", Tool: "s.pay", Arguments: `{"n":1}`, ArgumentsDigest: strictjson.Digest([]byte(`{"n":1}`))}
	s.Transcript = []journal.Turn{{Number: 3, Decision: journal.DecisionMade{Calls: []journal.Call{call}}, Calls: []journal.CallState{{Call: call}}}}
	s.Open, s.Owner = true, ""
	s.Approval = &journal.ApprovalRequested{
		Digest: "sha256:pending", ExpiresAt: now.Add(time.Hour), Message: "Refund over 100",
		Calls: []journal.PendingCall{{ID: "c1", Tool: "s.pay", Rule: "refunds", Effect: "NonIdempotent", EffectKey: "pawl-1", ArgumentsDigest: call.ArgumentsDigest}},
	}
}

func questioning(s *journal.State) {
	s.Owner = ""
	s.Question = &journal.QuestionAsked{ID: "q-3-0a1b2c3d", CallID: "c1", Text: "Which order?", ExpiresAt: now.Add(time.Hour)}
}

func doubting(s *journal.State) {
	s.Unknown = []journal.UnknownEffect{{CallID: "c1", EffectKey: "pawl-1", Tool: "s.pay", Since: began, NotedAt: began}}
}

func ending(reason, message string) func(*journal.State) {
	return func(s *journal.State) {
		s.Owner, s.Finished, s.FinishedAt = "", &journal.Finished{Reason: reason, Message: message}, now
	}
}

func answering(answer string) func(*journal.State) {
	return func(s *journal.State) {
		ending("Completed", "the model gave an answer")(s)
		s.Finished.Answer = &answer
	}
}

// states are the kinds of states that a run can be in.
func states() map[string]Facts {
	waiting := func(reason v1alpha1.Reason, message string, edits ...func(*journal.State)) Facts {
		return Facts{Now: now, Generation: 4, Segments: 3, State: running(edits...), Waiting: reason, Message: message}
	}
	facts := map[string]Facts{
		"pending":                 {Now: now, Generation: 4, State: journal.NewState("uid-1"), Waiting: v1alpha1.ReasonPending},
		"running":                 waiting(v1alpha1.ReasonRunning, ""),
		"approval required":       waiting(v1alpha1.ReasonApprovalRequired, "1 calls wait for approval of sha256:pending", asking),
		"input required":          waiting(v1alpha1.ReasonInputRequired, "question q-3-0a1b2c3d waits for an answer", questioning),
		"outcome unknown":         waiting(v1alpha1.ReasonOutcomeUnknown, "nobody knows whether a call of s.pay took effect", doubting),
		"model unavailable":       waiting(v1alpha1.ReasonModelUnavailable, "attempt 1 of 3 failed: Transient, status 503"),
		"configuration not ready": waiting(v1alpha1.ReasonConfigurationNotReady, "ToolPolicy tools does not exist"),
		"suspended":               waiting(v1alpha1.ReasonSuspended, "spec.state is Suspended"),
		"suspended while asking":  waiting(v1alpha1.ReasonSuspended, "spec.state is Suspended", asking),
		"ended: Completed":        waiting(v1alpha1.ReasonRunning, "", answering("42")),
		"ended with a doubt":      waiting(v1alpha1.ReasonRunning, "", doubting, ending("Cancelled", "spec.state was set to Cancelled")),
		"checkpoint failed":       {Now: now, Generation: 4, CheckpointFailed: "journal pawl-journal-uid-1-0002: the event is missing"},
	}
	for _, reason := range []v1alpha1.Reason{
		v1alpha1.ReasonApprovalDenied, v1alpha1.ReasonApprovalExpired, v1alpha1.ReasonPolicyDenied, v1alpha1.ReasonCancelled,
		v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonMaxTurns, v1alpha1.ReasonNoProgress, v1alpha1.ReasonInvalidConfiguration,
	} {
		facts["ended: "+string(reason)] = waiting(v1alpha1.ReasonRunning, "", ending(string(reason), "why it ended"))
	}
	wrong := waiting(v1alpha1.ReasonApprovalRequired, "1 calls wait for approval of sha256:pending", asking)
	wrong.VerdictProblem = "the annotation pawl.run/approve does not name what is pending"
	facts["a verdict that does not act"] = wrong
	return facts
}

// The truth table of conditions, for each kind of state.
func TestConditions(t *testing.T) {
	facts := states()
	var table bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		fmt.Fprintf(&table, "%s\n", name)
		status := Derive(facts[name], v1alpha1.AgentRunStatus{})
		for _, c := range status.Conditions {
			fmt.Fprintf(&table, "  %-17s %-8s %-22s %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	const golden = "testdata/conditions.txt"
	if *update {
		if err := os.WriteFile(golden, table.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), table.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEveryStateIsSoundForKstatus(t *testing.T) {
	for name, facts := range states() {
		t.Run(name, func(t *testing.T) {
			status := Derive(facts, v1alpha1.AgentRunStatus{})
			is := map[string]metav1.ConditionStatus{}
			for _, c := range status.Conditions {
				is[c.Type] = c.Status
				if c.ObservedGeneration != facts.Generation || c.Reason == "" || len(c.Message) > maxMessage || strings.Contains(c.Message, "secret") {
					t.Errorf("condition %+v", c)
				}
			}
			ended := is[v1alpha1.ConditionSucceeded] != metav1.ConditionUnknown
			if is[v1alpha1.ConditionReconciling] == metav1.ConditionTrue && is[v1alpha1.ConditionStalled] == metav1.ConditionTrue {
				t.Errorf("Reconciling and Stalled are both True")
			}
			if open := is[v1alpha1.ConditionReconciling] == metav1.ConditionTrue; open == ended {
				t.Errorf("Reconciling is %v in a run with Succeeded=%s", open, is[v1alpha1.ConditionSucceeded])
			}
			if stalled := is[v1alpha1.ConditionStalled] == metav1.ConditionTrue; stalled != (is[v1alpha1.ConditionSucceeded] == metav1.ConditionFalse) {
				t.Errorf("Stalled is %v in a run with Succeeded=%s", stalled, is[v1alpha1.ConditionSucceeded])
			}
			if (status.CompletionTime != nil) != ended || (is[v1alpha1.ConditionFinished] == metav1.ConditionTrue) != ended {
				t.Errorf("completionTime %v, Finished %s, Succeeded %s", status.CompletionTime, is[v1alpha1.ConditionFinished], is[v1alpha1.ConditionSucceeded])
			}
		})
	}
}

// What was stored and is derived again is equal, so that nothing is written twice.
func TestAStoredStatusEqualsTheDerivedOne(t *testing.T) {
	for name, facts := range states() {
		t.Run(name, func(t *testing.T) {
			first := stored(t, Derive(facts, v1alpha1.AgentRunStatus{}))
			facts.Now = facts.Now.Add(time.Minute)
			if again := Derive(facts, first); !equality.Semantic.DeepEqual(first, again) {
				t.Errorf("-stored +derived again:\n%s", cmp.Diff(first, again))
			}
		})
	}
}

func stored(t *testing.T, status v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
	t.Helper()
	data, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.AgentRunStatus
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// Whatever becomes of the journal of a run that has ended, the ending stays, whole.
func TestAnEndingIsNeverTakenBack(t *testing.T) {
	all := states()
	for from, before := range all {
		ended := Derive(before, v1alpha1.AgentRunStatus{})
		if find(ended.Conditions, v1alpha1.ConditionSucceeded).Status == metav1.ConditionUnknown {
			continue
		}
		for to, after := range all {
			if ended := after.State != nil && after.State.Finished != nil; ended && before.State != nil && from != to {
				continue // the journal has one ending only
			}
			t.Run(from+" then "+to, func(t *testing.T) {
				next := Derive(after, ended)
				old, got := find(ended.Conditions, v1alpha1.ConditionSucceeded), find(next.Conditions, v1alpha1.ConditionSucceeded)
				if diff := cmp.Diff(old, got); diff != "" {
					t.Errorf("Succeeded changed:\n%s", diff)
				}
				if !next.CompletionTime.Equal(ended.CompletionTime) {
					t.Errorf("completionTime went from %v to %v", ended.CompletionTime, next.CompletionTime)
				}
				if find(next.Conditions, v1alpha1.ConditionFinished).Status != metav1.ConditionTrue {
					t.Errorf("Finished is not True any more")
				}
				stalled := find(next.Conditions, v1alpha1.ConditionStalled).Status == metav1.ConditionTrue
				if stalled != (got.Status == metav1.ConditionFalse) {
					t.Errorf("Stalled is %v although Succeeded is %s", stalled, got.Status)
				}
			})
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	previous := Derive(states()["running"], v1alpha1.AgentRunStatus{})
	for i := range previous.Conditions {
		previous.Conditions[i].LastTransitionTime = before
	}
	next := Derive(states()["approval required"], previous)
	moved := map[string]bool{}
	for _, c := range next.Conditions {
		moved[c.Type] = !c.LastTransitionTime.Equal(&before)
	}
	want := map[string]bool{
		v1alpha1.ConditionSucceeded: false, v1alpha1.ConditionFinished: false, v1alpha1.ConditionApprovalRequired: true,
		v1alpha1.ConditionInputRequired: false, v1alpha1.ConditionOutcomeUnknown: false, v1alpha1.ConditionReconciling: false, v1alpha1.ConditionStalled: false,
	}
	if diff := cmp.Diff(want, moved); diff != "" {
		t.Errorf("conditions whose time moved, -want +got:\n%s", diff)
	}
}
