package run

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/status"
	"github.com/pawl-run/pawl/internal/tool"
)

const (
	amountSchema = `{"type":"object","properties":{"amount":{"type":"number"}},"required":["amount"]}`
	whySchema    = `{"type":"object","properties":{"why":{"type":"string"}}}`
	secretState  = "opaque {\"x\": 1}\x00é"
)

// wantsInput is the outcome of a call that asks people something.
func wantsInput(questions ...tool.Question) tool.Outcome {
	return tool.Outcome{Class: tool.ClassInputRequired, Effect: tool.EffectRejected, Input: &tool.Input{Questions: questions, State: ptr.To(secretState)}}
}

// taskWants is the word that a call which goes on outside waits for people.
func taskWants(questions ...tool.Question) tool.Outcome {
	outcome := goesOn
	outcome.Input = &tool.Input{Questions: questions}
	return outcome
}

func asksFor(key, message, schema string) tool.Question {
	return tool.Question{Key: key, Message: message, Schema: json.RawMessage(schema)}
}

var (
	howMuch = asksFor("amount", "How much?", amountSchema)
	forWhat = asksFor("reason", "Why?", whySchema)
	// onlyLater asks nothing, it only wants to be asked again.
	onlyLater = tool.Outcome{Class: tool.ClassInputRequired, Effect: tool.EffectRejected, Input: &tool.Input{State: ptr.To("later")}}
)

// goesOnWith checks what the call in the air was sent again with.
func goesOnWith(id string, want ...tool.Answer) act {
	return func(s *stage, _ Step) {
		sending, flies := s.calls[id]
		if !flies || sending.Continues == nil {
			s.t.Fatalf("call %s is not sent with an answer: %+v", id, sending)
		}
		if diff := cmp.Diff(want, sending.Continues.Answers); diff != "" {
			s.t.Fatalf("answers, -want +got:\n%s", diff)
		}
		if sending.Attempt != 1 || *sending.Continues.Asked.State != secretState {
			s.t.Fatalf("attempt %d, state %q", sending.Attempt, *sending.Continues.Asked.State)
		}
	}
}

func accepted(key, content string) tool.Answer {
	return tool.Answer{Key: key, Action: tool.ActionAccept, Content: json.RawMessage(content)}
}

