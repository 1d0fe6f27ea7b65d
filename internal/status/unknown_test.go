package status

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// busy is a turn with a call in each phase. The keys say which.
func busy(s *journal.State) {
	add := func(key, effect string, phase journal.Phase, doubtful bool) {
		call := journal.Call{ID: "c-" + key, Tool: "s.pay", EffectKey: key, Effect: effect}
		s.Transcript[0].Calls = append(s.Transcript[0].Calls, journal.CallState{Call: call, Phase: phase, Doubtful: doubtful, LastSent: began})
	}
	s.Open, s.Transcript = true, []journal.Turn{{Number: 3}}
	add("prepared", journal.NonIdempotent, journal.PhasePrepared, false)
	add("sent", journal.NonIdempotent, journal.PhaseDispatched, false)
	add("read", journal.ReadOnly, journal.PhaseDispatched, false)
	add("outside", journal.NonIdempotent, journal.PhaseDeferred, false)
	add("retried", journal.Idempotent, journal.PhaseRetrying, false)
	add("retried-in-doubt", journal.Idempotent, journal.PhaseRetrying, true)
	add("asking-in-doubt", journal.Idempotent, journal.PhaseInput, true)
	add("done", journal.NonIdempotent, journal.PhaseDone, false)
}

func keys(effects []v1alpha1.UnknownEffect) []string {
	var out []string
	for _, effect := range effects {
		out = append(out, effect.EffectKey)
	}
	return out
}

// A journal that fails while calls are under way leaves every one of them named that may
// have taken effect.
func TestWhatWasUnderWayIsNamed(t *testing.T) {
	previous := v1alpha1.AgentRunStatus{Turns: 7, ToolCalls: 1, UnknownEffects: []v1alpha1.UnknownEffect{{EffectKey: "done", Tool: "s.pay"}, {EffectKey: "sent", Tool: "s.pay"}}}
	for name, test := range map[string]struct {
		facts   Facts
		want    []string
		outcome metav1.ConditionStatus
	}{
		"refused": {Facts{State: running(busy)}, []string{"sent", "outside", "retried-in-doubt", "asking-in-doubt"}, metav1.ConditionTrue},
		"broken":  {Facts{State: running(busy), Broken: true}, []string{"sent", "outside", "retried-in-doubt", "asking-in-doubt", "done"}, metav1.ConditionTrue},
		"gone":    {Facts{State: journal.NewState("uid-1"), Broken: true}, []string{"done", "sent"}, metav1.ConditionTrue},
		"unread":  {Facts{Broken: true}, []string{"done", "sent"}, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			test.facts.Now, test.facts.CheckpointFailed = now, "why"
			got := Derive(test.facts, previous)
			if !slices.Equal(keys(got.UnknownEffects), test.want) {
				t.Errorf("unknown are %v, want %v", keys(got.UnknownEffects), test.want)
			}
			if c := find(got.Conditions, v1alpha1.ConditionOutcomeUnknown); c.Status != test.outcome {
				t.Errorf("OutcomeUnknown is %+v", c)
			}
			if got.Turns != 7 || got.ToolCalls < 1 {
				t.Errorf("%d turns, %d calls", got.Turns, got.ToolCalls)
			}
		})
	}
}
