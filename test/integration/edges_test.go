package integration

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/test/fakemodel"
)

var _ = Describe("Runs", Ordered, ContinueOnFailure, func() {
	var (
		w      world
		locked *fakemodel.Server
	)
	longAnswer := strings.Repeat("pawl ", 2000)
	longName := strings.Repeat("long-name.", 25) + "end"
	const batchSize = 64

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "runs")
		for name, text := range map[string]string{
			"long-answer":     `{model: {script: [{final: "` + longAnswer + `"}]}}`,
			longName:          `{model: {script: [{toolCalls: [{tool: counter.next}]}, {final: Done.}]}}`,
			"large-batch":     `{model: {script: [{toolCalls: [` + strings.Repeat("{tool: status.get}, ", batchSize-1) + `{tool: status.get}]}, {final: Done.}]}, run: {limits: {maxToolCalls: 64}}}`,
			"nobody-to-ask":   `{model: {script: [{question: "Anybody?"}, {final: Then without.}]}, run: {humanInput: Disabled}}`,
			"patient":         strings.TrimSpace(askingScenario) + "\nrun: {limits: {activeDeadlineSeconds: 1}}",
			"both-verdicts":   askingScenario,
			"cancel-approved": askingScenario,
			"model-goes":      askingScenario,
			"policy-goes":     askingScenario,
			"ended":           `{model: {script: [{final: Done.}]}}`,
			"ttl-later":       `{model: {script: [{final: Done.}]}}`,
		} {
			w.start(ctx, name, text)
		}
		locked = must(fakemodel.Start(fakemodel.Options{Key: "sk-right"}))
		DeferCleanup(locked.Close)
		locked.Enqueue(fakemodel.Text("Open."))
		w.start(ctx, "secret", fmt.Sprintf("model: {provider: OpenAI, model: test-model, endpoint: %q, credentialsSecretRef: {name: key, key: value}}", locked.Endpoint(fakemodel.Chat)))
	})

	It("keep a long answer whole in the journal and its beginning in status", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("long-answer"))
		Expect(run.Status.Result.Truncated).To(BeTrue())
		Expect(len(run.Status.Result.Text)).To(BeNumerically("<=", 4096))
		Expect(longAnswer).To(HavePrefix(run.Status.Result.Text))
		Expect(run.Status.Result.Digest).To(Equal(strictjson.Digest([]byte(longAnswer))))
		_, state := journalOf(ctx, run)
		Expect(*state.Finished.Answer).To(Equal(longAnswer))
	})

	It("may have a name longer than a label", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key(longName))
		Expect(requests(run, "counter.next")[0].Run).To(Equal(run.Namespace + "/" + longName))
		Expect(segmentsOf(ctx, run)).NotTo(BeEmpty())
		Eventually(ctx, describe(ctx, w.key(longName))).Should(ContainSubstring("the model gave an answer"))
	})

	It("may have many calls at once", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("large-batch"))
		Expect(requests(run, "status.get")).To(HaveLen(batchSize))
		_, state := journalOf(ctx, run)
		Expect(results(state, 1)).To(HaveLen(batchSize))
	})

	It("without human input offer the model nobody to ask", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("nobody-to-ask"))
		Expect(run.Status.Turns).To(BeEquivalentTo(2))
		_, state := journalOf(ctx, run)
		Expect(results(state, 1)[0].Message).To(ContainSubstring(`there is no tool "ask"`))
	})

	It("do not count the time that people take as work", func(ctx SpecContext) {
		key := w.key("patient")
		awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
		Eventually(ctx, func() bool { return metav1.Now().Sub(get(ctx, key).Status.StartTime.Time).Seconds() > 2 }).Should(BeTrue())
		approve(ctx, key)
		awaitCompleted(ctx, key)
	})

	It("take a denial that comes with an approval for a denial", func(ctx SpecContext) {
		key := w.key("both-verdicts")
		digest := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired).Status.Pending.Digest
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationApprove: digest, v1alpha1.AnnotationDeny: digest})).To(Succeed())
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("not refunded"))
		Expect(requests(run, "")).To(BeEmpty())
	})

	It("take a cancellation that comes with an approval for a cancellation", func(ctx SpecContext) {
		key := w.key("cancel-approved")
		digest := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired).Status.Pending.Digest
		object := &v1alpha1.AgentRun{ObjectMeta: w.meta(key.Name)}
		Expect(env.Admin.Patch(ctx, object, mergePatch(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationApprove: digest}},
			"spec":     map[string]any{"state": v1alpha1.StateCancelled},
		}))).To(Succeed())
		Expect(requests(awaitEnd(ctx, key, v1alpha1.ReasonCancelled), "")).To(BeEmpty())
	})

	It("reach their deadline in their sleep", func(ctx SpecContext) {
		key := w.start(ctx, "asleep-pending", strings.TrimSpace(askingScenario)+"\nrun: {limits: {deadlineSeconds: 2}}")
		awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
		setState(ctx, key, v1alpha1.StateSuspended)
		awaitEnd(ctx, key, v1alpha1.ReasonDeadlineExceeded)
	})

	It("wait for a Model that is taken away, and go on when it is back", func(ctx SpecContext) {
		key := w.key("model-goes")
		awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
		model := &v1alpha1.Model{}
		Expect(env.Admin.Get(ctx, key, model)).To(Succeed())
		Expect(env.Admin.Delete(ctx, model)).To(Succeed())
		approve(ctx, key)
		run := awaitOpen(ctx, key, v1alpha1.ReasonConfigurationNotReady)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(Equal("Model model-goes does not exist"))
		Expect(applied(requests(run, "billing.refund"))).To(Equal(1))
		w.createModel(ctx, key.Name, model.Spec)
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("refunded 250"))
	})

	It("send nothing while their ToolPolicy is gone, whoever approved it", func(ctx SpecContext) {
		key := w.key("policy-goes")
		awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
		policy := &v1alpha1.ToolPolicy{}
		Expect(env.Admin.Get(ctx, key, policy)).To(Succeed())
		Expect(env.Admin.Delete(ctx, policy)).To(Succeed())
		approve(ctx, key)
		run := awaitOpen(ctx, key, v1alpha1.ReasonConfigurationNotReady)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(Equal("ToolPolicy policy-goes does not exist"))
		Expect(requests(run, "")).To(BeEmpty())
		Expect(env.Admin.Create(ctx, &v1alpha1.ToolPolicy{ObjectMeta: w.meta(key.Name), Spec: policy.Spec})).To(Succeed())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("refunded 250"))
	})

	It("wait for a Secret, name it, and never show what is in it", func(ctx SpecContext) {
		key := w.key("secret")
		run := awaitOpen(ctx, key, v1alpha1.ReasonConfigurationNotReady)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(Equal("Secret key does not exist"))
		secret := &corev1.Secret{ObjectMeta: w.meta("key"), StringData: map[string]string{"value": "sk-right"}}
		Expect(env.Admin.Create(ctx, secret)).To(Succeed())
		run = awaitCompleted(ctx, key)
		records, _ := journalOf(ctx, run)
		for _, record := range records {
			Expect(string(record.Bytes)).NotTo(ContainSubstring("sk-right"))
		}
		expectStrict(locked)
	})

	It("use a tool's Secret as it is when they call, and never show it", func(ctx SpecContext) {
		lock := newLock("k3y-one")
		key := w.start(ctx, "guarded", fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: vault.open}]}, {question: "Go on?"}, {toolCalls: [{tool: vault.open}]}, {finalExpression: 'string(results[0])'}]}
