package sim

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// userNamespace holds the runs.
const userNamespace = "default"

// proposal is one call that a scripted model proposes.
type proposal struct{ tool, arguments string }

// scenarioRun is one run, with what its model will say.
type scenarioRun struct {
	name, model string
	turns       [][]proposal
	uid         types.UID
	// generation counts the runs that had the same name.
	generation int
}

func (s *scenarioRun) address() address {
	return address{kindRun, types.NamespacedName{Namespace: userNamespace, Name: s.name}}
}

func (w *world) scriptOf(model string) *scenarioRun {
	for _, run := range w.runs {
		if run.model == model {
			return run
		}
	}
	panic("no script for " + model)
}

// populate creates the policy and some runs.
func (w *world) populate(runs int) {
	if err := w.server.create("person", toolPolicy()); err != nil {
		panic(err)
	}
	for i := range runs {
		w.after(w.between(0, 20*time.Second), nil, func() { w.createRun(fmt.Sprintf("run-%d", i), 0) })
	}
}

// createRun creates a run with a model of its own.
func (w *world) createRun(name string, generation int) {
	script := &scenarioRun{name: name, model: fmt.Sprintf("%s-model-%d", name, generation), generation: generation}
	number := 0
	for range 1 + w.rng.IntN(3) {
		var turn []proposal
		for range 1 + w.rng.IntN(4) {
			number++
			known := toolSpecs[w.rng.IntN(len(toolSpecs))]
			turn = append(turn, proposal{serverName + "." + known.name, fmt.Sprintf(`{"n":%d}`, number)})
		}
		if w.chance(0.08) {
			turn = []proposal{{"ask", fmt.Sprintf(`{"question":"which one, %d?"}`, number)}}
		}
		script.turns = append(script.turns, turn)
	}
	decider := &v1alpha1.Model{
		ObjectMeta: metav1.ObjectMeta{Namespace: userNamespace, Name: script.model},
		Spec:       v1alpha1.ModelSpec{Provider: v1alpha1.ProviderScripted, MaxOutputTokens: 1000, RequestTimeoutSeconds: 60, MaxAttempts: 8},
		Status: v1alpha1.ModelStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: 1,
		}}},
	}
	run := &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: userNamespace, Name: name},
		Spec: v1alpha1.AgentRunSpec{
			ModelRef: v1alpha1.LocalReference{Name: script.model}, ToolPolicyRefs: []v1alpha1.LocalReference{{Name: "tools"}},
			Prompt: "do it", Limits: v1alpha1.Limits{MaxConsecutiveFailures: 100},
		},
	}
	if w.chance(0.2) {
		ttl := int32(w.rng.IntN(20))
		run.Spec.TTLSecondsAfterFinished = &ttl
	}
	w.runs = append(w.runs, script)
	if err := w.server.create("person", decider); err != nil {
		panic(err)
	}
	if err := w.server.create("person", run); err != nil {
		// The one before is still being deleted.
		w.runs = w.runs[:len(w.runs)-1]
		return
	}
	script.uid = run.UID
	w.counts.Runs++
	w.note("person", "creates %s (%s) with %d turns", name, run.UID, len(script.turns))
}

// toolPolicy declares the simulated tools.
func toolPolicy() *v1alpha1.ToolPolicy {
	policy := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: userNamespace, Name: "tools"}}
	declared := &v1alpha1.HTTPServer{URL: "http://service.example"}
	for _, known := range toolSpecs {
		declared.Tools = append(declared.Tools, v1alpha1.HTTPTool{Name: known.name, InputSchema: runtime.RawExtension{Raw: []byte(argumentSchema)}})
		properties := v1alpha1.ToolProperties{
			Match: []string{serverName + "." + known.name}, Effect: known.class, Execution: v1alpha1.ExecutionSequential,
			TimeoutSeconds: known.timeout, MaxResultBytes: 4096, IdempotencyKeyLifetimeSeconds: known.lifetime, MaxAttempts: known.attempts,
		}
		if known.parallel {
			properties.Execution = v1alpha1.ExecutionParallel
		}
		if known.reconciles {
			properties.Reconcile = &v1alpha1.EffectReconcile{HTTP: v1alpha1.EffectService{URL: "http://service.example/effects"}}
		}
		policy.Spec.Tools = append(policy.Spec.Tools, properties)
		rule := v1alpha1.ToolRule{Name: known.name, Match: properties.Match, Action: v1alpha1.ActionAllow}
		if known.asks {
			rule.Action = v1alpha1.ActionAsk
			rule.Approval = &v1alpha1.Approval{TimeoutSeconds: 300, OnTimeout: v1alpha1.ConsequenceReturnToModel, OnDeny: v1alpha1.ConsequenceReturnToModel}
		}
		policy.Spec.Rules = append(policy.Spec.Rules, rule)
	}
	policy.Spec.Servers = []v1alpha1.ToolServer{{Name: serverName, HTTP: declared}}
	return policy
}
