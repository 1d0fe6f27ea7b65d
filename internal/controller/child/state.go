package child

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
	agentruntool "github.com/pawl-run/pawl/internal/tool/agentrun"
)

// abandoned says whether a run is going away and nobody will record its end.
func abandoned(live *v1alpha1.AgentRun) bool {
	return live.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(live, v1alpha1.FinalizerEffects)
}

// StateOf says how a child stands that has ended or is going away. State is what its journal
// says, nil where that can't be read: then there is only status.
func StateOf(live *v1alpha1.AgentRun, state *journal.State) agentruntool.State {
	if state == nil || state.Finished == nil {
		return byStatus(live, state)
	}
	end := state.Finished
	out := agentruntool.State{
		Phase: agentruntool.Failed, Began: state.Run != nil, Reason: end.Reason, Message: end.Message, Spent: spentBy(state),
	}
	if end.Answer != nil && end.Reason == string(v1alpha1.ReasonCompleted) {
		out.Phase, out.Answer = agentruntool.Completed, *end.Answer
		if output := state.Run.Output; output != nil && len(output.Schema) > 0 {
			out.JSON, out.Answer = true, run.Unfence(out.Answer)
		}
	}
	if n := len(state.Transcript); n > 0 && end.Reason == string(v1alpha1.ReasonCannotContinue) {
		out.Words = state.Transcript[n-1].Decision.Text
	}
	return out
}

// byStatus goes by status, and by what the journal says that can be read.
func byStatus(live *v1alpha1.AgentRun, state *journal.State) agentruntool.State {
	out := agentruntool.State{Phase: agentruntool.Lost, Began: true}
	if state != nil {
		out.Spent = spentBy(state)
	} else if usage := live.Status.Usage; usage != nil {
		out.Spent = &tool.Spent{
			InputTokens: usage.InputTokens, OutputTokens: usage.OutputTokens, CacheReadTokens: usage.CacheReadTokens,
			CacheWriteTokens: usage.CacheWriteTokens, ReasoningTokens: usage.ReasoningTokens, Estimated: true,
			CostPicos: int64(journal.ParseCost(usage.Cost)),
		}
	}
	succeeded := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionSucceeded)
	if live.Status.CompletionTime != nil && succeeded != nil && succeeded.Status == "False" {
		out.Phase, out.Reason, out.Message = agentruntool.Failed, succeeded.Reason, succeeded.Message
	}
	return out
}

func spentBy(state *journal.State) *tool.Spent {
	usage := state.TotalUsage()
	return &tool.Spent{
		InputTokens: usage.InputTokens, OutputTokens: usage.OutputTokens, CacheReadTokens: usage.CacheReadTokens,
		CacheWriteTokens: usage.CacheWriteTokens, ReasoningTokens: usage.ReasoningTokens, Estimated: usage.Estimated,
		CostPicos: int64(state.TotalCost()),
	}
}
