package run

import (
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// afterwards settles late what is still unknown, and checks that nothing else changes.
func (w *world) afterwards() {
	ending := *w.state().Finished
	for range len(w.state().Unknown) + 1 {
		w.human()
		if chance(w.rapid, "diesLate", 4) {
			w.die()
		}
		w.facts.Desired = pick(w.rapid, "desired", Active, Suspended, Cancelled)
		w.step()
	}
	if diff := cmp.Diff(ending, *w.state().Finished); diff != "" {
		w.t.Fatalf("the ending changed:\n%s", diff)
	}
}

// conclude checks that the run comes to an end once people answer, or once nobody
// does and time passes.
func (w *world) conclude() {
	people := rapid.Bool().Draw(w.rapid, "peopleAnswer")
	for range 800 {
		step := w.step()
		switch step.Kind {
		case Done:
			return
		case Resolve:
			w.facts.Configuration = &Configuration{Started: w.started}
		case Stop:
			w.landOne()
		case Await:
			if w.asked == nil && len(w.calls) == 0 && len(w.inquiries) == 0 {
				w.passTo(step)
				continue
			}
			w.landOne()
		case Rest:
			if len(w.inquiries) > 0 {
				w.landOne()
				continue
			}
			if step.Waiting == journal.WaitingForTool {
				w.passTo(step)
				continue
			}
			if people || step.Until.IsZero() {
				w.help(step)
				continue
			}
			w.passTo(step)
		default:
		}
	}
	w.t.Fatalf("no end in sight: %v", types(w.records[max(0, len(w.records)-20):]))
}

func (w *world) passTo(step Step) {
	if !step.Until.After(w.facts.Now) {
		w.t.Fatalf("%s waits for %s, which is not after now (%s)", step.Kind, step.Until, w.facts.Now)
	}
	w.facts.Now = step.Until
}

// help gives the run what it says that it waits for.
func (w *world) help(step Step) {
	s, v := w.state(), &w.facts.Verdicts
	switch v1alpha1.Reason(step.Waiting) {
	case v1alpha1.ReasonApprovalRequired:
		*v = Verdicts{Approve: s.Approval.Digest, ApproveBy: "ann"}
		if chance(w.rapid, "denies", 4) {
			*v = Verdicts{Deny: s.Approval.Digest, DenyBy: "ann"}
		}
	case v1alpha1.ReasonInputRequired:
		*v = Verdicts{Answers: map[string]string{s.Question.ID: marker}, AnswerBy: "ann"}
		if s.AskingCall() != nil {
			v.Answers[s.Question.ID] = pick(w.rapid, "input", `{"k":"`+marker+`"}`, `{"k":"x"}`, decline)
		}
	case v1alpha1.ReasonOutcomeUnknown:
		*v = Verdicts{Settlements: map[string]string{}, SettleBy: "ann"}
		for _, unknown := range s.Unknown {
			v.Settlements[unknown.EffectKey] = pick(w.rapid, "settlement", "committed", "rejected")
		}
	case v1alpha1.ReasonWaitingForTool:
		w.passTo(step)
	case v1alpha1.ReasonSuspended:
		w.facts.Desired = Active
	case v1alpha1.ReasonConfigurationNotReady:
		w.facts.Policies = w.rules[0]
		w.facts.Configuration = &Configuration{Started: w.started}
	default:
		w.t.Fatalf("the run waits for %q, and nobody knows what that is", step.Waiting)
	}
}
