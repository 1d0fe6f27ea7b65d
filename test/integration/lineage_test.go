package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// descent is a run, the run below it, and the run below that, which calls a tool.
type descent struct {
	world
	top, middle, bottom client.ObjectKey
}

// descend starts a tree of three levels whose lowest run makes the call.
func descend(ctx context.Context, name, call, rules, limits string) descent {
	GinkgoHelper()
	w := newWorld(ctx, name)
	for model, script := range map[string]string{
		"lower":  `{toolCalls: [{tool: team.bottom}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0])'}`,
		"lowest": call + `, {finalExpression: 'results[0] == null ? "nothing" : "done"'}`,
	} {
		var s scenario
		decode("model: {script: ["+script+"]}", &s)
		w.createModel(ctx, model, s.Model)
	}
	key := w.start(ctx, "top", fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: team.middle}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0])'}]}
policy:
  servers:
  - name: team
    agentRun:
      tools:
      - {name: middle, inputSchema: {type: object, properties: {}}, prompt: '"Go."', template: {modelRef: {name: lower}, toolPolicyRefs: [{name: top}]}}
      - {name: bottom, inputSchema: {type: object, properties: {}}, prompt: '"Go."', template: {modelRef: {name: lowest}, toolPolicyRefs: [{name: top}]}}
  tools: [{match: ["team.*"], effect: Idempotent}]
  rules: %s