policy:
  servers: [{name: vault, http: {url: %q, headersFrom: [{name: X-Key, secretKeyRef: {name: vault, key: value}}], tools: [{name: open, inputSchema: {type: object}}]}}]
  tools: [{match: ["vault.*"], effect: ReadOnly, maxAttempts: 1}]`, lock.URL))
		run := awaitOpen(ctx, key, v1alpha1.ReasonConfigurationNotReady)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(Equal("Secret vault does not exist"))
		secret := &corev1.Secret{ObjectMeta: w.meta("vault"), StringData: map[string]string{"value": "k3y-one"}}
		Expect(env.Admin.Create(ctx, secret)).To(Succeed())
		question := awaitOpen(ctx, key, v1alpha1.ReasonInputRequired).Status.Question
		lock.change("k3y-two")
		secret.StringData = map[string]string{"value": "k3y-two"}
		Expect(env.Admin.Update(ctx, secret)).To(Succeed())
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationAnswer: jsonText(map[string]string{question.ID: "yes"})})).To(Succeed())
		run = awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("opened"))
		records, state := journalOf(ctx, run)
		Expect(results(state, 1)[0].Class).To(Equal("ok"))
		for _, record := range records {
			Expect(string(record.Bytes)).NotTo(ContainSubstring("k3y-"))
		}
	})

	It("wait for a ToolPolicy that does not compile, and go on when it does", func(ctx SpecContext) {
		key := w.start(ctx, "broken-policy", `
