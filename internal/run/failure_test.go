package run

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

func TestModelFailures(t *testing.T) {
	of := func(class model.Class) act { return breaks(model.Error{Class: class, Status: 500}) }
	waits := waitsFor(v1alpha1.ReasonModelUnavailable)
	playAll(t, map[string]scene{
		"waits after a failure that may pass": {acts: []act{of(model.ClassTransient)}, wantKind: Await, wantWaiting: v1alpha1.ReasonModelUnavailable},
		"asks again":                          {acts: []act{of(model.ClassTransient), untilThen, says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted},
		"as often as the model allows": {
			acts: []act{of(model.ClassTransient), waits, untilThen, of(model.ClassThrottled), waits, untilThen, of(model.ClassTransient)}, wantReason: v1alpha1.ReasonModelError,
		},
		"a class that nobody knows may pass": {acts: []act{of("Odd")}, wantKind: Await, wantWaiting: v1alpha1.ReasonModelUnavailable},
		"a decision makes it count anew": {
			acts: turns([]act{of(model.ClassTransient), untilThen, of(model.ClassTransient), untilThen}, turn("a", "read", `{}`, gave(`1`)), []act{of(model.ClassTransient)}), wantKind: Await,
		},
		"a request that is refused whatever the time":  {acts: []act{of(model.ClassRequest)}, wantReason: v1alpha1.ReasonModelError},
		"a credential that is refused":                 {acts: []act{of(model.ClassUnauthorized), waits, untilThen, of(model.ClassUnauthorized)}, wantReason: v1alpha1.ReasonModelError},
		"a quota that is used up":                      {acts: []act{of(model.ClassQuota)}, wantReason: v1alpha1.ReasonModelError},
		"a quota that is used up after other failures": {acts: []act{of(model.ClassTransient), untilThen, of(model.ClassQuota)}, wantReason: v1alpha1.ReasonModelError},
		"a conversation that is too long":              {acts: []act{of(model.ClassOverflow)}, wantReason: v1alpha1.ReasonContextOverflow},
		"what was stopped by ourselves is asked again at once": {
			acts: []act{of(model.ClassCanceled), says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted,
		},
		"a wait longer than what is left of the run": {
			started: limited(func(l *journal.Limits) { l.ActiveDeadlineSeconds = 60 }),
			acts:    []act{breaks(model.Error{Class: model.ClassThrottled, RetryAfter: 2 * time.Minute})}, wantReason: v1alpha1.ReasonModelError,
		},
		"cancelled while it waits": {acts: []act{of(model.ClassTransient), wants(Cancelled)}, wantReason: v1alpha1.ReasonCancelled},
		"suspended while it waits": {acts: []act{of(model.ClassTransient), wants(Suspended)}, wantKind: Rest, wantWaiting: v1alpha1.ReasonSuspended},
		"a restart while it waits charges an attempt": {
			acts: []act{of(model.ClassTransient), restarts, untilThen, of(model.ClassTransient)}, wantReason: v1alpha1.ReasonModelError,
		},
	})
}

func TestWaitsForTheModelGrow(t *testing.T) {
	cases := map[string]struct {
		class      model.Class
		failures   int
		retryAfter time.Duration
		want       time.Duration
	}{
		"the first":                         {model.ClassTransient, 1, 0, time.Second},
		"the second":                        {model.ClassTransient, 2, 0, 2 * time.Second},
		"at most a minute":                  {model.ClassTransient, 9, 0, time.Minute},
		"what the provider asks for":        {model.ClassTransient, 1, 90 * time.Second, 90 * time.Second},
		"but no less than the backoff":      {model.ClassTransient, 3, time.Second, 4 * time.Second},
		"nonsense is ignored":               {model.ClassTransient, 1, -time.Hour, time.Second},
		"throttled":                         {model.ClassThrottled, 1, 0, 5 * time.Second},
		"throttled twice":                   {model.ClassThrottled, 2, 0, 10 * time.Second},
		"throttled at most a minute":        {model.ClassThrottled, 9, 0, time.Minute},
		"throttled, and told when":          {model.ClassThrottled, 1, 2 * time.Second, 2 * time.Second},
		"throttled, and told much too soon": {model.ClassThrottled, 3, time.Second, 4 * time.Second},
		"throttled, and told nonsense":      {model.ClassThrottled, 1, -time.Hour, 5 * time.Second},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := scene{started: func(r *journal.RunStarted) { r.Model.MaxAttempts = 10 }}.play(t)
			var last Step
			for i := range test.failures {
				if i > 0 {
					s.facts.Now = last.Until
					s.drive()
				}
				s.fail(&model.Error{Class: test.class, RetryAfter: test.retryAfter})
				last = s.drive()
			}
			if got := last.Until.Sub(s.facts.Now); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
		})
	}
}

