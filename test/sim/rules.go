package sim

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// defaultRun fills in what the definition of AgentRun has as defaults.
func defaultRun(run *v1alpha1.AgentRun) {
	l := &run.Spec.Limits
	fill(&l.MaxTurns, 15)
	fill(&l.MaxToolCalls, 40)
	fill(&l.MaxTokens, 200000)
	fill(&l.ActiveDeadlineSeconds, 900)
	fill(&l.DeadlineSeconds, 604800)
	fill(&l.MaxRepeatedPlans, 3)
	fill(&l.MaxConsecutiveFailures, 3)
	fill(&l.InputTimeoutSeconds, 86400)
	if l.MaxInvalidDecisions == nil {
		l.MaxInvalidDecisions = ptr.To[int32](2)
	}
	fill(&run.Spec.Context.MaxToolResultBytes, 16384)
	fill(&run.Spec.HumanInput, v1alpha1.HumanInputEnabled)
	fill(&run.Spec.State, v1alpha1.StateActive)
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func invalid(object client.Object, detail string) error {
	at := addressOf(object)
	problem := field.Forbidden(field.NewPath("metadata"), detail)
	return apierrors.NewInvalid(schema.GroupKind{Kind: string(at.kind)}, at.Name, field.ErrorList{problem})
}

// checkUpdate refuses what the real server refuses.
func checkUpdate(_ address, now, next client.Object) error {
	if now.GetDeletionTimestamp() != nil && !subset(next.GetFinalizers(), now.GetFinalizers()) {
		return invalid(next, "no new finalizers can be added if the object is being deleted")
	}
	switch next := next.(type) {
	case *corev1.ConfigMap:
		return checkMap(now.(*corev1.ConfigMap), next)
	case *v1alpha1.AgentRun:
		old := now.(*v1alpha1.AgentRun)
		next.Status = *old.Status.DeepCopy()
		if old.Spec.State == v1alpha1.StateCancelled && next.Spec.State != v1alpha1.StateCancelled {
			return invalid(next, "state Cancelled can't be taken back")
		}
		if !equality.Semantic.DeepEqual(old.Spec, next.Spec) {
			next.Generation++
		}
	case *v1alpha1.ToolPolicy:
		if !equality.Semantic.DeepEqual(now.(*v1alpha1.ToolPolicy).Spec, next.Spec) {
			next.Generation++
		}
	case *v1alpha1.Model:
		if !equality.Semantic.DeepEqual(now.(*v1alpha1.Model).Spec, next.Spec) {
			next.Generation++
			// Its controller looks at it at once.
			next.Status.Conditions[0].ObservedGeneration = next.Generation
		}
	}
	return nil
}

func checkMap(now, next *corev1.ConfigMap) error {
	if !ptr.Deref(now.Immutable, false) {
		return nil
	}
	same := len(now.BinaryData) == len(next.BinaryData) && maps.Equal(now.Data, next.Data)
	if !same || !ptr.Deref(next.Immutable, false) {
		return invalid(next, "field is immutable when `immutable` is set")
	}
	return nil
}

// checkStatus holds the rules of the definition: what is final stays, and the journal
// only grows.
func checkStatus(now, next *v1alpha1.AgentRun) error {
	if old := now.Status.CompletionTime; old != nil && !old.Equal(next.Status.CompletionTime) {
		return invalid(next, "status.completionTime is final")
	}
	before := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionSucceeded)
	after := meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ConditionSucceeded)
	if before != nil && before.Status != metav1.ConditionUnknown &&
		(after == nil || after.Status != before.Status || after.Reason != before.Reason) {
		return invalid(next, "the condition Succeeded is final once it is True or False")
	}
	old := now.Status.Journal
	if old != nil && (next.Status.Journal == nil || next.Status.Journal.Events < old.Events) {
		return invalid(next, "status.journal only grows")
	}
	return nil
}

func subset(some, of []string) bool {
	for _, one := range some {
		found := false
		for _, other := range of {
			found = found || one == other
		}
		if !found {
			return false
		}
	}
	return true
}
