package crash

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

const printing = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec:
  provider: Scripted
  script:
  - toolCalls: [{tool: printer.print}]
  - question: Which colour?
  - toolCalls: [{tool: check, arguments: {call: call_1_0, wait: true}}]
  - finalExpression: 'string(results[0])'
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: printer, http: {url: "ENDPOINT", tools: [{name: print, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["printer.*"], execution: Background, timeoutSeconds: 600}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Print.}
`

var _ = Describe("A call in the background while the operator dies", func() {
	It("is begun once and has its one result, whenever that is", func(ctx SpecContext) {
		var accepted atomic.Int64
		var ready atomic.Bool
		mux := http.NewServeMux()
		mux.HandleFunc("POST /print", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Location", fmt.Sprintf("/jobs/%d", accepted.Add(1)))
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusAccepted)
		})
		mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, _ *http.Request) {
			if !ready.Load() {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusAccepted)
				return
			}
			_, _ = w.Write([]byte("3 pages"))
		})
		service := httptest.NewServer(mux)
		DeferCleanup(service.Close)
		world := runs.New(ctx, env, "background")
		world.Apply(ctx, printing, "ENDPOINT", service.URL)

		By("dying while people are asked something else, and while it is waited for")
		run := world.Await(ctx, "run", v1alpha1.ReasonInputRequired)
		restart(func() {
			world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationAnswer: fmt.Sprintf(`{%q: "blue"}`, run.Status.Question.ID)})
		})
		world.Await(ctx, "run", v1alpha1.ReasonWaitingForTool)
		restart(func() { ready.Store(true) })
		run = world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("3 pages"))
		Expect(accepted.Load()).To(BeEquivalentTo(1))
		expectTold(ctx, world, run)
	})
})

// expectTold checks that the model read of the call that it ran, and then its result.
func expectTold(ctx context.Context, world *runs.World, run *v1alpha1.AgentRun) {
	GinkgoHelper()
	records, state := world.Journal(ctx, run)
	Expect(runs.Events[journal.CallDispatched](records)).To(HaveLen(1))
	Expect(runs.Events[journal.CallDetached](records)).To(HaveLen(1))
	call := state.Transcript[0].Calls[0]
	Expect([]any{call.Detached, call.Told, call.Last.Class}).To(Equal([]any{true, true, "ok"}))
	Expect(state.Transcript[2].Calls[0].Last.Of).To(Equal(call.Call.ID))
}
