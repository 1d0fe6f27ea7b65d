package agentrun

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/child"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/run"
)

// maxCatalogueBytes bounds what RunStarted freezes of tools, so that it always fits a
// journal segment.
const maxCatalogueBytes = 512 << 10

// resolveTimeout bounds asking every tool server for its tools.
const resolveTimeout = 30 * time.Second

// resolve finds out what a run refers to. Reading the cluster happens here; asking
// tool servers happens in the air, since it may take long.
func (r *Reconciler) resolve(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	if err := r.flush(ctx, object, s); err != nil {
		return err
	}
	if r.flights.underWay(s.uid, s.settled).resolving {
		return nil
	}
	rules, err := r.gatherRules(ctx, object, s)
	if err != nil {
		return err
	}
	model, problem, err := r.readModel(ctx, object)
	if err != nil {
		return err
	}
	if problem == "" && rules.problem == "" {
		problem, err = r.clients.Missing(ctx, object.Namespace, model, rules.set.Servers())
		if err != nil {
			return err
		}
	}
	found := object.DeepCopy()
	r.flights.start(s.uid, s.key, &flight{}, resolveTimeout, func(ctx context.Context, landed *flight) {
		landed.configuration = r.configure(ctx, found, model, rules, problem)
	})
	return nil
}

// readModel reads the Model, or says why the run has to wait for it.
func (r *Reconciler) readModel(ctx context.Context, object *v1alpha1.AgentRun) (*v1alpha1.Model, string, error) {
	found := &v1alpha1.Model{}
	name := object.Spec.ModelRef.Name
	err := r.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("Model %s does not exist", name), nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading Model %s: %w", name, err)
	}
	ready := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || ready.ObservedGeneration != found.Generation:
		return nil, fmt.Sprintf("Model %s was not looked at yet", name), nil
	case ready.Status != "True":
		return nil, fmt.Sprintf("Model %s is not ready: %s", name, ready.Message), nil
	default:
		return found, "", nil
	}
}

// configure makes a RunStarted of what was found, or says what stands in its way.
func (r *Reconciler) configure(ctx context.Context, object *v1alpha1.AgentRun, model *v1alpha1.Model, rules rules, problem string) *run.Configuration {
	switch {
	case rules.invalid:
		return &run.Configuration{Invalid: rules.problem}
	case rules.problem != "":
		return &run.Configuration{NotReady: rules.problem}
	case problem != "":
		return &run.Configuration{NotReady: problem}
	}
	started := freezeSpec(object)
	var err error
	if started.Lineage, err = child.LineageOf(object); err != nil {
		return &run.Configuration{Invalid: oneLine(err)}
	}
	started.Model = freezeModel(model)
	for _, p := range rules.policies {
		started.Policies = append(started.Policies, journal.Policy{Name: p.Name(), Digest: p.Digest()})
	}
	if err := run.CheckSpec(started); err != nil {
		return &run.Configuration{Invalid: oneLine(err)}
	}
	tools, configuration := r.catalogue(ctx, object.Namespace, rules.set)
	if configuration != nil {
		return configuration
	}
	started.Tools = tools
	if len(tools) > 0 {
		started.Tools = append(started.Tools, run.ReadTool())
		if inBackground(rules.set, tools) {
			started.Tools = append(started.Tools, run.CheckTool())
		}
	}
	if started.HumanInput {
		started.Tools = append(started.Tools, run.BuiltInTools()...)
	}
	if size := sizeOf(started); size > maxStartedBytes {
		return &run.Configuration{Invalid: fmt.Sprintf("prompt, systemPrompt and the tools' descriptions and schemas have %d bytes together as JSON, more than %d: make them shorter, or refer to fewer servers", size, maxStartedBytes)}
	}
	return &run.Configuration{Started: started}
}

// inBackground says whether calls of some tool go on in the background.
func inBackground(rules *policy.Set, tools []journal.Tool) bool {
	return slices.ContainsFunc(tools, func(t journal.Tool) bool {
		return rules.Properties(t.Name).Execution == v1alpha1.ExecutionBackground
	})
}

// maxStartedBytes bounds the event that freezes all this, escapes included.
const maxStartedBytes = 800 << 10

func sizeOf(started *journal.RunStarted) int {
	data, err := json.Marshal(started)
	if err != nil {
		return maxStartedBytes + 1
	}
	return len(data)
}

// catalogue lists the tools of every server, in a stable order, with their aliases.
func (r *Reconciler) catalogue(ctx context.Context, namespace string, set *policy.Set) ([]journal.Tool, *run.Configuration) {
	var tools []journal.Tool
	var names []string
	size := 0
	for _, declared := range set.Servers() {
		server, err := r.clients.Server(ctx, namespace, declared)
		if err != nil {
			return nil, &run.Configuration{NotReady: fmt.Sprintf("server %s: %s", declared.Name, oneLine(err))}
		}
		listing, err := server.List(ctx)
		closeServer(server)
		if err != nil {
			return nil, &run.Configuration{NotReady: fmt.Sprintf("server %s does not list its tools: %s", declared.Name, oneLine(err))}
		}
		for _, definition := range listing.Tools {
			name := declared.Name + "." + definition.Name
			names = append(names, name)
			size += len(definition.Description) + len(definition.InputSchema)
			tools = append(tools, journal.Tool{
				Name: name, Description: definition.Description, InputSchema: compact(definition.InputSchema), Digest: definition.Digest(name),
			})
		}
	}
	if size > maxCatalogueBytes {
		return nil, &run.Configuration{Invalid: fmt.Sprintf("the tools' descriptions and schemas have %d bytes together, more than %d: refer to fewer servers", size, maxCatalogueBytes)}
	}
	aliases := run.Aliases(names)
	for i := range tools {
		tools[i].Alias = aliases[tools[i].Name]
	}
	return tools, nil
}

