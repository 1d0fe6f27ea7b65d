package run

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
)

// inChildren is the sample policy with every tool's calls as child runs.
func inChildren(limits v1alpha1.Limits) *v1alpha1.ToolPolicySpec {
	spec := sampleSpec()
	children := &v1alpha1.AgentRunServer{}
	for _, t := range spec.Servers[0].HTTP.Tools {
		children.Tools = append(children.Tools, v1alpha1.AgentRunTool{
			Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, Prompt: `"Go."`,
			Template: v1alpha1.AgentRunTemplate{ModelRef: v1alpha1.LocalReference{Name: "m"}, Limits: limits},
		})
	}
	spec.Servers[0].HTTP, spec.Servers[0].AgentRun = nil, children
	return ptr.To(spec)
}

var childGoesOn = tool.Outcome{Class: tool.ClassDeferred, Deferred: &tool.Deferred{Handle: "pawl-1", PollAfter: time.Minute}}

// childEnded is the outcome of a child that used so many tokens at so many millionths of a
// dollar.
func childEnded(tokens, micros int64) tool.Outcome {
	out := gave(`"done"`)
	out.Spent = &tool.Spent{InputTokens: tokens, CostPicos: micros * 1_000_000}
	return out
}

// heardOf makes something of what goes on outside be looked at at once.
func heardOf(s *stage, _ Step) {
	s.facts.Stirred = true
	s.drive()
	s.facts.Stirred = false
}

// TestBudgetsOfChildren checks what children are given that are sent together.
func TestBudgetsOfChildren(t *testing.T) {
	two := []model.Call{called("a:read", `{"n":1}`), called("b:read", `{"n":2}`)}
	budget := func(tokens int64, cost string) *journal.Budget {
		return &journal.Budget{Tokens: tokens, Cost: cost, ActiveSeconds: 900, DeadlineSeconds: 604_800}
	}
	// The decision itself takes 110 tokens and 20 millionths of a dollar.
	prices := journal.Prices{Input: "0.1", Output: "1"}
	for name, test := range map[string]struct {
		limits  v1alpha1.Limits
		started func(*journal.RunStarted)
		want    map[string]*journal.Budget
	}{
		"as they are declared":    {v1alpha1.Limits{MaxTokens: 1000}, nil, map[string]*journal.Budget{"a": budget(1000, ""), "b": budget(1000, "")}},
		"what is left, divided":   {v1alpha1.Limits{MaxTokens: 1000}, limited(func(l *journal.Limits) { l.MaxTokens = 1211 }), map[string]*journal.Budget{"a": budget(550, ""), "b": budget(551, "")}},
		"by default":              {v1alpha1.Limits{}, limited(func(l *journal.Limits) { l.MaxTokens = 300_110 }), map[string]*journal.Budget{"a": budget(150_000, ""), "b": budget(150_000, "")}},
		"of the cost":             {v1alpha1.Limits{MaxTokens: 1000, MaxCost: "0.5"}, priced("0.400021", prices), map[string]*journal.Budget{"a": budget(1000, "0.2"), "b": budget(1000, "0.200001")}},
		"of the cost, undeclared": {v1alpha1.Limits{MaxTokens: 1000}, priced("0.01002", prices), map[string]*journal.Budget{"a": budget(1000, "0.005"), "b": budget(1000, "0.005")}},
		"a cost of their own":     {v1alpha1.Limits{MaxTokens: 1000, MaxCost: "0.5"}, nil, map[string]*journal.Budget{"a": budget(1000, "0.5"), "b": budget(1000, "0.5")}},
		"no more time than is left": {v1alpha1.Limits{MaxTokens: 1, DeadlineSeconds: 100}, limited(func(l *journal.Limits) { l.ActiveDeadlineSeconds, l.DeadlineSeconds = 60, 80 }), map[string]*journal.Budget{
			"a": {Tokens: 1, ActiveSeconds: 60, DeadlineSeconds: 80}, "b": {Tokens: 1, ActiveSeconds: 60, DeadlineSeconds: 80},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{started: test.started, spec: inChildren(test.limits), acts: []act{calls(two...)}}.play(t)
			for id, want := range test.want {
				if got := s.calls[id].Budget; got == nil || *got != *want || *s.call(id).Budget != *want {
					t.Errorf("%s has %+v, want %+v", id, got, want)
				}
			}
			tokens, _ := s.state().Reserved()
			if want := test.want["a"].Tokens + test.want["b"].Tokens; tokens != want {
				t.Errorf("%d tokens are reserved, want %d", tokens, want)
			}
		})
	}
}

