package main

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
)

// sample is one run of config/samples, how it has to end, and what people do in between.
type sample struct {
	name  string
	story string

	succeeded metav1.ConditionStatus
	reason    string
	text      string // the answer; empty means any
	turns     int32  // zero means any
	toolCalls int32  // zero means any

	// executions says that the run's tool ran exactly maxRepeatedPlans times.
	executions bool

	// verdict is what a person does, and nobody means that nobody was asked.
	verdict verdict
}

type verdict string

const (
	nobody  verdict = ""
	approve verdict = "approve"
	deny    verdict = "deny"
	answer  verdict = "answer"
	cancel  verdict = "cancel"
)

var samples = []sample{
	{
		name: "lookup", story: "two read-only calls in parallel, then the answer",
		succeeded: metav1.ConditionTrue, reason: "Completed",
		text: "profile=active; policy=refund-under-100", turns: 2, toolCalls: 2,
	},
	{
		name: "delegate", story: "two runs of its own found out, each with a share of its budget",
		succeeded: metav1.ConditionTrue, reason: "Completed",
		text: "profile=active; policy=refund-under-100", turns: 2, toolCalls: 2,
	},
	{
		name: "refund-small", story: "allowed by a rule; nobody was asked",
		succeeded: metav1.ConditionTrue, reason: "Completed",
	},
	{
		name: "refund-big", story: "waited for approval, then ran exactly what was approved",
		succeeded: metav1.ConditionTrue, reason: "Completed", verdict: approve,
	},
	{
		name: "denied", story: "a person refused the call, and the rule ends the run",
		succeeded: metav1.ConditionFalse, reason: "ApprovalDenied", verdict: deny,
	},
	{
		name: "question", story: "asked a person, who answered",
		succeeded: metav1.ConditionTrue, reason: "Completed", verdict: answer,
	},
	{
		name: "slow", story: "cancelled while its tool ran",
		succeeded: metav1.ConditionFalse, reason: "Cancelled", verdict: cancel,
	},
	{
		name: "runaway", story: "never came to an end by itself",
		succeeded: metav1.ConditionFalse, reason: "MaxTurns",
	},
	{
		name: "stuck", story: "repeated the same call with the same result",
		succeeded: metav1.ConditionFalse, reason: "NoProgress", executions: true,
	},
}

func succeededOf(run *pawlv1alpha1.AgentRun) metav1.Condition {
	if condition := meta.FindStatusCondition(run.Status.Conditions, pawlv1alpha1.ConditionSucceeded); condition != nil {
		return *condition
	}
	return metav1.Condition{Status: metav1.ConditionUnknown}
}

func find(runs []pawlv1alpha1.AgentRun, name string) *pawlv1alpha1.AgentRun {
	for i := range runs {
		if runs[i].Name == name {
			return &runs[i]
		}
	}
	return nil
}

func allEnded(runs []pawlv1alpha1.AgentRun) bool {
	for _, sample := range samples {
		run := find(runs, sample.name)
		if run == nil || run.Status.CompletionTime == nil {
			return false
		}
	}
	return true
}

// check returns how a run differs from what its sample expects.
func (s sample) check(ctx context.Context, api client.Client, runs []pawlv1alpha1.AgentRun) []string {
	run := find(runs, s.name)
	if run == nil {
		return []string{"there is no such run"}
	}
	var differences []string
	differ := func(what string, want, got any) {
		if want != got {
			differences = append(differences, fmt.Sprintf("%s is %v, not %v", what, got, want))
		}
	}
	succeeded := succeededOf(run)
	differ("Succeeded", s.succeeded, succeeded.Status)
	differ("reason", s.reason, succeeded.Reason)
	if s.text != "" {
		text := ""
		if run.Status.Result != nil {
			text = run.Status.Result.Text
		}
		differ("the answer", s.text, text)
	}
	if s.turns != 0 {
		differ("turns", s.turns, run.Status.Turns)
	}
	if s.toolCalls != 0 {
		differ("toolCalls", s.toolCalls, run.Status.ToolCalls)
	}
	if s.executions {
		differ("toolCalls", run.Spec.Limits.MaxRepeatedPlans, run.Status.ToolCalls)
	}
	events, err := readJournal(ctx, api, run)
	if err != nil {
		return append(differences, err.Error())
	}
	return append(differences, s.checkVerdict(events)...)
}

// checkVerdict compares who was asked, and who answered, with what the journal says.
func (s sample) checkVerdict(events []event) []string {
	want := map[string]string{}
	switch s.verdict {
	case approve:
		want["ApprovalRequested"], want["ApprovalGranted"] = "", approver
	case deny:
		want["ApprovalRequested"], want["ApprovalDenied"] = "", approver
	case answer:
		want["QuestionAsked"], want["QuestionAnswered"] = "", approver
	case cancel, nobody:
	}
	var differences []string
	for _, kind := range []string{"ApprovalRequested", "ApprovalGranted", "ApprovalDenied", "QuestionAsked", "QuestionAnswered"} {
		by, wanted := want[kind]
		happened := false
		for _, event := range events {
			if event.Type != kind {
				continue
			}
			happened = true
			if by != "" && event.By != by {
				differences = append(differences, fmt.Sprintf("%s is by %q, not %q", kind, event.By, by))
			}
		}
		if happened != wanted {
			differences = append(differences, fmt.Sprintf("%s in the journal: %t, not %t", kind, happened, wanted))
		}
	}
	return differences
}

// event is the part of a journal's event that the demo looks at.
type event struct {
	Type string `json:"type"`
	By   string `json:"by"`
}

func readJournal(ctx context.Context, api client.Client, run *pawlv1alpha1.AgentRun) ([]event, error) {
	segments := &corev1.ConfigMapList{}
	err := api.List(ctx, segments, client.InNamespace(run.Namespace),
		client.MatchingLabels{pawlv1alpha1.LabelRunUID: string(run.UID)})
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	var events []event
	for _, segment := range segments.Items {
		for key, data := range segment.Data {
			var e event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return nil, fmt.Errorf("reading the journal: %s of %s: %w", key, segment.Name, err)
			}
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("there is no journal")
	}
	return events, nil
}
