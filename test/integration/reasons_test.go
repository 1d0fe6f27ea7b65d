package integration

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/test/environment"
)

// reasonSpec is one way to one reason of the condition Succeeded.
type reasonSpec struct {
	state
	// way says which of several ways it is.
	way string
	// scenario is started before the specs; prepare comes first where it is set, and
	// may give another namespace.
	scenario string
	prepare  func(context.Context, world) world
	// late is true for a state that passes, so that the scenario is started by its spec.
	late bool
	// act does what has to be done beside waiting.
	act func(context.Context, client.ObjectKey)
	// check looks closer once the reason is there.
	check func(context.Context, *v1alpha1.AgentRun)
}

func (s reasonSpec) text() string {
	text := string(s.reason) + "Reason"
	if s.reason == v1alpha1.ReasonOutcomeUnknown {
		text += ", Succeeded=" + string(s.status)
	}
	if s.way != "" {
		text += ", by " + s.way
	}
	return text
}

func (s reasonSpec) name() string {
	text := strings.ToLower(string(s.reason) + "-" + string(s.status) + "-" + s.way)
	return strings.Trim(strings.ReplaceAll(text, " ", "-"), "-")
}

func open(reason v1alpha1.Reason) state   { return state{reason, metav1.ConditionUnknown} }
func failed(reason v1alpha1.Reason) state { return state{reason, metav1.ConditionFalse} }

// reasonSpecs reach every reason, each in every way that has code of its own.
var reasonSpecs = []reasonSpec{
	{
		state: open(v1alpha1.ReasonPending), late: true,
		prepare: func(ctx context.Context, w world) world {
			w.createModel(ctx, "ready", v1alpha1.ModelSpec{Script: []v1alpha1.ScriptStep{{Final: "Done."}}})
			model := &v1alpha1.Model{}
			Eventually(ctx, func(g Gomega) {
				g.Expect(env.Admin.Get(ctx, w.key("ready"), model)).To(Succeed())
				g.Expect(model.Status.Conditions).NotTo(BeEmpty())
			}).Should(Succeed())
			return w
		},
		// Its tool server takes its time to say what tools it has.
		scenario: `{policy: {servers: [{name: mute, mcp: {url: VOID}}]}, run: {modelRef: {name: ready}}}`,
	},
	{
		state:    open(v1alpha1.ReasonRunning),
		scenario: `{model: {script: [{final: Done., delayMilliseconds: 600000}]}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Owner.Worker).To(HavePrefix("worker-"))
		},
	},
	{
		state:    open(v1alpha1.ReasonApprovalRequired),
		scenario: askingScenario,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(isTrue(run, v1alpha1.ConditionApprovalRequired)).To(BeTrue())
			Expect(run.Status.Pending.Calls).To(HaveLen(1))
			Expect(run.Status.Pending.Calls[0].ArgumentsPreview).To(MatchJSON(`{"order_id": "order-1", "amount": 250}`))
			Expect(condition(run, v1alpha1.ConditionApprovalRequired).Message).To(ContainSubstring(run.Status.Pending.Digest))
			Expect(run.Status.Owner).To(BeNil(), "a run that waits for people holds no worker")
			Expect(requests(run, "")).To(BeEmpty())
		},
	},
	{
		state:    open(v1alpha1.ReasonInputRequired),
		scenario: `{model: {script: [{question: "Which order?"}, {final: Done.}]}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(isTrue(run, v1alpha1.ConditionInputRequired)).To(BeTrue())
			Expect(run.Status.Question.Text).To(Equal("Which order?"))
			Expect(run.Status.Question.ID).To(MatchRegexp(`^q-1-[0-9a-f]{8}$`))
		},
	},
	{
		state:    open(v1alpha1.ReasonWaitingForTool),
		scenario: `{model: {script: [{toolCalls: [{tool: slow.never}]}, {final: Done.}]}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Owner).To(BeNil(), "a run that waits for a service holds no worker")
		},
	},
	{
		state:    open(v1alpha1.ReasonOutcomeUnknown),
		scenario: `{model: {script: [{toolCalls: [{tool: fail.cut}]}, {final: Done.}]}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(isTrue(run, v1alpha1.ConditionOutcomeUnknown)).To(BeTrue())
			Expect(run.Status.UnknownEffects).To(HaveLen(1))
			Expect(run.Status.UnknownEffects[0].Tool).To(Equal("fail.cut"))
			Expect(requests(run, "fail.cut")).To(HaveLen(1), "a call of unknown outcome is not sent again")
		},
	},
	{
		state:    open(v1alpha1.ReasonModelUnavailable),
		scenario: `{model: {maxAttempts: 100, script: [{error: {status: 529}}]}}`,
	},
	{
		state:    open(v1alpha1.ReasonConfigurationNotReady),
		scenario: `{run: {modelRef: {name: latecomer}}}`,
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(Equal("Model latecomer does not exist"))
			world{run.Namespace}.createModel(ctx, "latecomer", v1alpha1.ModelSpec{Script: []v1alpha1.ScriptStep{{Final: "Here I am."}}})
			Expect(awaitCompleted(ctx, client.ObjectKeyFromObject(run)).Status.Result.Text).To(Equal("Here I am."))
		},
	},
	{
		state:    open(v1alpha1.ReasonSuspended),
		scenario: `{model: {script: [{final: Done.}]}, run: {state: Suspended}}`,
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Turns).To(BeZero())
			setState(ctx, client.ObjectKeyFromObject(run), v1alpha1.StateActive)
			awaitCompleted(ctx, client.ObjectKeyFromObject(run))
		},
	},
	{
		state:    state{v1alpha1.ReasonCompleted, metav1.ConditionTrue},
		scenario: `{model: {script: [{final: Done.}]}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Result.Text).To(Equal("Done."))
			Expect(run.Status.Result.Truncated).To(BeFalse())
			Expect(run.Status.Turns).To(BeEquivalentTo(1))
			Expect(run.Status.Usage.TotalTokens).To(BeNumerically(">", 0))
		},
	},
	{
		state: failed(v1alpha1.ReasonApprovalDenied),
		scenario: `
model: {script: [{toolCalls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]}, {final: Done.}]}
policy: {rules: [{name: refunds, match: ["billing.*"], action: Ask, approval: {onDeny: End}}]}`,
		act:   func(ctx context.Context, key client.ObjectKey) { deny(ctx, key, "not this one") },
		check: nothingWasSent,
	},
	{
		state: failed(v1alpha1.ReasonApprovalExpired),
		scenario: `
