package crash

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// gated is a run whose only batch, two calls that may be sent once, waits for a person.
const gated = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec:
  provider: Scripted
  script:
  - toolCalls: [{tool: counter.next, arguments: {n: 1}}, {tool: counter.next, arguments: {n: 2}}]
  - finalExpression: '"counted to " + string(results[1] == null ? 0 : int(results[1].value) - int(results[0].value) + 1)'
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: counter, http: {url: TOOLS/counter, tools: [{name: next, inputSchema: {type: object, properties: {n: {type: integer}}}}]}}]
  rules: [{name: ask, match: ["*"], action: Ask, approval: {message: 'May it count?'}}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Count.}
`

// restart kills the operator, lets something happen meanwhile, and starts it again.
func restart(meanwhile ...func()) {
	GinkgoHelper()
	env.KillOperator()
	for _, happens := range meanwhile {
		happens()
	}
	Expect(env.StartOperator()).To(Succeed())
}

func requestsOf(run *v1alpha1.AgentRun) []toolserver.Entry {
	var found []toolserver.Entry
	for _, entry := range env.Tools.Ledger() {
		if entry.RunUID == string(run.UID) {
			found = append(found, entry)
		}
	}
	return found
}

var _ = Describe("A run that waits for approval while the operator dies", func() {
	var world *runs.World

	// expectCounted checks the end: asked once, approved once, sent once each.
	expectCounted := func(ctx context.Context) {
		GinkgoHelper()
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("counted to 2"))
		Expect(requestsOf(run)).To(HaveLen(2))
		records, state := world.Journal(ctx, run)
		expectOnce(state, env.Tools.Ledger(), string(run.UID))
		Expect(runs.Events[journal.ApprovalRequested](records)).To(HaveLen(1))
		Expect(runs.Events[journal.ApprovalGranted](records)).To(HaveLen(1))
		Expect(runs.Events[journal.DecisionMade](records)).To(HaveLen(2))
	}

	BeforeEach(func(ctx SpecContext) {
		world = runs.New(ctx, env, "approval")
		world.Apply(ctx, gated, "TOOLS", tools.URL)
	})

	It("still waits for the same approval", func(ctx SpecContext) {
		before := world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
		restart()
		restart(func() { world.Annotate(ctx, "run", map[string]string{"example.com/touched": "yes"}) })
		after := world.Approve(ctx, "run")
		Expect(after.Status.Pending).To(Equal(before.Status.Pending))
		Expect(requestsOf(after)).To(BeEmpty())
		expectCounted(ctx)
	})

	It("goes on when it was approved meanwhile", func(ctx SpecContext) {
		world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
		restart(func() { world.Approve(ctx, "run") })
		expectCounted(ctx)
	})

	It("sends nothing when it was denied meanwhile", func(ctx SpecContext) {
		run := world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
		restart(func() {
			world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationDeny: run.Status.Pending.Digest})
		})
		run = world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("counted to 0"))
		Expect(requestsOf(run)).To(BeEmpty())
	})

	// approveOnly approves a run that is suspended, so that nothing is sent yet, and
	// waits until the approval is in the journal.
	approveOnly := func(ctx context.Context) *v1alpha1.AgentRun {
		GinkgoHelper()
		run := world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
		world.SetState(ctx, "run", v1alpha1.StateSuspended)
		world.Await(ctx, "run", v1alpha1.ReasonSuspended)
		world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationApprove: run.Status.Pending.Digest})
		Eventually(ctx, func() int {
			records, _ := world.Journal(ctx, run)
			return len(runs.Events[journal.ApprovalGranted](records))
		}).WithTimeout(10 * time.Second).WithPolling(50 * time.Millisecond).Should(Equal(1))
		return run
	}

	It("needs no second approval when it dies between the first and the calls", func(ctx SpecContext) {
		run := approveOnly(ctx)
		restart(func() {
			Expect(requestsOf(run)).To(BeEmpty())
			world.SetState(ctx, "run", v1alpha1.StateActive)
		})
		expectCounted(ctx)
	})

	It("sends nothing when it dies there and the approval is taken back", func(ctx SpecContext) {
		run := approveOnly(ctx)
		restart(func() {
			world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationDeny: run.Status.Pending.Digest})
			world.SetState(ctx, "run", v1alpha1.StateActive)
		})
		run = world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("counted to 0"))
		Expect(requestsOf(run)).To(BeEmpty())
	})

	It("sends nothing when it dies there and the rule forbids it meanwhile", func(ctx SpecContext) {
		approveOnly(ctx)
		restart(func() {
			policy := &v1alpha1.ToolPolicy{}
			Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: world.Namespace, Name: "policy"}, policy)).To(Succeed())
			policy.Spec.Rules[0].Action, policy.Spec.Rules[0].Approval = v1alpha1.ActionDeny, nil
			Expect(env.Admin.Update(ctx, policy)).To(Succeed())
			world.SetState(ctx, "run", v1alpha1.StateActive)
		})
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("counted to 0"))
		Expect(requestsOf(run)).To(BeEmpty())
	})

	It("is cancelled when that was asked for meanwhile", func(ctx SpecContext) {
		world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
		restart(func() { world.SetState(ctx, "run", v1alpha1.StateCancelled) })
		run := world.Await(ctx, "run", v1alpha1.ReasonCancelled)
		Expect(requestsOf(run)).To(BeEmpty())
		world.Journal(ctx, run)
	})
})

// twin is a run of one call and an answer with the same names for every variant.
const twin = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model-VARIANT}
spec:
  provider: Scripted
  script:
  - toolCalls: [{tool: slow.wait, arguments: {seconds: SECONDS, n: 1}}]
  - final: VARIANT
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy-VARIANT}
spec:
  servers: [{name: slow, http: {url: TOOLS/slow, tools: [{name: wait, inputSchema: {type: object, properties: {seconds: {type: number}, n: {type: integer}}}}]}}]
  tools: [{match: ["slow.*"], effect: ReadOnly, timeoutSeconds: 3600}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: twin}
spec: {modelRef: {name: model-VARIANT}, toolPolicyRefs: [{name: policy-VARIANT}], prompt: Wait.}
`

