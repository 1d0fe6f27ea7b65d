package agentrun

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/run"
)

// checkTimeout bounds one look-up of an effect.
const checkTimeout = 10 * time.Second

// guard makes sure, before the run's first call that may have an effect, that neither a
// lost journal nor a deletion can hide it: status says how far the journal has come,
// and a finalizer keeps the run. A run that is being deleted takes no finalizer, so it
// dispatches nothing.
func (r *Reconciler) guard(ctx context.Context, object *v1alpha1.AgentRun, s *session, step run.Step) error {
	effectful := false
	for _, sending := range step.Calls {
		effectful = effectful || sending.Call.Effect != journal.ReadOnly
	}
	if !effectful || (object.Status.Journal != nil && controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects)) {
		return nil
	}
	if err := r.flush(ctx, object, s); err != nil {
		return err
	}
	if object.Status.Journal == nil {
		if err := r.show(ctx, object, s, run.Step{Waiting: string(v1alpha1.ReasonRunning)}); err != nil {
			return err
		}
	}
	return r.setFinalizer(ctx, object, true)
}

// setFinalizer adds or removes the finalizer by compare-and-set.
func (r *Reconciler) setFinalizer(ctx context.Context, object *v1alpha1.AgentRun, wanted bool) error {
	if controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects) == wanted {
		return nil
	}
	target := object.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(target, v1alpha1.FinalizerEffects)
	} else {
		controllerutil.RemoveFinalizer(target, v1alpha1.FinalizerEffects)
	}
	patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, target, patch); err != nil {
		return fmt.Errorf("changing the run's finalizer: %w", err)
	}
	object.Finalizers, object.ResourceVersion = target.Finalizers, target.ResourceVersion
	return nil
}

// check looks unknown effects up. Nothing is done to them, so it needs no claim.
func (r *Reconciler) check(object *v1alpha1.AgentRun, s *session, unknown []journal.UnknownEffect) {
	policies := policyNames(object)
	for _, effect := range unknown {
		entry := &flight{call: effect.CallID, check: true}
		r.flights.start(s.uid, s.key, entry, checkTimeout, func(ctx context.Context, landed *flight) {
			service, err := r.clients.Effects(ctx, object.Namespace, policies, effect)
			if err != nil {
				return
			}
			defer service.Close()
			if found, err := service.Look(ctx, effect.EffectKey); err == nil {
				landed.found = run.Found{State: string(found.State), Value: found.Result, Truncated: found.Truncated}
			}
		})
	}
}

// settle ends what a finished run still holds. One whose effects are known needs no
// finalizer; one that is being deleted is let go once they are, or nobody came. There is no
// session for one whose journal can't be read.
func (r *Reconciler) settle(ctx context.Context, object *v1alpha1.AgentRun, s *session) (ctrl.Result, error) {
	deleted := object.DeletionTimestamp
	// The journal of a run that ended in status alone may not name what was under way then,
	// or not take what was settled.
	closed := s == nil || s.closed
	unknown := len(object.Status.UnknownEffects)
	if !closed {
		unknown = len(s.draft.State.Unknown)
	}
	if !controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects) || deleted.IsZero() && (closed || unknown > 0) {
		return r.expire(ctx, object)
	}
	if unknown > 0 {
		if left := deleted.Add(r.deletionGrace).Sub(r.clock.Now()); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
		r.tellAbandoned(ctx, object, "the run was deleted and nobody settled %d unknown outcomes in %s", unknown, r.deletionGrace)
	}
	return r.letGoOfDeleted(ctx, object, s)
}

// letGoOfDeleted removes the finalizers, the segments' first: once the run's is gone,
// nobody looks after them.
func (r *Reconciler) letGoOfDeleted(ctx context.Context, object *v1alpha1.AgentRun, s *session) (ctrl.Result, error) {
	if err := r.release(ctx, object, s); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.setFinalizer(ctx, object, false); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !object.DeletionTimestamp.IsZero() {
		r.abandon(object.UID)
		return ctrl.Result{}, nil
	}
	return r.expire(ctx, object)
}

// release takes the finalizers off the segments, by name where the journal can't be read.
func (r *Reconciler) release(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	if s != nil {
		return r.store.Release(ctx, s.log)
	}
	known := int32(0)
	if j := object.Status.Journal; j != nil {
		known = j.Segments
	}
	return r.store.ReleaseAll(ctx, object, known)
}

// settledElsewhere says whether another replica has settled a deleted run: it is gone, or
// has ended with nothing unknown, and what was read here is older. Its journal may go
// before it does.
func (r *Reconciler) settledElsewhere(ctx context.Context, object *v1alpha1.AgentRun) bool {
	fresh := &v1alpha1.AgentRun{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(object), fresh)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return fresh.UID != object.UID || fresh.Status.CompletionTime != nil && outcomesKnown(fresh)
}

// unrecordable says whether a deleted run's journal can no longer be written: it is
// gone, or its namespace is on its way out.
func unrecordable(object *v1alpha1.AgentRun, err error) bool {
	if object.DeletionTimestamp.IsZero() {
		return false
	}
	_, broken := corrupt(err)
	return broken || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