model: {script: [{toolCalls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]}, {final: Done.}]}
policy: {rules: [{name: refunds, match: ["billing.*"], action: Ask, approval: {timeoutSeconds: 1}}]}`,
		check: nothingWasSent,
	},
	{
		state: failed(v1alpha1.ReasonPolicyDenied),
		scenario: `
model: {script: [{toolCalls: [{tool: status.get}, {tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]}, {final: Done.}]}
policy: {rules: [{name: never, match: ["billing.*"], action: Deny, onDeny: End}, {name: reads, match: ["status.*"], action: Allow}]}`,
		check: nothingWasSent,
	},
	{
		state:    failed(v1alpha1.ReasonCancelled),
		scenario: `{model: {script: [{final: Done., delayMilliseconds: 600000}]}}`,
		act: func(ctx context.Context, key client.ObjectKey) {
			awaitOpen(ctx, key, v1alpha1.ReasonRunning)
			setState(ctx, key, v1alpha1.StateCancelled)
		},
	},
	{
		state: failed(v1alpha1.ReasonDeadlineExceeded), way: "deadlineSeconds",
		scenario: `{model: {script: [{question: "Anybody?"}]}, run: {limits: {deadlineSeconds: 2}}}`,
	},
	{
		state: failed(v1alpha1.ReasonDeadlineExceeded), way: "activeDeadlineSeconds",
		scenario: `{model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}]}, run: {limits: {activeDeadlineSeconds: 1}}}`,
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			Eventually(ctx, func() bool { return requests(run, "slow.wait")[0].Disconnected }).Should(BeTrue())
		},
	},
	{
		state:    failed(v1alpha1.ReasonMaxTurns),
		scenario: `{model: {script: [{toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {final: Too late.}]}, run: {limits: {maxTurns: 2}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Turns).To(BeEquivalentTo(2))
			Expect(requests(run, "counter.next")).To(HaveLen(2))
		},
	},
	{
		state:    failed(v1alpha1.ReasonToolBudgetExhausted),
		scenario: `{model: {script: [{toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}, {tool: counter.next}]}]}, run: {limits: {maxToolCalls: 2}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(requests(run, "counter.next")).To(HaveLen(1), "nothing of a batch that passes the limit runs")
		},
	},
	{
		state:    failed(v1alpha1.ReasonTokenBudgetExhausted),
		scenario: `{model: {script: [{final: Done.}]}, run: {limits: {maxTokens: 10}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Usage).To(BeNil(), "the limit is checked before a request")
		},
	},
	{
		state:    failed(v1alpha1.ReasonCostBudgetExhausted),
		scenario: `{model: {prices: {input: "0", output: "100000"}, script: [{toolCalls: [{tool: counter.next}]}, {final: Done.}]}, run: {limits: {maxCost: "0.1"}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Usage.Cost).To(MatchRegexp(`^[0-9]+(\.[0-9])?$`), "a tenth of a dollar a token")
			Expect(run.Status.Turns).To(BeEquivalentTo(1))
		},
	},
	{
		state: failed(v1alpha1.ReasonNoProgress), way: "repeating a plan",
		scenario: `
model: {script: [{toolCalls: [{tool: status.get}]}, {toolCalls: [{tool: status.get}]}, {toolCalls: [{tool: status.get}]}, {final: Done.}]}
run: {limits: {maxRepeatedPlans: 2}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(requests(run, "status.get")).To(HaveLen(2))
		},
	},
	{
		state: failed(v1alpha1.ReasonNoProgress), way: "failing in every turn",
		scenario: `
model: {script: [{toolCalls: [{tool: fail.not_found, arguments: {number: 1}}]}, {toolCalls: [{tool: fail.not_found, arguments: {number: 2}}]}, {final: Done.}]}
run: {limits: {maxConsecutiveFailures: 2}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Turns).To(BeEquivalentTo(2))
		},
	},
	{
		state: failed(v1alpha1.ReasonNoProgress), way: "a goal measure that stands still",
		scenario: `
model: {script: [{toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {final: Done.}]}
run: {progress: {expression: results.size(), maxUnchangedTurns: 2}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Turns).To(BeEquivalentTo(3), "the first turn sets the measure, two leave it unchanged")
		},
	},
	{
		state:    failed(v1alpha1.ReasonInvalidDecision),
		scenario: `{model: {script: [{raw: {choices: []}}, {toolCalls: [{tool: no.such}]}, {final: Done.}]}, run: {limits: {maxInvalidDecisions: 1}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(run.Status.Turns).To(BeEquivalentTo(2))
		},
	},
	{
		state: failed(v1alpha1.ReasonOutputInvalid),
		scenario: `
model: {script: [{final: No.}, {final: No.}, {final: "Yes."}]}
run: {limits: {maxInvalidDecisions: 1}, output: {validations: [{expression: "answer.startsWith('Yes')", message: Say yes.}]}}`,
	},
	{
		state: failed(v1alpha1.ReasonModelError), way: "a request that is refused",
		scenario: `{model: {script: [{error: {status: 400}}]}}`,
	},
	{
		state: failed(v1alpha1.ReasonModelError), way: "failing in every attempt",
		scenario: `{model: {maxAttempts: 1, script: [{error: {status: 500}}]}}`,
	},
	{
		state:    failed(v1alpha1.ReasonModelRefused),
		scenario: `{model: {script: [{raw: {choices: [{message: {role: assistant, content: null, refusal: I would rather not.}, finish_reason: stop}]}}]}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(condition(run, v1alpha1.ConditionSucceeded).Message).NotTo(ContainSubstring("rather not"), "conditions hold nothing that a model said")
		},
	},
	{
		state:    failed(v1alpha1.ReasonCannotContinue),
		scenario: `{model: {script: [{cannotContinue: There is no such order.}]}}`,
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			_, state := journalOf(ctx, run)
			Expect(state.Transcript[0].Decision.Text).To(Equal("There is no such order."))
		},
	},
	{
		state:    failed(v1alpha1.ReasonInputExpired),
		scenario: `{model: {script: [{question: "Anybody?"}]}, run: {limits: {inputTimeoutSeconds: 1}}}`,
	},
	{
		state: failed(v1alpha1.ReasonToolUnavailable),
		scenario: `
model: {script: [{toolCalls: [{tool: down.get}]}, {final: Done.}]}
policy:
  servers: [{name: down, http: {url: "http://127.0.0.1:1", tools: [{name: get, inputSchema: {type: object}}]}}]
  tools: [{match: ["down.*"], effect: ReadOnly, required: true, maxAttempts: 2}]`,
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			records, _ := journalOf(ctx, run)
			Expect(events[journal.CallDispatched](records)).To(HaveLen(2), "each attempt is announced")
		},
	},
	{
		state:    failed(v1alpha1.ReasonOutcomeUnknown),
		scenario: `{model: {script: [{toolCalls: [{tool: fail.cut}]}, {final: Done.}]}, run: {limits: {inputTimeoutSeconds: 1}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(isTrue(run, v1alpha1.ConditionOutcomeUnknown)).To(BeTrue())
			Expect(run.Status.UnknownEffects).To(HaveLen(1))
		},
	},
	{
		state:    failed(v1alpha1.ReasonContextOverflow),
		scenario: `{model: {script: [{raw: {error: {code: context_length_exceeded}}}]}}`,
	},
	{
		state: failed(v1alpha1.ReasonCheckpointFailed), way: "a segment that was deleted",
		scenario: askingScenario,
		act: func(ctx context.Context, key client.ObjectKey) {
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			Expect(env.Admin.Delete(ctx, segment(ctx, run))).To(Succeed())
			approve(ctx, key)
		},
		check: nothingWasSent,
	},
	{
		state: failed(v1alpha1.ReasonCheckpointFailed), way: "a segment that was edited",
		scenario: askingScenario,
		act: func(ctx context.Context, key client.ObjectKey) {
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			forged := segment(ctx, run)
			Expect(env.Admin.Delete(ctx, forged)).To(Succeed())
			for name, event := range forged.Data {
				forged.Data[name] = strings.ReplaceAll(event, `\"amount\":250`, `\"amount\":99999`)
			}
			forged.ResourceVersion, forged.UID = "", ""
			// Admission lets nobody else write it, so that only who has the operator's
			// own account, or etcd, gets this far.
			account := must(env.Plane.ServiceAccountConfig(ctx, environment.Namespace, environment.Account))
			Expect(must(client.New(account, client.Options{})).Create(ctx, forged)).To(Succeed())
			approve(ctx, key)
		},
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			nothingWasSent(ctx, run)
			Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(ContainSubstring(store.SegmentName(string(run.UID), 1)), "the place is named")
		},
	},
	{
		state: failed(v1alpha1.ReasonCheckpointFailed), way: "a quota that refuses the journal",
		prepare: func(ctx context.Context, _ world) world {
			w := newWorld(ctx, "quota")
			allowConfigMaps(ctx, w, 1)
			return w
		},
		scenario: `{model: {script: [{toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {final: Done.}]}}`,
		check: func(ctx context.Context, run *v1alpha1.AgentRun) {
			records, _ := journalOf(ctx, run)
			Expect(requests(run, "counter.next")).To(HaveLen(len(events[journal.CallDispatched](records))), "nothing is sent that the journal does not announce")
		},
	},
	{
		state: failed(v1alpha1.ReasonInvalidConfiguration), way: "an expression that does not compile",
		scenario: `{model: {script: [{final: Done.}]}, run: {output: {validations: [{expression: "answer.refunded <=", message: Refund less.}]}}}`,
		check: func(_ context.Context, run *v1alpha1.AgentRun) {
			Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(ContainSubstring("spec.output.validations[0].expression"))
		},
	},
	{
		state: failed(v1alpha1.ReasonInvalidConfiguration), way: "two policies with the same server",
		prepare: func(ctx context.Context, w world) world {
			w.createPolicy(ctx, "one", v1alpha1.ToolPolicySpec{})
			w.createPolicy(ctx, "another", v1alpha1.ToolPolicySpec{})
			return w
		},
		scenario: `{model: {script: [{final: Done.}]}, run: {toolPolicyRefs: [{name: one}, {name: another}]}}`,
	},
}

