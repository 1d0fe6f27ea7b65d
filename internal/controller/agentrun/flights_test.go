package agentrun

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
)

// stepper is an Executor that does nothing by itself.
type stepper struct{ pending []func() }

func (s *stepper) Go(f func()) { s.pending = append(s.pending, f) }

// run does everything that was started, and what that starts.
func (s *stepper) run() (ran int) {
	for len(s.pending) > 0 {
		next := s.pending[0]
		s.pending = s.pending[1:]
		next()
		ran++
	}
	return ran
}

var flightKey = types.NamespacedName{Namespace: "ns", Name: "run"}

func newFlights(t *testing.T) (*Flights, *stepper, *clocktesting.FakeClock, *int) {
	t.Helper()
	executor, clock, woken := &stepper{}, clocktesting.NewFakeClock(time.Unix(0, 0)), new(int)
	return NewFlights(executor, clock, func(types.NamespacedName) { *woken++ }), executor, clock, woken
}

func TestFlightsCountUntilSettled(t *testing.T) {
	f, executor, clock, woken := newFlights(t)
	f.start("uid", flightKey, &flight{call: "c1"}, time.Hour, func(context.Context, *flight) { clock.Step(3 * time.Second) })
	if calls := f.underWay("uid", nil).calls; !calls["c1"] || len(f.landed("uid")) != 0 {
		t.Fatal("the call is not under way, or has landed before it was made")
	}
	executor.run()
	landed := f.landed("uid")
	if len(landed) != 1 || *woken != 1 || landed[0].duration != 3*time.Second {
		t.Fatalf("landed %v, woken %d times", landed, *woken)
	}
	if calls := f.underWay("uid", nil).calls; !calls["c1"] {
		t.Error("a call whose outcome is not recorded yet looks lost")
	}
	if calls := f.underWay("uid", landed).calls; calls["c1"] {
		t.Error("a call whose outcome is in the draft is still under way")
	}
	f.settle("uid", landed)
	if calls := f.underWay("uid", nil).calls; calls["c1"] || len(f.landed("uid")) != 0 {
		t.Error("a settled call is still there")
	}
}

func TestFlightsTellKindsApart(t *testing.T) {
	f, executor, _, _ := newFlights(t)
	nothing := func(context.Context, *flight) {}
	f.start("uid", flightKey, &flight{asked: &run.Asked{}}, time.Hour, nothing)
	f.start("uid", flightKey, &flight{}, time.Hour, nothing)
	f.start("other", flightKey, &flight{asked: &run.Asked{}}, time.Hour, nothing)
	if air := f.underWay("uid", nil); !air.model || !air.resolving || len(air.calls) != 0 {
		t.Errorf("under way: %+v", air)
	}
	executor.run()
}

// TestAnEndIsToldOnce checks that a place is given back once, however often a flight lands.
func TestAnEndIsToldOnce(t *testing.T) {
	f, executor, clock, _ := newFlights(t)
	ends := 0
	f.start("uid", flightKey, &flight{asked: &run.Asked{}, ended: func() { ends++ }}, time.Second, func(context.Context, *flight) {})
	f.drop("uid")
	clock.Step(time.Minute)
	executor.run()
	if ends != 1 {
		t.Errorf("told %d times that it has ended", ends)
	}
}

// TestStop checks that what changes nothing is stopped at once, and that the reply of
// what may change something is waited for.
func TestStop(t *testing.T) {
	f, executor, clock, _ := newFlights(t)
	stopped := map[string]bool{}
	for _, entry := range []*flight{{call: "read"}, {call: "write", effectful: true}, {asked: &run.Asked{}}} {
		f.start("uid", flightKey, entry, time.Hour, func(ctx context.Context, _ *flight) {
			stopped[entry.call] = ctx.Err() != nil
		})
	}
	f.stop("uid")
	executor.run()
	if !stopped["read"] || !stopped[""] || stopped["write"] {
		t.Errorf("stopped at once: %v", stopped)
	}

	ended := make(chan struct{})
	f.start("uid", flightKey, &flight{call: "slow write", effectful: true}, time.Hour, func(ctx context.Context, _ *flight) {
		context.AfterFunc(ctx, func() { close(ended) })
		f.stop("uid")
		clock.Step(effectGrace - time.Millisecond)
		if ctx.Err() != nil {
			t.Error("stopped before the grace was over")
		}
		clock.Step(time.Millisecond)
		<-ended
	})
	executor.run()
}

func TestDropForgets(t *testing.T) {
	f, executor, _, _ := newFlights(t)
	f.start("uid", flightKey, &flight{call: "c1"}, time.Hour, func(ctx context.Context, _ *flight) {
		if ctx.Err() == nil {
			t.Error("a run that is gone still has a call under way")
		}
	})
	f.drop("uid")
	executor.run()
	if calls := f.underWay("uid", nil).calls; len(calls) != 0 || len(f.landed("uid")) != 0 {
		t.Error("a run that is gone still has flights")
	}
}

