package agentrun

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/run"
)

// indexParent is by what child runs are found: the UID of the run whose calls they are.
const indexParent = "metadata.labels.parent-uid"

// setupChildren registers the controller of child runs.
func (r *Reconciler) setupChildren(mgr ctrl.Manager) error {
	children := &callees{
		runs: r, keeper: r.children, finalizer: v1alpha1.FinalizerParent, caller: parentOfChild, of: r.childrenOf, heard: hasEnded,
		blank: func() client.Object { return &v1alpha1.AgentRun{} },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("child").
		For(&v1alpha1.AgentRun{}, builder.WithPredicates(childNews)).
		Watches(&v1alpha1.AgentRun{}, handler.EnqueueRequestsFromMapFunc(children.ofRun), builder.WithPredicates(ended)).
		WatchesRawSource(source.Func(r.childWakeups.listen)).
		Complete(children)
}

// hasEnded says whether a child has ended or will soon.
func hasEnded(object client.Object) bool {
	child, ok := object.(*v1alpha1.AgentRun)
	return ok && (child.Status.CompletionTime != nil || child.DeletionTimestamp != nil)
}

// childNews lets through what a parent wants to know of its children: that one has ended, is
// being deleted, or waits for other people than before.
var childNews = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return isChild(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.AgentRun)
		after, also := e.ObjectNew.(*v1alpha1.AgentRun)
		if !ok || !also || !isChild(after) {
			return false
		}
		return hasEnded(before) != hasEnded(after) || (before.Status.CompletionTime == nil) != (after.Status.CompletionTime == nil) ||
			waitsForPeople(before) != waitsForPeople(after) || !equality.Semantic.DeepEqual(waits(before, ""), waits(after, ""))
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func isChild(object client.Object) bool { return object.GetLabels()[v1alpha1.LabelParentUID] != "" }

// parentOfChild goes by what the operator wrote when it created the child: somebody may have
// taken the owner reference off since then, or deleted the parent alone.
func parentOfChild(object client.Object) *caller {
	if !isChild(object) {
		return nil
	}
	return &caller{
		types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetAnnotations()[v1alpha1.AnnotationParent]},
		types.UID(object.GetLabels()[v1alpha1.LabelParentUID]),
	}
}

// parentUID is what indexParent holds of a run.
func parentUID(object client.Object) []string {
	if uid := object.GetLabels()[v1alpha1.LabelParentUID]; uid != "" {
		return []string{uid}
	}
	return nil
}

// childrenOf finds the child runs of a run's calls.
func (r *Reconciler) childrenOf(ctx context.Context, namespace string, parent types.UID) ([]client.ObjectKey, error) {
	var list v1alpha1.AgentRunList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{indexParent: string(parent)}); err != nil {
		return nil, fmt.Errorf("listing the children of a run: %w", err)
	}
	keys := make([]client.ObjectKey, 0, len(list.Items))
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return keys, nil
}

// waitsForPeople is the reason for which a run stands still until people act, empty for one
// that does not.
func waitsForPeople(object *v1alpha1.AgentRun) string {
	succeeded := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionSucceeded)
	if succeeded == nil || succeeded.Status != "Unknown" {
		return ""
	}
	switch reason := v1alpha1.Reason(succeeded.Reason); reason {
	case v1alpha1.ReasonApprovalRequired, v1alpha1.ReasonInputRequired, v1alpha1.ReasonOutcomeUnknown, v1alpha1.ReasonSuspended:
		return string(reason)
	default:
		return ""
	}
}

// waits lists what people are asked by a child run, or by the runs below it.
func waits(child *v1alpha1.AgentRun, tool string) []v1alpha1.PendingChild {
	if child.Status.CompletionTime != nil {
		return nil
	}
	one := v1alpha1.PendingChild{Name: child.Name, Tool: tool}
	var out []v1alpha1.PendingChild
	if pending := child.Status.Pending; pending != nil {
		out = append(out, pending.Children...)
		if pending.Digest != "" {
			one.Reason, one.Digest, one.ExpiresAt = string(v1alpha1.ReasonApprovalRequired), pending.Digest, &pending.ExpiresAt
		}
	}
	if question := child.Status.Question; question != nil {
		one.Reason, one.Question, one.ExpiresAt = string(v1alpha1.ReasonInputRequired), question.ID, &question.ExpiresAt
	}
	if one.Reason == "" && len(child.Status.UnknownEffects) > 0 {
		one.Reason = string(v1alpha1.ReasonOutcomeUnknown)
	}
	if one.Reason != "" {
		out = append([]v1alpha1.PendingChild{one}, out...)
	}
	return out
}

// maxPendingChildren is how many status shows.
const maxPendingChildren = 64

// observeChildren notes what is to be seen of the child runs that a run waits for. It goes
// by the cache: what it shows decides nothing but where people look and whose time it is.
func (r *Reconciler) observeChildren(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	s.childWaits, s.pendingChildren = nil, nil
	for _, call := range s.draft.State.Outside() {
		if call.Call.Child == nil {
			continue
		}
		child := &v1alpha1.AgentRun{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: call.Call.Handle}, child)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading a child run: %w", err)
		}
		if err != nil || child.Labels[v1alpha1.LabelParentUID] != string(object.UID) {
			continue
		}
		if reason := waitsForPeople(child); reason != "" {
			if s.childWaits == nil {
				s.childWaits = map[string]run.ChildWait{}
			}
			s.childWaits[call.Call.ID] = run.ChildWait{Name: child.Name, Reason: reason}
		}
		s.pendingChildren = append(s.pendingChildren, waits(child, call.Call.Tool)...)
	}
	s.pendingChildren = s.pendingChildren[:min(len(s.pendingChildren), maxPendingChildren)]
	return nil
}
