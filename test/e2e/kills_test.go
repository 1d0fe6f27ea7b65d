package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

// oneJob is a run whose only call is a Job.
const oneJob = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: Scripted, maxAttempts: 20, script: [{toolCalls: [{tool: ci.run, arguments: {do: echo, text: once}}]}, {final: Done.}]}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: ci, job: {tools: [{name: run, inputSchema: {type: object, properties: {do: {type: string}, text: {type: string}}}, template: {spec: {containers: [{name: task, image: IMAGE, imagePullPolicy: Never}]}}}]}}]
  tools: [{match: ["*"], effect: EFFECT, timeoutSeconds: 300}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Run it.}
`

// census remembers every Job and every pod that there ever was in a namespace.
type census struct {
	mu         sync.Mutex
	jobs, pods map[types.UID]string
}

func takeCensus(ctx context.Context, namespace string) *census {
	GinkgoHelper()
	c := &census{jobs: map[types.UID]string{}, pods: map[types.UID]string{}}
	api, err := client.NewWithWatch(access.Config(), client.Options{Scheme: cluster.Admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	for list, seen := range map[client.ObjectList]map[types.UID]string{&batchv1.JobList{}: c.jobs, &corev1.PodList{}: c.pods} {
		stream, err := api.Watch(ctx, list, client.InNamespace(namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stream.Stop)
		go c.note(stream, seen)
	}
	return c
}

func (c *census) note(stream watch.Interface, seen map[types.UID]string) {
	for event := range stream.ResultChan() {
		if object, ok := event.Object.(client.Object); ok {
			c.mu.Lock()
			seen[object.GetUID()] = object.GetName()
			c.mu.Unlock()
		}
	}
}

func (c *census) count() (jobs, pods int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs), len(c.pods)
}

func isDispatch(w write) bool { return w.event == string(journal.TypeCallDispatched) }

func isCreate(w write) bool { return w.method == "POST" && w.resource == "jobs" }

var _ = Describe("An operator that is killed between every two writes, while a kubelet runs its Job", Ordered, func() {
	sites := map[string]int{}

	DescribeTable("has one Job per call, always",
		func(ctx SpecContext, effect string, how manner, spares func(write) bool, wantJobs int) {
			world := runs.On(ctx, cluster, "e2e-kill")
			everything := takeCensus(ctx, world.Namespace)
			tollway.watch(world.Namespace, how, spares)
			DeferCleanup(tollway.leave)
			world.Apply(ctx, oneJob, "IMAGE", image, "EFFECT", effect)
			places := live(ctx, world, everything)
			for _, place := range places {
				sites[place.String()]++
			}

			run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
			records, state := world.Journal(ctx, run)
			jobs, pods := everything.count()
			Expect(jobs).To(Equal(wantJobs), "Jobs that there ever were")
			Expect(pods).To(Equal(wantJobs), "pods that there ever were")
			call := state.Transcript[0].Calls[0]
			if wantJobs == 1 {
				var result struct{ Arguments, EffectKey string }
				Expect(json.Unmarshal(call.Last.Value, &result)).To(Succeed(), "%+v", call.Last)
				Expect(result.EffectKey).To(Equal(call.Call.EffectKey))
				Expect(result.Arguments).To(MatchJSON(call.Call.Arguments))
			} else {
				Expect(call.Last.Class).To(Equal("rejected"))
			}
			if effect == journal.NonIdempotent {
				Expect(runs.Events[journal.CallDispatched](records)).To(HaveLen(1))
			}
			report("%s, %s: %d kills, %d Jobs, %d pods, %d attempts", effect, how, len(places), jobs, pods, call.Attempt)
		},
		Entry("NonIdempotent, from the first write on", journal.NonIdempotent, unheard, nil, 0),
		Entry("NonIdempotent, but for the word that it may be sent", journal.NonIdempotent, unheard, isDispatch, 1),
		Entry("NonIdempotent, before each write", journal.NonIdempotent, undone, nil, 0),
		Entry("NonIdempotent, before each write but the Job's own", journal.NonIdempotent, undone, isCreate, 1),
		Entry("Idempotent, from the first write on", journal.Idempotent, unheard, nil, 1),
		Entry("Idempotent, before each write", journal.Idempotent, undone, nil, 1),
	)

	AfterAll(func() {
		report("killed at:\n  %s", strings.Join(slices.Sorted(maps.Keys(sites)), "\n  "))
		Expect(sites).To(HaveKey("POST jobs"))
		Expect(sites).To(HaveKey("POST configmaps RunStarted"))
	})
})

// live starts the operator again whenever it ends, and plays the person who settles, until
// the run has ended and its Job is gone. It returns the writes at which it was ended.
func live(ctx context.Context, world *runs.World, everything *census) []write {
	GinkgoHelper()
	var places []write
	Eventually(ctx, func(g Gomega) {
		select {
		case place := <-tollway.ended:
			places = append(places, place)
			tollway.born()
			manager.start()
		default:
		}
		run := world.Get(ctx, "run")
		settle(ctx, world, run, everything)
		g.Expect(runs.Succeeded(run).Reason).To(Equal(string(v1alpha1.ReasonCompleted)))
		var jobs batchv1.JobList
		g.Expect(cluster.Admin.List(ctx, &jobs, client.InNamespace(world.Namespace))).To(Succeed())
		g.Expect(jobs.Items).To(BeEmpty())
		g.Expect(run.Finalizers).To(BeEmpty())
	}).WithTimeout(2*time.Minute).WithPolling(50*time.Millisecond).Should(Succeed(), func() string { return fmt.Sprintf("killed at %v", places) })
	return places
}

// settle says of an effect that nobody knows of what a person would see: that there never
// was a Job.
func settle(ctx context.Context, world *runs.World, run *v1alpha1.AgentRun, everything *census) {
	GinkgoHelper()
	if len(run.Status.UnknownEffects) == 0 || run.Annotations[v1alpha1.AnnotationSettle] != "" {
		return
	}
	jobs, _ := everything.count()
	Expect(jobs).To(BeZero(), "the effect is not known although there is a Job")
	said, err := json.Marshal(map[string]string{run.Status.UnknownEffects[0].EffectKey: journal.EffectRejected})
	Expect(err).NotTo(HaveOccurred())
	world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationSettle: string(said)})
}
