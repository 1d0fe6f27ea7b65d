package integration

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// reactionTime is how soon a run whose model or read-only tool is at work has to end
// once it is cancelled.
const reactionTime = 2 * time.Second

// startChat starts a strict server of the Chat Completions protocol, which answers what
// it is told, and gives the part of a scenario that uses it.
func startChat(answers ...fakemodel.Answer) (*fakemodel.Server, string) {
	GinkgoHelper()
	server := must(fakemodel.Start(fakemodel.Options{}))
	DeferCleanup(server.Close)
	server.Enqueue(answers...)
	return server, fmt.Sprintf("model: {provider: OpenAI, model: test-model, endpoint: %q}\n", server.Endpoint(fakemodel.Chat))
}

// expectStrict checks that the server had nothing to complain about.
func expectStrict(server *fakemodel.Server) {
	GinkgoHelper()
	Expect(server.Refusals()).To(BeEmpty(), "what a strict provider complains about")
}

// describe runs kubectl describe, which shows a run's events.
func describe(ctx context.Context, key client.ObjectKey) func() (string, error) {
	return func() (string, error) {
		return env.Plane.Kubectl(ctx, "describe", "agentrun", key.Name, "--namespace", key.Namespace)
	}
}

const refundScript = `model: {script: [{toolCalls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]}, {finalExpression: 'results[0] == null ? "not refunded" : "refunded " + string(results[0].refunded)'}]}` + "\n"

const askForRefunds = `policy: {rules: [{name: refunds, match: ["billing.*"], action: Ask}, {name: others, match: ["*"], action: Allow}]}` + "\n"

