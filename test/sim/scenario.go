package sim

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// namespaces hold the runs.
var namespaces = []string{"default", "team"}

// proposal is one call that a scripted model proposes. Where it is a request for approval,
// announced are the calls that it announces.
type proposal struct {
	tool, arguments string
	announced       []proposal
}

// scenarioRun is one run, with what its model will say.
type scenarioRun struct {
	namespace, name, model string
	turns                  [][]proposal
	uid                    types.UID
	// poison is set for a run with which every reconcile panics, and adapterPanics for one
	// whose every request to the model does.
	poison, adapterPanics bool
	// thinks is how long its model takes, 0 for some random time.
	thinks time.Duration
	// generation counts the runs that had the same name.
	generation int
}

func (s *scenarioRun) address() address {
	return address{kindRun, types.NamespacedName{Namespace: s.namespace, Name: s.name}}
}

func (w *world) scriptOf(model string) *scenarioRun {
	for _, run := range w.runs {
		if run.model == model {
			return run
		}
	}
	panic("no script for " + model)
}

// policies creates the policy in every namespace.
func (w *world) policies() {
	for _, namespace := range namespaces {
		if err := w.server.create("person", toolPolicy(namespace)); err != nil {
			panic(err)
		}
	}
}

// populate creates some runs.
func (w *world) populate(runs int) {
	for i := range runs {
		namespace := namespaces[0]
		if w.chance(0.3) {
			namespace = namespaces[1]
		}
		w.after(w.between(0, 20*time.Second), nil, func() { w.createRun(namespace, fmt.Sprintf("run-%d", i), 0) })
	}
}

// populateNow creates some runs at once.
func (w *world) populateNow(runs int) {
	for i := range runs {
		w.createRun(namespaces[0], fmt.Sprintf("run-%d", i), 0)
	}
}

// createRun creates a run with a script of its own.
func (w *world) createRun(namespace, name string, generation int) {
	script := &scenarioRun{namespace: namespace, name: name, model: fmt.Sprintf("%s-model-%d", name, generation), generation: generation}
	number := 0
	for range 1 + w.rng.IntN(3) {
		var turn []proposal
		for range 1 + w.rng.IntN(4) {
			number++
			known := toolSpecs[w.rng.IntN(len(toolSpecs))]
			turn = append(turn, proposal{tool: serverName + "." + known.name, arguments: fmt.Sprintf(`{"n":%d}`, number)})
		}
		switch {
		case w.chance(0.08):
			turn = []proposal{{tool: "ask", arguments: fmt.Sprintf(`{"question":"which one, %d?"}`, number)}}
		case w.chance(0.12):
			// What it announces it then proposes, and sometimes more than that.
			script.turns = append(script.turns, []proposal{{tool: "request_approval", announced: turn[:1+w.rng.IntN(len(turn))]}})
		}
		script.turns = append(script.turns, turn)
	}
	w.begin(script)
}

// begin creates the objects of a run.
func (w *world) begin(script *scenarioRun) {
	asks := script.model
	if w.check.limited.limits != nil {
		asks = sharedModel
	}
	decider := &v1alpha1.Model{
		ObjectMeta: metav1.ObjectMeta{Namespace: script.namespace, Name: asks},
		Spec:       v1alpha1.ModelSpec{Provider: v1alpha1.ProviderScripted, MaxOutputTokens: 1000, RequestTimeoutSeconds: 60, MaxAttempts: 8, Limits: w.check.limited.limits},
		Status: v1alpha1.ModelStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: 1,
		}}},
	}
	run := &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: script.namespace, Name: script.name},
		Spec: v1alpha1.AgentRunSpec{
			ModelRef: v1alpha1.LocalReference{Name: asks}, ToolPolicyRefs: []v1alpha1.LocalReference{{Name: "tools"}},
			Prompt: script.model, Limits: v1alpha1.Limits{MaxConsecutiveFailures: 100},
		},
	}
	if w.chance(0.2) {
		ttl := int32(w.rng.IntN(20))
		run.Spec.TTLSecondsAfterFinished = &ttl
	}
	w.runs = append(w.runs, script)
	err := w.server.create("person", decider)
	if err == nil || asks == sharedModel {
		err = w.server.create("person", run)
	}
	if err != nil {
		// The one before is still being deleted, or the namespace is.
		w.runs = w.runs[:len(w.runs)-1]
		return
	}
	script.uid = run.UID
	if script.poison {
		w.poison = run.UID
	}
	w.counts.Runs++
	w.note("person", "creates %s (%s) with %d turns", script.name, run.UID, len(script.turns))
}

// toolPolicy declares the simulated tools.
func toolPolicy(namespace string) *v1alpha1.ToolPolicy {
	policy := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tools"}}
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
