package agentrun

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// Indexes by which runs are found from what they refer to.
const (
	indexModel  = "spec.modelRef.name"
	indexPolicy = "spec.toolPolicyRefs.name"
)

// SetupWithManager registers the controller. Runs are watched for what people change:
// spec and annotations. Status is this controller's own.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, workers int) error {
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &v1alpha1.AgentRun{}, indexModel, func(object client.Object) []string {
		return []string{object.(*v1alpha1.AgentRun).Spec.ModelRef.Name}
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1alpha1.AgentRun{}, indexPolicy, func(object client.Object) []string {
		return policyNames(object.(*v1alpha1.AgentRun))
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1alpha1.AgentRun{}, indexParent, parentUID); err != nil {
		return err
	}
	if r.children != nil {
		if err := r.setupChildren(mgr); err != nil {
			return err
		}
	}
	if r.jobs != nil {
		if err := r.setupJobs(mgr); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("agentrun").
		For(&v1alpha1.AgentRun{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, released,
		))).
		Watches(&v1alpha1.AgentRun{}, handler.Funcs{DeleteFunc: r.deleted}).
		Watches(&v1alpha1.AgentRun{}, handler.EnqueueRequestsFromMapFunc(r.below), builder.WithPredicates(concernsChildren)).
		Watches(&v1alpha1.Model{}, handler.EnqueueRequestsFromMapFunc(r.runsOf(indexModel))).
		Watches(&v1alpha1.ToolPolicy{}, handler.EnqueueRequestsFromMapFunc(r.runsOf(indexPolicy))).
		WatchesRawSource(source.Func(r.Listen)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
		}).
		Complete(r)
}

// Back-off of a run whose reconcile failed. It ends at a minute, so that runs go on soon
// after an outage of whatever length.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = time.Minute
)

// deleted hears of runs that are gone. What is to be done about their names the run's own
// watch knows.
func (r *Reconciler) deleted(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if object, ok := e.Object.(*v1alpha1.AgentRun); ok {
		r.Gone(object)
	}
}

// released lets through the one change of status that other workers wait for: the owner
// let go.
var released = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.AgentRun)
		if !ok {
			return false
		}
		after, ok := e.ObjectNew.(*v1alpha1.AgentRun)
		return ok && before.Status.Owner != nil && after.Status.Owner == nil && after.Status.CompletionTime == nil
	},
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// WakeAll looks at every open run again: some worker came or went. Hints in status may
// lag behind, so they are not asked which runs that concerns.
func (r *Reconciler) WakeAll(ctx context.Context) {
	var runs v1alpha1.AgentRunList
	if err := r.client.List(ctx, &runs); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing runs after a change of workers")
		return
	}
	for i := range runs.Items {
		if runs.Items[i].Status.CompletionTime == nil || !runs.Items[i].DeletionTimestamp.IsZero() {
			r.wakeups.wake(client.ObjectKeyFromObject(&runs.Items[i]))
		}
	}
}

// runsOf finds the open runs that refer to an object.
func (r *Reconciler) runsOf(index string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		var runs v1alpha1.AgentRunList
		if err := r.client.List(ctx, &runs, client.InNamespace(object.GetNamespace()), client.MatchingFields{index: object.GetName()}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the runs that refer to an object")
			return nil
		}
		var requests []reconcile.Request
		for i := range runs.Items {
			if runs.Items[i].Status.CompletionTime == nil {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&runs.Items[i])})
			}
		}
		return requests
	}
}

// heartbeatPriority is above that of every run.
const heartbeatPriority = 1000

// wakeups hands what has landed to the controller's queue.
type wakeups struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Listen makes the queue the one that gets what has landed.
func (r *Reconciler) Listen(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return r.wakeups.listen(ctx, queue)
}

func (w *wakeups) listen(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// wake puts a run into the queue, and says whether there is one yet.
func (w *wakeups) wake(key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return false
	}
	request := reconcile.Request{NamespacedName: key}
	if queue, ok := w.queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok && request == heartbeatRequest {
		// It shows that the queue moves, not that it is short: with a thousand runs before it
		// it would come back when the lease has run out.
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(heartbeatPriority)}, request)
		return true
	}
	w.queue.Add(request)
	return true
}
