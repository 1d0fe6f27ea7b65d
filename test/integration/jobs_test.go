package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// testingJob is a scenario whose one call is a Job.
const testingJob = `
model: {script: [{toolCalls: [{tool: ci.run, arguments: {branch: "höher \"1\""}}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0].passed)'}]}
policy:
  servers:
  - name: ci
    job:
      tools:
      - name: run
        inputSchema: {type: object, required: [branch], properties: {branch: {type: string}}}
        template: {spec: {containers: [{name: tests, image: "registry.invalid/tests:1"}, {name: beside, image: "registry.invalid/beside:1"}]}}
  tools: [{match: ["ci.*"], effect: EFFECT, timeoutSeconds: 600}]
`

// node plays the kubelet and the scheduler, of which there are none here.
type node struct{ world }

// jobs are the Jobs of the namespace.
func (n node) jobs(ctx context.Context) []batchv1.Job {
	GinkgoHelper()
	var list batchv1.JobList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(n.namespace))).To(Succeed())
	return list.Items
}

// job waits for the only Job.
func (n node) job(ctx context.Context) *batchv1.Job {
	GinkgoHelper()
	var found []batchv1.Job
	Eventually(func() []batchv1.Job { found = n.jobs(ctx); return found }).Should(HaveLen(1))
	return &found[0]
}

// pod waits for the only pod of the only Job.
func (n node) pod(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(n.namespace))).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
	}).Should(Succeed())
	return &list.Items[0]
}

// report writes what a kubelet says of the pod's first container.
func (n node) report(ctx context.Context, phase corev1.PodPhase, reason string, state corev1.ContainerState) {
	GinkgoHelper()
	pod := n.pod(ctx)
	pod.Status.Phase, pod.Status.Reason = phase, reason
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "beside", Image: "x"}, {Name: "tests", Image: "x", State: state}}
	Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
}

