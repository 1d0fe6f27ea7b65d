package run

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/prompt"
)

func TestQuestions(t *testing.T) {
	asks := calls(called("q:ask", `{"question":"Which order?"}`))
	playAll(t, map[string]scene{
		"waits": {acts: []act{asks}, wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired},
		"answered": {
			acts: []act{asks, answers("the second")}, wantKind: Await, wantClasses: map[string]string{"q": "ok"},
		},
		"answered by nobody": {
			acts: []act{asks, func(s *stage, last Step) { answers("x")(s, last); s.facts.Verdicts.AnswerBy = "" }}, wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired,
		},
		"an answer to another question": {
			acts: []act{asks, func(s *stage, _ Step) {
				s.facts.Verdicts = Verdicts{Answers: map[string]string{"q-1-00000000": "x"}, AnswerBy: "ann"}
			}},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired,
		},
		"an answer is used once": {
			acts: []act{asks, answers("the second"), calls(called("q2:ask", `{"question":"Which order?"}`))}, wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired,
		},
		"nobody answers": {acts: []act{asks, untilThen}, wantReason: v1alpha1.ReasonInputExpired, wantClasses: map[string]string{"q": "not_run"}},
		"an answer that comes too late": {
			acts: []act{asks, func(s *stage, last Step) { answers("x")(s, last); untilThen(s, last) }}, wantReason: v1alpha1.ReasonInputExpired,
		},
		"answered while suspended": {
			acts: []act{asks, wants(Suspended), waitsFor(v1alpha1.ReasonSuspended), answers("x"), wants(Active)}, wantKind: Await, wantClasses: map[string]string{"q": "ok"},
		},
		"lapses while suspended": {acts: []act{asks, wants(Suspended), untilThen}, wantReason: v1alpha1.ReasonInputExpired},
		"cancelled":              {acts: []act{asks, wants(Cancelled)}, wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"q": "not_run"}},
		"a restart":              {acts: []act{asks, restarts, answers("x")}, wantKind: Await, wantClasses: map[string]string{"q": "ok"}},
	})
	s := scene{acts: []act{asks, answers("the second")}}.play(t)
	messages := prompt.Project(s.state()).Messages
	if got := messages[len(messages)-1].Text; got != "the second" {
		t.Errorf("the model reads %q", got)
	}
}

// The id of a question ends in eight hex digits of run and place, so that no answer
// can be written in advance or copied.
func TestQuestionIDs(t *testing.T) {
	first := questionID("uid-1", 3, 17)
	if !regexp.MustCompile(`^q-3-[0-9a-f]{8}$`).MatchString(first) {
		t.Errorf("id %q", first)
	}
	if first == questionID("uid-2", 3, 17) || first == questionID("uid-1", 3, 18) {
		t.Errorf("id %q is not the question's own", first)
	}
}

