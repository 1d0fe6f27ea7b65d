package run

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
)

// TestCancellationAtEachState cancels a run wherever it can be, and again when it has
// ended. It ends as Cancelled, or stays as it had ended; each call has one result, nothing
// is under way any more, and the second time changes nothing.
func TestCancellationAtEachState(t *testing.T) {
	asks := asking(returning(60))
	for name, test := range map[string]struct {
		spec *v1alpha1.ToolPolicySpec
		acts []act
		// lands ends what may still be under way once the run is to end.
		lands map[string]tool.Outcome
		want  v1alpha1.Reason
	}{
		"while the model is asked":                      {want: v1alpha1.ReasonCancelled},
		"while an attempt at the model is waited for":   {acts: []act{breaks(model.Error{Class: model.ClassTransient, Status: 503})}, want: v1alpha1.ReasonCancelled},
		"while a call without effect is under way":      {acts: []act{calls(called("a:look", `{}`), called("b:act", `{}`))}, lands: map[string]tool.Outcome{"a": lostReply}, want: v1alpha1.ReasonCancelled},
		"while an effect is in flight, and it happens":  {acts: []act{calls(called("a:act", `{}`), called("b:act", `{"n":1}`))}, lands: map[string]tool.Outcome{"a": gave(`1`)}, want: v1alpha1.ReasonCancelled},
		"while an effect is in flight, and nobody says": {acts: []act{calls(called("a:act", `{}`))}, lands: map[string]tool.Outcome{"a": timedOut}, want: v1alpha1.ReasonCancelled},
		"between two attempts at a call":                {acts: []act{calls(called("a:put", `{}`)), lands("a", throttled)}, want: v1alpha1.ReasonCancelled},
		"while an outcome is unknown":                   {acts: []act{calls(called("a:act", `{}`)), lands("a", lostReply), waitsFor(v1alpha1.ReasonOutcomeUnknown)}, want: v1alpha1.ReasonCancelled},
		"while awaiting approval":                       {spec: asks, acts: []act{paysAndAll, waitsFor(v1alpha1.ReasonApprovalRequired)}, want: v1alpha1.ReasonCancelled},
		"after approval, before the first call":         {spec: asks, acts: []act{pays, wants(Suspended), approves}, want: v1alpha1.ReasonCancelled},
		"while a question waits":                        {acts: []act{calls(called("q:ask", `{"question":"Which?"}`)), waitsFor(v1alpha1.ReasonInputRequired)}, want: v1alpha1.ReasonCancelled},
		"while the model's own request waits":           {acts: []act{calls(called("i:request_approval", `{"text":"May I?","calls":[]}`)), waitsFor(v1alpha1.ReasonApprovalRequired)}, want: v1alpha1.ReasonCancelled},
		"while it is suspended":                         {acts: []act{wants(Suspended), says(readsAgain(1)), waitsFor(v1alpha1.ReasonSuspended)}, want: v1alpha1.ReasonCancelled},
		"while its owner is gone":                       {acts: []act{calls(called("a:act", `{}`)), restarts}, want: v1alpha1.ReasonCancelled},
		"while its policies are gone":                   {acts: []act{says(readsAgain(1)), noRules, lands("r1", gave(`1`))}, want: v1alpha1.ReasonCancelled},
		"after it has ended":                            {acts: []act{says(finalAnswer("42"))}, want: v1alpha1.ReasonCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			scene := scene{spec: test.spec, acts: slices.Concat(test.acts, []act{wants(Cancelled)}), wantReason: test.want}
			for _, id := range slices.Sorted(maps.Keys(test.lands)) {
				scene.acts = append(scene.acts, lands(id, test.lands[id]))
			}
			if len(test.acts) == 0 {
				scene.acts = append(scene.acts, says(finalAnswer("too late")))
			}
			s := scene.play(t)
			before := len(s.records)
			wants(Cancelled)(s, Step{})
			s.restart()
			if last := s.drive(); last.Kind != Done && last.Kind != Check || len(s.records) != before {
				t.Errorf("the second time: %s, %d events more", last.Kind, len(s.records)-before)
			}
			if err := strict(conversation(s.state())); err != nil {
				t.Errorf("the transcript is not valid: %v", err)
			}
			for i := range s.state().Transcript {
				for _, call := range s.state().Transcript[i].Calls {
					if call.Phase != journal.PhaseDone {
						t.Errorf("call %s is %s", call.Call.ID, call.Phase)
					}
				}
			}
		})
	}
}

