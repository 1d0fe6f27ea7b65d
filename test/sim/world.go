package sim

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// begin is when every simulation starts.
var begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is everything that happens in one simulation. Nothing in it is concurrent: one
// step runs at a time, and what runs next is decided by simulated time alone.
type world struct {
	rng     *rand.Rand
	elapsed time.Duration
	events  eventHeap
	seq     uint64
	steps   int
	current *task
	serial  int

	history history

	server   *server
	services *services
	check    *checker
	faults   *faults
	replicas []*replica
	runs     []*scenarioRun
	counts   Counts
	// poison is the run with which every reconcile panics, empty for none.
	poison types.UID
	// idle keeps people from doing anything, and writes counts what is stored.
	idle   bool
	writes int
	// lastingQuota is until when the quota refuses new ConfigMaps, faults or not.
	lastingQuota time.Duration
}

func newWorld(seed uint64) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), history: history{hash: fnv.New64a()}}
}

// event is something that happens at a time. What belongs to a process dies with it and
// waits while it is stopped.
type event struct {
	at      time.Duration
	seq     uint64
	process *process
	run     func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// after schedules something; p may be nil for what belongs to no process.
func (w *world) after(d time.Duration, p *process, run func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.elapsed + max(d, 0), seq: w.seq, process: p, run: run})
}

// step runs the next event, and says whether there was one.
func (w *world) step() bool {
	if len(w.events) == 0 {
		return false
	}
	next := heap.Pop(&w.events).(event)
	w.elapsed = max(w.elapsed, next.at)
	switch p := next.process; {
	case p != nil && p.dead:
	case p != nil && p.stopped:
		p.frozen = append(p.frozen, next)
	default:
		w.steps++
		next.run()
	}
	return true
}

// between is a random duration.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// chance is true once in a while.
func (w *world) chance(probability float64) bool {
	return probability > 0 && w.rng.Float64() < probability
}

// died unwinds the coroutines of a process that crashed.
type died struct{}

// task is a coroutine: a reconcile, a flight, a heartbeat, a person. It runs until it
// sleeps, and every call that leaves its process makes it sleep.
type task struct {
	w       *world
	process *process
	name    string
	resume  func() (struct{}, bool)
	kill    func()
	yield   func(struct{}) bool
	over    bool
	dying   bool
	// began is when the task was started.
	began time.Duration
	// loop is the context of a loop with a ticker.
	loop context.Context
}

// spawn starts a coroutine some time from now.
func (w *world) spawn(delay time.Duration, p *process, name string, body func(*task)) {
	t := &task{w: w, process: p, name: name}
	t.resume, t.kill = iter.Pull(func(yield func(struct{}) bool) {
		t.yield, t.began = yield, w.elapsed
		defer func() {
			t.over = true
			if problem := recover(); problem != nil {
				if _, unwound := problem.(died); !unwound {
					panic(problem)
				}
			}
		}()
		body(t)
	})
	if p != nil {
		p.tasks = append(p.tasks, t)
	}
	w.after(delay, p, t.enter)
}

// enter gives control to the coroutine until it sleeps or ends.
func (t *task) enter() {
	if t.over {
		return
	}
	outer := t.w.current
	t.w.current = t
	t.resume()
	t.w.current = outer
	if t.over && t.process != nil {
		t.process.forget(t)
	}
}

// sleep lets everything else happen for a while.
func (t *task) sleep(d time.Duration) {
	if t.dying {
		panic(died{})
	}
	t.w.after(d, t.process, t.enter)
	if !t.yield(struct{}{}) {
		t.dying = true
		panic(died{})
	}
}

// history is what happened, in words. All of it goes into a hash, the end of it is kept.
type history struct {
	hash interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
	lines []string
	count int
	echo  func(string)
}

const keptLines = 60

// note adds a line to the history.
func (w *world) note(who, format string, args ...any) {
	line := fmt.Sprintf("%6d %12s %-8s ", w.steps, w.elapsed.Round(time.Microsecond), who) + fmt.Sprintf(format, args...)
	_, _ = w.history.hash.Write([]byte(line))
	w.history.count++
	if w.history.echo != nil {
		w.history.echo(line)
	}
	if len(w.history.lines) >= 4*keptLines {
		w.history.lines = append(w.history.lines[:0], w.history.lines[len(w.history.lines)-keptLines:]...)
	}
	w.history.lines = append(w.history.lines, line)
}

// tail is the end of the history.
func (w *world) tail(n int) []string {
	return w.history.lines[max(0, len(w.history.lines)-n):]
}
