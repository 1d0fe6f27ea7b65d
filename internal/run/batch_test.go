package run

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// parallel makes tools run at the same time, conflicting where key says so.
func parallel(key string, tools ...string) *v1alpha1.ToolPolicySpec {
	var properties []v1alpha1.ToolProperties
	for _, name := range tools {
		properties = append(properties, v1alpha1.ToolProperties{
			Match: []string{"s." + name}, Execution: v1alpha1.ExecutionParallel, ConflictKey: key,
			Effect: map[string]v1alpha1.Effect{"put": v1alpha1.EffectIdempotent, "look": v1alpha1.EffectReadOnly, "read": v1alpha1.EffectReadOnly}[name],
		})
	}
	return ptr.To(withProperties(properties...))
}

func TestOrderInABatch(t *testing.T) {
	playAll(t, map[string]scene{
		"neighbours that are Parallel run together": {
			acts: []act{calls(called("a:read", `{}`), called("b:read", `{}`)), inTheAir("a", "b")}, wantKind: Await,
		},
		"Sequential calls run one after another": {
			acts:     []act{calls(called("a:look", `{}`), called("b:look", `{"n":1}`)), inTheAir("a"), lands("a", gave(`1`)), inTheAir("b")},
			wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"groups keep their order": {
			acts: []act{
				calls(called("a:read", `{}`), called("b:read", `{"n":1}`), called("c:act", `{}`), called("d:read", `{"n":2}`)), inTheAir("a", "b"),
				lands("b", gave(`1`)), inTheAir("a"), lands("a", gave(`1`)), inTheAir("c"), lands("c", gave(`1`)), inTheAir("d"),
			}, wantKind: Await,
		},
		"equal conflict keys keep apart": {
			spec: parallel("args.k", "act"),
			acts: []act{
				calls(called("a:act", `{"k":"x"}`), called("b:act", `{"k":"x"}`), called("c:act", `{"k":"y"}`)), inTheAir("a", "c"),
				lands("c", gave(`1`)), inTheAir("a"), lands("a", gave(`1`)), inTheAir("b"),
			}, wantKind: Await,
		},
		"a retry that waits holds its conflict key": {
			spec: parallel("args.k", "put"),
			acts: []act{calls(called("a:put", `{"k":"x"}`), called("b:put", `{"k":"x"}`)), lands("a", throttled), inTheAir(), untilThen, inTheAir("a")}, wantKind: Await,
		},
		"without a conflict key that can be told, a call runs alone": {
			spec: parallel("args.k", "act"), acts: []act{calls(called("a:act", `{}`), called("b:act", `{}`)), inTheAir("a")}, wantKind: Await,
		},
		"after an effect that failed, later Sequential calls are not run": {
			acts: []act{calls(called("a:act", `{}`), called("b:pay", `{}`), called("c:look", `{}`)), lands("a", turnedOff), inTheAir()}, wantKind: Await,
			wantClasses: map[string]string{"a": "rejected", "b": "not_run", "c": "not_run"},
		},
		"Parallel ones are": {
			acts: []act{calls(called("a:act", `{}`), called("b:read", `{}`), called("c:look", `{}`)), lands("a", turnedOff), inTheAir("b")}, wantKind: Await,
			wantClasses: map[string]string{"a": "rejected", "c": "not_run"},
		},
		"after a read that failed, everything else runs": {
			acts: []act{calls(called("a:look", `{}`), called("b:act", `{}`)), lands("a", turnedOff), inTheAir("b")}, wantKind: Await, wantClasses: map[string]string{"a": "rejected"},
		},
		"results come back in any order, and are put back in call order": {
			acts:     []act{calls(called("a:read", `{}`), called("b:read", `{"n":1}`)), lands("b", gave(`"second"`)), lands("a", gave(`"first"`))},
			wantKind: Await, wantClasses: map[string]string{"a": "ok", "b": "ok"},
		},
	})
}

func TestRetries(t *testing.T) {
	later := func(outcome tool.Outcome, d time.Duration) tool.Outcome {
		outcome.RetryAfter = d
		return outcome
	}
	read, put, acted := calls(called("a:read", `{}`)), calls(called("a:put", `{}`)), calls(called("a:act", `{}`))
	sleeps := func(want time.Duration) act {
		return func(s *stage, last Step) {
			if got := last.Until.Sub(s.facts.Now); last.Kind != Await || got != want {
				s.t.Fatalf("the run is to %s for %s, want %s", last.Kind, got, want)
			}
			untilThen(s, last)
		}
	}
	playAll(t, map[string]scene{
		"a read is repeated with a growing back-off, as often as the policy says": {
			acts:     []act{read, lands("a", notSent), inTheAir(), sleeps(time.Second), inTheAir("a"), lands("a", notSent), sleeps(2 * time.Second), lands("a", notSent)},
			wantKind: Await, wantClasses: map[string]string{"a": "transport"},
		},
		"Retry-After counts where it is longer": {
			acts: []act{read, lands("a", later(throttled, time.Minute)), sleeps(time.Minute), inTheAir("a")}, wantKind: Await,
		},
		"the back-off counts where it is longer": {
			acts: []act{read, lands("a", later(throttled, time.Millisecond)), sleeps(time.Second), inTheAir("a")}, wantKind: Await,
		},
		"what can't end otherwise is not repeated": {
			acts: []act{read, lands("a", turnedOff)}, wantKind: Await, wantClasses: map[string]string{"a": "rejected"},
		},
		"an Idempotent call is repeated after an unknown outcome": {
			acts: []act{put, lands("a", timedOut), sleeps(time.Second), inTheAir("a"), lands("a", gave(`1`))}, wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"a NonIdempotent call is never repeated, whatever the adapter says": {
			acts: []act{acted, lands("a", throttled), inTheAir()}, wantKind: Await, wantClasses: map[string]string{"a": "throttled"},
		},
		"an unknown outcome of a NonIdempotent call waits for a person": {
			acts: []act{acted, lands("a", timedOut)}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown, wantClasses: map[string]string{},
		},
		"attempts used up on an unknown outcome wait for a person": {
			acts: []act{put, lands("a", timedOut), untilThen, lands("a", timedOut), untilThen, lands("a", timedOut)}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"an attempt that was not sent says nothing of an earlier one that may have arrived": {
			acts: []act{put, lands("a", timedOut), untilThen, lands("a", notSent), untilThen, lands("a", notSent)}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"neither does one that is asked to come later": {
			acts: []act{put, lands("a", timedOut), untilThen, lands("a", throttled), untilThen, lands("a", throttled)}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"a refusal says nothing of the attempt before": {
			acts: []act{put, lands("a", timedOut), untilThen, lands("a", turnedOff)}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"nothing is repeated once the key may be forgotten": {
			acts: []act{put, lands("a", timedOut), wants(Suspended), passes(time.Hour), wants(Active), inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"nor where it would be forgotten by then": {
			acts: []act{put, lands("a", later(throttled, time.Hour)), inTheAir()}, wantKind: Await, wantClasses: map[string]string{"a": "throttled"},
		},
		"nor after the margin for clocks that differ": {
			acts: []act{put, lands("a", later(timedOut, 55*time.Minute)), inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"an attempt is not begun once the run was cancelled": {
			acts: []act{read, lands("a", notSent), wants(Cancelled)}, wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "transport"},
		},
		"a suspended run does not repeat": {
			acts: []act{read, lands("a", notSent), wants(Suspended), passes(time.Minute), inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonSuspended,
		},
	})
}

func TestTheRateOfATool(t *testing.T) {
	throttles := func(d time.Duration, ids ...string) act {
		return func(s *stage, _ Step) {
			s.facts.Throttled = map[string]time.Time{}
			for _, id := range ids {
				s.facts.Throttled[id] = s.facts.Now.Add(d)
			}
		}
	}
	waits := func(want time.Duration) act {
		return func(s *stage, last Step) {
			if got := last.Until.Sub(s.facts.Now); last.Kind != Await || got != want || last.Message != "waiting to call s.read as often as its policy allows (requestsPerMinute)" {
				s.t.Fatalf("the run is to %s for %s (%s), want %s", last.Kind, got, last.Message, want)
			}
		}
	}
	playAll(t, map[string]scene{
		"keeps a call back": {
			acts: []act{throttles(7*time.Second, "a"), calls(called("a:read", `{}`)), inTheAir(), waits(7 * time.Second), untilThen, inTheAir("a")}, wantKind: Await,
		},
		"keeps no other call of its group back": {
			acts: []act{throttles(7*time.Second, "a"), calls(called("a:read", `{}`), called("b:read", `{"n":1}`)), inTheAir("b"), untilThen, lands("b", gave(`1`)), inTheAir("a")}, wantKind: Await,
			wantClasses: map[string]string{"b": "ok"},
		},
		"keeps the groups after it back": {
			acts: []act{throttles(7*time.Second, "a"), calls(called("a:read", `{}`), called("b:act", `{}`)), inTheAir(), untilThen, inTheAir("a"), lands("a", gave(`1`)), inTheAir("b")}, wantKind: Await,
			wantClasses: map[string]string{"a": "ok"},
		},
		"keeps an attempt back for longer than its back-off": {
			acts: []act{calls(called("a:read", `{}`)), throttles(7*time.Second, "a"), lands("a", notSent), untilThen, waits(6 * time.Second), untilThen, inTheAir("a")}, wantKind: Await,
		},
		"does not outlast the key of an effect": {
			acts: []act{calls(called("a:put", `{}`)), lands("a", timedOut), throttles(10*time.Hour, "a"), untilThen, inTheAir(), untilThen}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"does not keep the run from ending": {
			acts: []act{throttles(time.Hour, "a"), calls(called("a:read", `{}`)), wants(Cancelled)}, wantReason: v1alpha1.ReasonCancelled,
		},
		"does not outlast the run's working time": {
			acts: []act{throttles(10000*time.Hour, "a"), calls(called("a:read", `{}`)), inTheAir(), untilThen, inTheAir()}, wantReason: v1alpha1.ReasonDeadlineExceeded,
		},
	})
}

func TestARunThatIsHeld(t *testing.T) {
	s := scene{}.play(t)
	f := s.look()
	soon, late := f.Now.Add(time.Second), f.Now.Add(10000*time.Hour)
	if step := Hold(f, "why", soon); step.Kind != Await || step.Waiting != "Running" || step.Message != "why" || !step.Until.Equal(soon) {
		t.Errorf("held as %+v", step)
	}
	if step := HandOver(f, "why", soon); step.Kind != Rest || step.Waiting != "Running" || step.Message != "why" || !step.Until.Equal(soon) {
		t.Errorf("handed over as %+v", step)
	}
	if step := Hold(f, "why", late); !step.Until.Equal(workDeadline(f)) {
		t.Errorf("held until %s, beyond its working time", step.Until)
	}
	if step := HandOver(f, "why", late); !step.Until.Equal(deadline(f)) {
		t.Errorf("handed over until %s, beyond its end", step.Until)
	}
}

// What no adapter should report is taken for the worst that it may mean.
func TestOddOutcomes(t *testing.T) {
	cases := map[string]struct {
		alias       string
		outcome     tool.Outcome
		wantClass   string
		wantEffect  string
		wantValue   string
		wantUnknown bool
	}{
		"no effect named":                 {alias: "act", outcome: tool.Outcome{Class: tool.ClassTimeout}, wantClass: "timeout", wantEffect: "unknown", wantUnknown: true},
		"an effect that nobody knows":     {alias: "act", outcome: tool.Outcome{Class: tool.ClassTransport, Effect: "odd"}, wantClass: "transport", wantEffect: "unknown", wantUnknown: true},
		"a class that nobody knows":       {alias: "act", outcome: tool.Outcome{Class: "odd", Effect: tool.EffectRejected}, wantClass: "unknown", wantEffect: "unknown", wantUnknown: true},
		"a class that nobody knows, read": {alias: "read", outcome: tool.Outcome{Class: "odd"}, wantClass: "transport"},
		"unknown, though a read":          {alias: "read", outcome: tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown}, wantClass: "transport"},
		"ok, the effect unknown":          {alias: "act", outcome: tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectUnknown, Value: []byte(`1`)}, wantClass: "ok", wantEffect: "committed", wantValue: `1`},
		"ok without a value":              {alias: "act", outcome: tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted}, wantClass: "ok", wantEffect: "committed", wantValue: `null`},
		"a value that is not JSON":        {alias: "act", outcome: tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: []byte(`{x`)}, wantClass: "ok", wantEffect: "committed", wantValue: `"{x"`},
		"unknown and to be repeated":      {alias: "act", outcome: tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: true}, wantClass: "unknown", wantEffect: "unknown", wantUnknown: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := scene{acts: []act{calls(called("a:"+test.alias, `{}`)), lands("a", test.outcome)}}.play(t)
			last := s.call("a").Last
			if last.Class != test.wantClass || last.Effect != test.wantEffect || string(last.Value) != test.wantValue {
				t.Errorf("class %s, effect %s, value %s; want %s, %s, %s", last.Class, last.Effect, last.Value, test.wantClass, test.wantEffect, test.wantValue)
			}
			if unknown := len(s.state().Unknown) > 0; unknown != test.wantUnknown {
				t.Errorf("unknown effects %v", s.state().Unknown)
			}
		})
	}
}

// An outcome that belongs to no attempt under way is not wanted.
func TestOutcomesThatAreNotWanted(t *testing.T) {
	s := scene{acts: []act{calls(called("a:read", `{}`)), lands("a", gave(`1`)), calls(called("b:read", `{"n":1}`))}}.play(t)
	for name, test := range map[string]struct {
		id      string
		attempt int32
	}{
		"of an earlier turn":  {"a", 1},
		"of another attempt":  {"b", 2},
		"of no call":          {"c", 1},
		"of a call of nobody": {"", 0},
	} {
		if _, wanted := RecordOutcome(s.look(), test.id, test.attempt, gave(`1`), 0); wanted {
			t.Errorf("%s: wanted", name)
		}
	}
	// The journal said that it was lost; what is said later is for a person to weigh.
	s = scene{acts: []act{calls(called("a:act", `{}`)), restarts}}.play(t)
	if _, wanted := RecordOutcome(s.look(), "a", 1, gave(`1`), 0); wanted {
		t.Errorf("of a call that was given up: wanted")
	}
}

// What becomes of calls whose sender is gone.
func TestTakeover(t *testing.T) {
	playAll(t, map[string]scene{
		"a read is sent again": {
			acts: []act{calls(called("a:read", `{}`)), restarts, untilThen, inTheAir("a"), lands("a", gave(`1`))}, wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"an Idempotent call is sent again while its key lives": {
			acts: []act{calls(called("a:put", `{}`)), restarts, untilThen, inTheAir("a")}, wantKind: Await,
		},
		"and never after": {
			acts: []act{calls(called("a:put", `{}`)), restartsAfter(55 * time.Minute), inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"a NonIdempotent call is unknown": {
			acts: []act{calls(called("a:act", `{}`)), restarts, inTheAir()}, wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"each call of a batch by its own effect": {
			spec: parallel("", "read", "put", "act"),
			acts: []act{
				calls(called("a:read", `{}`), called("b:act", `{}`), called("c:put", `{}`)), inTheAir("a", "b", "c"), lands("a", gave(`1`)), restarts,
				waitsFor(v1alpha1.ReasonOutcomeUnknown), settlesAs("rejected"), untilThen, inTheAir("c"), lands("c", gave(`1`)),
			},
			wantKind: Await, wantClasses: map[string]string{"a": "ok", "b": "rejected", "c": "ok"},
		},
		"cancelled meanwhile: the outcome stays unknown": {
			acts:       []act{calls(called("a:act", `{}`)), func(s *stage, _ Step) { s.restart(); s.facts.Desired = Cancelled }},
			wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "unknown"},
		},
		"a request to the model is charged and made again": {
			acts: []act{restarts, says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted,
		},
		"a model that outlives every worker": {
			acts: []act{restarts, restarts, restarts}, wantReason: v1alpha1.ReasonModelError,
		},
	})
	s := scene{acts: []act{restarts}}.play(t)
	if s.state().ModelAttempts != 1 || s.state().Usage.Total() == 0 || !s.state().Usage.Estimated {
		t.Errorf("a lost request is charged as %+v, attempts %d", s.state().Usage, s.state().ModelAttempts)
	}
}

// restartsAfter takes the run over only after a while.
func restartsAfter(d time.Duration) act {
	return func(s *stage, last Step) {
		passes(d)(s, last)
		s.restart()
	}
}

func TestUnknownOutcomes(t *testing.T) {
	sent := []act{calls(called("a:act", `{}`), called("b:look", `{}`)), lands("a", lostReply)}
	with := func(more ...act) []act { return append(sent[:len(sent):len(sent)], more...) }
	playAll(t, map[string]scene{
		"settled as committed: the batch goes on": {
			acts: with(settlesAs("committed"), inTheAir("b")), wantKind: Await, wantClasses: map[string]string{"a": "ok"},
		},
		"settled as rejected: later Sequential calls are not run": {
			acts: with(settlesAs("rejected"), inTheAir()), wantKind: Await, wantClasses: map[string]string{"a": "rejected", "b": "not_run"},
		},
		"settled as something else: nothing happens": {
			acts: with(settlesAs("perhaps")), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"settled by nobody: nothing happens": {
			acts: with(func(s *stage, last Step) { settlesAs("committed")(s, last); s.facts.Verdicts.SettleBy = "" }), wantKind: Rest, wantWaiting: v1alpha1.ReasonOutcomeUnknown,
		},
		"not settled in time": {
			acts: with(untilThen), wantReason: v1alpha1.ReasonOutcomeUnknown, wantClasses: map[string]string{"a": "unknown", "b": "not_run"},
		},
		"cancelled": {
			acts: with(wants(Cancelled)), wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "unknown", "b": "not_run"},
		},
		"settled while suspended: recorded, and nothing is sent": {
			acts: with(wants(Suspended), settlesAs("committed"), inTheAir(), waitsFor(v1alpha1.ReasonSuspended), wants(Active), inTheAir("b")), wantKind: Await,
		},
	})
}

// After the end a settlement is recorded, and changes nothing else.
func TestLateSettlement(t *testing.T) {
	for _, effect := range []string{"committed", "rejected"} {
		t.Run(effect, func(t *testing.T) {
			s := scene{
				acts: []act{
					calls(called("a:act", `{}`)), lands("a", lostReply), wants(Cancelled),
					func(s *stage, last Step) {
						if len(s.state().Unknown) != 1 || last.Kind != Done {
							s.t.Fatalf("unknown effects %v, step %s", s.state().Unknown, last.Kind)
						}
					},
					restarts, settlesAs(effect),
				},
				wantKind: Done, wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "unknown"},
			}.play(t)
			if len(s.state().Unknown) != 0 {
				t.Errorf("unknown effects %v", s.state().Unknown)
			}
			last := s.records[len(s.records)-1].Event
			if last.Type != journal.TypeEffectReconciled || last.By != "ann" {
				t.Errorf("the last event is %s by %q", last.Type, last.By)
			}
		})
	}
}

func TestStopping(t *testing.T) {
	stops := func(s *stage, last Step) {
		if last.Kind != Stop {
			s.t.Fatalf("the run is to %s, want %s", last.Kind, Stop)
		}
	}
	playAll(t, map[string]scene{
		"calls under way are stopped and their outcome recorded": {
			acts:       []act{calls(called("a:act", `{}`)), wants(Cancelled), stops, lands("a", gave(`1`))},
			wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "ok"},
		},
		"an outcome that stays unknown": {
			acts:       []act{calls(called("a:put", `{}`)), wants(Cancelled), stops, lands("a", timedOut)},
			wantReason: v1alpha1.ReasonCancelled, wantClasses: map[string]string{"a": "unknown"},
		},
		"the model is stopped": {
			acts: []act{wants(Cancelled), stops, says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCancelled,
		},
		"suspending waits for what is under way": {
			acts:     []act{calls(called("a:act", `{}`), called("b:act", `{"n":1}`)), wants(Suspended), inTheAir("a"), lands("a", gave(`1`)), inTheAir()},
			wantKind: Rest, wantWaiting: v1alpha1.ReasonSuspended,
		},
		"resuming goes on where it was": {
			acts: []act{calls(called("a:act", `{}`), called("b:act", `{"n":1}`)), wants(Suspended), lands("a", gave(`1`)), wants(Active), inTheAir("b")}, wantKind: Await,
		},
	})
}
