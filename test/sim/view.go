package sim

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// relistInterval is how long a lost event stays lost: then the watch breaks and
// everything is listed again.
const relistInterval = 40 * time.Second

// view is what a replica's cache holds: what watches delivered so far.
type view struct {
	p       *process
	objects map[address]client.Object
	// delivered keeps the events of each watch in order.
	delivered map[kind]time.Duration
	// listed are the kinds whose watch has begun.
	listed map[kind]bool
}

func newView(p *process) *view {
	return &view{p: p, objects: map[address]client.Object{}, delivered: map[kind]time.Duration{}, listed: map[kind]bool{}}
}

var watched = []kind{kindModel, kindPolicy, kindRun}

// begin lists everything, perhaps from an API server that lags behind, and perhaps one
// kind only some time after the others.
func (v *view) begin() {
	w := v.p.w
	asOf := w.elapsed
	if w.chance(w.faults.rates.stale) {
		asOf -= w.between(0, 30*time.Second)
		w.note(v.p.id, "lists from a server that is %s behind", (w.elapsed - asOf).Round(time.Millisecond))
	}
	for _, k := range watched {
		list := func() {
			v.listed[k] = true
			v.list(k, asOf)
		}
		if w.chance(w.faults.rates.unsynced) {
			w.after(w.between(10*time.Millisecond, 5*time.Second), v.p, list)
		} else {
			list()
		}
	}
	w.after(w.between(5*time.Second, relistInterval), v.p, v.relist)
}

// list replaces what the cache holds of a kind by what a server had at a moment.
func (v *view) list(k kind, asOf time.Duration) {
	seen := map[address]bool{}
	for _, object := range v.p.w.server.asOf(k, asOf) {
		at := addressOf(object)
		seen[at] = true
		v.put(at, object)
	}
	for _, object := range v.cached(k) {
		if at := addressOf(object); !seen[at] {
			v.put(at, nil)
		}
	}
}

// travel is a watch that ended as too old: everything is listed again, from a server that
// is behind, and then comes what has happened since.
func (v *view) travel(behind time.Duration) {
	w := v.p.w
	w.note(v.p.id, "lists everything again, from a server that is %s behind", behind.Round(time.Millisecond))
	for _, k := range watched {
		v.list(k, w.elapsed-behind)
	}
	w.after(w.between(100*time.Millisecond, 8*time.Second), v.p, v.catchUp)
}

func (v *view) catchUp() {
	for _, k := range watched {
		v.list(k, v.p.w.elapsed)
	}
}

// asOf lists the objects of a kind as they were, by name.
func (s *server) asOf(k kind, when time.Duration) []client.Object {
	found := map[address]client.Object{}
	for at, versions := range s.past {
		if at.kind != k {
			continue
		}
		for _, old := range versions {
			if old.at <= when {
				found[at] = old.object
			}
		}
		if found[at] == nil {
			delete(found, at)
		}
	}
	return sortedObjects(found, k)
}

// relist heals what was lost.
func (v *view) relist() {
	v.catchUp()
	v.p.w.after(relistInterval, v.p, v.relist)
}

// announce delivers a change to every replica, sooner or later or twice or never.
func (w *world) announce(by string, at address, object client.Object) {
	if at.kind == kindMap || at.kind == kindLease {
		return
	}
	for _, r := range w.replicas {
		p := r.now
		if p == nil || p.dead {
			continue
		}
		if w.chance(w.faults.rates.lostEvent) || object == nil && w.chance(w.faults.rates.lostDelete) {
			w.counts.LostEvents++
			continue
		}
		delay := w.between(500*time.Microsecond, 15*time.Millisecond)
		if w.chance(w.faults.rates.lateEvent) {
			delay = w.between(100*time.Millisecond, 8*time.Second)
		}
		lag := p.othersLag
		if by == p.id {
			lag = p.ownLag
		}
		due := max(p.view.delivered[at.kind], w.elapsed+delay, lag)
		p.view.delivered[at.kind] = due
		w.after(due-w.elapsed, p, func() { p.view.take(at, object) })
		if w.chance(w.faults.rates.twice) && at.kind == kindRun {
			w.after(due-w.elapsed+delay, p, func() { p.queue.Add(reconcile.Request{NamespacedName: at.NamespacedName}) })
		}
	}
}

// take is an event of a watch. One of a time before the newest list is not delivered.
func (v *view) take(at address, object client.Object) {
	if old := v.objects[at]; !v.listed[at.kind] || old != nil && object != nil && newer(old, object) {
		return
	}
	v.put(at, object)
}

// put puts a version into the cache and runs into the queue where the controller's watches
// and predicates would. An informer takes what a list gives it, older versions too.
func (v *view) put(at address, object client.Object) {
	old := v.objects[at]
	if run, ok := old.(*v1alpha1.AgentRun); ok && (object == nil || object.GetUID() != run.UID) {
		v.p.reconciler.Gone(run)
	}
	if object == nil {
		delete(v.objects, at)
	} else {
		v.objects[at] = object
	}
	switch {
	case at.kind != kindRun:
		v.wakeReferring(at)
	case wakes(old, object):
		v.p.queue.Add(reconcile.Request{NamespacedName: at.NamespacedName})
	}
}

// wakeReferring wakes the open runs that refer to a Model or ToolPolicy.
func (v *view) wakeReferring(at address) {
	var referring []address
	for other, object := range v.objects {
		if run, ok := object.(*v1alpha1.AgentRun); ok && run.Namespace == at.Namespace && run.Status.CompletionTime == nil {
			if at.kind == kindPolicy || run.Spec.ModelRef.Name == at.Name {
				referring = append(referring, other)
			}
		}
	}
	slices.SortFunc(referring, compareAddresses)
	for _, other := range referring {
		v.p.queue.Add(reconcile.Request{NamespacedName: other.NamespacedName})
	}
}

func newer(a, b client.Object) bool {
	left, _ := strconv.ParseInt(a.GetResourceVersion(), 10, 64)
	right, _ := strconv.ParseInt(b.GetResourceVersion(), 10, 64)
	return left > right && a.GetUID() == b.GetUID()
}

// wakes repeats the predicates that the controller is registered with.
func wakes(old, object client.Object) bool {
	if (old == nil) != (object == nil) {
		return true
	}
	if object == nil {
		return false
	}
	before, after := old.(*v1alpha1.AgentRun), object.(*v1alpha1.AgentRun)
	released := before.Status.Owner != nil && after.Status.Owner == nil && after.Status.CompletionTime == nil
	return before.Generation != after.Generation || !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) || released
}

func (v *view) cached(k kind) []client.Object {
	return sortedObjects(v.objects, k)
}
