package sim

import (
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
	// delivered keeps events of one watch in order.
	delivered time.Duration
}

func newView(p *process) *view { return &view{p: p, objects: map[address]client.Object{}} }

// begin lists everything, perhaps from an API server that lags behind.
func (v *view) begin() {
	w := v.p.w
	asOf := w.elapsed
	if w.chance(w.faults.rates.stale) {
		asOf -= w.between(0, 30*time.Second)
		w.note(v.p.id, "lists from a server that is %s behind", (w.elapsed - asOf).Round(time.Millisecond))
	}
	for _, k := range []kind{kindModel, kindPolicy, kindRun} {
		for _, object := range w.server.list(k) {
			if old := w.server.asOf(addressOf(object), asOf); old != nil {
				v.take(addressOf(object), clone(old))
			}
		}
	}
	w.after(w.between(5*time.Second, relistInterval), v.p, v.relist)
}

// asOf is an object as it was.
func (s *server) asOf(at address, when time.Duration) client.Object {
	var found client.Object
	for _, old := range s.past[at] {
		if old.at <= when {
			found = old.object
		}
	}
	return found
}

// relist heals what was lost.
func (v *view) relist() {
	w := v.p.w
	seen := map[address]bool{}
	for _, k := range []kind{kindModel, kindPolicy, kindRun} {
		for _, object := range w.server.list(k) {
			seen[addressOf(object)] = true
			v.take(addressOf(object), object)
		}
	}
	for _, k := range []kind{kindModel, kindPolicy, kindRun} {
		for _, object := range v.list(k) {
			if at := addressOf(object); !seen[at] {
				v.take(at, nil)
			}
		}
	}
	w.after(relistInterval, v.p, v.relist)
}

// announce delivers a change to every replica, sooner or later or twice or never.
func (w *world) announce(at address, object client.Object) {
	if at.kind == kindMap || at.kind == kindLease {
		return
	}
	for _, r := range w.replicas {
		p := r.now
		if p == nil || p.dead {
			continue
		}
		if w.chance(w.faults.rates.lostEvent) {
			w.counts.LostEvents++
			continue
		}
		delay := w.between(500*time.Microsecond, 15*time.Millisecond)
		if w.chance(w.faults.rates.lateEvent) {
			delay = w.between(100*time.Millisecond, 8*time.Second)
		}
		due := max(p.view.delivered, w.elapsed+delay)
		p.view.delivered = due
		w.after(due-w.elapsed, p, func() { p.view.take(at, object) })
		if w.chance(w.faults.rates.twice) && at.kind == kindRun {
			w.after(due-w.elapsed+delay, p, func() { p.queue.Add(reconcile.Request{NamespacedName: at.NamespacedName}) })
		}
	}
}

// take puts a version into the cache and the run into the queue where the controller's
// predicates would. An informer takes what it is given, older versions too.
func (v *view) take(at address, object client.Object) {
	old := v.objects[at]
	if run, ok := old.(*v1alpha1.AgentRun); ok && (object == nil || object.GetUID() != run.UID) {
		v.p.reconciler.Gone(run)
	}
	if object == nil {
		delete(v.objects, at)
	} else {
		if old != nil && newer(old, object) {
			return
		}
		v.objects[at] = object
	}
	if at.kind == kindRun && wakes(old, object) {
		v.p.queue.Add(reconcile.Request{NamespacedName: at.NamespacedName})
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

func (v *view) list(k kind) []client.Object {
	return sortedObjects(v.objects, k)
}
