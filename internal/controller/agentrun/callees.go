package agentrun

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/worker"
)

// calleeLookInterval is how often an object is looked at that is still needed: whoever
// recorded its outcome may have died before it let go of it.
const calleeLookInterval = 2 * time.Minute

// callees hears of the objects that calls are, Jobs or child runs: it wakes their runs, and
// lets go of an object once nobody needs it any more.
type callees struct {
	runs   *Reconciler
	keeper Keeper
	// finalizer holds an object until it is let go.
	finalizer string
	// blank is an object to be read into.
	blank func() client.Object
	// caller says whose call an object is, nil for nobody's.
	caller func(object client.Object) *caller
	// of finds the objects of a run's calls.
	of func(ctx context.Context, namespace string, run types.UID) ([]client.ObjectKey, error)
	// heard says whether what is to be seen of an object may be its call's outcome.
	heard func(object client.Object) bool
}

// caller is the run whose call an object is.
type caller struct {
	key types.NamespacedName
	uid types.UID
}

// Keeper lets go of what calls have created.
type Keeper interface {
	// Release takes the finalizer off an object that nobody needs any more.
	Release(ctx context.Context, held client.Object) error
}

// setupJobs registers the controller of Jobs. The cache holds the metadata of labelled Jobs
// alone.
func (r *Reconciler) setupJobs(mgr ctrl.Manager) error {
	jobs := &callees{
		runs: r, keeper: r.jobs, finalizer: v1alpha1.FinalizerEffects, caller: controllerOf, of: r.jobsOf,
		heard: func(client.Object) bool { return true },
		blank: func() client.Object {
			meta := &metav1.PartialObjectMetadata{}
			meta.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
			return meta
		},
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("job").
		For(&batchv1.Job{}, builder.OnlyMetadata).
		Watches(&v1alpha1.AgentRun{}, handler.EnqueueRequestsFromMapFunc(jobs.ofRun), builder.WithPredicates(ended)).
		WatchesRawSource(source.Func(r.jobWakeups.listen)).
		Complete(jobs)
}

// controllerOf goes by the owner reference.
func controllerOf(object client.Object) *caller {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != "AgentRun" {
		return nil
	}
	return &caller{types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}, owner.UID}
}

// jobsOf finds the Jobs of a run's calls.
func (r *Reconciler) jobsOf(ctx context.Context, namespace string, run types.UID) ([]client.ObjectKey, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelRunUID: string(run)}); err != nil {
		return nil, fmt.Errorf("listing the Jobs of a run: %w", err)
	}
	keys := make([]client.ObjectKey, 0, len(list.Items))
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return keys, nil
}

// ended lets through that a run has ended or is gone.
var ended = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.AgentRun)
		after, also := e.ObjectNew.(*v1alpha1.AgentRun)
		return ok && also && before.Status.CompletionTime == nil && after.Status.CompletionTime != nil
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ofRun finds the objects of a run's calls.
func (c *callees) ofRun(ctx context.Context, object client.Object) []reconcile.Request {
	keys, err := c.of(ctx, object.GetNamespace(), object.GetUID())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Finding what the calls of a run are")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(keys))
	for _, key := range keys {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// Reconcile wakes the run whose call an object is, or lets go of the object.
func (c *callees) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := c.blank()
	if err := c.runs.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	caller := c.caller(object)
	if caller == nil || object.GetAnnotations()[v1alpha1.AnnotationEffectKey] == "" {
		return ctrl.Result{}, nil // not made here, whatever its labels say
	}
	c.wakeRun(ctx, caller, c.heard(object))
	if !controllerutil.ContainsFinalizer(object, c.finalizer) {
		return ctrl.Result{}, nil
	}
	// Every worker hears of it. The one that looks after the run looks after its calls.
	again := ctrl.Result{RequeueAfter: calleeLookInterval + jitter(object.GetUID())}
	if worker.Rank(string(caller.uid), c.runs.members.Identity(), c.runs.members.Workers()) > 0 {
		return again, nil
	}
	needed, err := c.needed(ctx, object, caller)
	if err != nil {
		return ctrl.Result{}, err
	}
	if needed {
		return again, nil
	}
	err = c.keeper.Release(ctx, object)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, err
}

// wakeRun has a run look at what it waits for.
func (c *callees) wakeRun(ctx context.Context, caller *caller, stir bool) {
	object := &v1alpha1.AgentRun{}
	if err := c.runs.client.Get(ctx, caller.key, object); err != nil || object.UID != caller.uid || object.Status.CompletionTime != nil {
		return
	}
	if stir {
		c.runs.memory.stir(caller.uid)
	}
	c.runs.wakeups.wake(caller.key)
}

// needed says whether somebody may still want to know of an object: its run has not ended,
// and its journal does not say what became of the call.
func (c *callees) needed(ctx context.Context, callee client.Object, caller *caller) (bool, error) {
	object := &v1alpha1.AgentRun{}
	err := c.runs.live.Get(ctx, caller.key, object)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return true, fmt.Errorf("reading the run whose call it is: %w", err)
	case object.UID != caller.uid, object.Status.CompletionTime != nil:
		return false, nil
	}
	_, records, err := c.runs.store.Load(ctx, object)
	if err != nil {
		return true, fmt.Errorf("reading the journal of the run whose call it is: %w", err)
	}
	state, err := journal.Fold(string(object.UID), records)
	if err != nil {
		return true, nil //nolint:nilerror // the run ends by that, and then the object is let go
	}
	return !settled(state, callee.GetAnnotations()[v1alpha1.AnnotationEffectKey]), nil
}

// settled says whether it is recorded what became of an effect. One that nobody knows of
// keeps its object: a person may look at it.
func settled(state *journal.State, effectKey string) bool {
	call := state.Effect(effectKey)
	return call != nil && call.Phase == journal.PhaseDone
}

// wakeCallees looks at the objects of calls of which an outcome was just committed.
func (r *Reconciler) wakeCallees(object *v1alpha1.AgentRun, state *journal.State, records []journal.Record) {
	for _, record := range records {
		if t := record.Event.Type; t != journal.TypeCallCompleted && t != journal.TypeEffectReconciled {
			continue
		}
		var about struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(record.Event.Data, &about); err != nil {
			continue // written a moment ago
		}
		call := state.Call(about.ID)
		if call == nil || call.Call.Handle == "" || call.Phase != journal.PhaseDone {
			continue
		}
		wakeups := &r.jobWakeups
		if call.Call.Child != nil {
			wakeups = &r.childWakeups
		}
		wakeups.wake(types.NamespacedName{Namespace: object.Namespace, Name: call.Call.Handle})
	}
}
