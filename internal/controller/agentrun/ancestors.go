package agentrun

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/run"
)

// wish is what people want of a run, and why where that is not in its own spec.
type wish struct {
	desired run.Desired
	because string
}

// ownWish is what people want of the run itself.
func ownWish(object *v1alpha1.AgentRun) wish {
	if !object.DeletionTimestamp.IsZero() {
		return wish{run.Cancelled, "the run was deleted"}
	}
	return wish{desired: desired(object)}
}

// wishFor is what people want of a run: what its spec says or, where that is stricter, what
// is wanted of the runs above it. Specs of children stay untouched, so that resuming a
// parent resumes only what was suspended with it.
func (r *Reconciler) wishFor(ctx context.Context, object *v1alpha1.AgentRun, reader client.Reader) (wish, error) {
	found, current := ownWish(object), object
	for range v1alpha1.MaxDepth {
		if found.desired == run.Cancelled || !isChild(current) {
			break
		}
		parent, err := r.parentOf(ctx, current, reader)
		if err != nil {
			return wish{}, err
		}
		name := current.Annotations[v1alpha1.AnnotationParent]
		switch {
		case parent == nil:
			found = wish{run.Cancelled, fmt.Sprintf("the run %s above this one is gone", name)}
		case parent.Status.CompletionTime != nil:
			found = wish{run.Cancelled, fmt.Sprintf("the run %s above this one has ended", name)}
		case desired(parent) == run.Cancelled:
			found = wish{run.Cancelled, fmt.Sprintf("the run %s above this one was cancelled", name)}
		case desired(parent) == run.Suspended && found.desired != run.Suspended:
			found = wish{run.Suspended, fmt.Sprintf("the run %s above this one is suspended", name)}
		}
		current = parent
	}
	return found, nil
}

// parentOf reads the run above a child, nil for one that is gone. A cache is not believed
// that a run is gone: cancelling can't be taken back.
func (r *Reconciler) parentOf(ctx context.Context, child *v1alpha1.AgentRun, reader client.Reader) (*v1alpha1.AgentRun, error) {
	key := client.ObjectKey{Namespace: child.Namespace, Name: child.Annotations[v1alpha1.AnnotationParent]}
	for _, source := range []client.Reader{reader, r.live} {
		parent := &v1alpha1.AgentRun{}
		err := source.Get(ctx, key, parent)
		if err == nil && string(parent.UID) == child.Labels[v1alpha1.LabelParentUID] {
			return parent, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading the run above this one: %w", err)
		}
	}
	return nil, nil
}

// concernsChildren lets through what the runs below one have to know of it.
var concernsChildren = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.AgentRun)
		after, also := e.ObjectNew.(*v1alpha1.AgentRun)
		return ok && also && (desired(before) != desired(after) || before.Status.CompletionTime == nil && after.Status.CompletionTime != nil)
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// below finds every run below one.
func (r *Reconciler) below(ctx context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	level := []client.Object{object}
	for range v1alpha1.MaxDepth - 1 {
		var next []client.Object
		for _, parent := range level {
			var list v1alpha1.AgentRunList
			if err := r.client.List(ctx, &list, client.InNamespace(parent.GetNamespace()), client.MatchingFields{indexParent: string(parent.GetUID())}); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Listing the runs below a run")
				return requests
			}
			for i := range list.Items {
				next = append(next, &list.Items[i])
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		level = next
	}
	return requests
}
