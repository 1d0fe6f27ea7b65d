package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// trouble is something larger than one call that goes wrong.
type trouble struct {
	name   string
	weight int
	// befall makes it happen; p is some process that lives, nil for none.
	befall func(w *world, p *process)
}

// each makes a trouble of one that needs a process.
func each(befall func(w *world, p *process)) func(w *world, p *process) {
	return func(w *world, p *process) {
		if p != nil && !p.dead {
			befall(w, p)
		}
	}
}

var troubles = []trouble{
	{"the API server is away", 2, (*world).serverAway},
	{"a replica is killed", 6, each(func(_ *world, p *process) { p.die("killed") })},
	{"a replica is stopped", 4, each(func(w *world, p *process) { p.stop(w.between(500*time.Millisecond, 45*time.Second)) })},
	{"a replica reaches no API server", 4, each((*world).cutOff)},
	{"a replica reaches no tool", 4, each((*world).cutOffTools)},
	{"a replica is asked to leave", 4, each(func(_ *world, p *process) { p.leave() })},
	{"a machine is suspended", 4, (*world).suspendMachine},
	{"the API server answers 429", 1, busy(FaultThrottled)},
	{"the API server answers 5xx", 1, busy(FaultServer)},
	{"every write conflicts", 1, busy(FaultConflict)},
	{"writes are done and time out", 1, busy(FaultTimeoutDone)},
	{"writes time out and are done later", 1, busy(FaultTimeoutLate)},
	{"a clock is set", 2, each((*world).setClock)},
	{"a watch is too old", 2, each(func(w *world, p *process) { p.view.travel(w.between(time.Second, 30*time.Second)) })},
	{"a replica does not see its own writes", 1, each(func(w *world, p *process) { w.lag(p, &p.ownLag) })},
	{"a replica does not see others' writes", 1, each(func(w *world, p *process) { w.lag(p, &p.othersLag) })},
	{"a quota is used up", 2, (*world).quota},
	{"a policy is edited", 3, func(w *world, _ *process) { w.editPolicy() }},
	{"a Model is edited", 1, func(w *world, _ *process) { w.editModel() }},
	{"somebody changes a journal", 1, func(w *world, _ *process) { w.someRun(w.damage) }},
	{"somebody deletes a segment", 1, func(w *world, _ *process) { w.someRun(w.deleteSegment) }},
	{"a journal is destroyed", 0, func(w *world, _ *process) { w.someRun(w.destroy) }},
	{"a run is deleted, and created again", 0, func(w *world, _ *process) { w.someScript(w.delete) }},
	{"a run is cancelled", 0, func(w *world, _ *process) { w.someRun(w.cancel) }},
	{"a run is suspended and resumed", 0, func(w *world, _ *process) { w.someRun(w.suspend) }},
	{"somebody takes a finalizer off", 2, func(w *world, _ *process) { w.someRun(w.strip) }},
	{"a namespace ends", 1, func(w *world, _ *process) { w.endNamespace(namespaces[1]) }},
	{"the number of replicas changes", 2, func(w *world, _ *process) { w.scale([]int{1, 5, 2, 3}[w.rng.IntN(4)]) }},
}

func troubleOf(name string) trouble {
	for _, one := range troubles {
		if one.name == name {
			return one
		}
	}
	panic("no trouble " + name)
}

// strike lets a trouble befall the world.
func (w *world) strike(one trouble) {
	if w.counts.Troubles == nil {
		w.counts.Troubles = map[string]int{}
	}
	w.counts.Troubles[one.name]++
	w.note("TROUBLE", "%s", one.name)
	one.befall(w, w.replicas[w.rng.IntN(len(w.replicas))].now)
}

// trouble picks one, again and again.
func (w *world) trouble() {
	if w.quiet() {
		return
	}
	total := 0
	for _, one := range troubles {
		total += one.weight
	}
	n := w.rng.IntN(total)
	for _, one := range troubles {
		if n -= one.weight; n < 0 {
			w.strike(one)
			break
		}
	}
	w.after(w.between(time.Second, 20*time.Second), nil, w.trouble)
}

