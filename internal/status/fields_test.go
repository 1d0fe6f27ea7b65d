package status

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

func at(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func TestFields(t *testing.T) {
	cases := map[string]struct {
		facts Facts
		got   func(v1alpha1.AgentRunStatus) any
		want  any
	}{
		"journal": {
			facts: states()["running"], got: func(s v1alpha1.AgentRunStatus) any { return *s.Journal },
			want: v1alpha1.Journal{Events: 9, Segments: 3, Bytes: 8120, Head: "sha256:head"},
		},
		"no journal before it began": {
			facts: states()["pending"], got: func(s v1alpha1.AgentRunStatus) any { return s.Journal == nil && s.StartTime == nil && s.Usage == nil },
			want: true,
		},
		"owner": {
			facts: states()["running"], got: func(s v1alpha1.AgentRunStatus) any { return *s.Owner },
			want: v1alpha1.Owner{Worker: "pawl-a", Epoch: 3},
		},
		"no owner while people are asked": {
			facts: states()["approval required"], got: func(s v1alpha1.AgentRunStatus) any { return s.Owner == nil },
			want: true,
		},
		"usage": {
			facts: states()["running"], got: func(s v1alpha1.AgentRunStatus) any { return *s.Usage },
			want: v1alpha1.Usage{TotalTokens: 1000, InputTokens: 900, OutputTokens: 100, CacheReadTokens: 300, ReasoningTokens: 40, Estimated: true},
		},
		"turns and calls": {
			facts: states()["running"], got: func(s v1alpha1.AgentRunStatus) any { return [2]int32{s.Turns, s.ToolCalls} },
			want: [2]int32{2, 2},
		},
		"pending": {
			facts: states()["approval required"], got: func(s v1alpha1.AgentRunStatus) any { return *s.Pending },
			want: v1alpha1.Pending{
				Digest: "sha256:pending", ExpiresAt: at(now.Add(time.Hour)), Message: "Refund over 100",
				Calls: []v1alpha1.PendingCall{{
					ID: "c1", Tool: "s.pay", Rule: "refunds", Effect: v1alpha1.EffectNonIdempotent, EffectKey: "pawl-1",
					ArgumentsPreview: `{"n":1}`, ArgumentsDigest: strictjson.Digest([]byte(`{"n":1}`)),
				}},
			},
		},
		"question": {
			facts: states()["input required"], got: func(s v1alpha1.AgentRunStatus) any { return *s.Question },
			want: v1alpha1.Question{ID: "q-3-0a1b2c3d", Text: "Which order?", ExpiresAt: at(now.Add(time.Hour))},
		},
		"unknown effects stay after the end": {
			facts: states()["ended with a doubt"], got: func(s v1alpha1.AgentRunStatus) any { return s.UnknownEffects },
			want: []v1alpha1.UnknownEffect{{EffectKey: "pawl-1", Tool: "s.pay", Since: at(began)}},
		},
		"result": {
			facts: states()["ended: Completed"], got: func(s v1alpha1.AgentRunStatus) any { return *s.Result },
			want: v1alpha1.Result{Text: "42", Digest: strictjson.Digest([]byte("42"))},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.got(Derive(test.facts, v1alpha1.AgentRunStatus{}))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWhatIsShownIsBounded(t *testing.T) {
	long := strings.Repeat("ü", 5000)
	facts := states()["ended: Completed"]
	facts.State = running(answering(long))
	status := Derive(facts, v1alpha1.AgentRunStatus{})
	if r := status.Result; len(r.Text) > maxResultText || !r.Truncated || !utf8.ValidString(r.Text) || r.Digest != strictjson.Digest([]byte(long)) {
		t.Errorf("result of %d bytes, truncated %v, digest %s", len(r.Text), r.Truncated, r.Digest)
	}

	facts = states()["approval required"]
	facts.State.Transcript[0].Decision.Calls[0].Arguments = long
	facts.State.Approval.Message = long
	for range 100 {
		facts.State.Approval.Calls = append(facts.State.Approval.Calls, facts.State.Approval.Calls[0])
		facts.State.Unknown = append(facts.State.Unknown, journal.UnknownEffect{EffectKey: "pawl-1"})
	}
	facts.Message = long
	status = Derive(facts, v1alpha1.AgentRunStatus{})
	if p := status.Pending; len(p.Calls) > maxPendingCalls || len(p.Message) > maxPreview || len(p.Calls[0].ArgumentsPreview) > maxPreview {
		t.Errorf("pending has %d calls, a message of %d and a preview of %d bytes", len(p.Calls), len(p.Message), len(p.Calls[0].ArgumentsPreview))
	}
	if len(status.UnknownEffects) > maxUnknown {
		t.Errorf("%d unknown effects", len(status.UnknownEffects))
	}
	for _, c := range status.Conditions {
		if len(c.Message) > maxMessage || !utf8.ValidString(c.Message) {
			t.Errorf("message of %s has %d bytes", c.Type, len(c.Message))
		}
	}
}

// CheckpointFailed is derived without a journal, from what status said before.
func TestCheckpointFailedKeepsWhatWasKnown(t *testing.T) {
	previous := Derive(states()["outcome unknown"], v1alpha1.AgentRunStatus{})
	got := Derive(states()["checkpoint failed"], previous)
	if diff := cmp.Diff(previous.UnknownEffects, got.UnknownEffects); diff != "" {
		t.Errorf("unknown effects, -before +after:\n%s", diff)
	}
	if diff := cmp.Diff(previous.Journal, got.Journal); diff != "" {
		t.Errorf("journal, -before +after:\n%s", diff)
	}
	if got.Owner != nil || got.Pending != nil || got.Question != nil || got.CompletionTime == nil || !got.StartTime.Equal(previous.StartTime) {
		t.Errorf("status %+v", got)
	}
	if c := find(got.Conditions, v1alpha1.ConditionOutcomeUnknown); c.Status != metav1.ConditionTrue {
		t.Errorf("OutcomeUnknown is %s", c.Status)
	}
}

// The status of an ended run speaks of the newest generation, or whoever goes by it
// would wait for ever.
func TestAnEndedRunIsObserved(t *testing.T) {
	ended := Derive(states()["ended: MaxTurns"], v1alpha1.AgentRunStatus{})
	facts := states()["running"]
	facts.Generation = 9
	for name, got := range map[string]v1alpha1.AgentRunStatus{"derived": Derive(facts, ended), "observed": Observed(ended, 9)} {
		want := *ended.DeepCopy()
		want.ObservedGeneration = 9
		for i := range want.Conditions {
			want.Conditions[i].ObservedGeneration = 9
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}
