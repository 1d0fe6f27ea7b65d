package status

import (
	"slices"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

func unknownEffects(s *journal.State, checked map[string]time.Time) []v1alpha1.UnknownEffect {
	var effects []v1alpha1.UnknownEffect
	for _, unknown := range s.Unknown {
		if len(effects) == maxUnknown {
			break
		}
		effect := v1alpha1.UnknownEffect{EffectKey: unknown.EffectKey, Tool: unknown.Tool, Since: stamp(unknown.Since)}
		if last, ok := checked[unknown.CallID]; ok {
			shown := stamp(last)
			effect.LastCheck = &shown
		}
		effects = append(effects, effect)
	}
	return effects
}

// underWay lists the calls that were sent, may have an effect, and have no outcome in
// the journal.
func underWay(s *journal.State) []v1alpha1.UnknownEffect {
	var effects []v1alpha1.UnknownEffect
	for _, call := range s.UnderWay() {
		effects = append(effects, v1alpha1.UnknownEffect{EffectKey: call.Call.EffectKey, Tool: call.Call.Tool, Since: stamp(call.LastSent)})
	}
	return effects
}

// lastKnown is what is unknown where nobody can ask the journal any more: what status
// showed, less what a whole journal knows better, and what was under way.
func lastKnown(f Facts, previous v1alpha1.AgentRunStatus) []v1alpha1.UnknownEffect {
	var effects []v1alpha1.UnknownEffect
	if f.State != nil {
		effects = append(unknownEffects(f.State, f.Checked), underWay(f.State)...)
	}
	for _, shown := range previous.UnknownEffects {
		named := func(e v1alpha1.UnknownEffect) bool { return e.EffectKey == shown.EffectKey }
		if !slices.ContainsFunc(effects, named) && !known(f, shown.EffectKey) {
			effects = append(effects, shown)
		}
	}
	return effects[:min(len(effects), maxUnknown)]
}

// known says whether a whole journal says what became of an effect.
func known(f Facts, key string) bool {
	if f.State == nil || f.Broken {
		return false
	}
	for _, unknown := range f.State.Unknown {
		if unknown.EffectKey == key {
			return false
		}
	}
	call := f.State.Effect(key)
	return call != nil && (call.Phase == journal.PhaseDone || call.Settled != nil)
}

// unsure says whether calls may have been under way that nobody can name.
func unsure(f Facts) bool { return f.Held && (f.Broken || f.State == nil) }

// afterCheckpointFailed keeps a status that ended so, less what has become known since of
// effects that were unknown.
func afterCheckpointFailed(f Facts, previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
	status := Observed(previous, f.Generation)
	left := slices.DeleteFunc(slices.Clone(status.UnknownEffects), func(e v1alpha1.UnknownEffect) bool {
		return f.Settled[e.EffectKey] || f.CheckpointFailed == "" && known(f, e.EffectKey)
	})
	if len(left) == len(status.UnknownEffects) {
		return status
	}
	status.UnknownEffects = slices.Clip(left)
	outcome := set(previous.Conditions, f, []fact{outcomeFact(len(left) > 0, unsure(f), "")})[0]
	for i := range status.Conditions {
		if status.Conditions[i].Type == v1alpha1.ConditionOutcomeUnknown {
			status.Conditions[i] = outcome
		}
	}
	return status
}
