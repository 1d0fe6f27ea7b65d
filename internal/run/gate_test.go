package run

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// asking is sampleSpec in which a person decides on pay, and everything else runs.
func asking(approval v1alpha1.Approval) *v1alpha1.ToolPolicySpec {
	return ptr.To(ruled(askRule("payments", approval, "s.pay"), allowRule("rest", "s.*")))
}

func returning(seconds int32) v1alpha1.Approval {
	return v1alpha1.Approval{TimeoutSeconds: seconds, OnTimeout: v1alpha1.ConsequenceReturnToModel}
}

var (
	pays       = calls(called("p1:pay", `{"n":1}`))
	paysAgain  = calls(called("p2:pay", ` {"n": 1} `))
	paysLess   = calls(called("p3:pay", `{"n":0}`))
	paysAndAll = calls(called("r:read", `{}`), called("p1:pay", `{"n":1}`))
)

func TestPolicy(t *testing.T) {
	end := denyRule("never", "s.act")
	end.OnDeny = v1alpha1.ConsequenceEnd
	late := allowRule("late", "s.read")
	late.When = "run.turn >= 2"
	first := allowRule("first", "s.read")
	first.When = "run.turn == 1"
	playAll(t, map[string]scene{
		"what no rule allows is denied and the others run": {
			spec: ptr.To(ruled(allowRule("reads", "s.read"))), acts: []act{calls(called("a:act", `{}`), called("b:read", `{}`)), inTheAir("b")},
			wantKind: Await, wantClasses: map[string]string{"a": "denied"},
		},
		"a denial that ends the run, nothing of the batch runs": {
			spec: ptr.To(ruled(end, allowRule("rest", "s.*"))), acts: []act{calls(called("b:read", `{}`), called("a:act", `{}`)), inTheAir()},
			wantReason: v1alpha1.ReasonPolicyDenied, wantClasses: map[string]string{"a": "not_run", "b": "not_run"},
		},
		"turns count from 1, when the decision is made and when it is sent": {
			spec: ptr.To(ruled(first)), acts: []act{calls(called("a:read", `{}`)), inTheAir("a")}, wantKind: Await,
		},
		"a rule for later turns does not hold in the first": {
			spec: ptr.To(ruled(late)), acts: []act{calls(called("a:read", `{}`)), inTheAir()}, wantKind: Await, wantClasses: map[string]string{"a": "denied"},
		},
		"a call over its tool's limit is refused, whole batches count": {
			spec: ptr.To(withProperties(v1alpha1.ToolProperties{Match: []string{"s.act"}, MaxCallsPerRun: 2})),
			acts: []act{
				calls(called("a:act", `{"n":1}`)), lands("a", gave(`1`)),
				calls(called("b:act", `{"n":2}`), called("c:act", `{"n":3}`)), inTheAir("b"), lands("b", gave(`1`)),
				calls(called("d:act", `{"n":4}`)), inTheAir(),
			},
			wantKind: Await, wantClasses: map[string]string{"a": "ok", "b": "ok", "c": "denied", "d": "denied"},
		},
		"what is denied does not use up the limit": {
			spec: func() *v1alpha1.ToolPolicySpec {
				spec := withProperties(v1alpha1.ToolProperties{Match: []string{"s.act"}, MaxCallsPerRun: 1})
				large := denyRule("large", "s.act")
				large.When = "args.n > 100.0"
				spec.Rules = append([]v1alpha1.ToolRule{large}, spec.Rules...)
				return &spec
			}(),
			acts:     []act{calls(called("a:act", `{"n":200}`), called("b:act", `{"n":1}`)), inTheAir("b")},
			wantKind: Await, wantClasses: map[string]string{"a": "denied"},
		},
		"rules that are gone when the batch is ready to go": {
			spec: asking(returning(60)), acts: []act{pays, approves, noRules},
			wantKind: Await,
		},
	})
}

