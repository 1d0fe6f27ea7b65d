package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

const asking = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec:
  provider: Scripted
  script:
  - toolCalls: [{tool: mcp.TOOL, arguments: {}}]
  - finalExpression: 'results[0] == null ? "nothing" : string(results[0])'
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: mcp, mcp: {url: "ENDPOINT"}}]
  rules: [RULES{name: everything, match: ["mcp.*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Try the tool., limits: {inputTimeoutSeconds: PATIENCE}}
`

// ask starts the one run of the scenario, whose one call asks.
func ask(ctx context.Context, endpoint, tool, rules string) *runs.World {
	GinkgoHelper()
	world := runs.New(ctx, env, "input")
	world.Apply(ctx, asking, "ENDPOINT", endpoint, "TOOL", tool, "RULES", rules, "PATIENCE", "3600")
	return world
}

// answer answers the question that waits, once it is another one than before.
func answer(ctx context.Context, world *runs.World, before, text string) *v1alpha1.Question {
	GinkgoHelper()
	run := &v1alpha1.AgentRun{}
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: world.Namespace, Name: "run"}, run)).To(Succeed())
		g.Expect(runs.Succeeded(run).Reason).To(BeEquivalentTo(v1alpha1.ReasonInputRequired))
		g.Expect(run.Status.Question.ID).NotTo(Equal(before))
	}).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	value, err := json.Marshal(map[string]string{run.Status.Question.ID: text})
	Expect(err).NotTo(HaveOccurred())
	world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationAnswer: string(value)})
	return run.Status.Question
}

var _ = Describe("A tool that asks for input before it goes on", Ordered, func() {
	var s *everythingServer

	BeforeAll(func(ctx SpecContext) { s = newEverythingServer(ctx) }, NodeTimeout(3*time.Minute))

	It("is sent again with the answer, by the server's own word that it did nothing", func(ctx SpecContext) {
		world, before := ask(ctx, s.URL, "test_input_required_result_elicitation", ""), len(s.calls())
		run := world.Await(ctx, "run", v1alpha1.ReasonInputRequired)
		Expect(run.Status.Owner).To(BeNil(), "no worker is held")
		Expect(run.Status.Question.Tool).To(Equal("mcp.test_input_required_result_elicitation"))
		Expect(run.Status.Question.Digest).To(HavePrefix("sha256:"))
		Expect(run.Status.Question.Text).To(And(ContainSubstring(`{"name": string}`), ContainSubstring("What is your name?")))
		Expect(s.calls()).To(HaveLen(before + 1))
		answer(ctx, world, "", "Ada")
		run = world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("Hello, Ada!"))
		Expect(s.calls()).To(HaveLen(before + 2))
		records, state := world.Journal(ctx, run)
		Expect(runs.Events[journal.CallDispatched](records)).To(HaveLen(1), "a continuation is part of the dispatch")
		Expect(runs.Events[journal.CallContinued](records)).To(HaveLen(1))
		Expect(state.Transcript[0].Calls[0].Attempt).To(BeEquivalentTo(1))
	})

	It("may ask more than once, and gets its state back as it was", func(ctx SpecContext) {
		world := ask(ctx, s.URL, "test_input_required_result_multi_round", "")
		first := answer(ctx, world, "", `{"name":"Ada"}`)
		answer(ctx, world, first.ID, "green")
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(run.Status.Result.Text).To(Equal("Multi-round complete: Ada likes green"))
		shown, err := json.Marshal(run)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(shown)).NotTo(ContainSubstring("round="), "the server's state")
	})

	It("keeps its state apart from what people answer", func(ctx SpecContext) {
		world := ask(ctx, s.URL, "test_input_required_result_request_state", "")
		answer(ctx, world, "", "true")
		Expect(world.Await(ctx, "run", v1alpha1.ReasonCompleted).Status.Result.Text).To(HavePrefix("state-ok"))
	})

	It("is not sent again when a person declines", func(ctx SpecContext) {
		world, before := ask(ctx, s.URL, "test_input_required_result_elicitation", ""), len(s.calls())
		answer(ctx, world, "", "decline")
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(s.calls()).To(HaveLen(before + 1))
		_, state := world.Journal(ctx, run)
		Expect(state.Transcript[0].Calls[0].Last.Class).To(Equal("denied"))
		Expect(state.Transcript[0].Calls[0].Last.Effect).To(Equal(journal.EffectRejected))
	})

	It("is not sent again when nobody answers", func(ctx SpecContext) {
		world, before := runs.New(ctx, env, "input"), len(s.calls())
		world.Apply(ctx, asking, "ENDPOINT", s.URL, "TOOL", "test_input_required_result_elicitation", "RULES", "", "PATIENCE", "2")
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(s.calls()).To(HaveLen(before + 1))
		_, state := world.Journal(ctx, run)
		Expect(state.Transcript[0].Calls[0].Last.Class).To(Equal("timeout"))
	})

	It("is not sent again when the answer breaks a rule", func(ctx SpecContext) {
		world, before := ask(ctx, s.URL, "test_input_required_result_elicitation",
			`{name: no-admins, match: ["mcp.*"], when: 'has(call.answers.user_name) && call.answers.user_name.name == "root"', action: Deny}, `), len(s.calls())
		answer(ctx, world, "", "root")
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(s.calls()).To(HaveLen(before + 1))
		_, state := world.Journal(ctx, run)
		Expect(state.Transcript[0].Calls[0].Last.Class).To(Equal("denied"))
	})

	It("is approved with its answer where a rule asks", func(ctx SpecContext) {
		world := ask(ctx, s.URL, "test_input_required_result_elicitation", `{name: gate, match: ["mcp.*"], action: Ask}, `)
		world.Approve(ctx, "run")
		answer(ctx, world, "", "Ada")
		run := world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
		Expect(run.Status.Pending.Calls).To(HaveLen(1))
		Expect(run.Status.Pending.Calls[0].AnswerPreview).To(Equal("Ada"))
		world.Approve(ctx, "run")
		Expect(world.Await(ctx, "run", v1alpha1.ReasonCompleted).Status.Result.Text).To(Equal("Hello, Ada!"))
	})

	It("is not followed where it asks a model", func(ctx SpecContext) {
		world, before := ask(ctx, s.URL, "test_input_required_result_sampling", ""), len(s.calls())
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(s.calls()).To(HaveLen(before + 1))
		_, state := world.Journal(ctx, run)
		Expect(state.Transcript[0].Calls[0].Last.Effect).To(Equal(journal.EffectRejected))
	})
})

// In the revisions with sessions a server would ask in the middle of an answer, which
// nobody can hold open for hours: nothing is declared there.
var _ = Describe("A tool of a server with sessions that asks for input", func() {
	It("is told that nobody can be asked", func(ctx SpecContext) {
		server := mcp.NewServer(&mcp.Implementation{Name: "sessions", Version: "1"}, nil)
		asked := make(chan error, 1)
		server.AddTool(&mcp.Tool{Name: "greet", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
				asked <- err
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "nobody to ask"}}}, nil
			})
		served := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
		DeferCleanup(func() { served.CloseClientConnections(); served.Close() })
		world := ask(ctx, served.URL, "greet", "")
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		Expect(<-asked).To(HaveOccurred())
		_, state := world.Journal(ctx, run)
		Expect(state.Transcript[0].Calls[0].Last.Class).To(Equal("tool_error"))
	})
})