var _ = Describe("People", Ordered, ContinueOnFailure, func() {
	var (
		w world
		// chat answers what it is told, mute nothing.
		chat, mute *fakemodel.Server
	)

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "people")
		for name, text := range map[string]string{
			"approve":           askingScenario,
			"stale":             askingScenario,
			"other":             askingScenario,
			"without-the-verb":  askingScenario,
			"suspended-pending": askingScenario,
			"tightened":         askingScenario,
			"lapse": refundScript + `
policy: {rules: [{name: refunds, match: ["billing.*"], action: Ask, approval: {timeoutSeconds: 1, onTimeout: ReturnToModel}}]}`,
			"denied-again": `
model:
  script:
  - toolCalls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]
  - toolCalls: [{tool: billing.refund, arguments: {amount: 250, order_id: order-1}}]
  - final: I give in.
` + askForRefunds,
			"batch": `
model:
  script:
  - toolCalls: [{tool: status.get}, {tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]
  - final: Done.
` + askForRefunds,
			"question": `{model: {script: [{question: "Which order?"}, {final: Thank you.}]}}`,
			"intent": `
model:
  script:
  - toolCalls: [{tool: request_approval, arguments: {text: "May I refund 250?", calls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]}}]
  - toolCalls: [{tool: billing.refund, arguments: {order_id: order-1, amount: 250}}]
  - toolCalls: [{tool: billing.refund, arguments: {order_id: order-2, amount: 250}}]
  - final: Done.
` + askForRefunds,
			"cancel-tool":       `{model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}]}}`,
			"cancel-pending":    askingScenario,
			"cancel-never-made": `{model: {script: [{final: Done.}]}, run: {state: Cancelled}}`,
			"ttl":               `{model: {script: [{final: Done.}]}, run: {ttlSecondsAfterFinished: 3}}`,
			"ttl-zero":          `{model: {script: [{final: Done., delayMilliseconds: 500}]}, run: {ttlSecondsAfterFinished: 0}}`,
			"no-ttl":            `{model: {script: [{final: Done.}]}}`,
			"delete":            askingScenario,
		} {
			w.start(ctx, name, text)
		}
		var model string
		chat, model = startChat(fakemodel.Propose(fakemodel.Call{Name: "refund", Arguments: `{"order_id":"order-1","amount":250}`}), fakemodel.Text("Then not."))
		w.start(ctx, "deny", model+askForRefunds)
		mute, model = startChat(fakemodel.Hang())
		w.start(ctx, "cancel-model", model)
	})

	Describe("approvals", func() {
		It("are given with kubectl and release exactly what was shown", func(ctx SpecContext) {
			key := w.key("approve")
			awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			digest := must(dana.kubectl(ctx, "get", "agentrun", key.Name, "--namespace", key.Namespace, "--output=jsonpath={.status.pending.digest}"))
			must(dana.kubectl(ctx, "annotate", "agentrun", key.Name, "--namespace", key.Namespace, v1alpha1.AnnotationApprove+"="+digest))
			run := awaitCompleted(ctx, key)
			Expect(run.Status.Result.Text).To(Equal("refunded 250"))
			Expect(run.Status.Pending).To(BeNil())
			Expect(applied(requests(run, "billing.refund"))).To(Equal(1))
			records, _ := journalOf(ctx, run)
			Expect(by(records, journal.TypeApprovalGranted)).To(Equal([]string{"dana"}))
			Eventually(ctx, describe(ctx, key)).Should(And(ContainSubstring("waiting for approval of "+digest), ContainSubstring("approved by dana"), ContainSubstring("the model gave an answer")))
		})

		It("cover a whole batch: nothing of it runs before", func(ctx SpecContext) {
			key := w.key("batch")
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			Expect(run.Status.Pending.Calls).To(HaveLen(2), "the calls that need no approval are shown too")
			Expect(requests(run, "")).To(BeEmpty())
			approve(ctx, key)
			Expect(requests(awaitCompleted(ctx, key), "")).To(HaveLen(2))
		})

		It("can be denied, and the model reads why", func(ctx SpecContext) {
			key := w.key("deny")
			deny(ctx, key, "the customer was refunded last week")
			run := awaitCompleted(ctx, key)
			Expect(run.Status.Result.Text).To(Equal("Then not."))
			Expect(requests(run, "")).To(BeEmpty())
			Expect(chat.Requests()).To(HaveLen(2))
			Expect(chat.Requests()[1].Last().Text).To(And(ContainSubstring(`"class":"denied"`), ContainSubstring("the customer was refunded last week")))
			expectStrict(chat)
			records, _ := journalOf(ctx, run)
			Expect(by(records, journal.TypeApprovalDenied)).To(Equal([]string{"dana"}))
		})

		It("are not asked for a second time when a person has denied the same call", func(ctx SpecContext) {
			key := w.key("denied-again")
			deny(ctx, key, "")
			run := awaitCompleted(ctx, key)
			records, state := journalOf(ctx, run)
			Expect(events[journal.ApprovalRequested](records)).To(HaveLen(1))
			Expect(results(state, 2)[0].Class).To(Equal("denied"))
			Expect(requests(run, "")).To(BeEmpty())
		})

		It("that name anything but what is pending do nothing, and the run says so", func(ctx SpecContext) {
			key := w.key("stale")
			awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			other := awaitOpen(ctx, w.key("other"), v1alpha1.ReasonApprovalRequired)
			for _, digest := range []string{"sha256:" + strings.Repeat("0", 64), other.Status.Pending.Digest} {
				Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationApprove: digest})).To(Succeed())
				Eventually(ctx, func() string { return condition(get(ctx, key), v1alpha1.ConditionApprovalRequired).Message }).
					Should(ContainSubstring("the annotation pawl.run/approve does not name what is pending"))
				Consistently(ctx, func() string { return condition(get(ctx, key), v1alpha1.ConditionSucceeded).Reason }).
					Should(Equal(string(v1alpha1.ReasonApprovalRequired)))
			}
			Eventually(ctx, describe(ctx, key)).Should(ContainSubstring("VerdictIgnored"))
			Expect(requests(get(ctx, key), "")).To(BeEmpty())
			run := approve(ctx, key)
			Expect(applied(requests(awaitCompleted(ctx, key), "billing.refund"))).To(Equal(1))
			Expect(run.UID).NotTo(Equal(other.UID))
		})

		It("are refused by admission from who lacks the verb", func(ctx SpecContext) {
			key := w.key("without-the-verb")
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			for _, annotation := range []string{v1alpha1.AnnotationApprove, v1alpha1.AnnotationDeny} {
				_, err := erin.kubectl(ctx, "annotate", "agentrun", key.Name, "--namespace", key.Namespace, annotation+"="+run.Status.Pending.Digest)
				Expect(err).To(MatchError(ContainSubstring(`needs the verb "approve" on agentruns`)))
			}
			_, err := erin.kubectl(ctx, "annotate", "agentrun", key.Name, "--namespace", key.Namespace, v1alpha1.AnnotationApproveBy+"=dana")
			Expect(err).To(MatchError(ContainSubstring("say who gave a verdict")))
			Expect(get(ctx, key).Status.Pending.Digest).To(Equal(run.Status.Pending.Digest))
		})

		It("lapse, and the model is told so where the rule says that", func(ctx SpecContext) {
			run := awaitCompleted(ctx, w.key("lapse"))
			Expect(run.Status.Result.Text).To(Equal("not refunded"))
			_, state := journalOf(ctx, run)
			Expect(results(state, 1)[0].Message).To(Equal("nobody approved it in time"))
			Expect(requests(run, "")).To(BeEmpty())
		})

		It("lapse in a suspended run too, without anybody waking it", func(ctx SpecContext) {
			key := w.start(ctx, "lapse-suspended", refundScript+`
policy: {rules: [{name: refunds, match: ["billing.*"], action: Ask, approval: {timeoutSeconds: 2}}]}`)
			awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			setState(ctx, key, v1alpha1.StateSuspended)
			awaitOpen(ctx, key, v1alpha1.ReasonSuspended)
			awaitEnd(ctx, key, v1alpha1.ReasonApprovalExpired)
		})

		It("do not loosen a rule that was made stricter meanwhile", func(ctx SpecContext) {
			key := w.key("tightened")
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			policy := &v1alpha1.ToolPolicy{}
			Expect(env.Admin.Get(ctx, key, policy)).To(Succeed())
			policy.Spec.Rules[0].Action, policy.Spec.Rules[0].Approval = v1alpha1.ActionDeny, nil
			Expect(env.Admin.Update(ctx, policy)).To(Succeed())
			Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationApprove: run.Status.Pending.Digest})).To(Succeed())
			run = awaitCompleted(ctx, key)
			Expect(run.Status.Result.Text).To(Equal("not refunded"))
			Expect(requests(run, "")).To(BeEmpty())
		})

		It("that the model asked for itself cover the same call, byte for byte, and no other", func(ctx SpecContext) {
			key := w.key("intent")
			run := approve(ctx, key)
			Expect(run.Status.Pending.Message).To(Equal("May I refund 250?"))
			Expect(run.Status.Pending.Calls[0].Tool).To(Equal("billing.refund"))
			Eventually(ctx, func() bool {
				run = get(ctx, key)
				return run.Status.Pending != nil && run.Status.Turns == 3
			}).Should(BeTrue(), "the third turn's call asks")
			Expect(run.Status.Pending.Calls[0].ArgumentsPreview).To(MatchJSON(`{"order_id": "order-2", "amount": 250}`))
			Expect(applied(requests(run, "billing.refund"))).To(Equal(1), "the second turn's call ran without asking again")
			approve(ctx, key)
			Expect(applied(requests(awaitCompleted(ctx, key), "billing.refund"))).To(Equal(2))
		})
	})

	Describe("questions", func() {
		It("are answered with kubectl", func(ctx SpecContext) {
			key := w.key("question")
			run := awaitOpen(ctx, key, v1alpha1.ReasonInputRequired)
			answer := func(id string) {
				must(dana.kubectl(ctx, "annotate", "--overwrite", "agentrun", key.Name, "--namespace", key.Namespace,
					v1alpha1.AnnotationAnswer+"="+jsonText(map[string]string{id: "order-4711"})))
			}
			answer("q-1-00000000")
			Eventually(ctx, func() string { return condition(get(ctx, key), v1alpha1.ConditionInputRequired).Message }).
				Should(ContainSubstring("the annotation pawl.run/answer does not name the question that waits"))
			answer(run.Status.Question.ID)
			run = awaitCompleted(ctx, key)
			records, state := journalOf(ctx, run)
			Expect(by(records, journal.TypeQuestionAnswered)).To(Equal([]string{"dana"}))
			Expect(string(results(state, 1)[0].Value)).To(Equal(`"order-4711"`))
			_, err := erin.kubectl(ctx, "annotate", "--overwrite", "agentrun", key.Name, "--namespace", key.Namespace, v1alpha1.AnnotationAnswer+"={}")
			Expect(err).To(MatchError(ContainSubstring(`needs the verb "answer"`)))
		})
	})

	Describe("suspension", func() {
		It("lets what is under way end, starts nothing new, and is lifted", func(ctx SpecContext) {
			key := w.start(ctx, "suspend", `
model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 1.5}}]}, {toolCalls: [{tool: counter.next}]}, {final: Done.}]}`)
			awaitRequests(ctx, key, "slow.wait", 1)
			must(erin.kubectl(ctx, "patch", "agentrun", key.Name, "--namespace", key.Namespace, "--type=merge", `--patch={"spec":{"state":"Suspended"}}`))
			run := awaitOpen(ctx, key, v1alpha1.ReasonSuspended)
			expectCurrent(run)
			Expect(requests(run, "slow.wait")).To(HaveLen(1))
			Expect(requests(run, "slow.wait")[0].Disconnected).To(BeFalse(), "a call under way is not cut off")
			Consistently(ctx, func() int { return len(requests(run, "")) }).Should(Equal(1))
			setState(ctx, key, v1alpha1.StateActive)
			run = awaitCompleted(ctx, key)
			Expect(requests(run, "counter.next")).To(HaveLen(1))
			records, _ := journalOf(ctx, run)
			Expect(events[journal.Suspended](records)).To(HaveLen(1))
			Expect(events[journal.Resumed](records)).To(HaveLen(1))
		})

		It("holds back what a person approves meanwhile", func(ctx SpecContext) {
			key := w.key("suspended-pending")
			awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			setState(ctx, key, v1alpha1.StateSuspended)
			run := awaitOpen(ctx, key, v1alpha1.ReasonSuspended)
			Expect(isTrue(run, v1alpha1.ConditionApprovalRequired)).To(BeTrue(), "what waits for approval stays visible")
			Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationApprove: run.Status.Pending.Digest})).To(Succeed())
			Eventually(ctx, func() bool { return get(ctx, key).Status.Pending == nil }).Should(BeTrue())
			Consistently(ctx, func() int { return len(requests(run, "")) }).Should(BeZero())
			setState(ctx, key, v1alpha1.StateActive)
			Expect(applied(requests(awaitCompleted(ctx, key), "billing.refund"))).To(Equal(1))
		})
	})

	Describe("cancellation", func() {
		cancel := func(ctx context.Context, key client.ObjectKey) *v1alpha1.AgentRun {
			GinkgoHelper()
			setState(ctx, key, v1alpha1.StateCancelled)
			return awaitWithin(ctx, reactionTime, key, v1alpha1.ReasonCancelled, metav1.ConditionFalse)
		}

		It("stops a tool at once", func(ctx SpecContext) {
			key := w.key("cancel-tool")
			awaitRequests(ctx, key, "slow.wait", 1)
			run := cancel(ctx, key)
			Eventually(ctx, func() bool { return requests(run, "slow.wait")[0].Disconnected }).WithTimeout(reactionTime).Should(BeTrue(), "the tool notices")
			_, state := journalOf(ctx, run)
			Expect(results(state, 1)[0].Class).To(Equal("transport"))
		})

		It("stops a model at once", func(ctx SpecContext) {
			key := w.key("cancel-model")
			awaitOpen(ctx, key, v1alpha1.ReasonRunning)
			Eventually(mute.Requests).Should(HaveLen(1))
			run := cancel(ctx, key)
			Eventually(mute.Left).WithTimeout(reactionTime).Should(Equal(1), "the provider notices")
			expectStrict(mute)
			Expect(run.Status.Turns).To(BeZero())
			Expect(run.Status.Usage.Estimated).To(BeTrue(), "a request that was cut off is charged")
		})

		It("takes back a request for approval", func(ctx SpecContext) {
			key := w.key("cancel-pending")
			pending := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired).Status.Pending
			run := cancel(ctx, key)
			Expect(run.Status.Pending).To(BeNil())
			Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationApprove: pending.Digest})).To(Succeed())
			Consistently(ctx, func() int { return len(requests(run, "")) }).Should(BeZero())
		})

		It("waits for the reply of a call that may have an effect, and starts nothing more", func(ctx SpecContext) {
			key := w.start(ctx, "cancel-effect", `
model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 1}}, {tool: counter.next}]}]}
policy: {tools: [{match: ["slow.*"], effect: NonIdempotent}]}`)
			awaitRequests(ctx, key, "slow.wait", 1)
			setState(ctx, key, v1alpha1.StateCancelled)
			run := awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
			_, state := journalOf(ctx, run)
			Expect(results(state, 1)[0].Class).To(Equal("ok"))
			Expect(results(state, 1)[1].Class).To(Equal("not_run"))
			Expect(requests(run, "counter.next")).To(BeEmpty())
			Expect(run.Status.UnknownEffects).To(BeEmpty())
		})

		It("ends a run that waits for something else than people", func(ctx SpecContext) {
			reasons := map[string]v1alpha1.Reason{
				"cancel-resolving": v1alpha1.ReasonPending, "cancel-unready": v1alpha1.ReasonConfigurationNotReady, "cancel-backoff": v1alpha1.ReasonModelUnavailable,
			}
			w.start(ctx, "cancel-resolving", `{policy: {servers: [{name: mute, mcp: {url: VOID}}]}, run: {modelRef: {name: approve}}}`)
			w.start(ctx, "cancel-unready", `{run: {modelRef: {name: no-such-model}}}`)
			w.start(ctx, "cancel-backoff", `{model: {maxAttempts: 100, script: [{error: {status: 529}}]}}`)
			for name, reason := range reasons {
				awaitOpen(ctx, w.key(name), reason)
				cancel(ctx, w.key(name))
			}
		})

		It("ends a run that never began", func(ctx SpecContext) {
			run := awaitEnd(ctx, w.key("cancel-never-made"), v1alpha1.ReasonCancelled)
			Expect(run.Status.StartTime).NotTo(BeNil())
		})

		It("can't be taken back", func(ctx SpecContext) {
			key := w.key("cancel-tool")
			awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
			_, err := erin.kubectl(ctx, "patch", "agentrun", key.Name, "--namespace", key.Namespace, "--type=merge", `--patch={"spec":{"state":"Active"}}`)
			Expect(err).To(MatchError(ContainSubstring("state Cancelled can't be taken back")))
		})
	})

	Describe("time to live", func() {
		It("deletes a finished run with its journal", func(ctx SpecContext) {
			for _, name := range []string{"ttl", "ttl-zero"} {
				Eventually(ctx, func() bool {
					return apierrors.IsNotFound(env.Admin.Get(ctx, w.key(name), &v1alpha1.AgentRun{}))
				}).Should(BeTrue(), name)
			}
			ended := watch.lastOf(w.key("ttl"))
			Expect(isTrue(ended, v1alpha1.ConditionFinished)).To(BeTrue())
			Expect(isTrue(watch.lastOf(w.key("ttl-zero")), v1alpha1.ConditionFinished)).To(BeTrue())
			Eventually(ctx, func() []string { return segmentsOf(ctx, ended) }).Should(BeEmpty(), "journal")
		})

		It("is endless unless it is set", func(ctx SpecContext) {
			awaitCompleted(ctx, w.key("no-ttl"))
			Consistently(ctx, func() error { return env.Admin.Get(ctx, w.key("no-ttl"), &v1alpha1.AgentRun{}) }).Should(Succeed())
		})
	})

	Describe("deletion", func() {
		It("takes the journal with it, and the name is free for a new run", func(ctx SpecContext) {
			key := w.key("delete")
			old := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			Expect(env.Admin.Delete(ctx, old)).To(Succeed())
			Eventually(ctx, func() []string { return segmentsOf(ctx, old) }).Should(BeEmpty(), "journal")
			w.createRun(ctx, key.Name, v1alpha1.AgentRunSpec{})
			run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
			Expect(run.Status.Pending.Digest).NotTo(Equal(old.Status.Pending.Digest), "an approval of the old run fits nothing in the new one")
			approve(ctx, key)
			awaitCompleted(ctx, key)
		})
	})
})