func TestApproval(t *testing.T) {
	endOnDeny := v1alpha1.Approval{TimeoutSeconds: 60, OnDeny: v1alpha1.ConsequenceEnd}
	wrong := func(edit func(*Verdicts)) act {
		return func(s *stage, last Step) {
			approves(s, last)
			edit(&s.facts.Verdicts)
		}
	}
	playAll(t, map[string]scene{
		"a gated batch waits as a whole": {
			spec: asking(returning(60)), acts: []act{paysAndAll, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"approved": {
			spec: asking(returning(60)), acts: []act{paysAndAll, approves, inTheAir("r"), lands("r", gave(`1`)), inTheAir("p1")}, wantKind: Await,
		},
		"denied: every call of the batch gets a denied result": {
			spec: asking(returning(60)), acts: []act{paysAndAll, denies, inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"r": "denied", "p1": "denied"},
		},
		"denied where that ends the run": {
			spec: asking(endOnDeny), acts: []act{paysAndAll, denies}, wantReason: v1alpha1.ReasonApprovalDenied,
			wantClasses: map[string]string{"r": "denied", "p1": "denied"},
		},
		"expired where that ends the run": {
			spec: asking(v1alpha1.Approval{TimeoutSeconds: 60}), acts: []act{pays, untilThen}, wantReason: v1alpha1.ReasonApprovalExpired,
		},
		"expired where the model goes on": {
			spec: asking(returning(60)), acts: []act{pays, untilThen}, wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"an approval that comes too late": {
			spec: asking(returning(60)), acts: []act{pays, func(s *stage, last Step) { approves(s, last); untilThen(s, last) }, inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"both: deny wins": {
			spec: asking(returning(60)), acts: []act{pays, wrong(func(v *Verdicts) { v.Deny, v.DenyBy = v.Approve, "bob" }), inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"another digest never acts": {
			spec: asking(returning(60)), acts: []act{pays, wrong(func(v *Verdicts) { v.Approve = "sha256:0" })}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"a verdict without a name never acts": {
			spec: asking(returning(60)), acts: []act{pays, wrong(func(v *Verdicts) { v.ApproveBy = "" })}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"a denial without a name never acts": {
			spec: asking(returning(60)), acts: []act{pays, wrong(func(v *Verdicts) { *v = Verdicts{Deny: v.Approve} })}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"an approval is used once": {
			spec: asking(returning(60)), acts: []act{pays, approves, lands("p1", gave(`1`)), paysLess, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"a denied call asked for again is refused without bothering anybody": {
			spec: asking(returning(60)), acts: []act{pays, denies, paysAgain, inTheAir()}, wantKind: Await, wantClasses: map[string]string{"p1": "denied", "p2": "denied"},
		},
		"another call may be asked for": {
			spec: asking(returning(60)), acts: []act{pays, denies, paysLess}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"what expired may be asked for again": {
			spec: asking(returning(60)), acts: []act{pays, untilThen, paysAgain}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"a restart while people think": {
			spec: asking(returning(60)), acts: []act{pays, restarts, waitsFor(v1alpha1.ReasonApprovalRequired), approves, inTheAir("p1")}, wantKind: Await,
		},
		"suspended: the verdict is recorded and nothing is sent": {
			spec: asking(returning(60)), acts: []act{pays, wants(Suspended), waitsFor(v1alpha1.ReasonSuspended), approves, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonSuspended,
		},
		"suspended: requests lapse all the same": {
			spec: asking(v1alpha1.Approval{TimeoutSeconds: 60}), acts: []act{pays, wants(Suspended), untilThen}, wantReason: v1alpha1.ReasonApprovalExpired,
		},
		"cancelled while people think": {
			spec: asking(returning(60)), acts: []act{pays, wants(Cancelled)}, wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"p1": "not_run"},
		},
		"the run's own deadline comes first": {
			started: func(r *journal.RunStarted) { r.Limits.DeadlineSeconds = 30 }, spec: asking(returning(60)),
			acts: []act{pays, untilThen}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
	})
}

// Between an approval and the first call: the run was suspended, and things changed.
func TestAGrantedBatchIsJudgedAgain(t *testing.T) {
	granted := []act{pays, wants(Suspended), approves}
	goesOn := wants(Active)
	playAll(t, map[string]scene{
		"nothing changed": {
			spec: asking(returning(60)), acts: append(granted[:3:3], goesOn, inTheAir("p1")), wantKind: Await,
		},
		"a person denies it after all": {
			spec: asking(returning(60)), acts: append(granted[:3:3], func(s *stage, _ Step) {
				s.facts.Verdicts = Verdicts{Deny: s.state().OpenTurn().Granted.Digest, DenyBy: "bob"}
				s.facts.Desired = Active
			}, inTheAir()), wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"the rules deny it now": {
			spec: asking(returning(60)), acts: append(granted[:3:3], rules(ruled(denyRule("no", "s.pay"))), goesOn, inTheAir()),
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
		"the rule that asks was edited": {
			spec: asking(returning(60)), acts: append(granted[:3:3], rules(*asking(returning(90))), goesOn, inTheAir()),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"something else of the policy was edited": {
			spec: asking(returning(60)), acts: append(granted[:3:3], rules(ruled(askRule("payments", returning(60), "s.pay"), allowRule("others", "s.*"))), goesOn, inTheAir()),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"another rule asks": {
			spec: asking(returning(60)), acts: append(granted[:3:3], rules(ruled(askRule("others", returning(90), "s.pay"))), goesOn, inTheAir()),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"the rules allow it now: what was granted was shown under other ones": {
			spec: asking(returning(60)), acts: append(granted[:3:3], rules(sampleSpec()), goesOn, inTheAir()),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"the approval has lapsed": {
			spec: asking(returning(60)), acts: append(granted[:3:3], passes(time.Minute), goesOn, inTheAir()),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"the approval has lapsed and is given again": {
			spec: asking(returning(60)), acts: append(granted[:3:3], passes(time.Minute), goesOn, approves, inTheAir("p1")), wantKind: Await,
		},
		"the policies are not there": {
			spec: asking(returning(60)), acts: append(granted[:3:3], noRules, goesOn, inTheAir()),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonConfigurationNotReady,
		},
		"the process is another one": {
			spec: asking(returning(60)), acts: append(granted[:3:3], restarts, goesOn, inTheAir("p1")), wantKind: Await,
		},
		"allowed when it was decided, and people are to be asked now": {
			acts: []act{func(s *stage, last Step) {
				pays(s, last)
				rules(*asking(returning(60)))(s, last)
			}, inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"denied when it was decided, and allowed now: the stricter holds": {
			spec: ptr.To(ruled(denyRule("no", "s.pay"))),
			acts: []act{func(s *stage, last Step) {
				pays(s, last)
				rules(sampleSpec())(s, last)
			}, inTheAir()},
			wantKind: Await, wantClasses: map[string]string{"p1": "denied"},
		},
	})
}

// What is asked joins the terms of every rule that asks.
func TestTermsOfARequest(t *testing.T) {
	all := func(timeout int32, onTimeout, onDeny v1alpha1.Consequence, message string) v1alpha1.Approval {
		return v1alpha1.Approval{TimeoutSeconds: timeout, OnTimeout: onTimeout, OnDeny: onDeny, Message: message}
	}
	spec := ruled(
		askRule("pay", all(90, v1alpha1.ConsequenceReturnToModel, v1alpha1.ConsequenceEnd, "pay?"), "s.pay"),
		askRule("act", all(60, v1alpha1.ConsequenceEnd, v1alpha1.ConsequenceReturnToModel, "act?"), "s.act"),
		allowRule("rest", "s.*"),
	)
	s := scene{spec: &spec, acts: []act{calls(called("p:pay", `{}`), called("a:act", `{}`), called("r:read", `{}`), called("q:pay", `{"n":2}`))}, wantKind: Rest}.play(t)
	got := *s.state().Approval
	want := journal.ApprovalRequested{
		Digest: got.Digest, ExpiresAt: beginning.Add(time.Minute), EndOnTimeout: true, EndOnDeny: true, Message: "pay?; act?", Calls: got.Calls,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	asks := map[string]bool{}
	for _, call := range got.Calls {
		asks[call.ID] = call.Asks
	}
	if diff := cmp.Diff(map[string]bool{"p": true, "a": true, "r": false, "q": true}, asks); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// The digest covers everything that a person was shown, and the place in the journal.
func TestThePendingDigestCoversWhatIsShown(t *testing.T) {
	request := func() journal.ApprovalRequested {
		return journal.ApprovalRequested{ExpiresAt: beginning, Message: "m", Calls: []journal.PendingCall{
			{ID: "a", Tool: "s.pay", Rule: "r", RuleDigest: "rd", PolicyDigest: "pd", EffectKey: "k"},
		}}
	}
	digest := func(edit func(*Facts, *journal.ApprovalRequested, map[string]string)) string {
		f, r, arguments := Facts{State: journal.NewState(testUID)}, request(), map[string]string{"a": `{"n":1}`}
		edit(&f, &r, arguments)
		return pendingDigest(f, r, arguments)
	}
	seen := map[string]string{digest(func(*Facts, *journal.ApprovalRequested, map[string]string) {}): "nothing"}
	for name, edit := range map[string]func(*Facts, *journal.ApprovalRequested, map[string]string){
		"run":      func(f *Facts, _ *journal.ApprovalRequested, _ map[string]string) { f.State.UID = "other" },
		"sequence": func(f *Facts, _ *journal.ApprovalRequested, _ map[string]string) { f.State.Events++ },
		"expiry": func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) {
			r.ExpiresAt = r.ExpiresAt.Add(time.Second)
		},
		"arguments":  func(_ *Facts, _ *journal.ApprovalRequested, a map[string]string) { a["a"] = `{"n": 1}` },
		"effect key": func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) { r.Calls[0].EffectKey = "l" },
		"rule":       func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) { r.Calls[0].RuleDigest = "other" },
		"policy":     func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) { r.Calls[0].PolicyDigest = "other" },
		"tool":       func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) { r.Calls[0].Tool = "s.act" },
		"intent":     func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) { r.Intent = true },
		"message":    func(_ *Facts, r *journal.ApprovalRequested, _ map[string]string) { r.Message = "other" },
	} {
		got := digest(edit)
		if other, same := seen[got]; same {
			t.Errorf("changing %s gives the same digest as changing %s", name, other)
		}
		seen[got] = name
	}
}

func TestStricterVerdicts(t *testing.T) {
	allow := journal.Verdict{Action: journal.ActionAllow, Rule: "a"}
	ask := journal.Verdict{Action: journal.ActionAsk, Rule: "b", TimeoutSeconds: 60}
	deny := journal.Verdict{Action: journal.ActionDeny, Rule: "c"}
	end := journal.Verdict{Action: journal.ActionDeny, Rule: "d", End: true}
	cases := map[string]struct{ recorded, live, want journal.Verdict }{
		"allowed then asks":         {allow, ask, ask},
		"asked then allows":         {ask, allow, ask},
		"allowed then denies":       {allow, deny, deny},
		"denied then allows":        {deny, allow, deny},
		"denied then ends":          {deny, end, end},
		"ended then denies":         {end, deny, end},
		"an approval is kept":       {journal.Verdict{Action: journal.ActionAsk, ApprovedBy: "x", TimeoutSeconds: 60}, ask, journal.Verdict{Action: journal.ActionAsk, Rule: "b", ApprovedBy: "x", TimeoutSeconds: 60}},
		"the stricter terms hold":   {journal.Verdict{Action: journal.ActionAsk, EndOnDeny: true, TimeoutSeconds: 30}, ask, journal.Verdict{Action: journal.ActionAsk, Rule: "b", EndOnDeny: true, TimeoutSeconds: 30}},
		"what is no action, denies": {allow, journal.Verdict{Action: "Perhaps"}, journal.Verdict{Action: "Perhaps"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, stricter(test.recorded, test.live)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