func TestCallsThatAskForInput(t *testing.T) {
	acts := func(more ...act) []act {
		return append([]act{calls(called("a:act", `{"n":1}`)), lands("a", wantsInput(howMuch))}, more...)
	}
	both := func(more ...act) []act {
		return append([]act{calls(called("a:act", `{"n":1}`)), lands("a", wantsInput(howMuch, forWhat))}, more...)
	}
	waits := scene{wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired}
	ends := func(class string, acts []act) scene {
		return scene{acts: acts, wantKind: Await, wantClasses: map[string]string{"a": class}}
	}
	playAll(t, map[string]scene{
		"hold no worker":                        {acts: acts(inTheAir()), wantKind: waits.wantKind, wantWaiting: waits.wantWaiting},
		"go on with the answer":                 ends("ok", acts(answers(`{"amount":5}`), goesOnWith("a", accepted("amount", `{"amount":5}`)), lands("a", gave(`1`)))),
		"go on with a bare value":               ends("ok", acts(answers(`5`), goesOnWith("a", accepted("amount", `{"amount":5}`)), lands("a", gave(`1`)))),
		"outlive the process":                   ends("ok", acts(restarts, answers(`5`), goesOnWith("a", accepted("amount", `{"amount":5}`)), lands("a", gave(`1`)))),
		"are not answered by nobody":            {acts: acts(func(s *stage, last Step) { answers("5")(s, last); s.facts.Verdicts.AnswerBy = "" }, inTheAir()), wantKind: waits.wantKind, wantWaiting: waits.wantWaiting},
		"are not answered by what does not fit": {acts: acts(answers(`{"amount":"five"}`), inTheAir()), wantKind: waits.wantKind, wantWaiting: waits.wantWaiting},
		"take several answers":                  ends("ok", both(answers(`{"amount":{"amount":5},"reason":null}`), goesOnWith("a", accepted("amount", `{"amount":5}`), tool.Answer{Key: "reason", Action: tool.ActionDecline}), lands("a", gave(`1`)))),
		"take no half of them":                  {acts: both(answers(`{"amount":{"amount":5}}`), inTheAir()), wantKind: waits.wantKind, wantWaiting: waits.wantWaiting},
		"end when they are declined":            ends("denied", acts(answers(" decline\n"), inTheAir())),
		"end when all is declined":              ends("denied", both(answers(`{"amount":null,"reason":null}`), inTheAir())),
		"end when nobody answers":               ends("timeout", acts(untilThen, inTheAir())),
		"end with the run":                      {acts: acts(wants(Cancelled)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "not_run"}},
		"wait while suspended":                  {acts: acts(wants(Suspended), answers(`5`), inTheAir()), wantKind: Rest, wantWaiting: v1alpha1.ReasonSuspended},
		"ask again":                             ends("ok", acts(answers(`5`), lands("a", wantsInput(forWhat)), answers(`because`), goesOnWith("a", accepted("reason", `{"why":"because"}`)), lands("a", gave(`1`)))),
		"are lost when the answer is":           {acts: acts(answers(`5`), restarts), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown},
		"are refused by the server":             ends("rejected", acts(answers(`5`), lands("a", turnedOff))),
		"may only want to be asked later": ends("ok", []act{
			calls(called("a:act", `{}`)), lands("a", onlyLater), inTheAir(), untilThen, inTheAir("a"), lands("a", gave(`1`)),
		}),
		"beyond all bounds end": ends("tool_error", []act{calls(called("a:act", `{}`)), lands("a", wantsInput(asksFor("k", strings.Repeat("x", maxInputBytes), whySchema)))}),
		"are denied with their answer by the rules": {
			acts:     acts(rules(ruled(v1alpha1.ToolRule{Name: "large", Match: []string{"s.act"}, When: "has(call.answers.amount) && call.answers.amount.amount > 3.0", Action: v1alpha1.ActionDeny}, allowRule("rest", "s.*"))), answers(`5`), inTheAir()),
			wantKind: Await, wantClasses: map[string]string{"a": "denied"},
		},
		"go on with what the rules allow": ends("ok",
			acts(rules(ruled(v1alpha1.ToolRule{Name: "large", Match: []string{"s.act"}, When: "has(call.answers.amount) && call.answers.amount.amount > 3.0", Action: v1alpha1.ActionDeny}, allowRule("rest", "s.*"))), answers(`2`), lands("a", gave(`1`)))),
		"end the run where the rule says so": {
			acts:       acts(rules(ruled(v1alpha1.ToolRule{Name: "none", Match: []string{"s.act"}, Action: v1alpha1.ActionDeny, OnDeny: v1alpha1.ConsequenceEnd})), answers(`5`)),
			wantReason: v1alpha1.ReasonPolicyDenied, wantClasses: map[string]string{"a": "not_run"},
		},
		"wait for rules that are missing": {acts: acts(noRules, answers(`5`), inTheAir()), wantKind: Rest, wantWaiting: v1alpha1.ReasonConfigurationNotReady},
	})
}

