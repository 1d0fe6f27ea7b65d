package status

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// fact is a condition less its times.
type fact struct {
	conditionType string
	status        metav1.ConditionStatus
	reason        v1alpha1.Reason
	message       string
}

// conditions computes every condition from facts.
func conditions(f Facts, previous []metav1.Condition) []metav1.Condition {
	s := f.State
	facts := []fact{
		succeededFact(f),
		finishedFact(f),
		below(f, v1alpha1.ReasonApprovalRequired, approvalFact(s.Approval, f.VerdictProblem)),
		below(f, v1alpha1.ReasonInputRequired, inputFact(s.Question, f.VerdictProblem)),
		outcomeFact(len(s.Unknown) > 0, false, f.VerdictProblem),
		reconcilingFact(f),
		stalledFact(f),
	}
	return set(previous, f, facts)
}

func succeededFact(f Facts) fact {
	if end := f.State.Finished; end != nil {
		status := metav1.ConditionFalse
		if end.Reason == string(v1alpha1.ReasonCompleted) {
			status = metav1.ConditionTrue
		}
		return fact{v1alpha1.ConditionSucceeded, status, v1alpha1.Reason(end.Reason), end.Message}
	}
	message := waitingMessage(f)
	if f.VerdictProblem != "" {
		message += "; " + f.VerdictProblem
	}
	return fact{v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, f.Waiting, message}
}

func finishedFact(f Facts) fact {
	if end := f.State.Finished; end != nil {
		return fact{v1alpha1.ConditionFinished, metav1.ConditionTrue, v1alpha1.Reason(end.Reason), "the run has ended"}
	}
	return fact{v1alpha1.ConditionFinished, metav1.ConditionFalse, f.Waiting, "the run is open"}
}

func approvalFact(a *journal.ApprovalRequested, problem string) fact {
	if a == nil {
		return fact{v1alpha1.ConditionApprovalRequired, metav1.ConditionFalse, "NothingPending", "nothing waits for approval"}
	}
	message := fmt.Sprintf("waiting for approval of %s (calls: %d)", a.Digest, len(a.Calls))
	if problem != "" {
		message += "; " + problem
	}
	return fact{v1alpha1.ConditionApprovalRequired, metav1.ConditionTrue, v1alpha1.ReasonApprovalRequired, message}
}

// below says of a run that waits for nothing itself whether one below it does.
func below(f Facts, reason v1alpha1.Reason, own fact) fact {
	if own.status == metav1.ConditionTrue || f.State.Finished != nil {
		return own
	}
	for _, child := range f.Children {
		if child.Reason == string(reason) {
			own.status, own.reason = metav1.ConditionTrue, reason
			own.message = fmt.Sprintf("the run %s below this one waits for %s%s: answer there", child.Name, child.Digest, child.Question)
			return own
		}
	}
	return own
}

func inputFact(q *journal.QuestionAsked, problem string) fact {
	if q == nil {
		return fact{v1alpha1.ConditionInputRequired, metav1.ConditionFalse, "NothingAsked", "no question waits for an answer"}
	}
	message := fmt.Sprintf("question %s waits for an answer", q.ID)
	if problem != "" {
		message += "; " + problem
	}
	return fact{v1alpha1.ConditionInputRequired, metav1.ConditionTrue, v1alpha1.ReasonInputRequired, message}
}

// outcomeFact says whether there are calls of which nobody knows whether they took effect.
// Unsure is true where there may be some that nobody can name.
func outcomeFact(unknown, unsure bool, problem string) fact {
	switch {
	case !unknown && unsure:
		return fact{v1alpha1.ConditionOutcomeUnknown, metav1.ConditionUnknown, "OutcomesNotRecorded",
			"the journal does not say any more which calls were under way: ask the services behind the run's tools what they did for it, then delete the run"}
	case !unknown:
		return fact{v1alpha1.ConditionOutcomeUnknown, metav1.ConditionFalse, "OutcomesKnown", "no call has an unknown outcome"}
	}
	message := "nobody knows whether the calls in status.unknownEffects took effect; settle them in the annotation pawl.run/settle"
	if unsure {
		message += "; the journal does not say any more whether others were under way"
	}
	if problem != "" {
		message += "; " + problem
	}
	return fact{v1alpha1.ConditionOutcomeUnknown, metav1.ConditionTrue, v1alpha1.ReasonOutcomeUnknown, message}
}

func reconcilingFact(f Facts) fact {
	if end := f.State.Finished; end != nil {
		return fact{v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.Reason(end.Reason), "the run has ended"}
	}
	return fact{v1alpha1.ConditionReconciling, metav1.ConditionTrue, f.Waiting, waitingMessage(f)}
}

func stalledFact(f Facts) fact {
	end := f.State.Finished
	switch {
	case end == nil:
		return fact{v1alpha1.ConditionStalled, metav1.ConditionFalse, f.Waiting, "the run is open"}
	case end.Reason == string(v1alpha1.ReasonCompleted):
		return fact{v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonCompleted, "the run has completed"}
	default:
		return fact{v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.Reason(end.Reason), end.Message}
	}
}

// set gives the facts their times: a condition's transition time moves only with its
// status. Succeeded never leaves True or False.
func set(previous []metav1.Condition, f Facts, facts []fact) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(facts))
	for _, fact := range facts {
		condition := metav1.Condition{
			Type: fact.conditionType, Status: fact.status, Reason: string(fact.reason),
			Message: cut(fact.message, maxMessage), ObservedGeneration: f.Generation,
			LastTransitionTime: stamp(f.Now),
		}
		if old := find(previous, fact.conditionType); old != nil {
			if old.Type == v1alpha1.ConditionSucceeded && old.Status != metav1.ConditionUnknown {
				condition.Status, condition.Reason, condition.Message = old.Status, old.Reason, old.Message
			}
			if old.Status == condition.Status {
				condition.LastTransitionTime = old.LastTransitionTime
			}
		}
		out = append(out, condition)
	}
	return out
}

func find(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// cut bounds a text at a rune boundary.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
