package sim

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// Options of one simulation.
type Options struct {
	Seed uint64
	// Calm leaves out every random fault.
	Calm bool
	// Force adds one fault at one place.
	Force *Force
	// Echo gets every line of the history.
	Echo func(string)
}

// Counts sum up what happened.
type Counts struct {
	Steps, Runs, Events, Crashes, Pauses, Handovers, Partitions   int
	Takeovers, Unknown, Dispatches, Requests, Effects, ModelCalls int
	Lookups, LostEvents, Deleted, Destroyed                       int
}

// Result of one simulation.
type Result struct {
	Seed       uint64
	Counts     Counts
	Violations []Violation
	// Hash covers the whole history, and Elapsed is the simulated time.
	Hash    uint64
	Elapsed time.Duration
	Lines   int
	// Forced is true when the forced fault was met.
	Forced bool
	Passed map[Site]int
}

const (
	// maxOffset is how wrong a replica's clock may be.
	maxOffset = 45 * time.Second
	// faultsFor is how long things go wrong.
	faultsFor = 100 * time.Second
	// settlesWithin is how long every run may take to come to its end after that.
	settlesWithin = 40 * time.Minute
	// maxSteps bounds a simulation that hangs.
	maxSteps = 3_000_000
)

// Run simulates one schedule.
func Run(o Options) Result {
	w := newWorld(o.Seed)
	w.history.echo = o.Echo
	w.server, w.services, w.check = newServer(w), newServices(w), newChecker(w)
	w.faults = newFaults(w, o.Calm)
	w.faults.force = o.Force
	for i := range 2 + w.rng.IntN(3) {
		w.replicas = append(w.replicas, &replica{
			w: w, name: fmt.Sprintf("pawl-%d", i),
			offset: w.between(-maxOffset, maxOffset), rate: 1 + (w.rng.Float64()-0.5)/100,
		})
	}
	w.populate(1 + w.rng.IntN(4))
	for _, r := range w.replicas {
		w.after(w.between(0, 3*time.Second), nil, r.start)
	}
	w.after(time.Second, nil, w.person)
	if o.Calm {
		w.after(w.between(5*time.Second, 30*time.Second), nil, w.handOver)
	} else {
		w.after(w.between(time.Second, 10*time.Second), nil, w.trouble)
	}
	w.after(faultsFor, nil, w.calm)
	w.drive()
	w.finish()
	w.counts.Steps = w.steps
	forced := w.faults.forced
	return Result{
		Seed: o.Seed, Counts: w.counts, Violations: w.check.violations, Hash: w.history.hash.Sum64(),
		Elapsed: w.elapsed, Lines: w.history.count, Forced: forced, Passed: w.faults.passed,
	}
}

func (w *world) quiet() bool { return w.elapsed >= faultsFor }

// calm ends all faults: whatever was broken works from here on.
func (w *world) calm() {
	w.note("world", "faults stop")
	w.faults.calm()
	w.server.away = 0
	for _, r := range w.replicas {
		if r.now != nil {
			r.now.cutOff, r.now.toolsCutOff = 0, 0
		}
	}
}

// drive steps until everything has ended or time is up.
func (w *world) drive() {
	next := faultsFor
	for w.step() {
		if len(w.check.violations) > 0 || w.steps > maxSteps || w.elapsed > faultsFor+settlesWithin {
			return
		}
		if w.elapsed > next {
			next = w.elapsed + time.Second
			if w.allEnded() {
				return
			}
		}
	}
}

// allEnded says whether every run has its ending, and nothing that was deleted is held.
func (w *world) allEnded() bool {
	for _, run := range sortedRuns(w.server.objects) {
		if !w.ended(run) {
			return false
		}
	}
	for at, object := range w.server.objects {
		if at.kind == kindMap && w.orphaned(object) {
			return false
		}
	}
	return true
}

func (w *world) ended(run *v1alpha1.AgentRun) bool {
	settled := len(run.Status.UnknownEffects) == 0 || w.check.run(run.UID).destroyed >= 0
	return run.Status.CompletionTime != nil && run.DeletionTimestamp.IsZero() && settled
}

// orphaned says whether a segment should be gone.
func (w *world) orphaned(segment client.Object) bool {
	h := w.check.run(types.UID(segment.GetLabels()[v1alpha1.LabelRunUID]))
	return (segment.GetDeletionTimestamp() != nil || h.gone) && !h.strays[segment.GetName()]
}

