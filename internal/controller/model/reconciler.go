// Package model tells the author of a Model what the schema can't: parameters that
// collide with what Pawl sets itself, whatever else the provider's adapter refuses, and
// expressions that don't compile. Credentials are not looked at: they are read when they
// are used, and their absence heals by itself.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/ready"
	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Reconciler keeps the status of Models.
type Reconciler struct {
	client client.Client
}

// New makes a Reconciler that reads and writes through c.
func New(c client.Client) *Reconciler { return &Reconciler{client: c} }

// SetupWithManager registers the controller. Only a changed spec can change what it
// finds, its own writes can't.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("model").
		For(&v1alpha1.Model{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(r.client, r))
}

// Reconcile gathers nothing but the object itself, decides, and writes if there is
// something new.
func (r *Reconciler) Reconcile(ctx context.Context, found *v1alpha1.Model) (reconcile.Result, error) {
	if !found.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	updated := found.DeepCopy()
	updated.Status.ObservedGeneration = found.Generation
	meta.SetStatusCondition(&updated.Status.Conditions, ready.Condition(found.Generation, Problems(found.Spec)))
	if equality.Semantic.DeepEqual(found.Status, updated.Status) {
		return reconcile.Result{}, nil
	}
	// Without the lock a slow pass could overwrite what a faster one said of a newer spec.
	patch := client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})
	return ready.Written(r.client.Status().Patch(ctx, updated, patch))
}

// Problems lists all that has to be changed in a Model, in the order of its fields,
// each with its place. It is pure.
func Problems(spec v1alpha1.ModelSpec) []string {
	var problems []string
	if spec.Parameters != nil {
		problems = parameterProblems(spec.Provider, spec.Parameters.Raw)
	}
	problems = append(problems, adapterProblems(spec)...)
	for i, step := range spec.Script {
		problems = append(problems, stepProblems(fmt.Sprintf("script[%d]", i), step)...)
	}
	return problems
}

// checkParameters is how each provider's adapter judges parameters.
var checkParameters = map[v1alpha1.Provider]func(json.RawMessage) error{
	v1alpha1.ProviderAnthropic:       anthropic.CheckParameters,
	v1alpha1.ProviderGemini:          gemini.CheckParameters,
	v1alpha1.ProviderOpenAI:          openai.CheckParameters,
	v1alpha1.ProviderOpenAIResponses: responses.CheckParameters,
}

// parameterProblems asks the provider, which knows what it sets itself.
func parameterProblems(provider v1alpha1.Provider, parameters json.RawMessage) []string {
	check, ok := checkParameters[provider]
	if !ok {
		return nil // refused by the schema
	}
	if err := check(parameters); err != nil {
		return []string{"parameters: " + err.Error()}
	}
	return nil
}

// newAdapter is how each provider's adapter is built.
var newAdapter = map[v1alpha1.Provider]func(wire.Config) error{
	v1alpha1.ProviderAnthropic:       built(anthropic.New),
	v1alpha1.ProviderGemini:          built(gemini.New),
	v1alpha1.ProviderOpenAI:          built(openai.New),
	v1alpha1.ProviderOpenAIResponses: built(responses.New),
}

func built[C any](adapter func(wire.Config) (C, error)) func(wire.Config) error {
	return func(config wire.Config) error {
		_, err := adapter(config)
		return err
	}
}

// adapterProblems builds the adapter as a run would, less the parameters, which have
// their own place, and what is behind references. Nothing is sent.
func adapterProblems(spec v1alpha1.ModelSpec) []string {
	build, ok := newAdapter[spec.Provider]
	if !ok {
		return nil // scripted, or refused by the schema
	}
	err := build(wire.Config{Endpoint: spec.Endpoint, Model: spec.Model, Platform: platformOf(spec.Platform)})
	if err == nil {
		return nil
	}
	if reason := errors.Unwrap(err); reason != nil {
		err = reason
	}
	return []string{err.Error()}
}

func platformOf(platform *v1alpha1.Platform) wire.Platform {
	switch {
	case platform == nil:
		return wire.Platform{}
	case platform.Bedrock != nil:
		return wire.Platform{Bedrock: &wire.Bedrock{Region: platform.Bedrock.Region}}
	case platform.Vertex != nil:
		return wire.Platform{Vertex: &wire.Vertex{Project: platform.Vertex.Project, Location: platform.Vertex.Location}}
	case platform.Azure != nil:
		return wire.Platform{Azure: &wire.Azure{APIVersion: platform.Azure.APIVersion}}
	default:
		return wire.Platform{}
	}
}

func stepProblems(place string, step v1alpha1.ScriptStep) []string {
	if step.FinalExpression == "" {
		return nil
	}
	_, err := expression.CompileFinal(step.FinalExpression)
	var problems []string
	for _, problem := range expression.ProblemsOf(err) {
		problems = append(problems, fmt.Sprintf("%s: finalExpression: %s", place, problem.Error()))
	}
	return problems
}
