package run

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/tool"
)

func limited(edit func(*journal.Limits)) func(*journal.RunStarted) {
	return func(r *journal.RunStarted) { edit(&r.Limits) }
}

// turn is a whole turn with one call that ends in one way.
func turn(id, call, arguments string, outcome tool.Outcome) []act {
	return []act{calls(called(id+":"+call, arguments)), lands(id, outcome)}
}

func turns(parts ...[]act) []act {
	var acts []act
	for _, part := range parts {
		acts = append(acts, part...)
	}
	return acts
}

func TestLimits(t *testing.T) {
	deadline := limited(func(l *journal.Limits) { l.DeadlineSeconds = 600 })
	active := limited(func(l *journal.Limits) { l.ActiveDeadlineSeconds = 60 })
	playAll(t, map[string]scene{
		"turns": {
			started: limited(func(l *journal.Limits) { l.MaxTurns = 2 }),
			acts:    turns(turn("a", "read", `{}`, gave(`1`)), turn("b", "read", `{"n":1}`, gave(`1`))), wantReason: v1alpha1.ReasonMaxTurns,
		},
		"invalid decisions are turns": {
			started: limited(func(l *journal.Limits) { l.MaxTurns = 2 }),
			acts:    []act{says(invalidReply(model.CodeEmpty)), says(invalidReply(model.CodeEmpty))}, wantReason: v1alpha1.ReasonMaxTurns,
		},
		"an answer in the last turn": {
			started: limited(func(l *journal.Limits) { l.MaxTurns = 1 }), acts: []act{says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted,
		},
		"failed requests are no turns": {
			started: limited(func(l *journal.Limits) { l.MaxTurns = 1 }),
			acts:    []act{breaks(model.Error{Class: model.ClassTransient}), untilThen, says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted,
		},
		"a batch that would pass maxToolCalls does not run at all": {
			started:    limited(func(l *journal.Limits) { l.MaxToolCalls = 2 }),
			acts:       turns(turn("a", "read", `{}`, gave(`1`)), []act{calls(called("b:read", `{"n":1}`), called("c:read", `{"n":2}`)), inTheAir()}),
			wantReason: v1alpha1.ReasonToolBudgetExhausted, wantClasses: map[string]string{"a": "ok", "b": "not_run", "c": "not_run"},
		},
		"calls that do not run use nothing up": {
			started: limited(func(l *journal.Limits) { l.MaxToolCalls = 1 }),
			acts:    []act{calls(called("a:nothing", `{}`), called("b:read", `{}`)), inTheAir("b")}, wantKind: Await,
		},
		"attempts use nothing up": {
			started: limited(func(l *journal.Limits) { l.MaxToolCalls = 1 }),
			acts:    []act{calls(called("b:read", `{}`)), lands("b", notSent), untilThen, inTheAir("b")}, wantKind: Await,
		},
		"people are not asked about what can't run": {
			started: limited(func(l *journal.Limits) { l.MaxToolCalls = 1 }), spec: asking(returning(60)),
			acts: []act{paysAndAll}, wantReason: v1alpha1.ReasonToolBudgetExhausted,
		},
		"tokens": {
			started:    limited(func(l *journal.Limits) { l.MaxTokens = 2000 }),
			acts:       []act{says(model.Reply{Decision: readsAgain(1).Decision, Usage: model.Usage{InputTokens: 1900, OutputTokens: 50, Reported: true}}), lands("r1", gave(`1`))},
			wantReason: v1alpha1.ReasonTokenBudgetExhausted,
		},
		"no tokens for the first request": {
			started: limited(func(l *journal.Limits) { l.MaxTokens = 100 }), wantReason: v1alpha1.ReasonTokenBudgetExhausted,
		},
		"a reply cut off by what is left of the tokens": {
			started: limited(func(l *journal.Limits) { l.MaxTokens = 1200 }),
			acts:    []act{says(invalidReply(model.CodeCutOff))}, wantReason: v1alpha1.ReasonTokenBudgetExhausted,
		},
		"the deadline while the model thinks": {
			started: deadline, acts: []act{untilThen, says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
		"the deadline while a person thinks": {
			started: deadline, acts: []act{calls(called("q:ask", `{"question":"?"}`)), untilThen}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
		"the deadline while suspended": {
			started: deadline, acts: []act{wants(Suspended), says(readsAgain(1)), untilThen}, wantReason: v1alpha1.ReasonDeadlineExceeded,
			wantClasses: map[string]string{"r1": "not_run"},
		},
		"the deadline while the policies are not there": {
			started: deadline, acts: []act{noRules, says(invalidReply(model.CodeEmpty)), untilThen}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
		"the time spent working": {
			started: active, acts: []act{passes(30 * time.Second), reads(1), passes(30 * time.Second), lands("r1", gave(`1`))}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
		"people's time is not spent working": {
			started: active, acts: []act{
				passes(30 * time.Second), calls(called("q:ask", `{"question":"?"}`)), passes(30 * time.Minute), answers("yes"),
				passes(20 * time.Second), says(finalAnswer("42")),
			}, wantReason: v1alpha1.ReasonCompleted,
		},
		"a restart does not give time back": {
			started: active, acts: []act{passes(50 * time.Second), reads(1), restarts, untilThen, passes(10 * time.Second), lands("r1", gave(`1`))}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
		"a required tool that can't be reached": {
			spec:       ptr.To(withProperties(v1alpha1.ToolProperties{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, Required: true, MaxAttempts: 2})),
			acts:       []act{calls(called("a:read", `{}`)), lands("a", notSent), untilThen, lands("a", notSent)},
			wantReason: v1alpha1.ReasonToolUnavailable,
		},
		"a required tool that refuses": {
			spec: ptr.To(withProperties(v1alpha1.ToolProperties{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, Required: true})),
			acts: []act{calls(called("a:read", `{}`)), lands("a", turnedOff)}, wantKind: Await,
		},
	})
}

func TestRequestsAreClippedToTheBudget(t *testing.T) {
	s := scene{started: func(r *journal.RunStarted) { r.Limits.MaxTokens, r.Model.MaxOutputTokens = 1200, 1000 }}.play(t)
	left := 1200 - prompt.EstimateTokens(s.asked.Request)
	if int64(s.asked.Request.MaxOutputTokens) != left || !s.asked.Clipped {
		t.Errorf("a request for %d tokens, clipped %v, of %d", s.asked.Request.MaxOutputTokens, s.asked.Clipped, left)
	}
	s = scene{}.play(t)
	if s.asked.Request.MaxOutputTokens != 1000 || s.asked.Clipped {
		t.Errorf("a request for %d tokens, clipped %v", s.asked.Request.MaxOutputTokens, s.asked.Clipped)
	}
}

func TestConsecutiveFailures(t *testing.T) {
	three := limited(func(l *journal.Limits) { l.MaxConsecutiveFailures = 3 })
	fails := func(n int) []act { return turn(fmt.Sprintf("f%d", n), "read", fmt.Sprintf(`{"n":%d}`, n), turnedOff) }
	works := turn("ok", "read", `{"k":"ok"}`, gave(`1`))
	playAll(t, map[string]scene{
		"three in a row":               {started: three, acts: turns(fails(1), fails(2), fails(3)), wantReason: v1alpha1.ReasonNoProgress},
		"two in a row":                 {started: three, acts: turns(fails(1), fails(2)), wantKind: Await},
		"one works in between":         {started: three, acts: turns(fails(1), fails(2), works, fails(3)), wantKind: Await},
		"what tools report is failure": {started: three, acts: turns(fails(1), fails(2), turn("e", "read", `{}`, toolError)), wantReason: v1alpha1.ReasonNoProgress},
		"denials are failures": {
			started: three, spec: ptr.To(ruled(allowRule("reads", "s.read"))),
			acts: turns(fails(1), []act{calls(called("a:act", `{}`)), calls(called("b:act", `{"n":1}`))}), wantReason: v1alpha1.ReasonNoProgress,
		},
		"an invalid decision in between neither counts nor helps": {
			started: three, acts: turns(fails(1), fails(2), []act{calls(called("x:nothing", `{}`))}, fails(3)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"one of several works": {
			started: three, acts: turns(fails(1), fails(2), []act{
				calls(called("a:read", `{}`), called("b:read", `{"k":"b"}`)), lands("a", turnedOff), lands("b", gave(`1`)),
			}, fails(3)), wantKind: Await,
		},
	})
}

func TestRepetition(t *testing.T) {
	three := limited(func(l *journal.Limits) { l.MaxRepeatedPlans = 3 })
	n := 0
	read := func(arguments, value string) []act {
		n++
		return turn(fmt.Sprintf("c%d", n), "read", arguments, gave(value))
	}
	again := func(arguments string) []act {
		n++
		return []act{calls(called(fmt.Sprintf("c%d:read", n), arguments)), inTheAir()}
	}
	pair := func(first, second string) []act {
		n += 2
		a, b := fmt.Sprintf("c%d", n-1), fmt.Sprintf("c%d", n)
		return []act{calls(called(a+":read", first), called(b+":read", second)), lands(a, gave(`1`)), lands(b, gave(`1`))}
	}
	x, y, z, w, v := `{"k":"x"}`, `{"k":"y"}`, `{"k":"z"}`, `{"k":"w"}`, `{"k":"v"}`
	playAll(t, map[string]scene{
		"the same call, the same result": {
			started: three, acts: turns(read(x, `1`), read(x, `1`), read(x, `1`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"written in another way": {
			started: three, acts: turns(read(x, `{"a":1,"b":2}`), read(` { "k" : "x" } `, `{"b":2,"a":1}`), read(x, `{"a":1,"b":2}`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"another result every time": {
			started: three, acts: turns(read(x, `1`), read(x, `2`), read(x, `3`), read(x, `4`)), wantKind: Await,
		},
		"another result once": {
			started: three, acts: turns(read(x, `1`), read(x, `1`), read(x, `2`), read(x, `2`)), wantKind: Await,
		},
		"the same batch in another order": {
			started: three, acts: turns(pair(x, y), pair(y, x), pair(x, y), []act{calls(called("l1:read", y), called("l2:read", x)), inTheAir()}), wantReason: v1alpha1.ReasonNoProgress,
		},
		"the same batch, its results exchanged every time": {
			started: three, acts: turns(swapped("s1", "s2", `1`, `2`), swapped("s3", "s4", `2`, `1`), swapped("s5", "s6", `1`, `2`), swapped("s7", "s8", `2`, `1`)), wantKind: Await,
		},
		"the same call, whatever else is in the batch": {
			started: three, acts: turns(pair(x, y), pair(x, z), pair(x, w), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"a cycle of two plans": {
			started: three, acts: turns(read(x, `1`), read(y, `2`), read(x, `1`), read(y, `2`), read(x, `1`), read(y, `2`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"a cycle of four plans": {
			started: three, acts: turns(
				read(x, `1`), read(y, `1`), read(z, `1`), read(w, `1`), read(x, `1`), read(y, `1`), read(z, `1`), read(w, `1`),
				read(x, `1`), read(y, `1`), read(z, `1`), read(w, `1`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"a cycle of five plans does not count": {
			started: three, acts: turns(
				read(x, `1`), read(y, `1`), read(z, `1`), read(w, `1`), read(v, `1`), read(x, `1`), read(y, `1`), read(z, `1`), read(w, `1`), read(v, `1`),
				read(x, `1`), read(y, `1`), read(z, `1`), read(w, `1`), read(v, `1`), read(x, `1`)), wantKind: Await,
		},
		"one execution where the limit is one": {
			started: limited(func(l *journal.Limits) { l.MaxRepeatedPlans = 1 }), acts: turns(read(x, `1`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"calls that were throttled do not count": {
			started:  func(r *journal.RunStarted) { three(r); r.Limits.MaxConsecutiveFailures = 10 },
			acts:     turns(turn("a1", "act", x, throttled), turn("a2", "act", x, throttled), turn("a3", "act", x, throttled), []act{calls(called("a4:act", x)), inTheAir("a4")}),
			wantKind: Await,
		},
		"calls that were denied do not count": {
			started: func(r *journal.RunStarted) { three(r); r.Limits.MaxConsecutiveFailures = 10 }, spec: ptr.To(ruled(denyRule("no", "s.*"))),
			acts: []act{calls(called("d1:read", x)), calls(called("d2:read", x)), calls(called("d3:read", x)), calls(called("d4:read", x))}, wantKind: Await,
		},
		"what the policy ignores does not count": {
			started: three, spec: ptr.To(withProperties(v1alpha1.ToolProperties{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, IgnoreForProgress: []string{"$.time"}})),
			acts: turns(read(x, `{"v":1,"time":1}`), read(x, `{"v":1,"time":2}`), read(x, `{"v":1,"time":3}`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"what a person settled as the same is the same": {
			started: three, acts: turns(
				[]act{calls(called("s1:act", x)), lands("s1", lostReply), settlesAs("committed")}, []act{calls(called("s2:act", x)), lands("s2", lostReply), settlesAs("committed")},
				[]act{calls(called("s3:act", x)), lands("s3", lostReply), settlesAs("committed")}, []act{calls(called("s4:act", x)), inTheAir()}), wantReason: v1alpha1.ReasonNoProgress,
		},
		"what a person settled differently is not": {
			started: three, acts: turns(
				[]act{calls(called("s1:act", x)), lands("s1", lostReply), settlesAs("committed")}, []act{calls(called("s2:act", x)), lands("s2", lostReply), settlesAs("rejected")},
				[]act{calls(called("s3:act", x)), lands("s3", lostReply), settlesAs("committed")}, []act{calls(called("s4:act", x)), inTheAir("s4")}), wantKind: Await,
		},
		"a restart forgets nothing": {
			started: three, acts: turns(read(x, `1`), read(x, `1`), []act{restarts}, read(x, `1`), again(x)), wantReason: v1alpha1.ReasonNoProgress,
		},
	})
}

// swapped is a turn with two calls whose results are given.
func swapped(a, b, first, second string) []act {
	return []act{calls(called(a+":read", `{"k":"x"}`), called(b+":read", `{"k":"y"}`)), lands(a, gave(first)), lands(b, gave(second))}
}

// What repeats is said: a whole plan, its order ignored, or one call of several plans.
func TestWhatRepeatsIsSaid(t *testing.T) {
	pair := func(a, b string, x, y string) []act {
		return []act{calls(called(a+":read", x), called(b+":read", y)), lands(a, gave(`1`)), lands(b, gave(`1`))}
	}
	x, y, z := `{"k":"x"}`, `{"k":"y"}`, `{"k":"z"}`
	twice := limited(func(l *journal.Limits) { l.MaxRepeatedPlans = 2 })
	for want, acts := range map[string][]act{
		"the same plan": turns(pair("a", "b", x, y), pair("c", "d", y, x), []act{calls(called("e:read", x), called("f:read", y))}),
		"the same call": turns(pair("a", "b", x, y), pair("c", "d", x, z), []act{calls(called("e:read", x))}),
	} {
		s := scene{started: twice, acts: acts, wantReason: v1alpha1.ReasonNoProgress}.play(t)
		if got := s.state().Finished.Message; !strings.HasPrefix(got, want) {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

// From the second identical execution on the model is told, in the result alone.
func TestTheModelIsToldThatItRepeatsItself(t *testing.T) {
	s := scene{acts: turns(turn("a", "read", `{}`, gave(`1`)), turn("b", "read", `{}`, gave(`1`)), turn("c", "read", `{}`, gave(`2`)))}.play(t)
	var repeats []int32
	for _, id := range []string{"a", "b", "c"} {
		repeats = append(repeats, s.call(id).Last.Repeats)
	}
	if fmt.Sprint(repeats) != "[1 2 1]" {
		t.Errorf("repeats %v", repeats)
	}
}

func TestProgress(t *testing.T) {
	moving := func(expression string, max int32) func(*journal.RunStarted) {
		return func(r *journal.RunStarted) {
			r.Progress = &journal.Progress{Expression: expression, MaxUnchangedTurns: max}
		}
	}
	n := 0
	read := func(value string) []act {
		n++
		return turn(fmt.Sprintf("p%d", n), "read", fmt.Sprintf(`{"n":%d}`, n), gave(value))
	}
	playAll(t, map[string]scene{
		"a measure that moves":        {started: moving("results[0].left", 2), acts: turns(read(`{"left":3}`), read(`{"left":2}`), read(`{"left":1}`)), wantKind: Await},
		"a measure that stands still": {started: moving("results[0].left", 2), acts: turns(read(`{"left":3}`), read(`{"left":3}`), read(`{"left":3}`)), wantReason: v1alpha1.ReasonNoProgress},
		"a measure that moves again":  {started: moving("results[0].left", 2), acts: turns(read(`{"left":3}`), read(`{"left":3}`), read(`{"left":2}`), read(`{"left":2}`)), wantKind: Await},
		"a measure that can't be computed stands still": {
			started: moving("results[0].left", 2), acts: turns(read(`1`), read(`2`), read(`3`)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"even if it can be at times": {
			started: moving("results[0].left", 3), acts: turns(read(`{"left":3}`), read(`1`), read(`{"left":3}`), read(`1`)), wantReason: v1alpha1.ReasonNoProgress,
		},
		"turns in which nothing ran do not count": {
			started: moving("results[0].left", 2), acts: turns(read(`{"left":3}`), []act{says(invalidReply(model.CodeEmpty)), calls(called("x:nothing", `{}`))}, read(`{"left":3}`)), wantKind: Await,
		},
	})
}
