package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// delegating is a scenario whose call is a run of its own.
const delegating = `
model:
  prices: {input: "3", output: "15"}
  script: [{toolCalls: [{tool: team.research, arguments: {question: "how much is 20 + 22?"}}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0])'}]
policy:
  servers:
  - name: team
    agentRun:
      tools:
      - name: research
        inputSchema: {type: object, required: [question], properties: {question: {type: string}}}
        prompt: '"Find out: " + args.question'
        template: {modelRef: {name: researcher}, toolPolicyRefs: [{name: parent}], limits: {maxTokens: 50000, maxCost: "0.5"}, humanInput: Enabled}
  tools: [{match: ["team.*"], effect: Idempotent}]
run: {limits: {maxCost: "1"}}
`

// researcher is the Model of the children.
func (w world) researcher(ctx context.Context, script string) {
	GinkgoHelper()
	var s scenario
	decode(`model: {prices: {input: "3", output: "15"}, script: [`+script+`]}`, &s)
	w.createModel(ctx, "researcher", s.Model)
}

// child waits for the only child of a run.
func (w world) child(ctx context.Context, parent client.ObjectKey) *v1alpha1.AgentRun {
	GinkgoHelper()
	var found []v1alpha1.AgentRun
	Eventually(func() []v1alpha1.AgentRun { found = w.children(ctx, parent); return found }).Should(HaveLen(1))
	touched.add(client.ObjectKeyFromObject(&found[0]))
	return &found[0]
}

func (w world) children(ctx context.Context, parent client.ObjectKey) []v1alpha1.AgentRun {
	GinkgoHelper()
	var list v1alpha1.AgentRunList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{v1alpha1.LabelParentUID: string(get(ctx, parent).UID)})).To(Succeed())
	return list.Items
}

var _ = Describe("A call that is a run", func() {
	It("has the child's answer as its result, and charges the parent what the child spent", func(ctx SpecContext) {
		w := newWorld(ctx, "children")
		w.researcher(ctx, `{toolCalls: [{tool: calc.add, arguments: {a: 20, b: 22}}]}, {finalExpression: '"It is " + string(results[0]) + "."'}`)
		key := w.start(ctx, "parent", delegating)
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("It is 42."))

		child := w.child(ctx, key)
		_, state := journalOf(ctx, run)
		call := state.Transcript[0].Calls[0]
		Expect(child.Name).To(Equal(call.Call.EffectKey))
		Expect(metav1.IsControlledBy(child, run)).To(BeTrue())
		Expect(child.Annotations).To(And(
			HaveKeyWithValue(v1alpha1.AnnotationDepth, "2"), HaveKeyWithValue(v1alpha1.AnnotationParent, "parent"),
			HaveKeyWithValue(v1alpha1.AnnotationRoot, "parent"), HaveKeyWithValue(v1alpha1.AnnotationEffectKey, call.Call.EffectKey),
			HaveKeyWithValue(v1alpha1.AnnotationCreatedBy, run.Annotations[v1alpha1.AnnotationCreatedBy]),
		))
		Expect(child.Spec.Prompt).To(Equal("Find out: how much is 20 + 22?"))
		Expect(child.Spec.Limits.MaxTokens).To(BeEquivalentTo(50000))
		Expect(child.Spec.Limits.MaxCost).To(Equal("0.5"))
		Expect(child.Spec.Limits.ActiveDeadlineSeconds).To(BeNumerically("<=", 900))

		_, of := journalOf(ctx, child)
		Expect(call.Last.Spent).To(Equal(&journal.Spent{Usage: of.Usage, Cost: of.TotalCost()}))
		Expect(of.TotalCost()).To(BeNumerically(">", 0))
		Expect(run.Status.Usage.TotalTokens).To(Equal(state.Usage.Total() + of.Usage.Total()))
		Expect(run.Status.Usage.Cost).To(Equal(state.TotalCost().String()))
		Eventually(func() []string { return get(ctx, client.ObjectKeyFromObject(child)).Finalizers }).Should(BeEmpty(), "nobody needs it any more")
		Expect(of.Run.CreatedBy).To(Equal(state.Run.CreatedBy))
	})

	It("fails with the reason of a child that does not complete", func(ctx SpecContext) {
		w := newWorld(ctx, "failing")
		w.researcher(ctx, `{cannotContinue: "there is no library here"}`)
		key := w.start(ctx, "parent", delegating)
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("nothing"))
		completed := outcome(ctx, run)
		Expect(completed.Class).To(Equal("tool_error"))
		Expect(completed.Value).To(MatchJSON(`{"reason": "CannotContinue", "message": "the model said that it can't go on; its words are in the journal", "words": "there is no library here"}`))
		Expect(completed.Spent.Usage.Total()).To(BeNumerically(">", 0))
	})

	It("goes no deeper than three levels", func(ctx SpecContext) {
		w := newWorld(ctx, "deep")
		// Each run has a run below it do the same.
		w.researcher(ctx, `{toolCalls: [{tool: team.research, arguments: {question: deeper}}]}, {finalExpression: '"[" + (results[0] == null ? "no further" : string(results[0])) + "]"'}`)
		key := w.start(ctx, "parent", delegating)
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("[[no further]]"))
		child := w.child(ctx, key)
		grandchild := w.child(ctx, client.ObjectKeyFromObject(child))
		Expect(grandchild.Annotations).To(And(HaveKeyWithValue(v1alpha1.AnnotationDepth, "3"), HaveKeyWithValue(v1alpha1.AnnotationRoot, "parent"), HaveKeyWithValue(v1alpha1.AnnotationParent, child.Name)))
		Expect(w.children(ctx, client.ObjectKeyFromObject(grandchild))).To(BeEmpty())
		refused := outcome(ctx, grandchild)
		Expect(refused.Class).To(Equal("denied"))
		Expect(refused.Message).To(ContainSubstring("at most 3 levels deep"))
	})

	It("does without a tool whose prompt can't be used, and with all others", func(ctx SpecContext) {
		w := newWorld(ctx, "quarantined")
		var s scenario
		decode(delegating, &s)
		s.Policy.Servers[0].AgentRun.Tools = append(s.Policy.Servers[0].AgentRun.Tools, *s.Policy.Servers[0].AgentRun.Tools[0].DeepCopy())
		s.Policy.Servers[0].AgentRun.Tools[1].Name, s.Policy.Servers[0].AgentRun.Tools[1].Prompt = "broken", "1 + 1"
		w.createPolicy(ctx, "parent", s.Policy)
		policy := &v1alpha1.ToolPolicy{}
		Eventually(func() []v1alpha1.QuarantinedTool {
			Expect(env.Admin.Get(ctx, w.key("parent"), policy)).To(Succeed())
			return policy.Status.Quarantined
		}).Should(Equal([]v1alpha1.QuarantinedTool{{Name: "team.broken", Reason: "prompt: the expression gives int: it must give a string"}}))
		Expect(policy.Status.Conditions[0].Status).To(Equal(metav1.ConditionTrue))
		w.researcher(ctx, `{final: Done.}`)
		w.createModel(ctx, "parent", s.Model)
		w.createRun(ctx, "parent", s.Run)
		run := awaitCompleted(ctx, w.key("parent"))
		_, state := journalOf(ctx, run)
		var names []string
		for _, t := range state.Run.Tools {
			names = append(names, t.Name)
		}
		Expect(names).To(And(ContainElement("team.research"), Not(ContainElement("team.broken"))))
	})
})
