package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// treeOfRuns is a run that has five below it, each of which has six.
const treeOfRuns = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: OpenAI, model: test-model, endpoint: MODELS, maxAttempts: 100, maxOutputTokens: 256, prices: {input: "3", output: "15"}}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers:
  - name: team
    agentRun:
      tools:
      - name: middle
        inputSchema: {type: object, required: [number], properties: {number: {type: integer}}}
        prompt: '"middle " + string(args.number)'
        template: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], humanInput: Disabled, limits: {maxTokens: 400000, maxCost: "8"}}
      - name: leaf
        inputSchema: {type: object, required: [id], properties: {id: {type: string}}}
        prompt: '"leaf " + args.id'
        template: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], humanInput: Disabled, limits: {maxTokens: 50000}}
  - {name: billing, http: {url: TOOLS/billing, tools: [{name: refund, inputSchema: {type: object, required: [order_id, amount], properties: {order_id: {type: string}, amount: {type: number}}}}]}}
  - {name: slow, http: {url: TOOLS/slow, tools: [{name: wait, inputSchema: {type: object, required: [seconds], properties: {seconds: {type: number}}}}]}}
  tools:
  - {match: ["team.*"], effect: Idempotent, execution: Parallel}
  - {match: ["billing.*"], effect: Idempotent, timeoutSeconds: 20}
  - {match: ["slow.*"], effect: ReadOnly, timeoutSeconds: 900}
  rules:
  - {name: everything, match: ["*"], action: Allow}
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: top, humanInput: Disabled, limits: {maxTokens: 2500000, maxCost: "40"}}
`

const (
	middles = 5
	leaves  = 6
)

// worth is what a leaf answers.
func worth(middle, leaf int) int { return 10*middle + leaf }

// treeModel plays every run of a tree: each adds up what those below it answer.
func treeModel(leafCall func(id string, worth int) fakemodel.Call) func(fakemodel.Request) fakemodel.Answer {
	return func(request fakemodel.Request) fakemodel.Answer {
		task, sum, answered := "", 0, false
		for _, m := range request.Messages {
			switch m.Role {
			case "user":
				task = m.Text
			case "tool":
				n, err := strconv.Atoi(m.Text)
				if err != nil {
					n = 0 // a refund's own result
				}
				sum, answered = sum+n, true
			}
		}
		kind, id, _ := strings.Cut(task, " ")
		middle, leaf, _ := strings.Cut(id, ".")
		m, _ := strconv.Atoi(middle)
		l, _ := strconv.Atoi(leaf)
		var calls []fakemodel.Call
		switch {
		case answered && kind == "leaf":
			sum = worth(m, l)
		case answered:
		case kind == "leaf":
			calls = append(calls, leafCall(id, worth(m, l)))
		case kind == "middle":
			for leaf := range leaves {
				calls = append(calls, fakemodel.Call{Name: "leaf", Arguments: fmt.Sprintf(`{"id":"%d.%d"}`, m, leaf+1)})
			}
		default:
			for middle := range middles {
				calls = append(calls, fakemodel.Call{Name: "middle", Arguments: fmt.Sprintf(`{"number":%d}`, middle+1)})
			}
		}
		if len(calls) > 0 {
			return fakemodel.Slow(fakemodel.Propose(calls...), 3*thinking)
		}
		return fakemodel.Slow(fakemodel.Text(strconv.Itoa(sum)), 3*thinking)
	}
}

// plantTree starts a tree.
func plantTree(ctx context.Context, name string, answer func(fakemodel.Request) fakemodel.Answer) *runs.World {
	GinkgoHelper()
	model, err := fakemodel.Start(fakemodel.Options{RequireOfferedCalls: true, Answer: answer})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(model.Close()).To(Succeed()) })
	DeferCleanup(func() { Expect(model.Refusals()).To(BeEmpty(), "every request repeats the ones before") })
	world := runs.New(ctx, env, name)
	world.Apply(ctx, treeOfRuns, "MODELS", model.Endpoint(fakemodel.Chat), "TOOLS", tools.URL)
	return world
}

// below lists the runs of a tree by the UID of the run above them.
func below(ctx context.Context, world *runs.World) map[string][]v1alpha1.AgentRun {
	GinkgoHelper()
	var list v1alpha1.AgentRunList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(world.Namespace))).To(Succeed())
	children := map[string][]v1alpha1.AgentRun{}
	for _, run := range list.Items {
		parent := run.Labels[v1alpha1.LabelParentUID]
		children[parent] = append(children[parent], run)
	}
	return children
}

// expectExact checks, from the leaves up, that each run is charged exactly what those below
// it have spent, and that nobody has spent more than it was given. It gives what the tree has
// spent, and how many runs it has.
func expectExact(ctx context.Context, world *runs.World, children map[string][]v1alpha1.AgentRun, run *v1alpha1.AgentRun) (spent journal.Spent, count int) {
	GinkgoHelper()
	_, state := world.Journal(ctx, run)
	count = 1
	for i := range children[string(run.UID)] {
		child, n := expectExact(ctx, world, children, &children[string(run.UID)][i])
		spent.Usage, spent.Cost, count = spent.Usage.Add(child.Usage), spent.Cost.Add(child.Cost), count+n
	}
	Expect(state.Children).To(Equal(spent), "charged to %s", run.Name)
	spent = journal.Spent{Usage: state.TotalUsage(), Cost: state.TotalCost()}
	Expect(run.Status.Usage.TotalTokens).To(Equal(spent.Usage.Total()), run.Name)
	Expect(run.Status.Usage.Cost).To(Equal(spent.Cost.String()), run.Name)
	Expect(spent.Usage.Total()).To(BeNumerically("<=", run.Spec.Limits.MaxTokens), run.Name)
	if limit := run.Spec.Limits.MaxCost; limit != "" {
		Expect(spent.Cost).To(BeNumerically("<=", journal.ParseCost(limit)), run.Name)
	}
	return spent, count
}

var _ = Describe("A tree of runs with thirty leaves", func() {
	It("has the same result, and exact budgets, whenever the operator is killed", func(ctx SpecContext) {
		seed := seed()
		AddReportEntry(fmt.Sprintf("PAWL_CRASH_SEED=%d", seed), ReportEntryVisibilityAlways)
		random := rand.New(rand.NewPCG(seed, 2))
		world := plantTree(ctx, "tree", treeModel(func(id string, worth int) fakemodel.Call {
			return fakemodel.Call{Name: "refund", Arguments: fmt.Sprintf(`{"order_id":"%s","amount":%d}`, id, worth)}
		}))
		begun, kills := time.Now(), 0
		const most = 12
		for ; kills < most && runs.Succeeded(world.Get(ctx, "run")).Status == "Unknown"; kills++ {
			time.Sleep(time.Duration(300+random.IntN(1200)) * time.Millisecond)
			env.KillOperator()
			Expect(env.StartOperator()).To(Succeed())
		}
		run := world.AwaitWithin(ctx, time.Minute, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("1005"))

		children := below(ctx, world)
		spent, count := expectExact(ctx, world, children, run)
		Expect(count).To(Equal(1 + middles + middles*leaves))
		Expect(children[""]).To(HaveLen(1))
		Expect(children[string(run.UID)]).To(HaveLen(middles))
		applied := map[string]int{}
		uids := map[string]bool{}
		for _, list := range children {
			for _, child := range list {
				Expect(runs.Succeeded(&child).Reason).To(BeEquivalentTo(v1alpha1.ReasonCompleted), child.Name)
				uids[string(child.UID)] = true
			}
		}
		for _, entry := range env.Tools.Ledger() {
			if uids[entry.RunUID] && entry.Applied {
				applied[string(entry.Arguments)]++
			}
		}
		Expect(applied).To(HaveLen(middles*leaves), "refunds")
		for order, times := range applied {
			Expect(times).To(Equal(1), order)
		}
		Eventually(ctx, func(g Gomega) {
			for parent, list := range below(ctx, world) {
				for _, child := range list {
					g.Expect(parent == "" || len(child.Finalizers) == 0).To(BeTrue(), "%s is held by %v", child.Name, child.Finalizers)
				}
			}
		}).WithTimeout(30 * time.Second).WithPolling(time.Second).Should(Succeed())
		AddReportEntry(fmt.Sprintf("%d kills in %s, %d runs, %d tokens, %s USD", kills, time.Since(begun).Round(time.Second), count, spent.Usage.Total(), spent.Cost), ReportEntryVisibilityAlways)
	}, NodeTimeout(3*time.Minute))

	It("ends within five seconds when its top is cancelled", func(ctx SpecContext) {
		world := plantTree(ctx, "cancelled-tree", treeModel(func(string, int) fakemodel.Call {
			return fakemodel.Call{Name: "wait", Arguments: `{"seconds":600}`}
		}))
		waiting := func() int {
			uids, n := map[string]bool{}, 0
			for _, list := range below(ctx, world) {
				for _, child := range list {
					uids[string(child.UID)] = true
				}
			}
			for _, entry := range env.Tools.Requests("slow.wait") {
				if uids[entry.RunUID] {
					n++
				}
			}
			return n
		}
		Eventually(ctx, waiting).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Equal(middles * leaves))
		cancelled := time.Now()
		world.SetState(ctx, "run", v1alpha1.StateCancelled)
		var took time.Duration
		Eventually(ctx, func(g Gomega) {
			for _, list := range below(ctx, world) {
				for _, child := range list {
					g.Expect(runs.Succeeded(&child).Reason).To(BeEquivalentTo(v1alpha1.ReasonCancelled), child.Name)
				}
			}
			took = time.Since(cancelled)
		}).WithTimeout(15 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
		AddReportEntry(fmt.Sprintf("%d runs ended within %s", 1+middles+middles*leaves, took.Round(time.Millisecond)), ReportEntryVisibilityAlways)
		Expect(took).To(BeNumerically("<", 5*time.Second))
		run := world.Get(ctx, "run")
		Expect(run.Status.UnknownEffects).To(BeEmpty())
		_, count := expectExact(ctx, world, below(ctx, world), run)
		Expect(count).To(Equal(1 + middles + middles*leaves))
	}, NodeTimeout(3*time.Minute))
})
