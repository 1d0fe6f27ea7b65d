package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const lease = 15 * time.Second

// watch is one scene: what this worker sees, second by second.
type watch struct {
	observer *Observer
	now      time.Time
}

func newWatch() *watch {
	w := &watch{observer: NewObserver(lease), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.observer.Tick(w.now, true)
	return w
}

// pass lets time go by in ticks, with a look at every one.
func (w *watch) pass(d time.Duration, fresh bool, leases ...Seen) {
	const tick = 500 * time.Millisecond
	for range d / tick {
		w.now = w.now.Add(tick)
		w.observer.Tick(w.now, fresh)
		w.observer.Observe(w.now, leases)
	}
}

func held(version string) Seen {
	return Seen{Name: "pawl-worker-a", Holder: "a-1", UID: "u", Version: version}
}

func TestObserver(t *testing.T) {
	tests := map[string]struct {
		scene func(w *watch)
		want  State
	}{
		"a lease that is renewed lives": {func(w *watch) {
			for i := range 10 {
				w.pass(5*time.Second, true, held(fmt.Sprint(i)))
			}
		}, Live},
		"a lease that stands still for less than its duration lives": {func(w *watch) {
			w.pass(lease, true, held("1"))
		}, Live},
		"a lease that stands still for its duration is dead": {func(w *watch) {
			w.pass(lease+time.Second, true, held("1"))
		}, Dead},
		"a gap in the watch starts the wait again": {func(w *watch) {
			w.pass(lease-time.Second, true, held("1"))
			w.now = w.now.Add(2 * time.Second)
			w.pass(lease-time.Second, true, held("1"))
		}, Live},
		"a worker that could not renew its own lease knows nothing": {func(w *watch) {
			w.pass(3*lease, false, held("1"))
		}, Live},
		"one that can renew again starts to wait": {func(w *watch) {
			w.pass(lease, false, held("1"))
			w.pass(lease-time.Second, true, held("1"))
		}, Live},
		"and finds it dead in the end": {func(w *watch) {
			w.pass(lease, false, held("1"))
			w.pass(lease+time.Second, true, held("1"))
		}, Dead},
		"a lease that was replaced under the same version is another": {func(w *watch) {
			w.pass(lease, true, held("1"))
			other := held("1")
			other.UID = "v"
			w.pass(lease-time.Second, true, other)
		}, Live},
		"a lease that is gone is dead at once": {func(w *watch) {
			w.pass(time.Second, true, held("1"))
			w.pass(time.Second, true)
		}, Dead},
		"a lease that a later incarnation took is dead at once": {func(w *watch) {
			w.pass(time.Second, true, held("1"))
			next := held("2")
			next.Holder = "a-2"
			w.pass(time.Second, true, next)
		}, Dead},
		"a dead lease that moves again lives": {func(w *watch) {
			w.pass(2*lease, true, held("1"))
			w.pass(time.Second, true, held("2"))
		}, Live},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWatch()
			test.scene(w)
			if got := w.observer.State("a-1"); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestDrainingWorkersTakeUpNothing(t *testing.T) {
	w := newWatch()
	leaving := Seen{Name: "pawl-worker-b", Holder: "b-1", UID: "v", Version: "1", Draining: true}
	w.pass(time.Second, true, held("1"), leaving)
	if diff := cmp.Diff([]string{"a-1"}, w.observer.Workers()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := w.observer.State("b-1"); got != Live {
		t.Errorf("a worker that hands over is %s", got)
	}
}

func TestRank(t *testing.T) {
	workers := []string{"a", "b", "c", "d"}
	firsts := map[string]int{}
	for i := range 1000 {
		run := fmt.Sprint("run-", i)
		ranks := map[int]string{}
		for _, worker := range workers {
			ranks[Rank(run, worker, workers)] = worker
		}
		if len(ranks) != len(workers) {
			t.Fatalf("ranks of %s are not an order: %v", run, ranks)
		}
		firsts[ranks[0]]++
		without := make([]string, 0, len(workers))
		for _, worker := range workers {
			if worker != ranks[3] {
				without = append(without, worker)
			}
		}
		if got := Rank(run, ranks[0], without); got != 0 {
			t.Errorf("%s moved when another worker left", run)
		}
	}
	for worker, n := range firsts {
		if n < 150 || n > 350 {
			t.Errorf("%s is first for %d of 1000 runs", worker, n)
		}
	}
	if got := Rank("run", "z", workers); got != len(workers) {
		t.Errorf("a worker that nobody knows ranks %d", got)
	}
}
