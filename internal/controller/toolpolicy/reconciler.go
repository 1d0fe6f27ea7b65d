// Package toolpolicy tells the author of a ToolPolicy whether it can be used. Runs do
// not depend on what is written here: they compile the policies they refer to
// themselves, so that no status is ever the basis of a verdict.
package toolpolicy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/job"
	"github.com/pawl-run/pawl/internal/controller/ready"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/tool"
)

const (
	// askEvery is how often servers are asked what they offer, askAgain how soon one is
	// that did not answer. Both are stretched by up to a tenth, at random.
	askEvery = 10 * time.Minute
	askAgain = time.Minute
	// askTimeout bounds one server's answer.
	askTimeout = 10 * time.Second
	// atOnce is how many policies are looked at at the same time, so that a few servers
	// that hang keep few others waiting.
	atOnce = 4
)

// Servers builds the servers that policies declare.
type Servers interface {
	// Server builds a declared server.
	Server(ctx context.Context, namespace string, declared v1alpha1.ToolServer) (tool.Server, error)
}

// Reconciler keeps the status of ToolPolicies.
type Reconciler struct {
	client  client.Client
	servers Servers
}

// New makes a Reconciler that reads and writes through c and asks servers what they offer.
func New(c client.Client, servers Servers) *Reconciler {
	return &Reconciler{client: c, servers: servers}
}

// SetupWithManager registers the controller. Only a changed spec can change what it finds
// in the object, its own writes can't; what servers offer it looks up from time to time.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("toolpolicy").
		For(&v1alpha1.ToolPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: atOnce}).
		Complete(reconcile.AsReconciler(r.client, r))
}

// Reconcile says first what follows from the spec alone, and then what the servers offer,
// which may take a while.
func (r *Reconciler) Reconcile(ctx context.Context, found *v1alpha1.ToolPolicy) (reconcile.Result, error) {
	if !found.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	compiled, status := decide(found)
	if result, err := r.write(ctx, found, status); err != nil || result.RequeueAfter > 0 || compiled == nil {
		return result, err
	}
	seen, err := r.ask(ctx, found.Namespace, found.Spec.Servers)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.write(ctx, found, seen.show(compiled, *found.Status.DeepCopy()))
	if err == nil && result.RequeueAfter == 0 && seen.asked {
		result.RequeueAfter = wait.Jitter(seen.askNext(), 0.1)
	}
	return result, err
}

// write writes the status if it is new.
func (r *Reconciler) write(ctx context.Context, found *v1alpha1.ToolPolicy, status v1alpha1.ToolPolicyStatus) (reconcile.Result, error) {
	if equality.Semantic.DeepEqual(found.Status, status) {
		return reconcile.Result{}, nil
	}
	updated := found.DeepCopy()
	updated.Status = status
	// Without the lock a slow pass could overwrite what a faster one said of a newer spec.
	patch := client.MergeFromWithOptions(found.DeepCopy(), client.MergeFromWithOptimisticLock{})
	err := r.client.Status().Patch(ctx, updated, patch)
	if err == nil {
		updated.DeepCopyInto(found)
	}
	return ready.Written(err)
}

// decide derives from the spec what can be. What servers said of another spec is dropped,
// of the same one it stays until they are asked again. The tools of a policy that can't be
// used are not shown: they exist for no run.
func decide(found *v1alpha1.ToolPolicy) (*policy.Policy, v1alpha1.ToolPolicyStatus) {
	compiled, problems := policy.Compile(found.Name, found.Spec)
	if templates := job.Problems(found.Spec); len(templates) > 0 {
		compiled, problems = nil, append(problems, templates...)
	}
	texts := make([]string, len(problems))
	for i, problem := range problems {
		texts[i] = problem.String()
	}
	before := found.Status.DeepCopy()
	status := v1alpha1.ToolPolicyStatus{Conditions: before.Conditions, ObservedGeneration: found.Generation}
	meta.SetStatusCondition(&status.Conditions, ready.Condition(found.Generation, texts))
	switch {
	case compiled == nil:
	case before.ObservedGeneration == found.Generation:
		status.Tools, status.Quarantined, status.Unavailable = before.Tools, before.Quarantined, before.Unavailable
	default:
		status.Tools, status.Quarantined = declared(compiled), quarantined(compiled)
	}
	return compiled, status
}

// quarantined are the tools that the policy defines itself and that can't be used.
func quarantined(compiled *policy.Policy) []v1alpha1.QuarantinedTool {
	var tools []v1alpha1.QuarantinedTool
	for _, q := range compiled.Quarantined() {
		tools = append(tools, v1alpha1.QuarantinedTool{Name: cut(q.Name, maxNameBytes), Reason: cut(oneLine(q.Reason), maxReasonBytes)})
	}
	return tools
}

// declared are the tools that the policy defines itself.
func declared(compiled *policy.Policy) []v1alpha1.ResolvedTool {
	var tools []v1alpha1.ResolvedTool
	for _, t := range compiled.Tools() {
		tools = append(tools, v1alpha1.ResolvedTool{Name: t.Name, Effect: t.Effect, Digest: t.Digest})
	}
	return tools
}