// Limits count by the minute, so that a run with the default attempts outlasts one.
func TestThrottledRunsLastAMinute(t *testing.T) {
	s := scene{started: func(r *journal.RunStarted) { r.Model.MaxAttempts = 5 }}.play(t)
	for s.asked != nil {
		s.fail(&model.Error{Class: model.ClassThrottled, Status: 429, Sent: true})
		if last := s.drive(); s.state().Finished == nil {
			s.facts.Now = last.Until
			s.drive()
		}
	}
	if lasted := s.facts.Now.Sub(beginning); lasted < time.Minute || lasted > 2*time.Minute || s.reason() != string(v1alpha1.ReasonModelError) {
		t.Errorf("ended as %s after %s", s.reason(), lasted)
	}
}

// portion is what a request is estimated at.
type portion int

const (
	nothing portion = iota
	inputOnly
	withReply
)

// What may have cost something is charged, and nothing else: only a provider that says no
// before the model is at work costs nothing for certain, and a reply that nobody has seen may
// have been as long as was allowed.
func TestFailuresAreCharged(t *testing.T) {
	sent := func(class model.Class, status int, code string) model.Error {
		return model.Error{Class: class, Status: status, Code: code, Sent: true}
	}
	cut := func(class model.Class, status int, code string) model.Error {
		e := sent(class, status, code)
		e.Cut = true
		return e
	}
	cases := map[string]struct {
		failure model.Error
		want    portion
		ends    v1alpha1.Reason
	}{
		"not sent":                        {failure: model.Error{Class: model.ClassTransient}},
		"never left, and has a status":    {failure: model.Error{Class: model.ClassTransient, Status: 500}},
		"no answer":                       {failure: sent(model.ClassTransient, 0, "connection_cut"), want: withReply},
		"stopped by us":                   {failure: sent(model.ClassCanceled, 0, ""), want: withReply},
		"cut after its status":            {failure: cut(model.ClassTransient, 200, "connection_cut"), want: withReply},
		"too slow after its status":       {failure: cut(model.ClassTransient, 200, "timeout"), want: withReply},
		"stopped by us after its status":  {failure: cut(model.ClassCanceled, 200, ""), want: withReply},
		"an error in place of a reply":    {failure: sent(model.ClassTransient, 200, "server_error"), want: inputOnly},
		"throttled in place of a reply":   {failure: sent(model.ClassThrottled, 200, "rate_limit_exceeded"), want: inputOnly},
		"the provider failed":             {failure: sent(model.ClassTransient, 503, ""), want: inputOnly},
		"the provider was overloaded":     {failure: sent(model.ClassThrottled, 529, ""), want: inputOnly},
		"the provider took too long":      {failure: sent(model.ClassTransient, 408, ""), want: inputOnly},
		"the provider's model failed":     {failure: sent(model.ClassTransient, 424, ""), want: inputOnly},
		"a proxy gave up":                 {failure: sent(model.ClassTransient, 499, ""), want: inputOnly},
		"sent somewhere else":             {failure: sent(model.ClassRequest, 307, ""), ends: v1alpha1.ReasonModelError},
		"refused as a request":            {failure: sent(model.ClassRequest, 400, ""), ends: v1alpha1.ReasonModelError},
		"refused for its key":             {failure: sent(model.ClassUnauthorized, 401, "")},
		"refused as too long":             {failure: sent(model.ClassOverflow, 413, ""), ends: v1alpha1.ReasonContextOverflow},
		"refused for the time being":      {failure: sent(model.ClassThrottled, 429, "")},
		"refused, and stopped by us then": {failure: sent(model.ClassCanceled, 429, "")},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := scene{}.play(t)
			request := s.asked.Request
			s.fail(&test.failure)
			s.drive()
			want := journal.Usage{Estimated: test.want != nothing}
			if test.want >= inputOnly {
				want.InputTokens = prompt.EstimateTokens(request)
			}
			if test.want == withReply {
				want.OutputTokens = int64(request.MaxOutputTokens)
			}
			if diff := cmp.Diff(want, s.state().Usage); diff != "" || s.reason() != string(test.ends) {
				t.Errorf("ended as %q, charges -want +got:\n%s", s.reason(), diff)
			}
		})
	}
}

