package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

// largeResult is a run whose only call has a result that is kept in objects of its own,
// three of them.
const largeResult = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: Scripted, script: [{toolCalls: [{tool: library.get}]}, {toolCalls: [{tool: read_result, arguments: {call: call_1_0, offset: 1000000}}]}, {finalExpression: 'results[0] == null ? "lost" : results[0]'}]}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: library, http: {url: LIBRARY, tools: [{name: get, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["*"], effect: EFFECT, timeoutSeconds: 20, maxResultBytes: 1048576}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Read it.}
`

// firstArtifact is closed when something of an artifact is stored in a namespace.
func firstArtifact(ctx context.Context, namespace string) <-chan struct{} {
	GinkgoHelper()
	api, err := client.NewWithWatch(env.Plane.Config(), client.Options{Scheme: env.Admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	stream, err := api.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stream.Stop)
	first := make(chan struct{})
	go func() {
		for event := range stream.ResultChan() {
			if object, ok := event.Object.(*corev1.ConfigMap); ok && strings.HasPrefix(object.Name, "pawl-artifact-") {
				close(first)
				return
			}
		}
	}()
	return first
}

var _ = Describe("An operator that is killed between a large result and the record of it", func() {
	It("has the result once, or knows that it doesn't know, and leaves nothing in the way", func(ctx SpecContext) {
		text := strings.Repeat("all of it; ", 1<<20/11-2)
		random := rand.New(rand.NewPCG(seed(), 2))
		between, again, unknown := 0, 0, 0
		const rounds = 8
		for round := range rounds {
			effect := []string{"ReadOnly", "NonIdempotent"}[round%2]
			var requests atomic.Int64
			library := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// A server that closes on what it did not read resets the connection.
				_, _ = io.Copy(io.Discard, r.Body)
				requests.Add(1)
				_, _ = w.Write([]byte(text))
			}))
			world := runs.New(ctx, env, fmt.Sprintf("artifact-%d", round))
			first := firstArtifact(ctx, world.Namespace)
			world.Apply(ctx, largeResult, "LIBRARY", library.URL, "EFFECT", effect)
			Eventually(ctx, first).WithTimeout(30 * time.Second).Should(BeClosed())
			time.Sleep(time.Duration(random.IntN(2)) * time.Millisecond)
			env.KillOperator()
			records, _ := world.Journal(ctx, world.Get(ctx, "run"))
			recorded := len(runs.Events[journal.CallCompleted](records)) > 0
			Expect(env.StartOperator()).To(Succeed())

			if !recorded {
				between++
			}
			if !recorded && effect == "NonIdempotent" {
				run := world.Await(ctx, "run", v1alpha1.ReasonOutcomeUnknown)
				said, err := json.Marshal(map[string]string{run.Status.UnknownEffects[0].EffectKey: journal.EffectCommitted})
				Expect(err).NotTo(HaveOccurred())
				world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationSettle: string(said)})
				unknown++
			}
			run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
			_, state := world.Journal(ctx, run)
			call := state.Transcript[0].Calls[0]
			if recorded || effect == "ReadOnly" {
				Expect(call.Last.Artifact).NotTo(BeNil())
				Expect(call.Last.Artifact.Holds(text)).To(BeTrue())
				Expect(run.Status.Result.Text).To(ContainSubstring("all of it; "))
			}
			want := int64(1)
			if !recorded && effect == "ReadOnly" {
				want = 2
				again++
			}
			Expect(requests.Load()).To(Equal(want))
			library.Close()
		}
		AddReportEntry(fmt.Sprintf("%d runs: %d kills fell between a result's objects and its event; %d calls were made again, %d were settled by hand", rounds, between, again, unknown), ReportEntryVisibilityAlways)
		Expect(between).To(BeNumerically(">", 0), "no kill fell in between")
	}, NodeTimeout(5*time.Minute))
})