model: {script: [{toolCalls: [{tool: status.get}]}, {final: Done.}]}
policy: {rules: [{name: reads, match: ["status.*"], when: "args.amount <", action: Allow}]}`)
		run := awaitOpen(ctx, key, v1alpha1.ReasonConfigurationNotReady)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(HavePrefix("ToolPolicy broken-policy is not ready: "))
		policy := &v1alpha1.ToolPolicy{}
		Expect(env.Admin.Get(ctx, key, policy)).To(Succeed())
		Expect(env.Admin.Patch(ctx, policy, client.RawPatch("application/json-patch+json", []byte(`[{"op": "remove", "path": "/spec/rules/0/when"}]`)))).To(Succeed())
		Expect(requests(awaitCompleted(ctx, key), "status.get")).To(HaveLen(1))
	})

	It("are deleted when a time to live is set after their end", func(ctx SpecContext) {
		key := w.key("ttl-later")
		run := awaitCompleted(ctx, key)
		Expect(env.Admin.Patch(ctx, run, mergePatch(map[string]any{"spec": map[string]any{"ttlSecondsAfterFinished": 0}}))).To(Succeed())
		Eventually(ctx, func() bool { return apierrors.IsNotFound(env.Admin.Get(ctx, key, &v1alpha1.AgentRun{})) }).Should(BeTrue())
	})

	It("stay as they ended when their spec is changed afterwards", func(ctx SpecContext) {
		key := w.key("ended")
		awaitCompleted(ctx, key)
		setState(ctx, key, v1alpha1.StateCancelled)
		must(env.Plane.Kubectl(ctx, "wait", "agentrun/ended", "--namespace", w.namespace, "--for=condition=Finished", "--timeout=10s"))
		run := awaitCompleted(ctx, key)
		expectCurrent(run)
		_, state := journalOf(ctx, run)
		Expect(state.Finished.Reason).To(Equal(string(v1alpha1.ReasonCompleted)))
	})

	It("whose journal was refused stay ended when it no longer is", func(ctx SpecContext) {
		refused := newWorld(ctx, "refused")
		allowConfigMaps(ctx, refused, 0)
		key := refused.start(ctx, "run", `{model: {script: [{toolCalls: [{tool: counter.next}]}, {final: Done.}]}}`)
		awaitEnd(ctx, key, v1alpha1.ReasonCheckpointFailed)
		Expect(env.Admin.Delete(ctx, &corev1.ResourceQuota{ObjectMeta: refused.meta("configmaps")})).To(Succeed())
		setState(ctx, key, v1alpha1.StateSuspended)
		setState(ctx, key, v1alpha1.StateActive)
		Eventually(ctx, func() int64 { return get(ctx, key).Status.ObservedGeneration }).Should(BeEquivalentTo(3))
		run := awaitEnd(ctx, key, v1alpha1.ReasonCheckpointFailed)
		Consistently(ctx, func() int { return len(requests(run, "")) }).Should(BeZero())
		Expect(segmentsOf(ctx, run)).To(BeEmpty())
	})

	It("do not keep their namespace from going away", func(ctx SpecContext) {
		doomed := newWorld(ctx, "doomed")
		working := doomed.start(ctx, "working", `{model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}]}}`)
		waiting := doomed.start(ctx, "waiting", askingScenario)
		unsettled := doomed.start(ctx, "unsettled", `{model: {script: [{toolCalls: [{tool: fail.cut}]}]}}`)
		awaitRequests(ctx, working, "slow.wait", 1)
		run := get(ctx, working)
		awaitOpen(ctx, waiting, v1alpha1.ReasonApprovalRequired)
		awaitOpen(ctx, unsettled, v1alpha1.ReasonOutcomeUnknown)
		Expect(env.Admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed.namespace}})).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKey{Name: doomed.namespace}, &corev1.Namespace{}))
		}).Should(BeTrue())
		Eventually(ctx, func() bool { return requests(run, "slow.wait")[0].Disconnected }).Should(BeTrue(), "its calls are stopped")
	})
})

// Restarts stop the operator, so that no other container may have something under way.
var _ = Describe("Restarts", Ordered, func() {
	It("change nothing for runs that wait, and take up what people did meanwhile", func(ctx SpecContext) {
		w := newWorld(ctx, "restarts")
		approved, cancelled, answered := w.start(ctx, "approved", askingScenario), w.start(ctx, "cancelled", askingScenario), w.start(ctx, "answered", `{model: {script: [{question: "Which order?"}, {final: Done.}]}}`)
		working := w.start(ctx, "working", `{model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}, {final: Done.}]}}`)
		pending := awaitOpen(ctx, approved, v1alpha1.ReasonApprovalRequired)
		awaitOpen(ctx, cancelled, v1alpha1.ReasonApprovalRequired)
		question := awaitOpen(ctx, answered, v1alpha1.ReasonInputRequired).Status.Question
		awaitRequests(ctx, working, "slow.wait", 1)

		Expect(env.StopOperator()).To(Succeed())
		late := w.start(ctx, "late", `{model: {script: [{final: Done.}]}}`)
		Expect(dana.annotate(ctx, approved, map[string]string{v1alpha1.AnnotationApprove: pending.Status.Pending.Digest})).To(Succeed())
		Expect(dana.annotate(ctx, answered, map[string]string{v1alpha1.AnnotationAnswer: jsonText(map[string]string{question.ID: "order-1"})})).To(Succeed())
		setState(ctx, cancelled, v1alpha1.StateCancelled)
		setState(ctx, working, v1alpha1.StateCancelled)
		Expect(get(ctx, late).Status.Conditions).To(BeEmpty())
		Expect(env.StartOperator()).To(Succeed())

		Expect(applied(requests(awaitCompleted(ctx, approved), "billing.refund"))).To(Equal(1))
		awaitCompleted(ctx, answered)
		awaitCompleted(ctx, late)
		Expect(requests(awaitEnd(ctx, cancelled, v1alpha1.ReasonCancelled), "")).To(BeEmpty())
		run := awaitEnd(ctx, working, v1alpha1.ReasonCancelled)
		Expect(requests(run, "slow.wait")).To(HaveLen(1), "a cancelled run sends nothing again")
		records, _ := journalOf(ctx, run)
		Expect(events[journal.Claimed](records)).To(HaveLen(2))
	})

	It("charge for the request that was lost, and ask the model again", func(ctx SpecContext) {
		w := newWorld(ctx, "restarts")
		key := w.start(ctx, "asking", `{model: {script: [{final: Done., delayMilliseconds: 3000}]}}`)
		awaitOpen(ctx, key, v1alpha1.ReasonRunning)
		env.KillOperator()
		Expect(env.StartOperator()).To(Succeed())
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Usage.Estimated).To(BeTrue())
		Expect(run.Status.Turns).To(BeEquivalentTo(1))
	})
})
