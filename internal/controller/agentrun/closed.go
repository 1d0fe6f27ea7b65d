package agentrun

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/status"
)

// endedInStatusAlone says whether the journal does not know of the run's end.
func endedInStatusAlone(object *v1alpha1.AgentRun) bool {
	succeeded := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionSucceeded)
	return succeeded != nil && succeeded.Reason == string(v1alpha1.ReasonCheckpointFailed)
}

// settlementGiven says whether a finished run has an unknown effect and somebody says
// what became of it.
func settlementGiven(object *v1alpha1.AgentRun) bool {
	settlements, _ := readMap(object.Annotations[v1alpha1.AnnotationSettle])
	for _, unknown := range object.Status.UnknownEffects {
		if settlements[unknown.EffectKey] != "" {
			return true
		}
	}
	return false
}

// settleInStatus records in status alone what people say about the effects of a run that
// ended as CheckpointFailed: its journal can't take it. They would be asked for ever.
func (r *Reconciler) settleInStatus(ctx context.Context, object *v1alpha1.AgentRun, broken bool) (ctrl.Result, error) {
	verdicts := verdictsOf(object)
	said := map[string]bool{}
	for key, effect := range verdicts.Settlements {
		said[key] = verdicts.SettleBy != "" && (effect == journal.EffectCommitted || effect == journal.EffectRejected)
	}
	facts := status.Facts{
		Now: r.clock.Now(), Generation: object.Generation, Settled: said, Broken: broken, Held: r.isHeld(ctx, object),
		CheckpointFailed: "the journal can't take what people settle", State: journal.NewState(string(object.UID)),
	}
	var settled []v1alpha1.UnknownEffect
	err := r.writeStatus(ctx, object, func(previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
		next := status.Derive(facts, previous)
		settled = without(previous.UnknownEffects, next.UnknownEffects)
		return next
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, effect := range settled {
		r.recorder.Eventf(object, nil, eventNormal, "EffectSettled", "Settle", "%s", fmt.Sprintf("the effect %s of %s, whose outcome was unknown, was %s, says %s; the journal can't take it, status alone records it",
			effect.EffectKey, effect.Tool, verdicts.Settlements[effect.EffectKey], verdicts.SettleBy))
	}
	r.abandon(object.UID)
	return r.settle(ctx, object, nil)
}

// without lists the effects that are not in others.
func without(effects, others []v1alpha1.UnknownEffect) []v1alpha1.UnknownEffect {
	named := map[string]bool{}
	for _, other := range others {
		named[other.EffectKey] = true
	}
	var out []v1alpha1.UnknownEffect
	for _, effect := range effects {
		if !named[effect.EffectKey] {
			out = append(out, effect)
		}
	}
	return out
}
