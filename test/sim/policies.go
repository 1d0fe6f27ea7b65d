package sim

import (
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// editPolicy changes a policy under the runs that refer to it, or takes it away for a while.
func (w *world) editPolicy() {
	namespace := namespaces[w.rng.IntN(len(namespaces))]
	at := address{kindPolicy, keyOf(namespace, "tools")}
	object, err := w.server.get(at)
	if err != nil {
		return
	}
	policy := object.(*v1alpha1.ToolPolicy)
	w.counts.Edits++
	if w.chance(0.15) {
		w.note("person", "deletes the policy of %s", namespace)
		_ = w.server.delete("person", at, nil)
		w.after(w.between(100*time.Millisecond, 20*time.Second), nil, func() { _ = w.server.create("person", toolPolicy(namespace)) })
		return
	}
	i := w.rng.IntN(len(policy.Spec.Rules))
	rule, properties := &policy.Spec.Rules[i], &policy.Spec.Tools[i]
	switch w.rng.IntN(5) {
	case 0:
		rule.Action, rule.Approval = v1alpha1.ActionDeny, nil
	case 1, 2:
		rule.Action = v1alpha1.ActionAsk
		rule.Approval = &v1alpha1.Approval{TimeoutSeconds: int32(60 + w.rng.IntN(240)), OnTimeout: v1alpha1.ConsequenceReturnToModel, OnDeny: v1alpha1.ConsequenceReturnToModel}
	case 3:
		rule.Action, rule.Approval = v1alpha1.ActionAllow, nil
	default:
		// Never the other way: whether a service honours its keys is not the policy's to say.
		properties.Effect, properties.IdempotencyKeyLifetimeSeconds, properties.MaxAttempts = v1alpha1.EffectNonIdempotent, 0, 0
		properties.TimeoutSeconds = int32(5 + w.rng.IntN(30))
	}
	w.note("person", "edits the policy of %s: %s is %s, %s", namespace, rule.Name, rule.Action, properties.Effect)
	_ = w.server.update("person", policy)
}

// restorePolicies gives every namespace its first policy back.
func (w *world) restorePolicies() {
	for _, namespace := range namespaces {
		first := toolPolicy(namespace)
		object, err := w.server.get(addressOf(first))
		if err != nil {
			_ = w.server.create("person", first)
			continue
		}
		policy := object.(*v1alpha1.ToolPolicy)
		policy.Spec = first.Spec
		_ = w.server.update("person", policy)
	}
}

// editModel changes the Model of a run, or takes it away for a while.
func (w *world) editModel() {
	scripts := w.scripts()
	if len(scripts) == 0 {
		return
	}
	script := scripts[w.rng.IntN(len(scripts))]
	at := address{kindModel, keyOf(script.namespace, script.model)}
	object, err := w.server.get(at)
	if err != nil {
		return
	}
	decider := object.(*v1alpha1.Model)
	w.counts.Edits++
	if w.chance(0.4) {
		w.note("person", "deletes Model %s", script.model)
		_ = w.server.delete("person", at, nil)
		again := &v1alpha1.Model{ObjectMeta: decider.ObjectMeta, Spec: decider.Spec, Status: decider.Status}
		again.ResourceVersion, again.UID = "", ""
		again.Status.Conditions[0].ObservedGeneration = 1
		w.after(w.between(100*time.Millisecond, 20*time.Second), nil, func() { _ = w.server.create("person", again) })
		return
	}
	decider.Spec.MaxOutputTokens += 100
	decider.Spec.MaxAttempts = 1
	w.note("person", "edits Model %s", script.model)
	_ = w.server.update("person", decider)
}
