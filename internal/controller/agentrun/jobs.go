package agentrun

import (
	"context"
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

// jobLookInterval is how often a Job is looked at that is still needed: whoever recorded
// its outcome may have died before it let go of it.
const jobLookInterval = 2 * time.Minute

// Jobs hears of the Jobs of calls: it wakes their runs, and lets go of a Job once nobody
// needs it any more.
type Jobs struct {
	runs    *Reconciler
	cluster JobKeeper
}

// JobKeeper lets go of Jobs.
type JobKeeper interface {
	// Release deletes a Job and takes the finalizer off it.
	Release(ctx context.Context, held *metav1.PartialObjectMetadata) error
}

// jobMeta is what is watched of a Job.
func jobMeta() *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	return meta
}

// setupJobs registers the controller. The cache holds the metadata of labelled Jobs alone.
func (r *Reconciler) setupJobs(mgr ctrl.Manager) error {
	jobs := &Jobs{runs: r, cluster: r.jobs}
	return ctrl.NewControllerManagedBy(mgr).
		Named("job").
		For(&batchv1.Job{}, builder.OnlyMetadata).
		Watches(&v1alpha1.AgentRun{}, handler.EnqueueRequestsFromMapFunc(jobs.ofRun), builder.WithPredicates(ended)).
		WatchesRawSource(source.Func(r.jobWakeups.listen)).
		Complete(jobs)
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

// ofRun finds the Jobs of a run.
func (j *Jobs) ofRun(ctx context.Context, object client.Object) []reconcile.Request {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
	err := j.runs.client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingLabels{v1alpha1.LabelRunUID: string(object.GetUID())})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the Jobs of a run")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile wakes the run of a Job, or lets go of the Job.
func (j *Jobs) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	meta := jobMeta()
	if err := j.runs.client.Get(ctx, request.NamespacedName, meta); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(meta)
	if owner == nil || owner.Kind != "AgentRun" || meta.Annotations[v1alpha1.AnnotationEffectKey] == "" {
		return ctrl.Result{}, nil // not made here, whatever its labels say
	}
	j.wakeRun(ctx, types.NamespacedName{Namespace: meta.Namespace, Name: owner.Name}, owner.UID)
	if !controllerutil.ContainsFinalizer(meta, v1alpha1.FinalizerEffects) {
		return ctrl.Result{}, nil
	}
	// Every worker hears of it. The one that looks after the run looks after its Jobs.
	if worker.Rank(string(owner.UID), j.runs.worker, j.runs.members.Workers()) > 0 {
		return ctrl.Result{RequeueAfter: jobLookInterval + jitter(meta.UID)}, nil
	}
	needed, err := j.needed(ctx, meta, owner)
	if err != nil {
		return ctrl.Result{}, err
	}
	if needed {
		return ctrl.Result{RequeueAfter: jobLookInterval + jitter(meta.UID)}, nil
	}
	err = j.cluster.Release(ctx, meta)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, err
}

// wakeRun has the run of a Job look at what it waits for.
func (j *Jobs) wakeRun(ctx context.Context, key types.NamespacedName, uid types.UID) {
	object := &v1alpha1.AgentRun{}
	if err := j.runs.client.Get(ctx, key, object); err != nil || object.UID != uid || object.Status.CompletionTime != nil {
		return
	}
	j.runs.memory.stir(uid)
	j.runs.wakeups.wake(key)
}

// needed says whether somebody may still want to know of a Job: its run has not ended, and
// its journal does not say what became of the call.
func (j *Jobs) needed(ctx context.Context, meta *metav1.PartialObjectMetadata, owner *metav1.OwnerReference) (bool, error) {
	object := &v1alpha1.AgentRun{}
	err := j.runs.live.Get(ctx, client.ObjectKey{Namespace: meta.Namespace, Name: owner.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return true, fmt.Errorf("reading the run of a Job: %w", err)
	case object.UID != owner.UID, object.Status.CompletionTime != nil:
		return false, nil
	}
	_, records, err := j.runs.store.Load(ctx, object)
	if err != nil {
		return true, fmt.Errorf("reading the journal of a Job's run: %w", err)
	}
	state, err := journal.Fold(string(object.UID), records)
	if err != nil {
		return true, nil //nolint:nilerror // the run ends by that, and then the Job is let go
	}
	return !settled(state, meta.Annotations[v1alpha1.AnnotationEffectKey]), nil
}

// settled says whether it is recorded what became of an effect. One that nobody knows of
// keeps its Job: a person may look at it.
func settled(state *journal.State, effectKey string) bool {
	call := state.Effect(effectKey)
	return call != nil && call.Phase == journal.PhaseDone
}

// wakeJobs looks at the Jobs of calls of which an outcome was just committed.
func (r *Reconciler) wakeJobs(object *v1alpha1.AgentRun, state *journal.State, records []journal.Record) {
	for _, record := range records {
		if t := record.Event.Type; t != journal.TypeCallCompleted && t != journal.TypeEffectReconciled {
			continue
		}
		for i := range state.Transcript {
			for c := range state.Transcript[i].Calls {
				if call := &state.Transcript[i].Calls[c]; call.Call.Handle != "" && call.Phase == journal.PhaseDone {
					r.jobWakeups.wake(types.NamespacedName{Namespace: object.Namespace, Name: call.Call.Handle})
				}
			}
		}
		return
	}
}