// A budget holds even if each lost reply was as long as was allowed.
func TestBudgetsHoldForLostReplies(t *testing.T) {
	prices := journal.Prices{Input: "10", Output: "100"}
	for name, started := range map[string]func(*journal.RunStarted){
		"tokens": limited(func(l *journal.Limits) { l.MaxTokens = 3500 }),
		"cost":   priced("0.25", prices),
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{started: func(r *journal.RunStarted) { started(r); r.Model.MaxAttempts = 100 }}.play(t)
			worst := journal.Usage{}
			for range 50 {
				if s.asked == nil {
					break
				}
				worst = worst.Add(journal.Usage{InputTokens: prompt.EstimateTokens(s.asked.Request), OutputTokens: int64(s.asked.Request.MaxOutputTokens)})
				s.fail(&model.Error{Class: model.ClassCanceled, Sent: true})
				s.drive()
			}
			if s.reason() != string(v1alpha1.ReasonTokenBudgetExhausted) && s.reason() != string(v1alpha1.ReasonCostBudgetExhausted) {
				t.Fatalf("ended as %q", s.reason())
			}
			limits := s.state().Run.Limits
			if worst.Total() > limits.MaxTokens || limits.MaxCost != "" && prices.Cost(worst) > journal.ParseCost(limits.MaxCost) {
				t.Errorf("the lost replies may have cost %+v", worst)
			}
		})
	}
}

// An owner that is gone may have asked, and what it asked for counts as what was allowed; not
// where the budget allowed nothing.
func TestLostOwnersAreCharged(t *testing.T) {
	s := scene{acts: []act{restarts}, wantKind: Await}.play(t)
	want := journal.Usage{InputTokens: prompt.EstimateTokens(s.asked.Request), OutputTokens: int64(s.asked.Request.MaxOutputTokens), Estimated: true}
	if diff := cmp.Diff(want, s.state().Usage); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s = scene{started: limited(func(l *journal.Limits) { l.MaxTokens = 900 }), acts: []act{restarts}, wantReason: v1alpha1.ReasonTokenBudgetExhausted}.play(t)
	if got := s.state().Usage.Total(); got != 900 {
		t.Errorf("%d of 900 tokens are charged", got)
	}
	s = summoned(t)
	before, asked := s.state().Usage, s.asked.Request
	s.restart()
	s.drive()
	if got := s.state().Usage.Total() - before.Total(); got != inputTokens(s.state(), asked)+int64(asked.MaxOutputTokens) {
		t.Errorf("%d tokens are charged for a summary", got)
	}
}

// A reply that can't be read is no reply of no length.
func TestUnreadableRepliesAreCharged(t *testing.T) {
	s := scene{}.play(t)
	request := s.asked.Request
	s.answer(model.Reply{Decision: model.Decision{Kind: model.KindInvalid, Code: model.CodeMalformed, Problem: "Answer again."}})
	want := journal.Usage{InputTokens: prompt.EstimateTokens(request), OutputTokens: int64(request.MaxOutputTokens), Estimated: true}
	if diff := cmp.Diff(want, s.state().Usage); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What the provider itself counts of a reply that failed is charged, if it can be believed.
func TestReportsOfFailuresAreCharged(t *testing.T) {
	failure := model.Error{Class: model.ClassTransient, Status: 200, Sent: true, Usage: model.Usage{InputTokens: 70, OutputTokens: 900, ReasoningTokens: 850, Reported: true}}
	s := scene{acts: []act{breaks(failure)}, wantKind: Await}.play(t)
	if diff := cmp.Diff(journal.Usage{InputTokens: 70, OutputTokens: 900, ReasoningTokens: 850}, s.state().Usage); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	failure.Usage.OutputTokens = -900
	s = scene{acts: []act{breaks(failure)}, wantKind: Await}.play(t)
	if u := s.state().Usage; !u.Estimated || u.InputTokens == 70 {
		t.Errorf("an absurd report is charged: %+v", u)
	}
}

// Nothing that a provider wrote freely is in the journal or in a message.
func TestFailuresQuoteNothing(t *testing.T) {
	s := scene{acts: []act{breaks(model.Error{Class: model.ClassRequest, Status: 400, Code: "bad_request", Detail: marker})}, wantReason: v1alpha1.ReasonModelError}.play(t)
	if m := s.state().Finished.Message; !strings.Contains(m, "Request, status 400, code bad_request") {
		t.Errorf("message %q", m)
	}
	for _, record := range s.records {
		if strings.Contains(string(record.Bytes), marker) {
			t.Errorf("the journal says %s", record.Bytes)
		}
	}
}
