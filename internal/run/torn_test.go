package run

import (
	"maps"
	"testing"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// Events that belong together are committed together, unless they are larger than a
// segment. Where a process dies between two of them, what people said is not lost, and
// nobody is asked twice.
func TestWhatPeopleSaidSurvivesATornCommit(t *testing.T) {
	end := v1alpha1.Approval{TimeoutSeconds: 60, OnDeny: v1alpha1.ConsequenceEnd}
	cases := map[string]struct {
		scene scene
		// last is the last event that is committed.
		last        journal.Type
		wantReason  v1alpha1.Reason
		wantClasses map[string]string
	}{
		"an answer": {
			scene: scene{acts: []act{calls(called("q:ask", `{"question":"?"}`)), answers("x")}},
			last:  journal.TypeQuestionAnswered, wantClasses: map[string]string{"q": "ok"},
		},
		"an approval of what was announced": {
			scene: scene{acts: []act{calls(called("i:request_approval", `{"text":"May I?"}`)), approves}},
			last:  journal.TypeApprovalGranted, wantClasses: map[string]string{"i": "ok"},
		},
		"a denial of what was announced": {
			scene: scene{acts: []act{calls(called("i:request_approval", `{"text":"May I?"}`)), denies}},
			last:  journal.TypeApprovalDenied, wantClasses: map[string]string{"i": "denied"},
		},
		"a denial": {
			scene: scene{spec: asking(returning(60)), acts: []act{paysAndAll, denies}},
			last:  journal.TypeApprovalDenied, wantClasses: map[string]string{"r": "denied", "p1": "denied"},
		},
		"a denial that ends the run": {
			scene: scene{spec: asking(end), acts: []act{pays, denies}, wantReason: v1alpha1.ReasonApprovalDenied},
			last:  journal.TypeApprovalDenied, wantReason: v1alpha1.ReasonApprovalDenied, wantClasses: map[string]string{"p1": "denied"},
		},
		"a settlement": {
			scene: scene{acts: []act{calls(called("a:act", `{}`)), lands("a", lostReply), settlesAs("rejected")}},
			last:  journal.TypeEffectReconciled, wantClasses: map[string]string{"a": "rejected"},
		},
		"a settlement, and the run is cancelled": {
			scene: scene{acts: []act{calls(called("a:act", `{}`)), lands("a", lostReply), settlesAs("committed")}},
			last:  journal.TypeEffectReconciled, wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "ok"},
		},
		"a denial that ends the run, with its results": {
			scene: scene{spec: asking(end), acts: []act{pays, denies}, wantReason: v1alpha1.ReasonApprovalDenied},
			last:  journal.TypeCallCompleted, wantReason: v1alpha1.ReasonApprovalDenied, wantClasses: map[string]string{"p1": "denied"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := test.scene.play(t)
			for s.records[len(s.records)-1].Event.Type != test.last {
				s.records = s.records[:len(s.records)-1]
			}
			s.restart()
			s.facts.Verdicts = Verdicts{}
			if test.wantReason == v1alpha1.ReasonCancelled {
				s.facts.Desired = Cancelled
			}
			s.drive()
			if s.reason() != string(test.wantReason) || !maps.Equal(s.classes(), test.wantClasses) {
				t.Errorf("ended %q, results %v", s.reason(), s.classes())
			}
		})
	}
}
