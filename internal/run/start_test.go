package run

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

func TestBeforeARunStarts(t *testing.T) {
	cases := map[string]struct {
		configuration *Configuration
		desired       Desired
		wantKind      Kind
		wantWaiting   v1alpha1.Reason
		wantReason    v1alpha1.Reason
	}{
		"nobody looked at its references": {desired: Active, wantKind: Resolve},
		"something is missing":            {configuration: &Configuration{NotReady: "Model m does not exist"}, desired: Active, wantKind: Rest, wantWaiting: v1alpha1.ReasonConfigurationNotReady},
		"something is wrong for good":     {configuration: &Configuration{Invalid: "two policies"}, desired: Active, wantKind: Done, wantReason: v1alpha1.ReasonInvalidConfiguration},
		"all is there":                    {configuration: &Configuration{Started: sampleRun()}, desired: Active, wantKind: Await, wantWaiting: v1alpha1.ReasonRunning},
		"created suspended":               {desired: Suspended, wantKind: Rest, wantWaiting: v1alpha1.ReasonSuspended},
		"created cancelled":               {desired: Cancelled, wantKind: Done, wantReason: v1alpha1.ReasonCancelled},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil)
			s.facts.Policies, s.facts.Configuration, s.facts.Desired = compiled(t, sampleSpec()), test.configuration, test.desired
			last := s.drive()
			if last.Kind != test.wantKind || last.Waiting != string(test.wantWaiting) || s.reason() != string(test.wantReason) {
				t.Errorf("the run is to %s %s, ended %q", last.Kind, last.Waiting, s.reason())
			}
		})
	}
}

// Waiting before the start writes nothing and claims nothing.
func TestWaitingForConfigurationWritesNothing(t *testing.T) {
	s := newStage(t, nil)
	s.facts.Configuration = &Configuration{NotReady: "Model m does not exist"}
	s.drive()
	if len(s.records) != 0 {
		t.Errorf("records %v", types(s.records))
	}
}

func TestCheckSpec(t *testing.T) {
	cases := map[string]struct {
		edit func(*journal.RunStarted)
		want string
	}{
		"nothing to check": {edit: func(*journal.RunStarted) {}},
		"all sound": {edit: func(r *journal.RunStarted) {
			r.Progress = &journal.Progress{Expression: "results[0]"}
			r.Output = &journal.Output{Schema: json.RawMessage(`{"type":"object"}`), Validations: []journal.Validation{{Expression: "answer.x == 1"}}}
		}},
		"progress": {edit: func(r *journal.RunStarted) { r.Progress = &journal.Progress{Expression: "nothing("} }, want: "spec.progress.expression"},
		"schema":   {edit: func(r *journal.RunStarted) { r.Output = &journal.Output{Schema: json.RawMessage(`{"type":1}`)} }, want: "spec.output.schema"},
		"validation": {edit: func(r *journal.RunStarted) {
			r.Output = &journal.Output{Validations: []journal.Validation{{Expression: "true"}, {Expression: "args.x"}}}
		}, want: "spec.output.validations[1].expression"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckSpec(sampleRun(test.edit))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// Next is total: what no journal should hold is still a state that has a step.
func TestNextIsTotal(t *testing.T) {
	s := scene{acts: []act{calls(called("a:read", `{}`))}}.play(t)
	state := *s.state()
	turn := state.Transcript[0]
	turn.Decision.Kind = "Odd"
	state.Transcript = []journal.Turn{turn}
	f := s.look()
	f.State = &state
	if step := Next(f); step.Kind == "" {
		t.Errorf("no step for an odd decision")
	}
}