// What the model announces and a person approves grants nothing by itself.
func TestIntents(t *testing.T) {
	announces := calls(called("i:request_approval", `{"text":"May I pay?","calls":[{"tool":"pay","arguments":{"n":1}}]}`))
	announcesFull := calls(called("i:request_approval", `{"text":"May I pay?","calls":[{"tool":"s.pay","arguments":{"n":1}}]}`))
	twice := calls(called("i:request_approval", `{"text":"May I pay?","calls":[{"tool":"pay","arguments":{"n":1}},{"tool":"pay","arguments":{"n":1}}]}`))
	other := []act{calls(called("x:read", `{}`)), lands("x", gave(`1`))}
	spec := asking(returning(60))
	playAll(t, map[string]scene{
		"waits for a person": {spec: spec, acts: []act{announces}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired},
		"approved: the byte-identical call skips the question": {
			spec: spec, acts: []act{announces, approves, pays, inTheAir("p1")}, wantKind: Await, wantClasses: map[string]string{"i": "ok"},
		},
		"named in full": {
			spec: spec, acts: []act{announcesFull, approves, pays, inTheAir("p1")}, wantKind: Await,
		},
		"a call written in another way asks": {
			spec: spec, acts: []act{announces, approves, paysAgain, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"other arguments ask": {
			spec: spec, acts: []act{announces, approves, paysLess, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"used once": {
			spec: spec, acts: []act{announces, approves, pays, lands("p1", gave(`1`)), calls(called("p9:pay", `{"n":1}`)), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"used once within a batch": {
			spec: spec, acts: []act{announces, approves, calls(called("a:pay", `{"n":1}`), called("b:pay", `{"n":1}`)), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
		},
		"two announced, two used": {
			spec: spec, acts: []act{twice, approves, calls(called("a:pay", `{"n":1}`), called("b:pay", `{"n":1}`)), inTheAir("a")}, wantKind: Await,
		},
		"kept until it is used": {
			spec: spec, acts: turns([]act{announces, approves}, other, []act{pays, inTheAir("p1")}), wantKind: Await,
		},
		"what the rules deny stays denied": {
			spec: ptr.To(ruled(denyRule("no", "s.pay"))), acts: []act{announces, approves, pays, inTheAir()}, wantKind: Await, wantClasses: map[string]string{"i": "ok", "p1": "denied"},
		},
		"another rule that asks is answered too, since the call is the same": {
			spec: spec, acts: []act{announces, approves, rules(ruled(askRule("others", returning(60), "s.pay"))), pays, inTheAir("p1")}, wantKind: Await,
		},
		"denied: the model is told": {
			spec: spec, acts: []act{announces, denies}, wantKind: Await, wantClasses: map[string]string{"i": "denied"},
		},
		"denied: the call is refused without bothering anybody": {
			spec: spec, acts: []act{announces, denies, paysAgain, inTheAir()}, wantKind: Await, wantClasses: map[string]string{"i": "denied", "p2": "denied"},
		},
		"denied: so is announcing it again": {
			spec: spec, acts: []act{announces, denies, calls(called("j:request_approval", `{"text":"Really?","calls":[{"tool":"pay","arguments":{ "n" : 1}}]}`))},
			wantKind: Await, wantClasses: map[string]string{"i": "denied", "j": "denied"},
		},
		"a batch was denied: so is announcing its calls": {
			spec: spec, acts: []act{pays, denies, announces}, wantKind: Await, wantClasses: map[string]string{"p1": "denied", "i": "denied"},
		},
		"nobody answers": {spec: spec, acts: []act{announces, untilThen}, wantReason: v1alpha1.ReasonApprovalExpired},
		"without calls": {
			spec: spec, acts: []act{calls(called("i:request_approval", `{"text":"May I go on?"}`)), approves}, wantKind: Await, wantClasses: map[string]string{"i": "ok"},
		},
	})
}

// People see the calls that the model announces, byte for byte.
func TestAnnouncedCallsAreShown(t *testing.T) {
	s := scene{acts: []act{calls(called("i:request_approval", `{"text":"May I?","calls":[{"tool":"pay","arguments":{ "n": 1.0 }},{"tool":"nothing","arguments":{}}]}`))}}.play(t)
	turn := s.state().OpenTurn()
	want := []journal.Intent{{Tool: "s.pay", Arguments: `{ "n": 1.0 }`}, {Tool: "nothing", Arguments: `{}`}}
	for i, intent := range turn.Decision.Intents {
		if intent.Tool != want[i].Tool || intent.Arguments != want[i].Arguments || intent.ArgumentsDigest != s.state().Approval.Calls[i].ArgumentsDigest {
			t.Errorf("intent %d is %+v, shown as %+v", i, intent, s.state().Approval.Calls[i])
		}
	}
	if !s.state().Approval.Intent || s.state().Approval.Message != "May I?" {
		t.Errorf("request %+v", s.state().Approval)
	}
}

// A verdict that does not act says why; what was used before says nothing.
func TestProblemsOfVerdicts(t *testing.T) {
	pending := scene{spec: asking(returning(60)), acts: []act{pays}}.play(t).state()
	question := scene{acts: []act{calls(called("q:ask", `{"question":"?"}`))}}.play(t).state()
	unknown := scene{acts: []act{calls(called("a:act", `{}`)), lands("a", lostReply)}}.play(t).state()
	again := scene{spec: asking(returning(60)), acts: []act{pays, approves, lands("p1", gave(`1`)), paysLess}}.play(t)
	lapsed := scene{spec: asking(returning(60)), acts: []act{pays, func(s *stage, last Step) { approves(s, last); untilThen(s, last) }}}.play(t)
	answered := scene{acts: []act{calls(called("q:ask", `{"question":"?"}`)), answers("x")}}.play(t)
	settled := scene{acts: []act{calls(called("a:act", `{}`)), lands("a", lostReply), settlesAs("committed")}}.play(t)
	key := unknown.Unknown[0].EffectKey
	cases := map[string]struct {
		state    *journal.State
		verdicts Verdicts
		want     string
	}{
		"nothing said":                {state: pending},
		"the right approval":          {state: pending, verdicts: Verdicts{Approve: pending.Approval.Digest, ApproveBy: "ann"}},
		"another digest":              {state: pending, verdicts: Verdicts{Approve: "sha256:0", ApproveBy: "ann"}, want: "pawl.run/approve does not name what is pending"},
		"another digest denied":       {state: pending, verdicts: Verdicts{Deny: "sha256:0", DenyBy: "ann"}, want: "pawl.run/deny does not name what is pending"},
		"nobody approved":             {state: pending, verdicts: Verdicts{Approve: pending.Approval.Digest}, want: "counts only with pawl.run/approve-by"},
		"used before":                 {state: again.state(), verdicts: again.facts.Verdicts},
		"expired":                     {state: lapsed.state(), verdicts: lapsed.facts.Verdicts, want: "names a request that has expired"},
		"answered before":             {state: answered.state(), verdicts: answered.facts.Verdicts},
		"settled before":              {state: settled.state(), verdicts: settled.facts.Verdicts},
		"the right answer":            {state: question, verdicts: Verdicts{Answers: map[string]string{question.Question.ID: "x"}, AnswerBy: "ann"}},
		"nobody answered":             {state: question, verdicts: Verdicts{Answers: map[string]string{question.Question.ID: "x"}}, want: "counts only with pawl.run/answer-by"},
		"an answer that is no JSON":   {state: question, verdicts: Verdicts{AnswersBroken: true}, want: "must be a JSON object of strings"},
		"the right settlement":        {state: unknown, verdicts: Verdicts{Settlements: map[string]string{key: "committed"}, SettleBy: "ann"}},
		"a settlement that is none":   {state: unknown, verdicts: Verdicts{Settlements: map[string]string{key: "perhaps"}, SettleBy: "ann"}, want: `must say "committed" or "rejected"`},
		"nobody settled":              {state: unknown, verdicts: Verdicts{Settlements: map[string]string{key: "committed"}}, want: "counts only with pawl.run/settle-by"},
		"settlements that are broken": {state: unknown, verdicts: Verdicts{SettlementsBroken: true}, want: "must be a JSON object of strings"},
		"nothing is pending":          {state: journal.NewState("u"), verdicts: Verdicts{Approve: "x", ApproveBy: "ann"}, want: "pawl.run/approve does not name what is pending"},
		"no question waits":           {state: pending, verdicts: Verdicts{Answers: map[string]string{"q-1-00000000": "x"}, AnswerBy: "ann"}, want: "pawl.run/answer does not name the question that waits"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := test.verdicts.Problem(test.state)
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("problem %q, want %q", got, test.want)
			}
		})
	}
}

// Who gave a verdict is in the journal, on the event that it brought about.
func TestTheJournalNamesWhoDecided(t *testing.T) {
	spec := asking(returning(60))
	cases := map[string]struct {
		acts []act
		want journal.Type
	}{
		"approval":   {[]act{pays, approves}, journal.TypeApprovalGranted},
		"denial":     {[]act{pays, denies}, journal.TypeApprovalDenied},
		"answer":     {[]act{calls(called("q:ask", `{"question":"?"}`)), answers("x")}, journal.TypeQuestionAnswered},
		"settlement": {[]act{calls(called("a:act", `{}`)), lands("a", lostReply), settlesAs("committed")}, journal.TypeEffectReconciled},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			for _, record := range (scene{spec: spec, acts: test.acts}).play(t).records {
				by := ""
				if record.Event.Type == test.want {
					by = "ann"
				}
				if record.Event.By != by {
					t.Errorf("%s is by %q", record.Event.Type, record.Event.By)
				}
			}
		})
	}
	var denied journal.ApprovalDenied
	for _, record := range (scene{spec: spec, acts: []act{pays, denies}}).play(t).records {
		if record.Event.Type == journal.TypeApprovalDenied {
			if err := json.Unmarshal(record.Event.Data, &denied); err != nil {
				t.Fatal(err)
			}
		}
	}
	if denied.Reason != "too much" {
		t.Errorf("reason %q", denied.Reason)
	}
}
