package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

// manyJobs declares tools that are Jobs, and what they have to work with.
const manyJobs = `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers:
  - name: ci
    job:
      tools:
      - {name: run, inputSchema: SCHEMA, template: {spec: {terminationGracePeriodSeconds: 1, containers: [{name: task, image: IMAGE, imagePullPolicy: Never}]}}}
      - {name: small, inputSchema: SCHEMA, template: {spec: {containers: [{name: task, image: IMAGE, imagePullPolicy: Never, resources: {limits: {memory: 64Mi}}}]}}}
      - {name: absent, inputSchema: SCHEMA, template: {spec: {containers: [{name: task, image: "localhost/there-is-no-such-image:1", imagePullPolicy: Never}]}}}
      - {name: afar, inputSchema: SCHEMA, template: {spec: {containers: [{name: task, image: "registry.invalid/task:1"}]}}}
      - {name: short, inputSchema: SCHEMA, template: {spec: {containers: [{name: task, image: IMAGE, imagePullPolicy: Never}]}}}
  tools:
  - {match: ["ci.short"], effect: Idempotent, maxAttempts: 1, timeoutSeconds: 5}
  - {match: ["ci.*"], effect: NonIdempotent, timeoutSeconds: 600}
  rules: [{name: everything, match: ["*"], action: Allow}]
`

const schema = `{type: object, properties: {do: {type: string}, text: {type: string}, code: {type: integer}}}`

// oneCall is a run with one call, whose result the model does not look at.
const oneCall = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: NAME}
spec: {provider: Scripted, script: [{toolCalls: [{tool: TOOL, arguments: ARGUMENTS}]}, {final: Done.}]}
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: NAME}
spec: {modelRef: {name: NAME}, toolPolicyRefs: [{name: policy}], prompt: Run it.}
`

var _ = Describe("Jobs on a kubelet", Ordered, func() {
	var world *runs.World

	BeforeAll(func(ctx SpecContext) {
		world = runs.On(ctx, cluster, "e2e-jobs")
		world.Apply(ctx, manyJobs, "IMAGE", image, "SCHEMA", schema)
		for name, call := range map[string][2]string{
			"echo":   {"ci.run", `{do: echo, text: "höher \"1\" 漢字"}`},
			"exit":   {"ci.run", `{do: exit, text: "no branch", code: 3}`},
			"memory": {"ci.small", `{do: grow}`},
			"absent": {"ci.absent", `{do: echo}`},
			"afar":   {"ci.afar", `{do: echo}`},
			"late":   {"ci.short", `{do: sleep}`},
			"cancel": {"ci.run", `{do: sleep}`},
		} {
			world.Apply(ctx, oneCall, "NAME", name, "TOOL", call[0], "ARGUMENTS", call[1])
		}
	})

	// result is what became of a run's call.
	result := func(ctx context.Context, name string) *journal.CallCompleted {
		GinkgoHelper()
		run := world.AwaitWithin(ctx, 90*time.Second, name, v1alpha1.ReasonCompleted)
		_, state := world.Journal(ctx, run)
		return state.Transcript[0].Calls[0].Last
	}

	It("give their termination message as the result, and get their arguments as a file", func(ctx SpecContext) {
		last := result(ctx, "echo")
		Expect(last.Class).To(Equal("ok"))
		var value struct{ Arguments, EffectKey, CallID string }
		Expect(json.Unmarshal(last.Value, &value)).To(Succeed())
		Expect(value.Arguments).To(MatchJSON(`{"do":"echo","text":"höher \"1\" 漢字"}`))
		Expect(value.CallID).To(Equal(last.ID))
		Expect(value.EffectKey).NotTo(BeEmpty())
	})

	It("fail with exit code, message and the end of their logs", func(ctx SpecContext) {
		last := result(ctx, "exit")
		Expect(last.Class).To(Equal("tool_error"))
		Expect(last.Effect).To(Equal(journal.EffectCommitted))
		var value struct {
			ExitCode              int
			Reason, Message, Logs string
		}
		Expect(json.Unmarshal(last.Value, &value)).To(Succeed())
		Expect(value.ExitCode).To(Equal(3))
		Expect(value.Message).To(Equal("no branch"))
		Expect(value.Logs).To(ContainSubstring("step 199: no branch"))
		Expect(value.Logs).NotTo(ContainSubstring("step 0:"))
	})

	It("say that they took more memory than they may", func(ctx SpecContext) {
		last := result(ctx, "memory")
		Expect(last.Class).To(Equal("tool_error"))
		Expect(string(last.Value)).To(ContainSubstring("OOMKilled"))
		Expect(last.Message).To(ContainSubstring("more memory than it may"))
	})

	It("are rejected where their image can't be had", func(ctx SpecContext) {
		for _, name := range []string{"absent", "afar"} {
			last := result(ctx, name)
			Expect(last.Class).To(Equal("rejected"), name)
			Expect(last.Effect).To(Equal(journal.EffectRejected), name)
		}
	})

	It("that take too long are ended, and nobody knows how far they came", func(ctx SpecContext) {
		run := world.AwaitWithin(ctx, 90*time.Second, "late", v1alpha1.ReasonOutcomeUnknown)
		_, state := world.Journal(ctx, run)
		Expect(state.Transcript[0].Calls[0].Last.Class).To(Equal("timeout"))
		said, err := json.Marshal(map[string]string{run.Status.UnknownEffects[0].EffectKey: journal.EffectRejected})
		Expect(err).NotTo(HaveOccurred())
		world.Annotate(ctx, "late", map[string]string{v1alpha1.AnnotationSettle: string(said)})
		world.Await(ctx, "late", v1alpha1.ReasonCompleted)
	})

	It("end with their run: a cancellation deletes Job and pod", func(ctx SpecContext) {
		world.Await(ctx, "cancel", v1alpha1.ReasonWaitingForTool)
		var pods corev1.PodList
		ofRun := client.MatchingLabels{v1alpha1.LabelRun: "cancel"}
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Admin.List(ctx, &pods, client.InNamespace(world.Namespace), ofRun)).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
			g.Expect(pods.Items[0].Status.Phase).To(Equal(corev1.PodRunning))
		}).Should(Succeed())
		world.SetState(ctx, "cancel", v1alpha1.StateCancelled)
		world.AwaitWithin(ctx, time.Minute, "cancel", v1alpha1.ReasonCancelled)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Admin.List(ctx, &pods, client.InNamespace(world.Namespace), ofRun)).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
		}).Should(Succeed())
	})

	It("leave nothing behind", func(ctx SpecContext) {
		Eventually(ctx, func() (string, error) {
			var jobs batchv1.JobList
			err := cluster.Admin.List(ctx, &jobs, client.InNamespace(world.Namespace))
			return fmt.Sprint(len(jobs.Items)), err
		}).Should(Equal("0"))
	})
})
