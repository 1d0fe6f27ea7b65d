package run

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// learns ends an inquiry about a call that goes on outside.
func learns(id string, outcome tool.Outcome) act {
	return func(s *stage, _ Step) { s.learn(id, outcome) }
}

// delivers is a result that somebody gives by annotation.
func delivers(id, value, by string) act {
	return func(s *stage, _ Step) {
		s.facts.Verdicts = Verdicts{Completions: map[string]json.RawMessage{id: json.RawMessage(value)}, CompleteBy: by}
	}
}

func patient(seconds int32) *v1alpha1.ToolPolicySpec {
	return ptr.To(withProperties(
		v1alpha1.ToolProperties{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, TimeoutSeconds: seconds},
		v1alpha1.ToolProperties{Match: []string{"s.act"}, TimeoutSeconds: seconds},
	))
}

func TestCallsThatGoOnOutside(t *testing.T) {
	acts := func(more ...act) []act {
		return append([]act{calls(called("a:act", `{}`)), lands("a", goesOn)}, more...)
	}
	reads := func(more ...act) []act {
		return append([]act{calls(called("r:read", `{}`)), lands("r", goesOn)}, more...)
	}
	rejectedLater := tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected}
	playAll(t, map[string]scene{
		"hold no worker":        {spec: patient(600), acts: acts(), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
		"are asked about":       {spec: patient(600), acts: acts(untilThen, learns("a", goesOn)), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
		"end with a result":     {spec: patient(600), acts: acts(untilThen, learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"end refused":           {spec: patient(600), acts: acts(untilThen, learns("a", rejectedLater)), wantKind: Await, wantClasses: map[string]string{"a": "rejected"}},
		"outlive the process":   {spec: patient(600), acts: acts(restarts, untilThen, learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"are completed by whom": {spec: patient(600), acts: acts(delivers("a", `{"done":true}`, "ann")), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"not by nobody":         {spec: patient(600), acts: acts(delivers("a", `1`, "")), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
		"not another call":      {spec: patient(600), acts: acts(delivers("b", `1`, "ann")), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
		"once done they are":    {spec: patient(600), acts: acts(untilThen, learns("a", gave(`1`)), delivers("a", `2`, "ann")), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"are called off at their deadline": {
			spec: patient(15), acts: acts(passes(15*time.Second), learns("a", goesOn), learns("a", rejectedLater)), wantKind: Await, wantClasses: map[string]string{"a": "rejected"},
		},
		"whose end nobody knows are unknown": {
			spec: patient(15), acts: acts(passes(15*time.Second), learns("a", goesOn), learns("a", goesOn)), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"of which nothing depends time out": {
			spec: patient(15), acts: reads(passes(15*time.Second), learns("r", goesOn), learns("r", goesOn)), wantKind: Await, wantClasses: map[string]string{"r": "timeout"},
		},
		"are called off when the run is cancelled": {
			spec: patient(600), acts: acts(wants(Cancelled), learns("a", rejectedLater)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "rejected"},
		},
		"stay in doubt when the run is cancelled": {
			spec: patient(600), acts: acts(wants(Cancelled), learns("a", goesOn)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "unknown"},
		},
		"count as time spent working": {
			started: limited(func(l *journal.Limits) { l.ActiveDeadlineSeconds = 60 }), spec: patient(600),
			acts: acts(passes(61*time.Second), learns("a", rejectedLater)), wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
		"go on while the run is suspended": {
			spec: patient(600), acts: acts(wants(Suspended), passes(time.Minute), wants(Active), learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"hold back what comes after them": {
			spec: patient(600), acts: []act{calls(called("a:act", `{}`), called("b:act", `{"n":2}`)), lands("a", goesOn), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool,
		},
		"with a handle beyond all bounds are unknown": {
			spec: patient(600), acts: []act{calls(called("a:act", `{}`)), lands("a", tool.Outcome{Class: tool.ClassDeferred, Deferred: &tool.Deferred{Handle: string(make([]byte, 9000))}})},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
	})
}

// Asking costs no event, however often.
func TestPollsAreNotJournalled(t *testing.T) {
	s := scene{spec: patient(600), acts: []act{calls(called("a:act", `{}`)), lands("a", goesOn)}}.play(t)
	events := len(s.records)
	for range 20 {
		step := s.drive()
		s.facts.Now = step.Until
		s.drive()
		s.learn("a", goesOn)
	}
	if len(s.records) != events {
		t.Errorf("%d events were added: %v", len(s.records)-events, types(s.records[events:]))
	}
}