var _ = Describe("A run that is deleted and created again under the same name", func() {
	DescribeTable("is a new one", func(ctx SpecContext, between func(exchange func())) {
		world := runs.New(ctx, env, "twins")
		world.Apply(ctx, twin, "VARIANT", "first", "SECONDS", "3600", "TOOLS", tools.URL)
		first := world.Get(ctx, "twin")
		Eventually(ctx, func() []toolserver.Entry { return requestsOf(first) }).WithTimeout(20 * time.Second).WithPolling(20 * time.Millisecond).Should(HaveLen(1))
		between(func() {
			Expect(env.Admin.Delete(ctx, first)).To(Succeed())
			world.Apply(ctx, twin, "VARIANT", "second", "SECONDS", "0", "TOOLS", tools.URL)
		})

		second := world.Await(ctx, "twin", v1alpha1.ReasonCompleted)
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(second.Status.Result.Text).To(Equal("second"))
		Expect(requestsOf(first)).To(HaveLen(1))
		Expect(requestsOf(second)).To(HaveLen(1))
		Expect(requestsOf(second)[0].Key).NotTo(Equal(requestsOf(first)[0].Key))
		_, state := world.Journal(ctx, second)
		Expect(state.Run.Model.Name).To(Equal("model-second"))
		expectOnce(state, env.Tools.Ledger(), string(second.UID))

		By("collecting the first one's journal")
		Eventually(ctx, func(g Gomega) {
			var list corev1.ConfigMapList
			g.Expect(env.Admin.List(ctx, &list, client.InNamespace(world.Namespace), client.HasLabels{v1alpha1.LabelRunUID})).To(Succeed())
			g.Expect(list.Items).NotTo(BeEmpty())
			for _, segment := range list.Items {
				g.Expect(segment.Labels).To(HaveKeyWithValue(v1alpha1.LabelRunUID, string(second.UID)), fmt.Sprint(segment.Name))
			}
		}).WithTimeout(20 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
	},
		Entry("while the operator is there", func(exchange func()) { exchange() }),
		Entry("while the operator is not there", func(exchange func()) { restart(exchange) }),
	)
})