// again lets the same befall the world until the faults stop.
func (w *world) again(one trouble) {
	if !w.quiet() {
		w.strike(one)
		w.after(w.between(2*time.Second, 12*time.Second), nil, func() { w.again(one) })
	}
}

func (w *world) serverAway(*process) {
	w.server.away = w.elapsed + w.between(time.Second, 40*time.Second)
	w.counts.Partitions++
	w.note("world", "the API server is away for %s", w.server.away-w.elapsed)
}

func (w *world) cutOff(p *process) {
	p.cutOff, p.troubled = w.elapsed+w.between(time.Second, 40*time.Second), w.elapsed
	w.counts.Partitions++
	w.note(p.id, "reaches no API server for %s", p.cutOff-w.elapsed)
}

func (w *world) cutOffTools(p *process) {
	p.toolsCutOff = w.elapsed + w.between(time.Second, 30*time.Second)
	w.counts.Partitions++
	w.note(p.id, "reaches no tool for %s", p.toolsCutOff-w.elapsed)
}

// suspendMachine stops two replicas, of which one wakes first.
func (w *world) suspendMachine(*process) {
	for i, r := range w.replicas[:min(2, len(w.replicas))] {
		if r.now != nil {
			r.now.stop(w.between(lease+time.Second, lease+8*time.Second) + time.Duration((i+w.steps)%2)*lease)
		}
	}
}

// busy makes the API server answer most calls with an error for a while.
func busy(fault Fault) func(w *world, p *process) {
	return func(w *world, _ *process) {
		w.server.busy.fault, w.server.busy.until = fault, w.elapsed+w.between(time.Second, 25*time.Second)
		w.note("world", "the API server answers %q for %s", fault, w.server.busy.until-w.elapsed)
	}
}

// setClock sets the wall clock of a replica forward or back.
func (w *world) setClock(p *process) {
	offset := w.between(-maxOffset, maxOffset)
	w.note(p.id, "its clock is set by %s", offset-p.clock.offset)
	p.clock.offset, p.replica.offset = offset, offset
}

// lag keeps writes from a replica for a while: its own, or those of others.
func (w *world) lag(p *process, until *time.Duration) {
	*until = w.elapsed + w.between(time.Second, 25*time.Second)
	w.note(p.id, "does not see writes for %s", *until-w.elapsed)
}

func (w *world) quota(*process) {
	w.server.quotaEnds = w.elapsed + w.between(time.Second, 40*time.Second)
	w.note("world", "no new ConfigMaps for %s", w.server.quotaEnds-w.elapsed)
}

// wanted is how many replicas are to run.
func (w *world) wanted() int {
	n := 0
	for _, r := range w.replicas {
		if !r.retired {
			n++
		}
	}
	return n
}

// scale changes how many replicas run. Those that are too many are asked to leave, or are
// killed.
func (w *world) scale(size int) {
	w.note("world", "%d replicas are wanted", size)
	for i, r := range w.replicas {
		switch p := r.now; {
		case i >= size && !r.retired:
			r.retired = true
			if p != nil && w.chance(0.3) {
				p.die("no longer wanted")
			} else if p != nil {
				p.leave()
			}
		case i < size && r.retired:
			r.retired = false
			if p == nil || p.dead {
				w.after(w.between(0, 3*time.Second), nil, r.start)
			}
		}
	}
	for i := len(w.replicas); i < size; i++ {
		r := &replica{
			w: w, name: fmt.Sprintf("pawl-%d", i),
			offset: w.between(-maxOffset, maxOffset), rate: 1 + (w.rng.Float64()-0.5)/100,
		}
		w.replicas = append(w.replicas, r)
		w.after(w.between(0, 3*time.Second), nil, r.start)
	}
}

// scaleAtOnce starts replicas that have no runs yet, all in the same moment.
func (w *world) scaleAtOnce(size int) {
	for i := range size {
		r := &replica{w: w, name: fmt.Sprintf("pawl-%d", i), offset: w.between(-maxOffset, maxOffset), rate: 1 + (w.rng.Float64()-0.5)/100}
		w.replicas = append(w.replicas, r)
		r.start()
	}
}