// askingScenario waits for approval of one refund.
const askingScenario = `
model: {script: [{toolCalls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]}, {finalExpression: 'results[0] == null ? "not refunded" : "refunded " + string(results[0].refunded)'}]}
policy: {rules: [{name: refunds, match: ["billing.*"], action: Ask, approval: {message: A large refund}}, {name: reads, match: ["status.*"], action: Allow}]}`

var _ = Describe("Reasons", Ordered, ContinueOnFailure, func() {
	var w world
	keys := map[string]client.ObjectKey{}

	start := func(ctx context.Context, s reasonSpec) {
		GinkgoHelper()
		at := w
		if s.prepare != nil {
			at = s.prepare(ctx, w)
		}
		keys[s.text()] = at.start(ctx, s.name(), s.scenario)
	}

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "reasons")
		for _, s := range reasonSpecs {
			if !s.late {
				start(ctx, s)
			}
		}
	})

	for _, s := range reasonSpecs {
		It(s.text(), func(ctx SpecContext) {
			if s.late {
				start(ctx, s)
			}
			key := keys[s.text()]
			if s.act != nil {
				s.act(ctx, key)
			}
			run := await(ctx, key, s.reason, s.status)
			expectCurrent(run)
			if s.check != nil {
				s.check(ctx, run)
			}
			if s.status != metav1.ConditionUnknown && s.reason != v1alpha1.ReasonCheckpointFailed {
				_, state := journalOf(ctx, run)
				Expect(state.Finished.Reason).To(Equal(string(s.reason)), "the ending in the journal")
			}
		})
	}

	It("has a spec for every reason that the API has", func() {
		reached := map[state]bool{}
		for _, s := range reasonSpecs {
			reached[s.state] = true
		}
		for _, info := range v1alpha1.AllReasons() {
			Expect(reached).To(HaveKey(state{info.Reason, info.Status}), "no spec reaches %s with Succeeded=%s", info.Reason, info.Status)
		}
	})

	It("shows each of them so that kstatus understands it", func() {
		want := map[metav1.ConditionStatus]string{
			metav1.ConditionUnknown: "InProgress", metav1.ConditionTrue: "Current", metav1.ConditionFalse: "Failed",
		}
		for _, info := range v1alpha1.AllReasons() {
			run := watch.example(state{info.Reason, info.Status})
			Expect(run).NotTo(BeNil(), "no run was seen with %s and Succeeded=%s", info.Reason, info.Status)
			if run.Status.ObservedGeneration == run.Generation {
				Expect(kstatus(run)).To(Equal(want[info.Status]), "%s", info.Reason)
			}
		}
	})
})

func nothingWasSent(_ context.Context, run *v1alpha1.AgentRun) {
	Expect(requests(run, "")).To(BeEmpty(), "requests at the tool server")
}

// segment is the first segment of a run's journal.
func segment(ctx context.Context, run *v1alpha1.AgentRun) *corev1.ConfigMap {
	GinkgoHelper()
	found := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: run.Namespace, Name: store.SegmentName(string(run.UID), 1)}
	Expect(env.Admin.Get(ctx, key, found)).To(Succeed())
	return found
}

// allowConfigMaps lets a namespace have so many more ConfigMaps than the one with the
// cluster's certificate that every namespace gets.
func allowConfigMaps(ctx context.Context, w world, n int) {
	GinkgoHelper()
	Eventually(ctx, func() error { return env.Admin.Get(ctx, w.key("kube-root-ca.crt"), &corev1.ConfigMap{}) }).Should(Succeed())
	quota := &corev1.ResourceQuota{
		ObjectMeta: w.meta("configmaps"),
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse(fmt.Sprint(n + 1))}},
	}
	Expect(env.Admin.Create(ctx, quota)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
		g.Expect(quota.Status.Used).NotTo(BeEmpty())
	}).WithTimeout(20 * time.Second).Should(Succeed())
}