// TestWhatChildrenLeave checks that what a child does not use is its parent's again, that
// what it has used is not, and that a child of which nobody knows is charged in full.
func TestWhatChildrenLeave(t *testing.T) {
	tight := limited(func(l *journal.Limits) { l.MaxTokens = 10_000 })
	one := func(more ...act) []act {
		return append([]act{calls(called("a:act", `{}`)), lands("a", childGoesOn), heardOf}, more...)
	}
	gone := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown}
	for name, test := range map[string]struct {
		acts           []act
		used, reserved int64
		asked          bool
	}{
		"while it works":               {[]act{calls(called("a:act", `{}`)), lands("a", childGoesOn)}, 110, 5000, false},
		"when it has ended":            {one(learns("a", childEnded(700, 3))), 810, 0, true},
		"when it was never created":    {[]act{calls(called("a:act", `{}`)), lands("a", turnedOff)}, 110, 0, true},
		"while nobody knows of it":     {one(learns("a", gone)), 110, 5000, false},
		"when it is settled as done":   {one(learns("a", gone), settlesAs(journal.EffectCommitted)), 5110, 0, true},
		"when it is settled as undone": {one(learns("a", gone), settlesAs(journal.EffectRejected)), 110, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{started: tight, spec: inChildren(v1alpha1.Limits{MaxTokens: 5000}), acts: test.acts}.play(t)
			if tokens, _ := s.state().Reserved(); s.state().TotalUsage().Total() != test.used || tokens != test.reserved {
				t.Errorf("%d tokens are used and %d reserved, want %d and %d", s.state().TotalUsage().Total(), tokens, test.used, test.reserved)
			}
			if s.asked != nil != test.asked {
				t.Errorf("the model was asked: %v", s.asked != nil)
			}
		})
	}
}

