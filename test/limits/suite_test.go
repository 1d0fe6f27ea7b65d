// Package limits runs several operators as processes of their own against one real API
// server, and counts at a model and at a tool what reaches them: the limits of a Model and
// of a tool hold for all replicas together.
package limits

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// lease is longer than the other suites': a machine that is busy with something else must
// not change the members.
const lease = 8 * time.Second

// thinking is how long the model takes to answer.
const thinking = 250 * time.Millisecond

var (
	env   *environment.Environment
	meter *counter
	fleet = map[string]*controlplane.Process{}
)

func TestLimits(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Limits")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	var err error
	env, err = environment.Prepare(ctx, environment.Options{Flags: []string{"--lease-duration", lease.String()}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	model, err := fakemodel.Start(fakemodel.Options{Answer: decide})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(model.Close()).To(Succeed()) })
	meter = newCounter(model.Root())
	DeferCleanup(meter.stop)
	for _, name := range []string{"r1", "r2", "r3"} {
		launch(ctx, name)
	}
	settle(ctx)
	DeferCleanup(func() {
		for _, process := range fleet {
			process.Kill()
		}
		Expect(model.Refusals()).To(BeEmpty())
	})
}, NodeTimeout(5*time.Minute))

// decide has one thing looked up and then answers.
func decide(r fakemodel.Request) fakemodel.Answer {
	if r.Last().Role == "tool" {
		return fakemodel.Slow(fakemodel.Text("done"), thinking)
	}
	return fakemodel.Slow(fakemodel.Propose(fakemodel.Call{Name: r.Tools[0].Name, Arguments: `{"key":"policy"}`}), thinking)
}

// launch starts an operator and waits until it has its lease.
func launch(ctx context.Context, name string) {
	GinkgoHelper()
	process, err := env.Launch(name)
	Expect(err).NotTo(HaveOccurred())
	fleet[name] = process
	key := client.ObjectKey{Namespace: environment.Namespace, Name: "pawl-worker-" + name}
	Eventually(ctx, func() error { return env.Admin.Get(ctx, key, &coordinationv1.Lease{}) }).Should(Succeed())
}

// settle waits until everybody uses the share that the members give it.
func settle(ctx context.Context) { pause(ctx, lease+2*time.Second) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// objects are what every world of this suite has: a Model with limits and a tool that may
// have a rate.
const objects = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: limited}
spec: {provider: OpenAI, model: test-model, endpoint: MODELS, limits: LIMITS}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers:
  - {name: profiles, http: {url: TOOLS/profiles, tools: [{name: lookup, inputSchema: {type: object, additionalProperties: true}}]}}
  tools: [{match: ["*"], effect: ReadOnly RATE}]
  rules: [{name: everything, match: ["*"], action: Allow}]
`

// newRun is a run of the limited Model.
func newRun(name string) *v1alpha1.AgentRun {
	run := &v1alpha1.AgentRun{Spec: v1alpha1.AgentRunSpec{
		ModelRef: v1alpha1.LocalReference{Name: "limited"}, ToolPolicyRefs: []v1alpha1.LocalReference{{Name: "policy"}},
		Prompt: "Work on " + name + ".", Limits: v1alpha1.Limits{ActiveDeadlineSeconds: 3600},
	}}
	run.Name = name
	return run
}

func nameOf(i int) string { return fmt.Sprintf("run-%03d", i) }