func freezeSpec(object *v1alpha1.AgentRun) *journal.RunStarted {
	spec := object.Spec
	started := &journal.RunStarted{
		Projection: prompt.Version,
		Namespace:  object.Namespace, Name: object.Name, Labels: object.Labels,
		CreatedBy:    object.Annotations[v1alpha1.AnnotationCreatedBy],
		SystemPrompt: spec.SystemPrompt, Prompt: spec.Prompt,
		Limits: journal.Limits{
			MaxTurns: spec.Limits.MaxTurns, MaxToolCalls: spec.Limits.MaxToolCalls, MaxTokens: spec.Limits.MaxTokens, MaxCost: spec.Limits.MaxCost,
			ActiveDeadlineSeconds: spec.Limits.ActiveDeadlineSeconds, DeadlineSeconds: spec.Limits.DeadlineSeconds,
			MaxRepeatedPlans: spec.Limits.MaxRepeatedPlans, MaxConsecutiveFailures: spec.Limits.MaxConsecutiveFailures,
			InputTimeoutSeconds: spec.Limits.InputTimeoutSeconds,
		},
		MaxToolResultBytes: spec.Context.MaxToolResultBytes, ContextTokens: spec.Context.MaxTokens,
		HumanInput: spec.HumanInput != v1alpha1.HumanInputDisabled,
	}
	if n := spec.Limits.MaxInvalidDecisions; n != nil {
		started.Limits.MaxInvalidDecisions = *n
	}
	if p := spec.Progress; p != nil {
		started.Progress = &journal.Progress{Expression: p.Expression, MaxUnchangedTurns: p.MaxUnchangedTurns}
	}
	if o := spec.Output; o != nil {
		started.Output = &journal.Output{Schema: rawOf(o.Schema)}
		for _, v := range o.Validations {
			started.Output.Validations = append(started.Output.Validations, journal.Validation{Expression: v.Expression, Message: v.Message})
		}
	}
	return started
}

func freezeModel(object *v1alpha1.Model) journal.Model {
	spec := object.Spec
	frozen := journal.Model{
		Name: object.Name, Provider: string(spec.Provider), Model: spec.Model, Endpoint: spec.Endpoint,
		MaxOutputTokens: spec.MaxOutputTokens, RequestTimeoutSeconds: spec.RequestTimeoutSeconds,
		MaxAttempts: spec.MaxAttempts, Parameters: rawOf(spec.Parameters),
		Platform: freezePlatform(spec.Platform), Prices: freezePrices(spec.Prices), KeepReasoning: spec.KeepReasoning,
	}
	if spec.Provider != v1alpha1.ProviderScripted {
		frozen.References = freezeReferences(spec)
	}
	return frozen
}

func freezeReferences(spec v1alpha1.ModelSpec) *journal.ModelReferences {
	return &journal.ModelReferences{Credentials: freezeKey(spec.CredentialsSecretRef), CABundle: freezeKey(spec.CABundleConfigMapRef)}
}

func freezeKey(ref *v1alpha1.KeyReference) *journal.KeyReference {
	if ref == nil {
		return nil
	}
	return &journal.KeyReference{Name: ref.Name, Key: ref.Key}
}

func freezePlatform(p *v1alpha1.Platform) *journal.Platform {
	switch {
	case p == nil:
		return nil
	case p.Bedrock != nil:
		return &journal.Platform{Name: "bedrock", Region: p.Bedrock.Region}
	case p.Vertex != nil:
		return &journal.Platform{Name: "vertex", Project: p.Vertex.Project, Location: p.Vertex.Location}
	default:
		return &journal.Platform{Name: "azure", APIVersion: p.Azure.APIVersion}
	}
}

func freezePrices(p *v1alpha1.Prices) *journal.Prices {
	if p == nil {
		return nil
	}
	return &journal.Prices{Input: string(p.Input), Output: string(p.Output), CacheRead: string(p.CacheRead), CacheWrite: string(p.CacheWrite)}
}

func rawOf(extension *runtime.RawExtension) json.RawMessage {
	if extension == nil {
		return nil
	}
	return extension.Raw
}

func compact(schema json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if err := json.Compact(&out, schema); err != nil {
		return schema
	}
	return out.Bytes()
}

// oneLine is what an error says, fit for a condition.
func oneLine(err error) string {
	text := []rune(err.Error())
	for i, r := range text {
		if r == '\n' || r == '\r' || r == '\t' {
			text[i] = ' '
		}
	}
	return string(text[:min(len(text), 800)])
}