func TestAChildThatNothingIsLeftFor(t *testing.T) {
	spent := counted(model.Decision{Kind: model.KindCalls, Calls: []model.Call{called("a:act", `{}`)}})
	spent.Usage.InputTokens = 9_990
	poor := limited(func(l *journal.Limits) { l.MaxTokens = 10_000 })
	playAll(t, map[string]scene{
		"is not made": {started: poor, spec: inChildren(v1alpha1.Limits{}), acts: []act{says(spent)}, wantClasses: map[string]string{"a": "not_run"}, wantReason: v1alpha1.ReasonTokenBudgetExhausted},
		"waits for those that may leave something": {
			started: limited(func(l *journal.Limits) { l.MaxTokens = 10_111 }), spec: inChildren(v1alpha1.Limits{}),
			acts:     []act{calls(called("a:act", `{}`), called("b:act", `{"n":2}`)), inTheAir("a"), lands("a", childEnded(10, 0)), inTheAir("b")},
			wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"below the deepest level": {
			started: func(r *journal.RunStarted) { r.Lineage = &journal.Lineage{Depth: v1alpha1.MaxDepth} }, spec: inChildren(v1alpha1.Limits{}),
			acts: []act{calls(called("a:act", `{}`)), inTheAir()}, wantKind: Await, wantClasses: map[string]string{"a": "denied"},
		},
	})
}

// TestChildrenThatAreCalledOff checks that a run waits for its children to end before it ends
// itself, and not for ever.
func TestChildrenThatAreCalledOff(t *testing.T) {
	begun := func(more ...act) []act {
		return append([]act{calls(called("a:act", `{}`)), lands("a", childGoesOn)}, more...)
	}
	cancelled := toolError
	cancelled.Spent = &tool.Spent{InputTokens: 7}
	spec := inChildren(v1alpha1.Limits{DeadlineSeconds: 100})
	playAll(t, map[string]scene{
		"are waited for":      {spec: spec, acts: begun(wants(Cancelled), learns("a", childGoesOn)), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
		"end when heard of":   {spec: spec, acts: begun(wants(Cancelled), learns("a", childGoesOn), heardOf, learns("a", cancelled)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "tool_error"}},
		"are asked again":     {spec: spec, acts: begun(wants(Cancelled), learns("a", childGoesOn), untilThen, learns("a", cancelled)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "tool_error"}},
		"are called off anew": {spec: spec, acts: begun(wants(Cancelled), learns("a", childGoesOn), restarts, learns("a", cancelled)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "tool_error"}},
		"are given up":        {spec: spec, acts: begun(wants(Cancelled), learns("a", childGoesOn), passes(windUpTime)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "unknown"}},
		"at their deadline": {
			spec: spec, acts: begun(passes(100*time.Second+childMargin), learns("a", childGoesOn), learns("a", childGoesOn), untilThen, learns("a", cancelled)),
			wantKind: Await, wantClasses: map[string]string{"a": "tool_error"},
		},
		"at their deadline, in vain": {
			spec: spec, acts: begun(passes(100*time.Second+childMargin), learns("a", childGoesOn), learns("a", childGoesOn), passes(windUpTime)),
			wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"are not completed by hand": {spec: spec, acts: begun(delivers("a", `1`, "ann")), wantKind: Rest, wantWaiting: v1alpha1.ReasonWaitingForTool},
	})
}

// TestPeoplesTimeBelow checks that the time in which people let a child wait is not its
// parent's.
func TestPeoplesTimeBelow(t *testing.T) {
	waits := func(s *stage, _ Step) {
		s.facts.ChildWaits = map[string]ChildWait{"a": {Name: "pawl-1", Reason: string(v1alpha1.ReasonApprovalRequired)}}
	}
	works := func(s *stage, _ Step) { s.facts.ChildWaits = nil }
	limits := limited(func(l *journal.Limits) { l.ActiveDeadlineSeconds = 600 })
	begun := []act{calls(called("a:act", `{}`)), lands("a", childGoesOn), passes(500 * time.Second), learns("a", childGoesOn)}
	s := scene{
		started: limits, spec: inChildren(v1alpha1.Limits{}), acts: append(begun, waits, passes(time.Hour), learns("a", childGoesOn)),
		wantKind: Rest, wantWaiting: v1alpha1.ReasonApprovalRequired,
	}.play(t)
	if active := s.active(); active != 500*time.Second {
		t.Errorf("it has worked for %s", active)
	}
	works(s, Step{})
	if last := s.drive(); last.Waiting != string(v1alpha1.ReasonWaitingForTool) {
		t.Errorf("it waits for %s", last.Waiting)
	}
	s.facts.Now = s.facts.Now.Add(100 * time.Second)
	if s.drive(); s.asked != nil || len(s.inquiries) != 1 {
		t.Fatalf("the child is not called off after 600 s of work")
	}
}

// TestBudgetsNeverPassLimits draws trees of one level: whatever children are given and use,
// the whole never passes the parent's limits, and adds up.
func TestBudgetsNeverPassLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tokens := rapid.Int64Range(1_000, 50_000).Draw(rt, "maxTokens")
		cost := rapid.Int64Range(1_000, 900_000).Draw(rt, "maxCost in millionths")
		declared := v1alpha1.Limits{MaxTokens: rapid.Int64Range(1, 20_000).Draw(rt, "declared")}
		s := newStage(rt, sampleRun(func(r *journal.RunStarted) {
			r.Limits.MaxTokens, r.Limits.MaxCost = tokens, fmt.Sprintf("0.%06d", cost)
			r.Model.Prices = &journal.Prices{Input: "0.1", Output: "1"}
		}))
		s.facts.Policies = compiled(rt, *inChildren(declared))
		s.drive()
		var spentTokens int64
		var spentCost journal.Cost
		for turn := 0; s.asked != nil && turn < 5; turn++ {
			n := rapid.IntRange(1, 6).Draw(rt, "calls")
			var proposed []model.Call
			for i := range n {
				proposed = append(proposed, called(fmt.Sprintf("c%d-%d:%s", turn, i, rapid.SampledFrom([]string{"read", "put"}).Draw(rt, "tool")), fmt.Sprintf(`{"n":%d}`, turn*10+i)))
			}
			s.answer(proposes(proposed...))
			for s.drive(); len(s.calls) > 0; s.drive() {
				for id, sending := range s.calls {
					used := rapid.Int64Range(0, sending.Budget.Tokens).Draw(rt, "used")
					micros := rapid.Int64Range(0, int64(journal.ParseCost(sending.Budget.Cost))/1_000_000).Draw(rt, "cost")
					s.land(id, childEnded(used, micros))
					spentTokens, spentCost = spentTokens+used, spentCost+journal.Cost(micros*1_000_000)
				}
			}
			state := s.state()
			if state.Children.Usage.Total() != spentTokens || state.Children.Cost != spentCost {
				rt.Fatalf("children have used %d tokens and %s, %d and %s are charged", spentTokens, spentCost, state.Children.Usage.Total(), state.Children.Cost)
			}
			// The requests themselves are bounded by estimates; these replies take 110 tokens.
			if over := state.TotalUsage().Total() - tokens; over > 110 {
				rt.Fatalf("%d tokens too many", over)
			}
		}
	})
}
