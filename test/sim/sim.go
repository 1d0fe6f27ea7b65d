package sim

import (
	"fmt"
	"slices"
	"strings"
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
	// Trouble, in a calm simulation, is the one kind of trouble that happens again and again.
	Trouble string
	// Replicas is how many there are, 0 for two to four.
	Replicas int
	// skewed sets the replicas' clocks as far apart as they may be, together lets all of them
	// begin while the runs wait already, and steady lets none of them leave.
	skewed, together, steady bool
	// rates, in a calm simulation, are what goes wrong by itself.
	rates rates
	// setup creates the runs, nil for one to four random ones, and final checks what is
	// special about them at the end.
	setup, final func(*world)
	// Limits are those of a Model that all runs share; nil for a Model without for each.
	Limits *v1alpha1.ModelLimits
	// Force adds one fault at one place.
	Force *Force
	// Echo gets every line of the history.
	Echo func(string)
}

// Counts sum up what happened.
type Counts struct {
	Steps, Runs, Events, Starts, Crashes, Pauses, Handovers, Partitions int
	Takeovers, Unknown, Dispatches, Requests, Effects, ModelCalls       int
	Lookups, LostEvents, Deleted, Destroyed, Damaged, Stripped          int
	Refusals, CheckpointFailed, Panics, Edits, Namespaces, Late         int
	Cancelled, Forced                                                   int
	// Accepted are the calls that a service goes on with by itself.
	Accepted int
	// Claims are the appends by which a worker took a run up.
	Claims int
	// Troubles counts each kind of trouble.
	Troubles map[string]int
	// Steady counts requests to a Model with limits while the members stay the same, and
	// AtLimit those that reach its limit.
	Steady, AtLimit int
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
	maxSteps = 6_000_000
)

// Run simulates one schedule.
func Run(o Options) Result {
	w := newWorld(o.Seed)
	w.history.echo = o.Echo
	w.server, w.services, w.check = newServer(w), newServices(w), newChecker(w)
	w.faults = newFaults(w, o)
	w.check.limited.limits = o.Limits
	w.policies()
	size := 2 + w.rng.IntN(3)
	if o.Replicas > 0 {
		size = o.Replicas
	}
	if o.together {
		w.populateNow(4)
		w.after(2*time.Second, nil, func() { w.scaleAtOnce(size) })
	} else {
		w.scale(size)
	}
	switch {
	case o.setup != nil:
		o.setup(w)
	case !o.together:
		w.populate(1 + w.rng.IntN(4))
	}
	if o.skewed {
		w.skew()
	}
	w.after(time.Second, nil, w.person)
	switch {
	case o.Trouble != "":
		one := troubleOf(o.Trouble)
		w.after(w.between(time.Second, 4*time.Second), nil, func() { w.again(one) })
	case o.steady:
	case o.Calm:
		w.after(w.between(5*time.Second, 30*time.Second), nil, w.handOver)
	default:
		w.after(w.between(time.Second, 10*time.Second), nil, w.trouble)
	}
	w.after(faultsFor, nil, w.calm)
	w.drive()
	w.finish()
	if o.final != nil && len(w.check.violations) == 0 {
		o.final(w)
	}
	w.counts.Steps = w.steps
	if w.faults.forced {
		w.counts.Forced++
	}
	forced := w.faults.forced
	result := Result{
		Seed: o.Seed, Counts: w.counts, Violations: w.check.violations, Hash: w.history.hash.Sum64(),
		Elapsed: w.elapsed, Lines: w.history.count, Forced: forced, Passed: w.faults.passed,
	}
	w.end()
	return result
}

// end unwinds what still runs: a coroutine that is left behind keeps its whole world.
func (w *world) end() {
	for _, r := range w.replicas {
		if r.now != nil {
			r.now.dead = true
			r.now.end()
		}
	}
}

func (w *world) quiet() bool { return w.elapsed >= faultsFor }

// calm ends all faults: whatever was broken works from here on.
func (w *world) calm() {
	w.note("world", "faults stop")
	w.faults.calm()
	w.server.away, w.server.busy.until, w.server.quotaEnds = 0, 0, min(w.server.quotaEnds, w.lastingQuota)
	for _, r := range w.replicas {
		if r.now != nil {
			r.now.cutOff, r.now.toolsCutOff, r.now.ownLag, r.now.othersLag = 0, 0, 0, 0
		}
	}
	w.restorePolicies()
	w.scale(max(w.wanted(), 2))
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
		if at.kind == kindMap && w.orphaned(object) || w.server.ending[at.Namespace] {
			return false
		}
	}
	return true
}

func (w *world) ended(run *v1alpha1.AgentRun) bool {
	h := w.check.run(run.UID)
	settled := len(run.Status.UnknownEffects) == 0 || h.destroyed >= 0 || h.damaged
	return run.Status.CompletionTime != nil && run.DeletionTimestamp.IsZero() && settled || w.poisonous(run)
}

// poisonous says whether every reconcile of a run panics.
func (w *world) poisonous(object client.Object) bool {
	return w.poison != "" && w.poison == object.GetUID()
}

// orphaned says whether a segment should be gone. Where nobody is left who knew of its run
// when that went, nobody can know of the segment.
func (w *world) orphaned(segment client.Object) bool {
	h := w.check.run(types.UID(segment.GetLabels()[v1alpha1.LabelRunUID]))
	if !h.gone {
		return segment.GetDeletionTimestamp() != nil
	}
	return slices.ContainsFunc(h.witnesses, func(p *process) bool { return !p.dead })
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
		if w.orphaned(object) || w.server.ending[object.GetNamespace()] {
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
	_, name, _ := strings.Cut(call.Call.Tool, ".")
	if call.Call.Effect == journal.ReadOnly || call.Call.EffectKey == "" || specOf(name).class == v1alpha1.EffectReadOnly {
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
