// Package toolpolicy tells the author of a ToolPolicy whether it can be used. Runs do
// not depend on what is written here: they compile the policies they refer to
// themselves, so that no status is ever the basis of a verdict.
package toolpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/ready"
	"github.com/pawl-run/pawl/internal/policy"
)

// Reconciler keeps the status of ToolPolicies.
type Reconciler struct {
	client client.Client
}

// New makes a Reconciler that reads and writes through c.
func New(c client.Client) *Reconciler { return &Reconciler{client: c} }

// SetupWithManager registers the controller. Only a changed spec can change what it
// finds, its own writes can't.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("toolpolicy").
		For(&v1alpha1.ToolPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(r.client, r))
}

// Reconcile gathers nothing but the object itself, decides, and writes if there is
// something new.
func (r *Reconciler) Reconcile(ctx context.Context, found *v1alpha1.ToolPolicy) (reconcile.Result, error) {
	if !found.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	updated := found.DeepCopy()
	updated.Status = decide(found)
	if equality.Semantic.DeepEqual(found.Status, updated.Status) {
		return reconcile.Result{}, nil
	}
	// Without the lock a slow pass could overwrite what a faster one said of a newer spec.
	patch := client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})
	return ready.Written(r.client.Status().Patch(ctx, updated, patch))
}

// decide derives the whole status from the spec. The tools of a policy that can't be
// used are not shown: they exist for no run.
func decide(found *v1alpha1.ToolPolicy) v1alpha1.ToolPolicyStatus {
	compiled, problems := policy.Compile(found.Name, found.Spec)
	texts := make([]string, len(problems))
	for i, problem := range problems {
		texts[i] = problem.String()
	}
	status := v1alpha1.ToolPolicyStatus{
		Conditions:         found.Status.DeepCopy().Conditions,
		ObservedGeneration: found.Generation,
	}
	meta.SetStatusCondition(&status.Conditions, ready.Condition(found.Generation, texts))
	if compiled == nil {
		return status
	}
	for _, tool := range compiled.Tools() {
		status.Tools = append(status.Tools, v1alpha1.ResolvedTool{Name: tool.Name, Effect: tool.Effect, Digest: tool.Digest})
	}
	return status
}