func terminated(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

// begin starts the scenario and waits until its Job has a pod.
func (n node) begin(ctx context.Context, effect string) client.ObjectKey {
	GinkgoHelper()
	key := n.start(ctx, "test", strings.ReplaceAll(testingJob, "EFFECT", effect))
	awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
	n.pod(ctx)
	return key
}

// outcome is what the journal says first of the only call.
func outcome(ctx context.Context, run *v1alpha1.AgentRun) journal.CallCompleted {
	GinkgoHelper()
	records, _ := journalOf(ctx, run)
	completed := events[journal.CallCompleted](records)
	Expect(completed).NotTo(BeEmpty())
	return completed[0]
}

var _ = Describe("A call that is a Job", func() {
	It("is one Job with the arguments in it, heard of when it ends, and gone when that is recorded", func(ctx SpecContext) {
		n := node{newWorld(ctx, "job")}
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.namespace}}
		Expect(env.Admin.Patch(ctx, space, mergePatch(map[string]any{"metadata": map[string]any{
			"labels": map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}))).To(Succeed())
		key := n.begin(ctx, "NonIdempotent")
		run := awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		Expect(run.Status.Owner).To(BeNil())
		job, pod := n.job(ctx), n.pod(ctx)
		_, state := journalOf(ctx, run)
		Expect(job.Name).To(Equal(state.OpenTurn().Calls[0].Call.EffectKey))
		Expect(metav1.IsControlledBy(job, run)).To(BeTrue())
		Expect(job.Labels).To(HaveKeyWithValue(v1alpha1.LabelRunUID, string(run.UID)))
		Expect(*job.Spec.BackoffLimit).To(BeZero())
		Expect(*job.Spec.ActiveDeadlineSeconds).To(BeEquivalentTo(600))
		var arguments map[string]string
		Expect(json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationArguments]), &arguments)).To(Succeed())
		Expect(arguments).To(Equal(map[string]string{"branch": `höher "1"`}))
		length := run.Status.Journal.Events

		n.report(ctx, corev1.PodRunning, "", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		Consistently(func() int64 {
			Expect(env.Admin.Get(ctx, key, run)).To(Succeed())
			return run.Status.Journal.Events
		}).Should(Equal(length), "looking writes nothing")

		ended := time.Now()
		n.report(ctx, corev1.PodSucceeded, "", terminated(0, "Completed", `{"passed": 7}`))
		run = awaitCompleted(ctx, key)
		AddReportEntry(fmt.Sprintf("the run ended %s after its Job", time.Since(ended).Round(time.Millisecond)), ReportEntryVisibilityAlways)
		Expect(run.Status.Result.Text).To(Equal("7"))
		Eventually(func() []batchv1.Job { return n.jobs(ctx) }).Should(BeEmpty(), "nobody needs it any more")
		records, _ := journalOf(ctx, run)
		Expect(events[journal.CallDispatched](records)).To(HaveLen(1))
		Expect(events[journal.CallDeferred](records)).To(HaveLen(1))
	})

	DescribeTable("says why it failed", func(ctx SpecContext, phase corev1.PodPhase, reason string, state corev1.ContainerState, class, effect, value string) {
		n := node{newWorld(ctx, "failed")}
		key := n.begin(ctx, "NonIdempotent")
		n.report(ctx, phase, reason, state)
		var run *v1alpha1.AgentRun
		if effect == journal.EffectUnknown {
			awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown)
			Expect(n.jobs(ctx)).To(HaveLen(1), "somebody may want to look at it")
			setState(ctx, key, v1alpha1.StateCancelled)
			run = awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		} else {
			run = awaitWithin(ctx, time.Minute, key, v1alpha1.ReasonCompleted, metav1.ConditionTrue)
		}
		completed := outcome(ctx, run)
		Expect(completed.Class).To(Equal(class), completed.Message)
		Expect(completed.Effect).To(Equal(effect))
		if value != "" {
			Expect(completed.Value).To(MatchJSON(value))
		}
		Eventually(func() []batchv1.Job { return n.jobs(ctx) }).Should(BeEmpty())
	},
		Entry("by its exit code", corev1.PodFailed, "", terminated(3, "Error", "no branch"), "tool_error", journal.EffectCommitted, `{"exitCode": 3, "reason": "Error", "message": "no branch"}`),
		Entry("for want of memory", corev1.PodFailed, "", terminated(137, "OOMKilled", ""), "tool_error", journal.EffectCommitted, `{"exitCode": 137, "reason": "OOMKilled"}`),
		Entry("evicted, without a word on how far it came", corev1.PodFailed, "Evicted", corev1.ContainerState{}, "unknown", journal.EffectUnknown, `{"reason": "Evicted"}`),
		Entry("for want of its image", corev1.PodPending, "", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}, "rejected", journal.EffectRejected, ""),
	)

	It("is deleted with its run's end", func(ctx SpecContext) {
		n := node{newWorld(ctx, "called-off")}
		key := n.begin(ctx, "NonIdempotent")
		n.report(ctx, corev1.PodRunning, "", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		setState(ctx, key, v1alpha1.StateCancelled)
		run := awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		Expect(run.Status.UnknownEffects).To(HaveLen(1), "it was running")
		Eventually(func() []batchv1.Job { return n.jobs(ctx) }).Should(BeEmpty())
	})

	DescribeTable("hangs nothing", func(ctx SpecContext, effect string, remove func(SpecContext, client.ObjectKey)) {
		n := node{newWorld(ctx, "removed")}
		key := n.begin(ctx, effect)
		remove(ctx, key)
		Eventually(func() []batchv1.Job { return n.jobs(ctx) }).WithTimeout(time.Minute).Should(BeEmpty())
		Eventually(func() bool { return apierrors.IsNotFound(env.Admin.Get(ctx, key, &v1alpha1.AgentRun{})) }).WithTimeout(time.Minute).Should(BeTrue())
	},
		Entry("when its run is deleted", "ReadOnly", removeRun),
		Entry("when its run is deleted, which may have had an effect", "NonIdempotent", removeRun),
		Entry("when its namespace is deleted", "NonIdempotent", func(ctx SpecContext, key client.ObjectKey) {
			space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}
			Expect(env.Admin.Delete(ctx, space)).To(Succeed())
			// The pods go first, and a kubelet says of a pod that it ended before it goes.
			n := node{world{namespace: key.Namespace}}
			Eventually(func() *metav1.Time { return n.pod(ctx).DeletionTimestamp }).WithTimeout(time.Minute).ShouldNot(BeNil())
			n.report(ctx, corev1.PodFailed, "", terminated(137, "Error", ""))
			Eventually(func() bool { return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(space), space)) }).WithTimeout(time.Minute).Should(BeTrue())
		}),
	)
})

func removeRun(ctx SpecContext, key client.ObjectKey) {
	Expect(env.Admin.Delete(ctx, &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})).To(Succeed())
}
