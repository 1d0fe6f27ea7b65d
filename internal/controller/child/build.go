// Package child runs the calls of agentRun tools: it makes child runs of what a ToolPolicy
// declares, and reads what became of them.
package child

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	agentruntool "github.com/pawl-run/pawl/internal/tool/agentrun"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// Build makes the child of an order.
func Build(order agentruntool.Order) (*v1alpha1.AgentRun, error) {
	var template v1alpha1.AgentRunTemplate
	if err := json.Unmarshal(order.Template, &template); err != nil {
		return nil, &object.RefusedError{Text: "the tool's template can't be read"}
	}
	inherited := order.Inherited
	parent := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Name: order.Parent, UID: types.UID(order.ParentUID)}}
	annotations := map[string]string{
		v1alpha1.AnnotationCallID: order.CallID, v1alpha1.AnnotationEffectKey: order.EffectKey,
		v1alpha1.AnnotationParent: order.Parent, v1alpha1.AnnotationRoot: inherited.Root,
		v1alpha1.AnnotationDepth: strconv.Itoa(int(inherited.Depth)),
	}
	if inherited.CreatedBy != "" {
		annotations[v1alpha1.AnnotationCreatedBy] = inherited.CreatedBy
	}
	return &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: order.Namespace, Name: order.Name, Annotations: annotations,
			Labels: map[string]string{v1alpha1.LabelParentUID: order.ParentUID, v1alpha1.LabelRootUID: inherited.RootUID},
			// Its own finalizer is there from the beginning: whoever deletes it cancels it, and
			// it says what it has spent.
			Finalizers:      []string{v1alpha1.FinalizerEffects, v1alpha1.FinalizerParent},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, v1alpha1.GroupVersion.WithKind("AgentRun"))},
		},
		Spec: v1alpha1.AgentRunSpec{
			ModelRef: template.ModelRef, ToolPolicyRefs: template.ToolPolicyRefs,
			SystemPrompt: template.SystemPrompt, Prompt: order.Prompt,
			Limits:   within(template.Limits, order),
			Progress: template.Progress, Output: template.Output, Context: template.Context, HumanInput: template.HumanInput,
			TTLSecondsAfterFinished: template.TTLSecondsAfterFinished,
		},
	}, nil
}

// within lowers a template's limits to what was reserved. The template may have been changed
// since then.
func within(limits v1alpha1.Limits, order agentruntool.Order) v1alpha1.Limits {
	given := order.Inherited
	limits.MaxTokens = lower(limits.MaxTokens, given.Tokens)
	limits.ActiveDeadlineSeconds = lower(limits.ActiveDeadlineSeconds, given.ActiveSeconds)
	limits.DeadlineSeconds = lower(limits.DeadlineSeconds, given.DeadlineSeconds)
	if given.Cost != "" && (limits.MaxCost == "" || journal.ParseCost(given.Cost) < journal.ParseCost(limits.MaxCost)) {
		limits.MaxCost = given.Cost
	}
	return limits
}

// lower is the smaller of two limits; 0 is none.
func lower[N int32 | int64](declared, given N) N {
	if declared == 0 {
		return given
	}
	return min(declared, given)
}

// LineageOf reads where a run comes from, nil for one that is no child. Its error says what
// is wrong for good.
func LineageOf(run *v1alpha1.AgentRun) (*journal.Lineage, error) {
	text, isChild := run.Annotations[v1alpha1.AnnotationDepth]
	if !isChild && run.Labels[v1alpha1.LabelParentUID] == "" {
		return nil, nil
	}
	depth, err := strconv.ParseInt(text, 10, 32)
	lineage := &journal.Lineage{
		Parent: run.Annotations[v1alpha1.AnnotationParent], ParentUID: run.Labels[v1alpha1.LabelParentUID],
		Root: run.Annotations[v1alpha1.AnnotationRoot], RootUID: run.Labels[v1alpha1.LabelRootUID], Depth: int32(depth),
	}
	switch {
	case err != nil || depth < 2 || lineage.Parent == "" || lineage.ParentUID == "" || lineage.Root == "" || lineage.RootUID == "":
		return nil, fmt.Errorf("its labels and annotations do not say whose child it is: only the operator writes %s and the like", v1alpha1.AnnotationDepth)
	case depth > v1alpha1.MaxDepth:
		return nil, fmt.Errorf("it is on level %d, and runs are at most %d levels deep", depth, v1alpha1.MaxDepth)
	default:
		return lineage, nil
	}
}