func sortedRuns(objects map[address]client.Object) []*v1alpha1.AgentRun {
	var out []*v1alpha1.AgentRun
	for _, object := range sortedObjects(objects, kindRun) {
		out = append(out, object.(*v1alpha1.AgentRun))
	}
	return out
}

// handOver asks one replica to leave.
func (w *world) handOver() {
	if p := w.replicas[w.rng.IntN(len(w.replicas))].now; p != nil {
		p.leave()
	}
}

// trouble breaks something larger than one call, again and again.
func (w *world) trouble() {
	if w.quiet() {
		return
	}
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	p := r.now
	kind := w.rng.IntN(14)
	switch {
	case kind == 0:
		w.server.away = w.elapsed + w.between(time.Second, 40*time.Second)
		w.counts.Partitions++
		w.note("world", "the API server is away for %s", w.server.away-w.elapsed)
	case p == nil || p.dead:
	case kind <= 3:
		p.die("killed")
	case kind <= 5:
		p.stop(w.between(500*time.Millisecond, 45*time.Second))
	case kind <= 7:
		p.cutOff, p.troubled = w.elapsed+w.between(time.Second, 40*time.Second), w.elapsed
		w.counts.Partitions++
		w.note(p.id, "reaches no API server for %s", p.cutOff-w.elapsed)
	case kind <= 9:
		p.toolsCutOff = w.elapsed + w.between(time.Second, 30*time.Second)
		w.counts.Partitions++
		w.note(p.id, "reaches no tool for %s", p.toolsCutOff-w.elapsed)
	case kind <= 11:
		p.leave()
	default:
		// A machine with two replicas is suspended, and one of them wakes first.
		for i, r := range w.replicas[:2] {
			if r.now != nil {
				r.now.stop(w.between(lease+time.Second, lease+8*time.Second) + time.Duration((i+w.steps)%2)*lease)
			}
		}
	}
	w.after(w.between(time.Second, 25*time.Second), nil, w.trouble)
}

// finish checks what can be known only at the end.
func (w *world) finish() {
	c := w.check
	if len(c.violations) > 0 {
		return
	}
	if !w.allEnded() {
		c.fail("every run comes to an end", "%s after %s and %d steps", w.open(), w.elapsed, w.steps)
		return
	}
	for _, script := range w.runs {
		h := c.run(script.uid)
		if h.destroyed >= 0 || h.state.Finished == nil {
			continue
		}
		for i := range h.state.Transcript {
			for j := range h.state.Transcript[i].Calls {
				w.outcome(h, &h.state.Transcript[i].Calls[j])
			}
		}
	}
}

// open names what has not ended.
func (w *world) open() string {
	text := ""
	for _, run := range sortedRuns(w.server.objects) {
		if w.ended(run) {
			continue
		}
		h := w.check.run(run.UID)
		text += fmt.Sprintf("%s %s (owner %q, waits for %q, state %s, deleted %t, finalizers %v, %d unknown effects) ", run.Name, run.UID, h.state.Owner, h.state.Waiting,
			run.Spec.State, !run.DeletionTimestamp.IsZero(), run.Finalizers, len(run.Status.UnknownEffects))
	}
	for _, object := range w.server.list(kindMap) {
		if w.orphaned(object) {
			text += fmt.Sprintf("%s (finalizers %v) ", object.GetName(), object.GetFinalizers())
		}
	}
	return text
}

// outcome compares what a finished run says of a call with what the service knows.
func (w *world) outcome(h *runHistory, call *journal.CallState) {
	c := w.check
	if call.Phase != journal.PhaseDone {
		c.fail("each call has one result", "%s of %s is %s", call.Call.ID, h.name, call.Phase)
		return
	}
	if call.Call.Effect == journal.ReadOnly || call.Call.EffectKey == "" {
		return
	}
	said := call.Last.Effect
	if call.Settled != nil {
		said = call.Settled.Effect
	}
	e := w.services.effect(call.Call.EffectKey)
	for _, unknown := range h.state.Unknown {
		if unknown.EffectKey == e.key {
			return
		}
	}
	switch {
	case said == journal.EffectCommitted && e.applied == 0:
		c.fail("the journal agrees with the ledger", "%s of %s is committed, the service knows nothing of it", call.Call.ID, h.name)
	case said == journal.EffectRejected && e.applied > 0:
		c.fail("the journal agrees with the ledger", "%s of %s is rejected, but it took effect", call.Call.ID, h.name)
	}
}
