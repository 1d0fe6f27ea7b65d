package schema

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// changeable are the fields of a run's spec that people may change.
var changeable = []string{"state", "ttlSecondsAfterFinished"}

// stored creates an object under a name of its own.
func stored(ctx context.Context, object *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	object = object.DeepCopy()
	object.SetName("")
	object.SetGenerateName("stored-")
	Expect(strict.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, object))).To(Succeed()) })
	return object
}

// alternatives are objects that differ from a good one in one place each, by that place.
func alternatives(object *unstructured.Unstructured, at path) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	changed := func(value ...any) *unstructured.Unstructured {
		other := object.DeepCopy()
		at.set(other.Object, value...)
		return other
	}
	switch value := at.get(object.Object).(type) {
	case map[string]any:
		for name := range value {
			for place, other := range alternatives(object, at.to(name)) {
				found[place] = other
			}
		}
	case []any:
		for i := range value {
			for place, other := range alternatives(object, at.to(i)) {
				found[place] = other
			}
		}
		if len(value) > 1 {
			found[at.String()+" shortened"] = changed(value[1:])
		}
	case int64:
		found[at.String()] = changed(value + 1)
	case string:
		// Most strings are free; those that are not have these alternatives.
		switch other, known := map[string]string{"Enabled": "Disabled", "Disabled": "Enabled"}[value]; {
		case known:
			found[at.String()] = changed(other)
		default:
			found[at.String()] = changed(value + "x")
		}
	default:
		Fail(fmt.Sprintf("no alternative is known for %s: %v", at, value))
	}
	return found
}

// withoutOperator stops the operator for a container of specs, so that only they write.
func withoutOperator() {
	BeforeAll(func() {
		Expect(env.StopOperator()).To(Succeed())
		DeferCleanup(func() { Expect(env.StartOperator()).To(Succeed()) })
	})
}

var _ = Describe("A run's spec", Ordered, ContinueOnFailure, func() {
	withoutOperator()

	It("can't be changed in any place, output.schema included", func(ctx SpecContext) {
		run := stored(ctx, example("agentrun"))
		spec := definition("agentruns").Properties["spec"]
		places := 0
		for name, field := range spec.Properties {
			if slices.Contains(changeable, name) {
				continue
			}
			at := path{"spec", name}
			tries := alternatives(run, at)
			if !slices.Contains(spec.Required, name) && field.Default == nil {
				without := run.DeepCopy()
				at.set(without.Object)
				tries[at.String()+" removed"] = without
			}
			Expect(tries).NotTo(BeEmpty())
			for place, changed := range tries {
				err := strict.Update(ctx, changed, client.DryRunAll)
				Expect(err).To(MatchError(ContainSubstring(name+" is immutable: create a new AgentRun")), place)
				places++
			}
		}
		GinkgoWriter.Printf("%d changes were refused\n", places)
		Expect(places).To(BeNumerically(">", 25))
	})

	It("can't be given what it did not have", func(ctx SpecContext) {
		full := example("agentrun")
		short := parse("{apiVersion: pawl.run/v1alpha1, kind: AgentRun, metadata: {namespace: default}, spec: {modelRef: {name: m}, prompt: Go.}}")
		run := stored(ctx, short)
		for name := range definition("agentruns").Properties["spec"].Properties {
			at := path{"spec", name}
			changed := run.DeepCopy()
			at.set(changed.Object, at.get(full.Object))
			err := strict.Update(ctx, changed, client.DryRunAll)
			if slices.Contains(changeable, name) {
				Expect(err).NotTo(HaveOccurred())
				continue
			}
			Expect(err).To(MatchError(ContainSubstring(name + " is immutable: create a new AgentRun")))
		}
	})

	DescribeTable("holds no change inside output.schema back from the comparison", func(ctx SpecContext, at, value string) {
		run := stored(ctx, example("agentrun"))
		changed := run.DeepCopy()
		wrapped := parse(fmt.Sprintf("{apiVersion: v1, kind: Any, value: %s}", value))
		parsePath(at).set(changed.Object, wrapped.Object["value"])
		Expect(strict.Update(ctx, changed, client.DryRunAll)).To(MatchError(ContainSubstring("output is immutable")))
	},
		Entry("a number deep inside", "spec.output.schema.properties.refunded.maximum", "1000"),
		Entry("a member more", "spec.output.schema.title", "x"),
		Entry("a member more deep inside", "spec.output.schema.properties.refunded.minimum", "0"),
		Entry("another type of value", "spec.output.schema.required", "false"),
		Entry("a longer list", "spec.output.schema.required", "[refunded, order]"),
		Entry("nothing left", "spec.output.schema", "{}"),
	)

	It("lets people suspend, resume and cancel it, once and for all, and set its time to live", func(ctx SpecContext) {
		run := stored(ctx, example("agentrun"))
		set := func(state v1alpha1.DesiredState) error {
			return strict.Patch(ctx, run, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"state":%q}}`, state)))
		}
		Expect(set(v1alpha1.StateActive)).To(Succeed())
		Expect(set(v1alpha1.StateSuspended)).To(Succeed())
		Expect(set(v1alpha1.StateCancelled)).To(Succeed())
		for _, state := range []v1alpha1.DesiredState{v1alpha1.StateActive, v1alpha1.StateSuspended} {
			Expect(set(state)).To(MatchError(ContainSubstring("state Cancelled can't be taken back: create a new AgentRun")))
		}
		Expect(set(v1alpha1.StateCancelled)).To(Succeed())
		for _, ttl := range []string{"0", "null", "60", "30"} {
			Expect(strict.Patch(ctx, run, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"ttlSecondsAfterFinished":%s}}`, ttl)), client.DryRunAll)).To(Succeed())
		}
	})
})