// skew sets the clocks of the replicas as far apart, and lets them drift as far, as may be.
func (w *world) skew() {
	for i, r := range w.replicas {
		r.offset, r.rate = maxOffset, 1.005
		if i%2 == 0 {
			r.offset, r.rate = -maxOffset, 0.995
		}
	}
}

// touchPolicy changes nothing about a policy but its generation.
func (w *world) touchPolicy(namespace string) {
	object, err := w.server.get(address{kindPolicy, keyOf(namespace, "tools")})
	if err != nil {
		return
	}
	policy := object.(*v1alpha1.ToolPolicy)
	policy.Spec.Tools[0].TimeoutSeconds++
	_ = w.server.update("person", policy)
}

// watchEnds calls a function once every run of a namespace has ended.
func (w *world) watchEnds(namespace string, then func()) {
	for _, run := range sortedRuns(w.server.objects) {
		if run.Namespace == namespace && run.Status.CompletionTime == nil {
			w.after(100*time.Millisecond, nil, func() { w.watchEnds(namespace, then) })
			return
		}
	}
	then()
}

// someScript lets something befall one of the runs.
func (w *world) someScript(befall func(script *scenarioRun, run *v1alpha1.AgentRun)) {
	scripts := w.scripts()
	if len(scripts) == 0 {
		return
	}
	script := scripts[w.rng.IntN(len(scripts))]
	if object, err := w.server.get(script.address()); err == nil {
		befall(script, object.(*v1alpha1.AgentRun))
	}
}

func (w *world) someRun(befall func(run *v1alpha1.AgentRun)) {
	w.someScript(func(_ *scenarioRun, run *v1alpha1.AgentRun) { befall(run) })
}

// cancel cancels a run, one that has ended or was cancelled before too.
func (w *world) cancel(run *v1alpha1.AgentRun) {
	w.counts.Cancelled++
	w.desire(run, v1alpha1.StateCancelled)
}

func (w *world) suspend(run *v1alpha1.AgentRun) {
	switch run.Spec.State {
	case v1alpha1.StateActive:
		w.desire(run, v1alpha1.StateSuspended)
	case v1alpha1.StateSuspended:
		w.desire(run, v1alpha1.StateActive)
	default:
		// Cancelled is for good.
	}
}

// strip takes the finalizer off a run by hand, and mostly deletes it.
func (w *world) strip(run *v1alpha1.AgentRun) {
	if !slices.Contains(run.Finalizers, v1alpha1.FinalizerEffects) {
		return
	}
	if w.chance(0.7) {
		_ = w.server.delete("person", addressOf(run), nil)
	}
	object, err := w.server.get(addressOf(run))
	if err != nil {
		return
	}
	stripped := object.(*v1alpha1.AgentRun)
	stripped.Finalizers = nil
	w.note("person", "takes the finalizer off %s", run.Name)
	w.counts.Stripped++
	_ = w.server.update("person", stripped)
}

// endNamespace deletes a namespace: nothing new gets into it, and everything in it is
// deleted until nothing is left.
func (w *world) endNamespace(name string) {
	if w.server.ending[name] {
		return
	}
	w.note("person", "deletes namespace %s", name)
	w.counts.Namespaces++
	w.server.ending[name] = true
	w.after(w.between(0, 2*time.Second), nil, func() { w.empty(name) })
}

func (w *world) empty(namespace string) {
	var left []address
	for at := range w.server.objects {
		if at.Namespace == namespace {
			left = append(left, at)
		}
	}
	if len(left) == 0 {
		w.note(namespaceController, "namespace %s is gone", namespace)
		return
	}
	slices.SortFunc(left, compareAddresses)
	kinds := []kind{kindRun, kindMap, kindModel, kindPolicy}
	first := kinds[w.rng.IntN(len(kinds))]
	for _, at := range left {
		if at.kind == first || w.chance(0.5) {
			_ = w.server.delete(namespaceController, at, nil)
		}
	}
	w.after(w.between(200*time.Millisecond, 3*time.Second), nil, func() { w.empty(namespace) })
}

func compareAddresses(a, b address) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.String(), b.String()))
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
