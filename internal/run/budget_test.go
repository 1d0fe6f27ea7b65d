package run

import (
	"testing"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

// priced is a run that may cost so much.
func priced(dollars string, prices journal.Prices) func(*journal.RunStarted) {
	return func(r *journal.RunStarted) { r.Limits.MaxCost, r.Model.Prices = dollars, &prices }
}

func TestCostBudget(t *testing.T) {
	prices := journal.Prices{Input: "10", Output: "100", CacheRead: "1", CacheWrite: "20"}
	uses := func(u model.Usage) act {
		reply := readsAgain(1)
		u.Reported = true
		reply.Usage = u
		return says(reply)
	}
	playAll(t, map[string]scene{
		"none for the first request": {started: priced("0.005", prices), wantReason: v1alpha1.ReasonCostBudgetExhausted},
		"spent by a turn": {
			started: priced("0.10", prices), acts: []act{uses(model.Usage{InputTokens: 1000, OutputTokens: 900}), lands("r1", gave(`1`))},
			wantReason: v1alpha1.ReasonCostBudgetExhausted,
		},
		"spared by a cache": {
			started: priced("0.10", prices), acts: []act{uses(model.Usage{InputTokens: 9000, CacheReadTokens: 9000, OutputTokens: 10}), lands("r1", gave(`1`)), says(finalAnswer("42"))},
			wantReason: v1alpha1.ReasonCompleted,
		},
		"spent on writing a cache": {
			started: priced("0.10", prices), acts: []act{uses(model.Usage{InputTokens: 4900, CacheWriteTokens: 4900, OutputTokens: 1}), lands("r1", gave(`1`))},
			wantReason: v1alpha1.ReasonCostBudgetExhausted,
		},
		"a reply cut off by what is left": {
			started: priced("0.08", prices), acts: []act{says(invalidReply(model.CodeCutOff))}, wantReason: v1alpha1.ReasonCostBudgetExhausted,
		},
		"lost requests are charged": {
			started: priced("0.011", prices), acts: []act{breaks(model.Error{Class: model.ClassTransient, Sent: true}), untilThen}, wantReason: v1alpha1.ReasonCostBudgetExhausted,
		},
		"no price for output": {started: priced("0.5", journal.Prices{Input: "1", Output: "0"}), acts: []act{says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted},
	})
}

// Whatever a request is allowed to cost is what is left at most.
func TestRequestsAreClippedToTheCost(t *testing.T) {
	prices := journal.Prices{Input: "10", Output: "100"}
	s := scene{started: priced("0.06", prices)}.play(t)
	input := prompt.EstimateTokens(s.asked.Request)
	most := prices.Cost(journal.Usage{InputTokens: input, OutputTokens: int64(s.asked.Request.MaxOutputTokens)})
	if !s.asked.CostClipped || s.asked.Clipped || most > journal.ParseCost("0.06") {
		t.Errorf("a request that may cost %s, clipped %v", most, s.asked.CostClipped)
	}
}

// What the provider counts corrects the estimates that follow, upwards only.
func TestEstimatesAreCorrected(t *testing.T) {
	for name, test := range map[string]struct{ reported, want int64 }{
		"more than estimated": {3, 3000}, "less": {0, 1000}, "absurd": {50, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{started: narrow(0), acts: readsLong(2, 3000)}.play(t)
			reply := readsAgain(3)
			reply.Usage.InputTokens = max(prompt.EstimateTokens(s.asked.Request)*test.reported, 1)
			s.answer(reply)
			if got := s.state().InputPerMille; got != test.want {
				t.Errorf("corrected by %d, want %d", got, test.want)
			}
		})
	}
}

// Whatever the budget, the request that would pass it is not made.
func TestTheRequestBeyondABudgetIsNotMade(t *testing.T) {
	costs := journal.Prices{Input: "10", Output: "100"}
	spent := readsAgain(1)
	spent.Usage = model.Usage{InputTokens: 1900, OutputTokens: 900, Reported: true}
	turn := []act{says(spent), passes(50 * time.Second), lands("r1", gave(`1`))}
	for name, test := range map[string]struct {
		started func(*journal.RunStarted)
		want    v1alpha1.Reason
	}{
		"tokens":          {limited(func(l *journal.Limits) { l.MaxTokens = 3000 }), v1alpha1.ReasonTokenBudgetExhausted},
		"cost":            {priced("0.11", costs), v1alpha1.ReasonCostBudgetExhausted},
		"time at work":    {limited(func(l *journal.Limits) { l.ActiveDeadlineSeconds = 50 }), v1alpha1.ReasonDeadlineExceeded},
		"time altogether": {limited(func(l *journal.Limits) { l.DeadlineSeconds = 50 }), v1alpha1.ReasonDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{started: test.started, acts: turn, wantReason: test.want}.play(t)
			if s.asked != nil || s.state().Turns != 1 {
				t.Errorf("asked again, after %d turns", s.state().Turns)
			}
		})
	}
}

// Where the provider counts more than is estimated, the estimates that follow keep the run
// within its budgets, and its requests within the window.
func TestCorrectedEstimatesCount(t *testing.T) {
	corrected := func(t *testing.T) *stage {
		s := scene{started: narrow(0), acts: readsLong(3, 3000)}.play(t)
		reply := readsAgain(4)
		reply.Usage.InputTokens = prompt.EstimateTokens(s.asked.Request) * 3
		s.answer(reply)
		s.drive()
		return s
	}
	next := func(s *stage) {
		s.land("r4", gave(`1`))
		s.drive()
	}
	s := corrected(t)
	before := s.state().Usage.Total()
	next(s)
	estimate := prompt.EstimateTokens(s.asked.Request)

	s = corrected(t)
	s.state().Run.Limits.MaxTokens = before + 2*estimate
	next(s)
	if s.asked != nil || s.reason() != string(v1alpha1.ReasonTokenBudgetExhausted) {
		t.Errorf("a request of three times its estimate was made with twice that left; ended as %q", s.reason())
	}
	s = corrected(t)
	s.state().Run.ContextTokens = 2 * estimate
	next(s)
	if s.asked == nil || 3*prompt.EstimateTokens(s.asked.Request) > 2*estimate {
		t.Errorf("a request of three times its estimate was made for a window of twice that: %s", s.reason())
	}
}
