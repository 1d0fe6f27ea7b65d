package run

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// inJobs is the sample policy with every tool's calls in Jobs.
func inJobs() *v1alpha1.ToolPolicySpec {
	spec := withProperties(v1alpha1.ToolProperties{Match: []string{"s.act"}, TimeoutSeconds: 600})
	job := &v1alpha1.JobServer{}
	for _, t := range spec.Servers[0].HTTP.Tools {
		job.Tools = append(job.Tools, v1alpha1.JobTool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema})
	}
	spec.Servers[0].HTTP, spec.Servers[0].Job = nil, job
	return ptr.To(spec)
}

// TestJobsOfALostSender checks that a call whose Job is known by name is asked about when
// its sender is gone, where any other would be unknown at once.
func TestJobsOfALostSender(t *testing.T) {
	gone := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown}
	lost := func(more ...act) []act { return append([]act{calls(called("a:act", `{}`)), restarts}, more...) }
	playAll(t, map[string]scene{
		"waits for its Job":         {spec: inJobs(), acts: lost(), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
		"has its Job's result":      {spec: inJobs(), acts: lost(untilThen, learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"is unknown without a Job":  {spec: inJobs(), acts: lost(untilThen, learns("a", gone)), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown},
		"is never sent again":       {spec: inJobs(), acts: lost(untilThen, learns("a", gone), inTheAir()), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown},
		"that may be sent again is": {spec: inJobs(), acts: []act{calls(called("a:put", `{}`)), restarts, untilThen, inTheAir("a")}, wantKind: Await},
	})
	s := scene{spec: inJobs(), acts: lost()}.play(t)
	call := s.call("a")
	if call.Deferred == nil || call.Deferred.Handle != call.Call.EffectKey || call.Call.Handle != call.Call.EffectKey {
		t.Errorf("handle %+v of %+v", call.Deferred, call.Call)
	}
	if n := len(s.records); s.records[n-1].Event.Type == journal.TypeCallCompleted {
		t.Error("the call was given up")
	}
}

// TestAStirIsLookedAt checks that what is heard of does not wait for the next look.
func TestAStirIsLookedAt(t *testing.T) {
	s := scene{spec: patient(600), acts: []act{calls(called("a:act", `{}`)), lands("a", goesOn)}}.play(t)
	f := s.look()
	f.Now = f.Now.Add(time.Millisecond)
	if step := Next(f); step.Kind != Rest {
		t.Fatalf("%s: nothing was heard", step.Kind)
	}
	f.Stirred = true
	if step := Next(f); step.Kind != Poll || len(step.Calls) != 1 {
		t.Errorf("%s of %d calls", step.Kind, len(step.Calls))
	}
	f.Polling = map[string]bool{"a": true}
	if step := Next(f); step.Kind == Poll {
		t.Error("it is looked at twice at once")
	}
}
