package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

// asker is an MCP server of the current revision whose one tool wants a name before it
// does anything.
type asker struct {
	*httptest.Server
	asked, greeted atomic.Int64
	// holds keeps the reply to a call that was answered back, until it is closed.
	holds chan struct{}
}

func newAsker() *asker {
	a := &asker{holds: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	DeferCleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *asker) serve(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			State     string                     `json:"requestState"`
			Responses map[string]json.RawMessage `json:"inputResponses"`
		} `json:"params"`
	}
	_ = json.NewDecoder(r.Body).Decode(&request)
	result := `"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"greet","inputSchema":{"type":"object"}}]`
	if request.Method == "tools/call" {
		result = a.call(request.Params.State, string(request.Params.Responses["who"]))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, request.ID, result)
}

func (a *asker) call(state, who string) string {
	if state != "s3cr3t" {
		a.asked.Add(1)
		return `"resultType":"input_required","requestState":"s3cr3t","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}}`
	}
	a.greeted.Add(1)
	<-a.holds
	return `"content":[{"type":"text","text":` + string(must(json.Marshal(who))) + `}]`
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

const greeting = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec:
  provider: Scripted
  script:
  - toolCalls: [{tool: hall.greet}]
  - finalExpression: 'results[0] == null ? "nothing" : string(results[0])'
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: hall, mcp: {url: "ENDPOINT"}}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Greet.}
`

var _ = Describe("A call that waits for input while the operator dies", func() {
	var (
		world *runs.World
		hall  *asker
	)

	BeforeEach(func(ctx SpecContext) {
		hall, world = newAsker(), runs.New(ctx, env, "input")
		world.Apply(ctx, greeting, "ENDPOINT", hall.URL)
	})

	answer := func(run *v1alpha1.AgentRun) map[string]string {
		return map[string]string{v1alpha1.AnnotationAnswer: fmt.Sprintf(`{%q: "Ada"}`, run.Status.Question.ID)}
	}
	awaitContinued := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(ctx, hall.greeted.Load).WithTimeout(20 * time.Second).WithPolling(20 * time.Millisecond).Should(BeEquivalentTo(1))
	}
	expectGreeted := func(ctx context.Context) {
		GinkgoHelper()
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal(`{"action":"accept","content":{"name":"Ada"}}`))
		Expect([]int64{hall.asked.Load(), hall.greeted.Load()}).To(Equal([]int64{1, 1}), "asked and answered once each")
		records, _ := world.Journal(ctx, run)
		Expect(runs.Events[journal.QuestionAsked](records)).To(HaveLen(1))
		Expect(runs.Events[journal.CallContinued](records)).To(HaveLen(1))
	}

	It("waits for the same answer, and goes on with what was answered meanwhile", func(ctx SpecContext) {
		close(hall.holds)
		before := world.Await(ctx, "run", v1alpha1.ReasonInputRequired)
		restart()
		restart(func() { world.Annotate(ctx, "run", answer(before)) })
		expectGreeted(ctx)
	})

	It("needs no second answer when it dies between the first and the call", func(ctx SpecContext) {
		close(hall.holds)
		run := world.Await(ctx, "run", v1alpha1.ReasonInputRequired)
		world.SetState(ctx, "run", v1alpha1.StateSuspended)
		world.Await(ctx, "run", v1alpha1.ReasonSuspended)
		world.Annotate(ctx, "run", answer(run))
		Eventually(ctx, func() int {
			records, _ := world.Journal(ctx, run)
			return len(runs.Events[journal.QuestionAnswered](records))
		}).WithTimeout(10 * time.Second).WithPolling(50 * time.Millisecond).Should(Equal(1))
		restart(func() {
			Expect(hall.greeted.Load()).To(BeZero())
			world.SetState(ctx, "run", v1alpha1.StateActive)
		})
		expectGreeted(ctx)
	})

	It("is never sent with its answer twice", func(ctx SpecContext) {
		run := world.Await(ctx, "run", v1alpha1.ReasonInputRequired)
		world.Annotate(ctx, "run", answer(run))
		awaitContinued(ctx)
		restart(func() { close(hall.holds) })
		run = world.Await(ctx, "run", v1alpha1.ReasonOutcomeUnknown)
		world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationSettle: fmt.Sprintf(`{%q: "committed"}`, run.Status.UnknownEffects[0].EffectKey)})
		world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect([]int64{hall.asked.Load(), hall.greeted.Load()}).To(Equal([]int64{1, 1}))
	})

	It("is not sent when it was cancelled meanwhile", func(ctx SpecContext) {
		close(hall.holds)
		run := world.Await(ctx, "run", v1alpha1.ReasonInputRequired)
		restart(func() {
			world.Annotate(ctx, "run", answer(run))
			world.SetState(ctx, "run", v1alpha1.StateCancelled)
		})
		run = world.Await(ctx, "run", v1alpha1.ReasonCancelled)
		Expect(hall.greeted.Load()).To(BeZero())
		Expect(run.Status.UnknownEffects).To(BeEmpty(), "by the server's own word nothing was done")
	})
})
