package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

// oneJob is a run whose only call is a Job that may run once.
const oneJob = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: Scripted, script: [{toolCalls: [{tool: ci.run}]}, {final: Done.}]}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: ci, job: {tools: [{name: run, inputSchema: {type: object, properties: {}}, template: {spec: {containers: [{name: a, image: registry.invalid/a:1}]}}}]}}]
  tools: [{match: ["*"], effect: NonIdempotent, timeoutSeconds: 600}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Run it.}
`

// jobWatcher remembers every Job that there ever was in a namespace.
type jobWatcher struct {
	mu   sync.Mutex
	seen map[types.UID]string
	// first is closed when the first one appears.
	first chan struct{}
}

func watchJobs(ctx context.Context, namespace string) *jobWatcher {
	GinkgoHelper()
	w := &jobWatcher{seen: map[types.UID]string{}, first: make(chan struct{})}
	api, err := client.NewWithWatch(env.Plane.Config(), client.Options{Scheme: env.Admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	stream, err := api.Watch(ctx, &batchv1.JobList{}, client.InNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stream.Stop)
	go func() {
		for event := range stream.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok {
				w.note(job)
			}
		}
	}()
	return w
}

func (w *jobWatcher) note(job *batchv1.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		close(w.first)
	}
	w.seen[job.UID] = job.Name
}

func (w *jobWatcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

var _ = Describe("An operator that is killed around the creation of a Job", func() {
	It("has one Job per call, and its result", func(ctx SpecContext) {
		random := rand.New(rand.NewPCG(seed(), 1))
		unknown, taken, adopted := 0, 0, 0
		const rounds = 8
		for round := range rounds {
			world := runs.New(ctx, env, fmt.Sprintf("job-%d", round))
			jobs := watchJobs(ctx, world.Namespace)
			world.Apply(ctx, oneJob)
			delay := time.Duration(random.IntN(500)) * time.Millisecond
			if round%2 == 0 {
				// The moment between the Job and the record of it.
				Eventually(ctx, jobs.first).WithTimeout(30 * time.Second).Should(BeClosed())
				delay = time.Duration(random.IntN(3)) * time.Millisecond
			}
			time.Sleep(delay)
			env.KillOperator()
			Expect(env.StartOperator()).To(Succeed())

			run := awaitJobOrDoubt(ctx, world)
			if len(run.Status.UnknownEffects) > 0 {
				unknown++
				Expect(jobs.count()).To(BeZero(), "the effect is not known although there is a Job")
				text, err := json.Marshal(map[string]string{run.Status.UnknownEffects[0].EffectKey: journal.EffectRejected})
				Expect(err).NotTo(HaveOccurred())
				world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationSettle: string(text)})
			}
			run = world.Await(ctx, "run", v1alpha1.ReasonCompleted)
			records, state := world.Journal(ctx, run)
			Expect(runs.Events[journal.CallDispatched](records)).To(HaveLen(1))
			Expect(jobs.count()).To(BeNumerically("<=", 1))
			for _, deferred := range runs.Events[journal.CallDeferred](records) {
				if deferred.PollMillis == time.Second.Milliseconds() {
					adopted++ // asked for by its name, since nobody had recorded it
				}
			}
			if jobs.count() == 1 {
				taken++
				Expect(state.Transcript[0].Calls[0].Last.Value).To(MatchJSON(`"made"`))
				Eventually(ctx, func() []batchv1.Job { return jobsOf(ctx, world) }).WithTimeout(30 * time.Second).Should(BeEmpty())
			}
		}
		AddReportEntry(fmt.Sprintf("%d runs: %d had one Job, %d had none and were settled by hand; %d calls were taken up between the create and its record", rounds, taken, unknown, adopted), ReportEntryVisibilityAlways)
		Expect(taken + unknown).To(Equal(rounds))
	}, NodeTimeout(5*time.Minute))
})

func jobsOf(ctx context.Context, world *runs.World) []batchv1.Job {
	var list batchv1.JobList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(world.Namespace))).To(Succeed())
	return list.Items
}

// awaitJobOrDoubt ends the run's pod well, as a kubelet would, or waits until nobody knows.
func awaitJobOrDoubt(ctx context.Context, world *runs.World) *v1alpha1.AgentRun {
	GinkgoHelper()
	var run *v1alpha1.AgentRun
	Eventually(ctx, func(g Gomega) {
		run = world.Get(ctx, "run")
		if len(run.Status.UnknownEffects) > 0 {
			return
		}
		var pods corev1.PodList
		g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(world.Namespace))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		pod := &pods.Items[0]
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Image: "x", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: "made"},
		}}}
		g.Expect(env.Admin.Status().Update(ctx, pod)).To(Succeed())
	}).WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
	return run
}
