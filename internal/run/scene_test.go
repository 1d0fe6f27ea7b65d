package run

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
)

// scene is a run that is led through what happens to it, one act after the other.
type scene struct {
	// started edits what the run starts with, spec is its policy (sampleSpec if nil).
	started func(*journal.RunStarted)
	spec    *v1alpha1.ToolPolicySpec
	acts    []act
	// wantKind and wantWaiting are the step that the run is left with.
	wantKind    Kind
	wantWaiting v1alpha1.Reason
	// wantReason is the reason of the ending, empty for a run that is open.
	wantReason v1alpha1.Reason
	// wantClasses are the classes of the results that calls have, by id.
	wantClasses map[string]string
}

// act is one thing that happens. It gets the step that the run was left with.
type act func(s *stage, last Step)

// play plays a scene and checks what it wants.
func (c scene) play(t *testing.T) *stage {
	t.Helper()
	edit := c.started
	if edit == nil {
		edit = func(*journal.RunStarted) {}
	}
	spec := sampleSpec()
	if c.spec != nil {
		spec = *c.spec
	}
	s := newStage(t, sampleRun(edit))
	s.facts.Policies = compiled(t, spec)
	last := s.drive()
	for _, happens := range c.acts {
		happens(s, last)
		last = s.drive()
	}
	if c.wantKind != "" && last.Kind != c.wantKind || c.wantWaiting != "" && last.Waiting != string(c.wantWaiting) {
		t.Errorf("the run is to %s %s, want %s %s", last.Kind, last.Waiting, c.wantKind, c.wantWaiting)
	}
	if s.reason() != string(c.wantReason) {
		t.Errorf("the run ended as %q, want %q", s.reason(), c.wantReason)
	}
	if classes := s.classes(); c.wantClasses != nil && !maps.Equal(c.wantClasses, classes) {
		t.Errorf("results, -want +got:\n%s", cmp.Diff(c.wantClasses, classes))
	}
	return s
}

func playAll(t *testing.T, scenes map[string]scene) {
	t.Helper()
	for name, c := range scenes {
		t.Run(name, func(t *testing.T) { c.play(t) })
	}
}

// Acts.

func says(reply model.Reply) act { return func(s *stage, _ Step) { s.answer(reply) } }

func calls(proposed ...model.Call) act { return says(proposes(proposed...)) }

func breaks(failure model.Error) act { return func(s *stage, _ Step) { s.fail(&failure) } }

func lands(id string, outcome tool.Outcome) act {
	return func(s *stage, _ Step) { s.land(id, outcome) }
}

func passes(d time.Duration) act {
	return func(s *stage, _ Step) { s.facts.Now = s.facts.Now.Add(d) }
}

// untilThen lets time pass until the run wants to be looked at.
func untilThen(s *stage, last Step) {
	if !last.Until.After(s.facts.Now) {
		s.t.Fatalf("the run waits for %s", last.Until)
	}
	s.facts.Now = last.Until
}

func restarts(s *stage, _ Step) { s.restart() }

func wants(desired Desired) act { return func(s *stage, _ Step) { s.facts.Desired = desired } }

func rules(spec v1alpha1.ToolPolicySpec) act {
	return func(s *stage, _ Step) { s.facts.Policies = compiled(s.t, spec) }
}

func noRules(s *stage, _ Step) {
	s.facts.Policies, s.facts.PoliciesProblem = nil, "ToolPolicy tools does not exist"
}

func approves(s *stage, _ Step) {
	if s.state().Approval == nil {
		s.t.Fatalf("nothing is pending")
	}
	s.facts.Verdicts = Verdicts{Approve: s.state().Approval.Digest, ApproveBy: "ann"}
}

func denies(s *stage, _ Step) {
	if s.state().Approval == nil {
		s.t.Fatalf("nothing is pending")
	}
	s.facts.Verdicts = Verdicts{Deny: s.state().Approval.Digest, DenyBy: "ann", DenyReason: "too much"}
}

func answers(text string) act {
	return func(s *stage, _ Step) {
		if s.state().Question == nil {
			s.t.Fatalf("nothing is asked")
		}
		s.facts.Verdicts = Verdicts{Answers: map[string]string{s.state().Question.ID: text}, AnswerBy: "ann"}
	}
}

func settlesAs(effect string) act {
	return func(s *stage, _ Step) {
		s.facts.Verdicts = Verdicts{Settlements: map[string]string{}, SettleBy: "ann"}
		for _, unknown := range s.state().Unknown {
			s.facts.Verdicts.Settlements[unknown.EffectKey] = effect
		}
	}
}

// inTheAir checks which calls are under way.
func inTheAir(want ...string) act {
	return func(s *stage, _ Step) {
		got := map[string]bool{}
		for id := range s.calls {
			got[id] = true
		}
		wanted := map[string]bool{}
		for _, id := range want {
			wanted[id] = true
		}
		if !maps.Equal(got, wanted) {
			s.t.Fatalf("under way are %v, want %v", got, wanted)
		}
	}
}

// waitsFor checks what the run waits for.
func waitsFor(reason v1alpha1.Reason) act {
	return func(s *stage, last Step) {
		if last.Waiting != string(reason) {
			s.t.Fatalf("the run waits for %s %q (%s), want %s", last.Kind, last.Waiting, last.Message, reason)
		}
	}
}

// reads is the start of a scene in which the model has one thing read, n being what
// tells its turns apart.
func reads(n int) act { return says(readsAgain(n)) }