// What a rule puts before people it puts before them again, with the answer.
func TestCallsWithInputThatAsk(t *testing.T) {
	spec := asking(returning(600))
	ending := asking(v1alpha1.Approval{TimeoutSeconds: 600, OnTimeout: v1alpha1.ConsequenceEnd, OnDeny: v1alpha1.ConsequenceEnd})
	acts := func(more ...act) []act {
		return append([]act{pays, approves, lands("p1", wantsInput(howMuch)), answers(`5`), inTheAir()}, more...)
	}
	first := ""
	playAll(t, map[string]scene{
		"wait for approval":        {spec: spec, acts: acts(), wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired},
		"go on once it is given":   {spec: spec, acts: acts(approves, goesOnWith("p1", accepted("amount", `{"amount":5}`)), lands("p1", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"p1": "ok"}},
		"end when it is not":       {spec: spec, acts: acts(denies, inTheAir()), wantKind: Await, wantClasses: map[string]string{"p1": "denied"}},
		"end when nobody gives it": {spec: spec, acts: acts(untilThen, inTheAir()), wantKind: Await, wantClasses: map[string]string{"p1": "denied"}},
		"end the run by denial":    {spec: ending, acts: acts(denies), wantReason: v1alpha1.ReasonApprovalDenied, wantClasses: map[string]string{"p1": "not_run"}},
		"end the run by silence":   {spec: ending, acts: acts(untilThen), wantReason: v1alpha1.ReasonApprovalExpired, wantClasses: map[string]string{"p1": "not_run"}},
		"are not approved by what approved the call": {spec: spec, acts: []act{
			pays, func(s *stage, _ Step) { first = s.state().Approval.Digest }, approves, lands("p1", wantsInput(howMuch)), answers(`5`),
			func(s *stage, _ Step) { s.facts.Verdicts = Verdicts{Approve: first, ApproveBy: "ann"} }, inTheAir(),
		}, wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired},
		"need none to be asked later": {spec: spec, acts: []act{pays, approves, lands("p1", onlyLater), untilThen, inTheAir("p1")}, wantKind: Await},
	})
	s := scene{spec: spec, acts: acts()}.play(t)
	shown := status.Derive(status.Facts{Now: s.facts.Now, Generation: 1, State: s.state(), Segments: 1, Waiting: v1alpha1.ReasonApprovalRequired}, v1alpha1.AgentRunStatus{})
	if shown.Pending == nil || shown.Pending.Calls[0].AnswerPreview != "5" || shown.Question != nil {
		t.Errorf("pending %+v, question %+v", shown.Pending, shown.Question)
	}
}

// Other calls of the batch go on while people are asked.
func TestOthersGoOnWhileACallAsks(t *testing.T) {
	two := []act{calls(called("a:read", `{"n":1}`), called("b:read", `{"n":2}`)), lands("a", wantsInput(howMuch))}
	playAll(t, map[string]scene{
		"one is under way": {acts: append(two, inTheAir("b"), waitsFor(v1alpha1.ReasonRunning)), wantKind: Await},
		"it is answered meanwhile": {
			acts: append(two, answers(`5`), inTheAir("a", "b"), lands("b", gave(`2`)), lands("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok", "b": "ok"},
		},
		"both ask": {
			acts:     append(two, lands("b", wantsInput(forWhat)), answers(`5`), answers(`because`), lands("a", gave(`1`)), lands("b", gave(`2`))),
			wantKind: Await, wantClasses: map[string]string{"a": "ok", "b": "ok"},
		},
		"one goes on outside": {
			acts:     append(two, lands("b", goesOn), waitsFor(v1alpha1.ReasonWaitingForTool), untilThen, learns("b", gave(`2`)), waitsFor(v1alpha1.ReasonInputRequired)),
			wantKind: Rest,
		},
		"what was lost is sent with its answer": {
			acts:     []act{calls(called("a:read", `{}`)), lands("a", wantsInput(howMuch)), answers(`5`), lands("a", timedOut), untilThen, sendsAgainWith("a", `{"amount":5}`)},
			wantKind: Await,
		},
	})
}

func sendsAgainWith(id, content string) act {
	return func(s *stage, _ Step) {
		if sending := s.calls[id]; sending.Attempt != 2 || sending.Continues == nil || string(sending.Continues.Answers[0].Content) != content {
			s.t.Fatalf("sent are %+v", sending)
		}
	}
}

// A task that asks goes on outside: it is told what people say, also that they say nothing.
func TestTasksThatAskForInput(t *testing.T) {
	acts := func(more ...act) []act {
		return append([]act{calls(called("a:act", `{}`)), lands("a", goesOn), untilThen, learns("a", taskWants(howMuch))}, more...)
	}
	tells := func(want tool.Action) act {
		return func(s *stage, _ Step) {
			if c := s.inquiries["a"].Continues; c == nil || c.Answers[0].Action != want {
				s.t.Fatalf("the task is told %+v", c)
			}
		}
	}
	playAll(t, map[string]scene{
		"hold no worker":            {spec: patient(600), acts: acts(), wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired},
		"go on with the answer":     {spec: patient(600), acts: acts(answers(`5`), untilThen, tells(tool.ActionAccept), learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"are asked until they hear": {spec: patient(600), acts: acts(answers(`5`), untilThen, learns("a", taskWants(howMuch)), untilThen, tells(tool.ActionAccept), learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"ask again":                 {spec: patient(600), acts: acts(answers(`5`), untilThen, learns("a", taskWants(forWhat))), wantKind: Rest, wantWaiting: v1alpha1.ReasonInputRequired},
		"are told of a refusal":     {spec: patient(600), acts: acts(answers(`decline`), untilThen, tells(tool.ActionDecline), learns("a", turnedOff)), wantKind: Await, wantClasses: map[string]string{"a": "rejected"}},
		"are told that nobody answers": {
			spec: patient(600), acts: acts(untilThen, untilThen, tells(tool.ActionCancel), learns("a", turnedOff)), wantKind: Await, wantClasses: map[string]string{"a": "rejected"},
		},
		"have their time after people had theirs": {
			spec: patient(15), acts: acts(passes(50*time.Minute), answers(`5`), untilThen, tells(tool.ActionAccept), learns("a", gave(`1`))), wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"are completed by whom": {spec: patient(600), acts: acts(delivers("a", `{"done":true}`, "ann")), wantKind: Await, wantClasses: map[string]string{"a": "ok"}},
		"end the run by a denial, also where they end by themselves": {
			spec:       asking(v1alpha1.Approval{TimeoutSeconds: 600, OnTimeout: v1alpha1.ConsequenceEnd, OnDeny: v1alpha1.ConsequenceEnd}),
			acts:       []act{pays, approves, lands("p1", goesOn), untilThen, learns("p1", taskWants(howMuch)), answers(`5`), denies, learns("p1", gave(`1`))},
			wantReason: v1alpha1.ReasonApprovalDenied, wantClasses: map[string]string{"p1": "ok"},
		},
		"are called off with the run": {
			spec: patient(600), acts: acts(wants(Cancelled), learns("a", turnedOff)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "rejected"},
		},
	})
}

// Nobody is asked without end.
func TestRoundsOfInputAreBounded(t *testing.T) {
	s := scene{acts: []act{calls(called("a:act", `{}`))}}.play(t)
	for range maxInputRounds {
		s.land("a", onlyLater)
		s.facts.Now = s.drive().Until
		s.drive()
	}
	s.land("a", onlyLater)
	if class := s.classes()["a"]; class != "tool_error" || s.call("a").Last.Effect != journal.EffectRejected {
		t.Errorf("the call ended as %q", class)
	}
	if n := s.state().ToolCalls; n != 1 {
		t.Errorf("%d calls count", n)
	}
}

// People see who asks what, bound to the exact call, and nothing of the server's state.
func TestWhatACallAsksIsShown(t *testing.T) {
	s := scene{acts: []act{calls(called("a:act", `{"n":1}`)), lands("a", wantsInput(howMuch))}}.play(t)
	derive := func() v1alpha1.AgentRunStatus {
		return status.Derive(status.Facts{Now: s.facts.Now, Generation: 1, State: s.state(), Segments: 1, Waiting: v1alpha1.ReasonInputRequired}, v1alpha1.AgentRunStatus{})
	}
	shown := derive()
	q := shown.Question
	if q == nil || q.Tool != "s.act" || q.CallID != "a" || !strings.HasPrefix(q.Digest, "sha256:") {
		t.Fatalf("question %+v", q)
	}
	want := `The tool s.act asks before it goes on. Answer "decline" to give it nothing and leave the call undone, or with {"amount": number}. It says: How much?`
	if q.Text != want {
		t.Errorf("text, -want +got:\n%s", cmp.Diff(want, q.Text))
	}
	all, err := json.Marshal(shown)
	if err != nil || strings.Contains(string(all), "opaque") {
		t.Errorf("the state is shown: %v %s", err, all)
	}
	s.facts.Verdicts = Verdicts{Answers: map[string]string{q.ID: "five"}, AnswerBy: "ann"}
	if problem := s.facts.Verdicts.Problem(s.state()); problem != "the answer in the annotation pawl.run/answer does not have the form that the question says" {
		t.Errorf("problem %q", problem)
	}
	s.facts.Verdicts.Answers[q.ID] = "5"
	if problem := s.facts.Verdicts.Problem(s.state()); problem != "" {
		t.Errorf("problem %q", problem)
	}
	s.drive()
	if problem := s.facts.Verdicts.Problem(s.state()); problem != "" {
		t.Errorf("an answer that was used is a problem: %q", problem)
	}
}

// An Idempotent call in doubt, whose key has lapsed while people were asked, is not sent.
func TestInputAfterTheKeyLapsed(t *testing.T) {
	timedOutOnce := []act{calls(called("a:put", `{}`)), lands("a", timedOut), untilThen, lands("a", wantsInput(howMuch))}
	playAll(t, map[string]scene{
		"in time":  {acts: append(timedOutOnce, answers(`5`), inTheAir("a")), wantKind: Await},
		"too late": {acts: append(timedOutOnce, passes(59*time.Minute), inTheAir()), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown},
	})
}