// TestAPanicIsAnOutcome checks that what one run brings about ends neither the process
// nor the run without a word.
func TestAPanicIsAnOutcome(t *testing.T) {
	f, executor, _, woken := newFlights(t)
	for _, entry := range []*flight{{call: "c1"}, {asked: &run.Asked{}}, {}} {
		f.start("uid", flightKey, entry, time.Hour, func(context.Context, *flight) { panic("what the model said") })
	}
	executor.run()
	landed := f.landed("uid")
	if len(landed) != 3 || *woken != 3 {
		t.Fatalf("%d landed, woken %d times", len(landed), *woken)
	}
	call, asked, resolved := landed[0], landed[1], landed[2]
	if call.outcome.Effect != tool.EffectUnknown || call.outcome.Retryable {
		t.Errorf("the call's outcome is %+v", call.outcome)
	}
	if asked.failure == nil || asked.failure.Class != model.ClassTransient || !asked.failure.Sent {
		t.Errorf("the request's failure is %+v", asked.failure)
	}
	if resolved.configuration == nil || resolved.configuration.NotReady == "" {
		t.Errorf("the configuration is %+v", resolved.configuration)
	}
}

// TestAFlightThatHangsIsLanded checks that a run does not wait for ever for an adapter
// that ignores its deadline, and that what it says after all of an effect is kept.
func TestAFlightThatHangsIsLanded(t *testing.T) {
	for name, test := range map[string]struct {
		entry flight
		says  tool.Outcome
		late  bool
	}{
		"a call that took effect":            {flight{call: "c1", attempt: 2, epoch: 7, effectful: true}, tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted}, true},
		"a call that did not":                {flight{call: "c1", attempt: 2, epoch: 7, effectful: true}, tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected}, true},
		"a call of which nobody knows still": {flight{call: "c1", effectful: true}, tool.Outcome{Class: tool.ClassTimeout, Effect: tool.EffectUnknown}, false},
		"a call without effect":              {flight{call: "c1"}, tool.Outcome{Class: tool.ClassOK}, false},
		"a request to the model":             {flight{asked: &run.Asked{}}, tool.Outcome{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, executor, clock, woken := newFlights(t)
			f.start("uid", flightKey, &test.entry, time.Minute, func(_ context.Context, landed *flight) { landed.outcome = test.says })
			hangs := executor.pending
			executor.pending = nil
			clock.Step(time.Minute + watchdogMargin)
			executor.run()
			given := f.landed("uid")
			if len(given) != 1 || given[0].outcome.Effect != tool.EffectUnknown || *woken != 1 {
				t.Fatalf("landed %+v, woken %d times", given, *woken)
			}
			f.settle("uid", given)
			f.drop("uid")
			executor.pending = hangs
			executor.run()
			landed := f.landed("uid")
			if !test.late {
				if *woken != 1 || len(landed) != 0 {
					t.Errorf("woken %d times, landed %v", *woken, landed)
				}
				return
			}
			if *woken != 2 || len(landed) != 1 {
				t.Fatalf("woken %d times, landed %v", *woken, landed)
			}
			late := landed[0]
			if late.call != "c1" || late.attempt != 2 || late.epoch != 7 || late.outcome.Effect != test.says.Effect {
				t.Errorf("landed %+v", late)
			}
			f.stop("uid")
		})
	}
}

// TestWhatIsDroppedMayStillSay checks that an outcome is kept which comes when somebody else
// has ended the run: whoever was suspended meanwhile lets go of the run before it is told.
func TestWhatIsDroppedMayStillSay(t *testing.T) {
	f, executor, _, woken := newFlights(t)
	f.start("uid", flightKey, &flight{call: "c1", attempt: 1, epoch: 3, effectful: true}, time.Minute, func(_ context.Context, landed *flight) {
		landed.outcome = tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted}
	})
	f.drop("uid")
	if calls := f.underWay("uid", nil).calls; len(calls) != 0 {
		t.Errorf("still under way: %v", calls)
	}
	executor.run()
	landed := f.landed("uid")
	if *woken != 1 || len(landed) != 1 || landed[0].epoch != 3 || landed[0].outcome.Effect != tool.EffectCommitted {
		t.Errorf("woken %d times, landed %v", *woken, landed)
	}
}

// TestWhatIsForgottenDoesNotComeBack checks that nothing is kept of a run that is gone.
func TestWhatIsForgottenDoesNotComeBack(t *testing.T) {
	f, executor, clock, woken := newFlights(t)
	f.start("uid", flightKey, &flight{call: "c1", effectful: true}, time.Minute, func(_ context.Context, landed *flight) {
		landed.outcome = tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted}
	})
	hangs := executor.pending
	executor.pending = nil
	clock.Step(time.Minute + watchdogMargin)
	executor.run()
	f.forget("uid")
	executor.pending = hangs
	executor.run()
	if *woken != 1 || len(f.landed("uid")) != 0 || len(f.lost) != 0 {
		t.Errorf("woken %d times, landed %v, lost %v", *woken, f.landed("uid"), f.lost)
	}
}
