package sim

import (
	"time"

	"k8s.io/utils/clock"
)

// localClock is the clock of one replica: its wall clock may be wrong and may be set
// forward or back, and both it and the monotonic one may run a little fast or slow. Nothing
// else of the machine's time reaches the operator.
type localClock struct {
	w *world
	p *process
	// offset is how wrong the wall clock is.
	offset time.Duration
	rate   float64
}

var _ clock.WithTickerAndDelayedExecution = (*localClock)(nil)

func (c *localClock) ran() time.Duration { return time.Duration(float64(c.w.elapsed) * c.rate) }

// Now implements clock.PassiveClock.
func (c *localClock) Now() time.Time { return reading(begin.Add(c.offset+c.ran()), c.ran()) }

// Since implements clock.PassiveClock.
func (c *localClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// boot is a clock that counts from the start of the machine.
func (c *localClock) boot() time.Duration { return c.ran() }

// AfterFunc implements clock.WithDelayedExecution.
func (c *localClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	timer := &localTimer{}
	c.w.after(time.Duration(float64(d)/c.rate), c.p, func() {
		if !timer.stopped {
			timer.stopped = true
			f()
		}
	})
	return timer
}

// NewTicker implements clock.WithTicker.
func (c *localClock) NewTicker(d time.Duration) clock.Ticker { return &localTicker{c: c, period: d} }

// Sleep implements clock.Clock.
func (c *localClock) Sleep(d time.Duration) { c.w.current.sleep(d) }

// After implements clock.Clock. Nothing that is simulated uses it, NewTimer or Tick.
func (c *localClock) After(time.Duration) <-chan time.Time {
	panic("no channel of a timer is simulated")
}

// NewTimer implements clock.Clock.
func (c *localClock) NewTimer(time.Duration) clock.Timer { panic("no channel of a timer is simulated") }

// Tick implements clock.Clock.
func (c *localClock) Tick(time.Duration) <-chan time.Time {
	panic("no channel of a timer is simulated")
}

type localTimer struct{ stopped bool }

// C implements clock.Timer.
func (t *localTimer) C() <-chan time.Time { panic("no channel of a timer is simulated") }

// Stop implements clock.Timer.
func (t *localTimer) Stop() bool {
	was := !t.stopped
	t.stopped = true
	return was
}

// Reset implements clock.Timer.
func (t *localTimer) Reset(time.Duration) bool { panic("no timer is reset") }

// localTicker sleeps where a loop asks for the channel of its ticker: the loop would
// block there. A context that ended meanwhile wins, so that select has no choice.
type localTicker struct {
	c      *localClock
	period time.Duration
	// seen is true once the loop was let see that its context ended.
	seen bool
}

// C implements clock.Ticker.
func (t *localTicker) C() <-chan time.Time {
	if !t.ended() {
		t.c.w.current.sleep(time.Duration(float64(t.period) / t.c.rate))
	} else if t.seen {
		t.c.w.current.sleep(t.period)
	}
	if t.ended() && !t.seen {
		t.seen = true
		return nil
	}
	ready := make(chan time.Time, 1)
	ready <- t.c.Now()
	return ready
}

func (t *localTicker) ended() bool {
	loop := t.c.w.current.loop
	return loop != nil && loop.Err() != nil
}

// Stop implements clock.Ticker.
func (t *localTicker) Stop() {}