run: {limits: %s}
`, rules, limits))
	d := descent{world: w, top: key}
	d.middle = client.ObjectKeyFromObject(w.child(ctx, d.top))
	d.bottom = client.ObjectKeyFromObject(w.child(ctx, d.middle))
	return d
}

func (d descent) all() []client.ObjectKey { return []client.ObjectKey{d.top, d.middle, d.bottom} }

const (
	allowAll  = `[{name: everything, match: ["*"], action: Allow}]`
	askRefund = `[{name: refunds, match: ["billing.*"], action: Ask}, {name: everything, match: ["*"], action: Allow}]`
	waitLong  = `{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}`
	refundOne = `{toolCalls: [{tool: billing.refund, arguments: {order_id: "1", amount: 5}}]}`
)

// expectSpentOnce checks that what each run has spent is what it and those below it have used.
func (d descent) expectSpentOnce(ctx context.Context) {
	GinkgoHelper()
	var sum int64
	for _, key := range []client.ObjectKey{d.bottom, d.middle, d.top} {
		run := get(ctx, key)
		_, state := journalOf(ctx, run)
		Expect(state.Children.Usage.Total()).To(Equal(sum), "charged to %s", key.Name)
		sum += state.Usage.Total()
		Expect(run.Status.Usage.TotalTokens).To(Equal(sum))
	}
}

var _ = Describe("A tree of runs", func() {
	It("ends as a whole, within five seconds, when its top is cancelled", func(ctx SpecContext) {
		d := descend(ctx, "cancelled-tree", waitLong, allowAll, "{}")
		awaitRequests(ctx, d.bottom, "slow.wait", 1)
		cancelled := time.Now()
		setState(ctx, d.top, v1alpha1.StateCancelled)
		for _, key := range d.all() {
			awaitWithin(ctx, 5*time.Second, key, v1alpha1.ReasonCancelled, metav1.ConditionFalse)
		}
		took := time.Since(cancelled)
		AddReportEntry(fmt.Sprintf("three levels ended within %s", took.Round(time.Millisecond)), ReportEntryVisibilityAlways)
		Expect(took).To(BeNumerically("<", 5*time.Second))
		Expect(get(ctx, d.top).Status.UnknownEffects).To(BeEmpty())
		Expect(condition(get(ctx, d.bottom), v1alpha1.ConditionSucceeded).Message).To(ContainSubstring("above this one"))
		d.expectSpentOnce(ctx)
	})

	It("is suspended and resumed with its top, and what somebody suspended below stays so", func(ctx SpecContext) {
		d := descend(ctx, "suspended-tree", refundOne, askRefund, "{}")
		awaitOpen(ctx, d.bottom, v1alpha1.ReasonApprovalRequired)
		setState(ctx, d.bottom, v1alpha1.StateSuspended)
		setState(ctx, d.top, v1alpha1.StateSuspended)
		for _, key := range d.all() {
			awaitOpen(ctx, key, v1alpha1.ReasonSuspended)
		}
		Expect(get(ctx, d.middle).Spec.State).To(Equal(v1alpha1.StateActive), "its own spec is left alone")
		Expect(condition(get(ctx, d.middle), v1alpha1.ConditionSucceeded).Message).To(Equal("the run top above this one is suspended"))
		Expect(dana.annotate(ctx, d.bottom, map[string]string{v1alpha1.AnnotationApprove: get(ctx, d.bottom).Status.Pending.Digest})).To(Succeed())
		Consistently(func() int { return len(requests(get(ctx, d.bottom), "")) }).Should(BeZero())
		setState(ctx, d.top, v1alpha1.StateActive)
		Eventually(func() string { return condition(get(ctx, d.middle), v1alpha1.ConditionSucceeded).Message }).Should(ContainSubstring("waits for people (Suspended)"))
		Expect(requests(get(ctx, d.bottom), "")).To(BeEmpty())
		setState(ctx, d.bottom, v1alpha1.StateActive)
		Expect(awaitCompleted(ctx, d.top).Status.Result.Text).To(Equal("done"))
	})

	It("shows at its top what waits for approval below, which nobody can approve there, and counts nobody's time", func(ctx SpecContext) {
		d := descend(ctx, "asking-tree", refundOne, askRefund, "{activeDeadlineSeconds: 4}")
		asking := awaitOpen(ctx, d.bottom, v1alpha1.ReasonApprovalRequired)
		for _, key := range []client.ObjectKey{d.middle, d.top} {
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			Expect(run.Status.Pending.Digest).To(BeEmpty())
			Expect(run.Status.Pending.ExpiresAt).To(Equal(asking.Status.Pending.ExpiresAt))
			Expect(run.Status.Pending.Children).To(HaveLen(1))
			child := run.Status.Pending.Children[0]
			Expect(child.Name).To(Equal(asking.Name))
			Expect(child.Digest).To(Equal(asking.Status.Pending.Digest))
			Expect(isTrue(run, v1alpha1.ConditionApprovalRequired)).To(BeTrue())
			Expect(run.Status.Owner).To(BeNil())
		}
		Expect(dana.annotate(ctx, d.top, map[string]string{v1alpha1.AnnotationApprove: asking.Status.Pending.Digest})).To(Succeed())
		Eventually(func() string { return condition(get(ctx, d.top), v1alpha1.ConditionSucceeded).Message }).Should(ContainSubstring("does not name what is pending"))
		// Longer than the top may work.
		Consistently(func() string { return condition(get(ctx, d.top), v1alpha1.ConditionSucceeded).Reason }).WithTimeout(5 * time.Second).Should(BeEquivalentTo(v1alpha1.ReasonApprovalRequired))
		Expect(requests(get(ctx, d.bottom), "")).To(BeEmpty())
		approve(ctx, d.bottom)
		run := awaitCompleted(ctx, d.top)
		Expect(run.Status.Result.Text).To(Equal("done"))
		Expect(run.Status.Pending).To(BeNil())
		d.expectSpentOnce(ctx)
	})

	It("shows at its top what is asked below", func(ctx SpecContext) {
		d := descend(ctx, "questioning-tree", `{question: "Which one?"}`, allowAll, "{}")
		asking := awaitOpen(ctx, d.bottom, v1alpha1.ReasonInputRequired)
		run := awaitOpen(ctx, d.top, v1alpha1.ReasonInputRequired)
		Expect(run.Status.Question).To(BeNil())
		Expect(run.Status.Pending.Children).To(HaveLen(1))
		Expect(run.Status.Pending.Children[0].Question).To(Equal(asking.Status.Question.ID))
		Expect(dana.annotate(ctx, d.bottom, map[string]string{v1alpha1.AnnotationAnswer: jsonText(map[string]string{asking.Status.Question.ID: "this"})})).To(Succeed())
		Expect(awaitCompleted(ctx, d.top).Status.Result.Text).To(Equal("done"))
	})

	It("is bounded by its top's time", func(ctx SpecContext) {
		d := descend(ctx, "late-tree", waitLong, allowAll, "{deadlineSeconds: 4}")
		Expect(get(ctx, d.bottom).Spec.Limits.DeadlineSeconds).To(BeNumerically("<=", 4))
		awaitEnd(ctx, d.bottom, v1alpha1.ReasonDeadlineExceeded)
		awaitCompleted(ctx, d.middle)
		Expect(awaitCompleted(ctx, d.top).Status.Result.Text).To(Equal("nothing"))
		d.expectSpentOnce(ctx)
	})

	It("goes on without a child that somebody deletes", func(ctx SpecContext) {
		d := descend(ctx, "bereft-tree", waitLong, allowAll, "{}")
		removeRun(ctx, d.bottom)
		Expect(awaitCompleted(ctx, d.top).Status.Result.Text).To(Equal("nothing"))
		completed := outcome(ctx, get(ctx, d.middle))
		Expect(completed.Class).To(Equal("tool_error"))
		Expect(string(completed.Value)).To(ContainSubstring(`"reason":"Cancelled"`))
		Expect(completed.Spent.Usage.Estimated).To(BeFalse(), "what it has spent is known")
		Eventually(func() bool { return apierrors.IsNotFound(env.Admin.Get(ctx, d.bottom, &v1alpha1.AgentRun{})) }).Should(BeTrue())
	})

	DescribeTable("is gone when its top is", func(ctx SpecContext, remove func(SpecContext, descent)) {
		d := descend(ctx, "removed-tree", waitLong, allowAll, "{}")
		awaitRequests(ctx, d.bottom, "slow.wait", 1)
		remove(ctx, d)
		for _, key := range d.all() {
			Eventually(func() bool { return apierrors.IsNotFound(env.Admin.Get(ctx, key, &v1alpha1.AgentRun{})) }).WithTimeout(time.Minute).Should(BeTrue(), key.Name)
		}
	},
		Entry("deleted", func(ctx SpecContext, d descent) { removeRun(ctx, d.top) }),
		Entry("deleted after all that it owns", func(ctx SpecContext, d descent) {
			Expect(env.Admin.Delete(ctx, get(ctx, d.top), client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		}),
		Entry("deleted alone, as an orphan's parent", func(ctx SpecContext, d descent) {
			Expect(env.Admin.Delete(ctx, get(ctx, d.top), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
			for _, key := range []client.ObjectKey{d.middle, d.bottom} {
				Eventually(func() *metav1.Time { return get(ctx, key).Status.CompletionTime }).WithTimeout(time.Minute).ShouldNot(BeNil(), "nobody wants its answer")
			}
			removeRun(ctx, d.middle)
		}),
		Entry("deleted with its namespace", func(ctx SpecContext, d descent) {
			space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}}
			Expect(env.Admin.Delete(ctx, space)).To(Succeed())
			Eventually(func() bool { return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(space), space)) }).WithTimeout(time.Minute).Should(BeTrue())
		}),
	)
})
