package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/pawl-run/pawl/internal/controller/agentrun"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/worker"
)

const (
	// lease is how long a worker that stopped renewing is waited for.
	lease = 15 * time.Second
	// systemNamespace holds the leases.
	systemNamespace = "pawl-system"
	// refusalTimeout is how long a journal may be refused.
	refusalTimeout = 10 * time.Minute
)

// replica is a place where the operator runs: a name that outlives its processes.
type replica struct {
	w      *world
	name   string
	offset time.Duration
	rate   float64
	starts int
	now    *process
	clock  *localClock
	// retired is true for one that is not to be started again.
	retired bool
}

// process is one life of a replica.
type process struct {
	w           *world
	replica     *replica
	id          string
	incarnation string
	clock       *localClock
	queue       *queue
	view        *view
	api         *apiClient
	members     *worker.Membership
	reconciler  *agentrun.Reconciler

	tasks   []*task
	frozen  []event
	dead    bool
	stopped bool
	leaving bool
	// doomed makes the next call that leaves the process its last.
	doomed bool
	// cutOff and toolsCutOff are until when it reaches no API server, and no tool.
	cutOff, toolsCutOff time.Duration
	// ownLag and othersLag are until when its watches deliver nothing of what it wrote itself,
	// and of what others did.
	ownLag, othersLag time.Duration
	// woken is when it last went on after a pause, and troubled when something last went
	// wrong around it.
	woken, troubled time.Duration
	endMembership   context.CancelFunc
}

// start begins a new life of a replica.
func (r *replica) start() {
	w := r.w
	if r.retired || r.now != nil && !r.now.dead {
		return
	}
	r.starts++
	p := &process{w: w, replica: r, id: fmt.Sprintf("%s.%d", r.name, r.starts), incarnation: fmt.Sprintf("%08x", w.rng.Uint32()), troubled: w.elapsed}
	p.clock = &localClock{w: w, p: p, offset: r.offset, rate: r.rate}
	r.clock = p.clock
	p.queue = newQueue(p)
	p.view = newView(p)
	p.api = &apiClient{p: p}
	ctx, cancel := context.WithCancel(context.Background())
	p.endMembership = cancel
	p.members = worker.NewMembership(worker.Options{
		Client: p.api, Clock: p.clock, Namespace: systemNamespace, Name: r.name, Incarnation: p.incarnation, Lease: lease,
		Heartbeat: func() bool { return p.reconciler.Heartbeat() },
		Changed:   func() { p.reconciler.WakeAll(ctx) },
		Go: func(f func()) {
			w.spawn(w.between(0, 3*time.Millisecond), p, "watch", func(t *task) {
				t.loop = ctx
				f()
			})
		},
	})
	writes := 0
	p.reconciler = agentrun.New(agentrun.Options{
		Client: p.api, Live: liveReader{p.api},
		Store: store.New(p.api, func() string {
			writes++
			return fmt.Sprintf("%s-%s-%d", p.id, p.incarnation, writes)
		}),
		Recorder: silent{}, Clock: p.clock, Boot: p.clock.boot, Executor: p, Members: p.members,
		MaxConcurrentTurns: 16, JournalRefusalTimeout: refusalTimeout,
		Clients: &clients{p: p},
	})
	r.now = p
	w.counts.Starts++
	w.note(p.id, "starts")
	_ = p.reconciler.Listen(ctx, p.queue)
	p.view.begin()
	w.spawn(w.between(0, 50*time.Millisecond), p, "membership", func(t *task) {
		t.loop = ctx
		_ = p.members.Start(ctx)
	})
}

// Go implements agentrun.Executor.
func (p *process) Go(f func()) {
	p.w.spawn(p.w.between(0, 3*time.Millisecond), p, "flight", func(*task) { f() })
}

func (p *process) forget(t *task) {
	p.tasks = slices.DeleteFunc(p.tasks, func(other *task) bool { return other == t })
}

// die ends the process in the middle of whatever it does, the caller included.
func (p *process) die(why string) {
	if p.dead {
		return
	}
	p.dead = true
	p.w.counts.Crashes++
	p.w.note(p.id, "dies: %s", why)
	p.end()
	p.w.after(p.w.between(200*time.Millisecond, 25*time.Second), nil, p.replica.start)
	if t := p.w.current; t != nil && t.process == p {
		t.dying = true
		panic(died{})
	}
}

// end unwinds every coroutine but the one that runs.
func (p *process) end() {
	for _, t := range slices.Clone(p.tasks) {
		if t != p.w.current {
			t.kill()
		}
	}
	p.tasks = nil
	p.frozen = nil
}

// stop is SIGSTOP, and SIGCONT after a while.
func (p *process) stop(d time.Duration) {
	if p.dead || p.stopped {
		return
	}
	p.stopped = true
	p.w.counts.Pauses++
	p.w.note(p.id, "is stopped for %s", d.Round(time.Millisecond))
	p.w.after(d, nil, func() {
		if p.dead {
			return
		}
		p.stopped = false
		p.troubled = p.w.elapsed
		if d > 1010*time.Millisecond {
			// Less is no gap in the watch.
			p.woken = p.w.elapsed
		}
		p.w.note(p.id, "goes on")
		waited := p.frozen
		p.frozen = nil
		for _, e := range waited {
			p.w.after(p.w.between(0, 5*time.Millisecond), p, e.run)
		}
	})
}

// leave is SIGTERM: the replica hands its runs over, then ends and is started anew.
func (p *process) leave() {
	if p.dead || p.stopped || p.leaving {
		return
	}
	p.leaving = true
	p.w.counts.Handovers++
	p.w.note(p.id, "is asked to leave")
	p.w.spawn(0, p, "drain", func(t *task) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_ = p.members.Drain(ctx)
		p.w.after(p.w.between(2*time.Second, 20*time.Second), p, cancel)
		t.loop = ctx
		p.reconciler.Drain(ctx, p.clock)
		t.loop = nil
		p.endMembership()
		t.sleep(500 * time.Millisecond)
		p.dead = true
		p.w.note(p.id, "has left")
		p.end()
		p.w.after(p.w.between(200*time.Millisecond, 5*time.Second), nil, p.replica.start)
	})
}

// silent publishes no events.
type silent struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