// TestApprovalsThatDoNotAct gives verdicts that must not let anything run.
func TestApprovalsThatDoNotAct(t *testing.T) {
	var older, other string
	remember := func(into *string) act {
		return func(s *stage, _ Step) { *into = s.state().Approval.Digest }
	}
	approvesOf := func(digest *string) act {
		return func(s *stage, _ Step) { s.facts.Verdicts = Verdicts{Approve: *digest, ApproveBy: "ann"} }
	}
	asks := asking(returning(60))
	playAll(t, map[string]scene{
		"late": {
			spec: asks, acts: []act{pays, func(s *stage, last Step) { approves(s, last); untilThen(s, last) }, inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"after expiry, when it is asked again": {
			spec: asks, acts: []act{pays, remember(&older), untilThen, paysAgain, approvesOf(&older), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"duplicate: what was used once does not serve the same call again": {
			spec: asks, acts: []act{pays, approves, lands("p1", gave(`1`)), paysAgain, inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"approve and reject at once": {
			spec: asks, acts: []act{pays, func(s *stage, last Step) {
				approves(s, last)
				s.facts.Verdicts.Deny, s.facts.Verdicts.DenyBy = s.facts.Verdicts.Approve, "bob"
			}, inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"for changed arguments": {
			spec: asks, acts: []act{paysLess, remember(&other), denies, pays, approvesOf(&other), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"for an older attempt: the request before the policy changed": {
			spec: asks, acts: []act{pays, remember(&older), wants(Suspended), approves, rules(*asking(returning(90))), wants(Active), approvesOf(&older), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"by nobody": {
			spec: asks, acts: []act{pays, func(s *stage, last Step) { approves(s, last); s.facts.Verdicts.ApproveBy = "" }, inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"after the policy changed": {
			spec: asks, acts: []act{pays, wants(Suspended), approves, rules(ruled(denyRule("no", "s.pay"))), wants(Active), inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"of another run": {
			spec: asks, acts: []act{pays, approvesOf(ptr.To("sha256:0000000000000000000000000000000000000000000000000000000000000000")), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
	})
}

// permutations lists every order of some names.
func permutations(names []string) [][]string {
	if len(names) < 2 {
		return [][]string{names}
	}
	var all [][]string
	for i, first := range names {
		rest := slices.Concat(names[:i:i], names[i+1:])
		for _, order := range permutations(rest) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}

// TestParallelCallsInAnyOrder lets the results of four parallel calls come in each order,
// one of them a failure and one refused from the start. The model reads one result for each
// call, in the order of the calls, whatever the order and however often the worker changes.
func TestParallelCallsInAnyOrder(t *testing.T) {
	spec := ruled(denyRule("no", "s.pay"), allowRule("rest", "s.*"))
	spec.Tools = append([]v1alpha1.ToolProperties{{Match: []string{"s.put"}, Effect: v1alpha1.EffectIdempotent, Execution: v1alpha1.ExecutionParallel, MaxAttempts: 3, IdempotencyKeyLifetimeSeconds: 3600}}, spec.Tools...)
	ids := []string{"a", "b", "c", "d"}
	for _, order := range permutations(ids) {
		for _, restartAfter := range []int{-1, 1, 3} {
			t.Run(fmt.Sprint(order, " restart after ", restartAfter), func(t *testing.T) {
				acts := []act{calls(called("a:read", `{"n":1}`), called("b:put", `{"n":2}`), called("c:read", `{"n":3}`), called("d:read", `{"n":4}`), called("x:pay", `{}`))}
				for i, id := range order {
					outcome := gave(fmt.Sprintf("%q", id))
					if id == "c" {
						outcome = turnedOff
					}
					acts = append(acts, landsAgain(id, outcome))
					if i+1 == restartAfter {
						acts = append(acts, restarts, untilAllAreSent)
					}
				}
				s := scene{spec: &spec, acts: acts, wantKind: Await, wantClasses: map[string]string{"a": "ok", "b": "ok", "x": "denied", "c": "rejected", "d": "ok"}}.play(t)
				if err := strict(conversation(s.state())); err != nil {
					t.Error(err)
				}
				if s.asked == nil || s.asked.Request.Decision != 2 {
					t.Error("the model is not asked again")
				}
			})
		}
	}
}

// landsAgain ends a call that is under way, again after a restart.
func landsAgain(id string, outcome tool.Outcome) act {
	return func(s *stage, last Step) {
		if _, flies := s.calls[id]; flies {
			lands(id, outcome)(s, last)
		}
	}
}

// untilAllAreSent lets time pass until what was lost is sent again.
func untilAllAreSent(s *stage, last Step) {
	for last.Kind == Await && last.Until.After(s.facts.Now) && len(s.calls) < open(s) {
		s.facts.Now = s.facts.Now.Add(time.Second)
		last = s.drive()
	}
}

// open counts the calls without a result.
func open(s *stage) int {
	n := 0
	if turn := s.state().OpenTurn(); turn != nil {
		for i := range turn.Calls {
			if turn.Calls[i].Phase != journal.PhaseDone {
				n++
			}
		}
	}
	return n
}

// TestPartOfABatchIsGated checks that a call which asks holds back the whole batch, that
// one which is denied by rule does not, and that cancelling gives each its one result.
func TestPartOfABatchIsGated(t *testing.T) {
	spec := ruled(askRule("payments", returning(60), "s.pay"), denyRule("no", "s.act"), allowRule("rest", "s.*"))
	batch := calls(called("a:read", `{"n":1}`), called("p:pay", `{"n":1}`), called("x:act", `{}`), called("b:put", `{"n":2}`))
	playAll(t, map[string]scene{
		"nothing of it runs before the verdict": {
			spec: &spec, acts: []act{batch, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired, wantClasses: map[string]string{"x": "denied"},
		},
		"a subset is cancelled while another is under way": {
			spec: &spec, acts: []act{batch, approves, inTheAir("a"), lands("a", gave(`1`)), inTheAir("p"), wants(Cancelled), lands("p", gave(`"paid"`))},
			wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "ok", "p": "ok", "x": "denied", "b": "not_run"},
		},
		"a subset fails": {
			spec: &spec, acts: []act{batch, approves, lands("a", toolError), lands("p", turnedOff), inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"a": "tool_error", "p": "rejected", "x": "denied", "b": "not_run"},
		},
	})
}

// TestAPolicyEditedMidRun checks that what a call is was settled when it was decided: no
// edit turns one that may be sent once into one that may be repeated, and a stricter rule
// holds at once.
func TestAPolicyEditedMidRun(t *testing.T) {
	repeatable := withProperties(v1alpha1.ToolProperties{Match: []string{"s.act"}, Effect: v1alpha1.EffectIdempotent, MaxAttempts: 9, IdempotencyKeyLifetimeSeconds: 86400})
	playAll(t, map[string]scene{
		"a lost call that may be sent once is not sent again": {
			acts: []act{calls(called("a:act", `{}`)), rules(repeatable), restarts, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"nor is one whose reply is lost": {
			acts: []act{calls(called("a:act", `{}`)), rules(repeatable), lands("a", lostReply), inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"a later call is what the policy says then": {
			acts: []act{calls(called("a:act", `{}`)), lands("a", gave(`1`)), rules(repeatable), calls(called("b:act", `{"n":1}`)), restarts, untilThen, inTheAir("b")}, wantKind: Await,
		},
		"once its first call is sent, a batch goes on as it was judged": {
			acts:     []act{calls(called("a:look", `{}`), called("b:act", `{}`)), rules(ruled(denyRule("no", "s.act"))), lands("a", gave(`1`)), inTheAir("b")},
			wantKind: Await,
		},
	})
}