var _ = Describe("A run's status", Ordered, ContinueOnFailure, func() {
	withoutOperator()

	var run *v1alpha1.AgentRun

	succeeded := func(status metav1.ConditionStatus, reason v1alpha1.Reason) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: status, Reason: string(reason), LastTransitionTime: metav1.NewTime(time.Unix(1790000000, 0))}
	}

	BeforeEach(func(ctx SpecContext) {
		object := stored(ctx, example("agentrun"))
		run = &v1alpha1.AgentRun{}
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(object), run)).To(Succeed())
		run.Status.Conditions = []metav1.Condition{succeeded(metav1.ConditionUnknown, v1alpha1.ReasonRunning)}
		run.Status.Journal = &v1alpha1.Journal{Events: 5, Segments: 1, Bytes: 100, Head: "sha256:a"}
		Expect(operator.Status().Update(ctx, run)).To(Succeed())
	})

	write := func(ctx context.Context, change func(*v1alpha1.AgentRunStatus)) error {
		changed := run.DeepCopy()
		change(&changed.Status)
		err := operator.Status().Update(ctx, changed)
		if err == nil {
			run = changed
		}
		return err
	}

	It("may end once", func(ctx SpecContext) {
		final := "the condition Succeeded is final once it is True or False"
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) {
			s.Conditions = []metav1.Condition{succeeded(metav1.ConditionUnknown, v1alpha1.ReasonSuspended)}
		})).To(Succeed())
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) {
			s.Conditions = []metav1.Condition{succeeded(metav1.ConditionFalse, v1alpha1.ReasonMaxTurns)}
		})).To(Succeed())
		for _, other := range [][]metav1.Condition{
			nil,
			{succeeded(metav1.ConditionTrue, v1alpha1.ReasonMaxTurns)},
			{succeeded(metav1.ConditionFalse, v1alpha1.ReasonCancelled)},
			{succeeded(metav1.ConditionUnknown, v1alpha1.ReasonRunning)},
		} {
			Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Conditions = other })).To(MatchError(ContainSubstring(final)))
		}
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { *s = v1alpha1.AgentRunStatus{} })).To(MatchError(ContainSubstring(final)))
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Conditions[0].Message = "said better" })).To(Succeed())
	})

	It("has one completion time", func(ctx SpecContext) {
		then := metav1.NewTime(time.Unix(1790000000, 0))
		later := metav1.NewTime(then.Add(time.Second))
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.CompletionTime = &then })).To(Succeed())
		for _, other := range []*metav1.Time{nil, &later} {
			Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.CompletionTime = other })).To(MatchError(ContainSubstring("status.completionTime is final")))
		}
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Turns = 3 })).To(Succeed())
	})

	It("has a journal that only grows", func(ctx SpecContext) {
		shrinks := MatchError(ContainSubstring("status.journal only grows"))
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Journal.Events = 4 })).To(shrinks)
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Journal = nil })).To(shrinks)
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { *s = v1alpha1.AgentRunStatus{} })).To(shrinks)
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Journal.Segments = 2 })).To(Succeed())
		Expect(write(ctx, func(s *v1alpha1.AgentRunStatus) { s.Journal.Events = 6 })).To(Succeed())
	})

	It("is nobody's but the operator's, and spec is not changed with it", func(ctx SpecContext) {
		changed := run.DeepCopy()
		changed.Status.Turns = 9
		Expect(env.Admin.Status().Update(ctx, changed)).To(MatchError(ContainSubstring("written by the operator alone")))
		changed = run.DeepCopy()
		changed.Spec.Prompt, changed.Status.Turns = "Something else.", 9
		Expect(operator.Status().Update(ctx, changed)).To(Succeed())
		Expect(changed.Spec.Prompt).To(Equal(run.Spec.Prompt))
	})
})
