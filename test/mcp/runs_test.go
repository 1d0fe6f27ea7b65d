package mcp

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/npm"
	"github.com/pawl-run/pawl/test/runs"
)

// scenario is what a server's run calls and what has to come of it.
type scenario struct {
	// listed are some of the tools that the run must have found.
	listed []string
	// allowed are two calls that may run, with their results as JSON.
	allowed, results [2]string
	// denied and gated are the calls that a rule denies and asks about.
	denied, gated string
	// answer is the run's answer, expression the CEL that makes it of the gated result.
	expression, answer string
}

const objects = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec:
  provider: Scripted
  script:
  - toolCalls: [ALLOWED_1, ALLOWED_2]
  - toolCalls: [DENIED]
  - toolCalls: [GATED]
  - finalExpression: EXPRESSION
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: mcp, mcp: {url: "ENDPOINT"}}]
  tools: [{match: ["mcp.echo", "mcp.add", "mcp.get-sum"], effect: ReadOnly, execution: Parallel}]
  rules:
  - {name: reads, match: ["mcp.echo", "mcp.add", "mcp.get-sum"], action: Allow}
  - {name: secrets, match: ["mcp.write_note"], when: args.text == "a secret", action: Deny}
  - {name: writes, match: ["mcp.write_note", "mcp.get-structured-content"], action: Ask}
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Try the tools.}
`

// sdk is the scenario for the Go SDK's server.
var sdk = scenario{
	listed:     []string{"mcp.echo", "mcp.add", "mcp.write_note"},
	allowed:    [2]string{`{tool: mcp.echo, arguments: {text: hello}}`, `{tool: mcp.add, arguments: {a: 2, b: 3}}`},
	results:    [2]string{`"hello"`, `{"sum":5}`},
	denied:     `{tool: mcp.write_note, arguments: {text: a secret}}`,
	gated:      `{tool: mcp.write_note, arguments: {text: a note}}`,
	expression: `'"notes: " + string(results[0].notes)'`,
	answer:     "notes: 1",
}

// node is the scenario for the Node package's server.
var node = scenario{
	listed:     []string{"mcp.echo", "mcp.get-sum", "mcp.get-structured-content", "mcp.get-env", "mcp.get-tiny-image"},
	allowed:    [2]string{`{tool: mcp.echo, arguments: {message: hello}}`, `{tool: mcp.get-sum, arguments: {a: 2, b: 3}}`},
	results:    [2]string{`"Echo: hello"`, `"The sum of 2 and 3 is 5."`},
	denied:     `{tool: mcp.get-env, arguments: {}}`,
	gated:      `{tool: mcp.get-structured-content, arguments: {location: Chicago}}`,
	expression: `'"humidity: " + string(results[0].humidity)'`,
	answer:     "humidity: 82",
}

// expectScenario moves a run through a scenario: tools are listed, those that are
// allowed are called, one is denied, and one runs once it was approved, in a session
// that did not exist when it was asked for.
func expectScenario(ctx context.Context, s server, endpoint string, want scenario, withSessions bool) {
	GinkgoHelper()
	world := runs.New(ctx, env, "mcp")
	world.Apply(ctx, objects, "ENDPOINT", endpoint, "ALLOWED_1", want.allowed[0], "ALLOWED_2", want.allowed[1],
		"DENIED", want.denied, "GATED", want.gated, "EXPRESSION", want.expression)

	By("asking for the gated call, after the allowed ones and the denied one")
	run := world.Await(ctx, "run", v1alpha1.ReasonApprovalRequired)
	Expect(run.Status.Pending.Calls).To(HaveLen(1))
	_, state := world.Journal(ctx, run)
	var names []string
	for _, tool := range state.Run.Tools {
		names = append(names, tool.Name)
	}
	Expect(names).To(ContainElements(want.listed))
	Expect(state.Transcript).To(HaveLen(3))
	for i, call := range state.Transcript[0].Calls {
		Expect(call.Last.Class).To(Equal("ok"), call.Last.Message)
		Expect(call.Last.Value).To(MatchJSON(want.results[i]))
	}
	Expect(state.Transcript[1].Calls[0].Last.Class).To(Equal("denied"))
	Expect(state.Transcript[1].Calls[0].Attempt).To(BeZero())
	before := s.calls()
	Expect(before).To(HaveLen(2))

	By("losing every session")
	s.loseSessions(ctx)
	world.Approve(ctx, "run")
	run = world.Await(ctx, "run", v1alpha1.ReasonCompleted)
	Expect(run.Status.Result.Text).To(Equal(want.answer))
	Expect(s.calls()).To(HaveLen(3), "the gated call ran once")
	_, state = world.Journal(ctx, run)
	gated := state.Transcript[2].Calls[0]
	Expect(gated.Attempt).To(BeEquivalentTo(1))
	Expect(gated.Last.Effect).To(Equal(journal.EffectCommitted))
	sessions := s.sessions()
	last := sessions[len(sessions)-1]
	if withSessions {
		Expect(last).NotTo(BeEmpty())
		Expect(sessions[:len(sessions)-1]).NotTo(ContainElement(last))
	} else {
		Expect(slices.Compact(slices.Sorted(slices.Values(sessions)))).To(Equal([]string{""}))
	}
}

var _ = Describe("A run with the Go SDK's server", func() {
	It("lists, calls, is denied and asks, and survives the loss of its session", func(ctx SpecContext) {
		s := newSDKServer()
		expectScenario(ctx, s, s.URL+"/mcp-sessions", sdk, true)
	})

	It("does so without sessions", func(ctx SpecContext) {
		s := newSDKServer()
		expectScenario(ctx, s, s.URL+"/mcp", sdk, false)
	})

	It("runs a call at most once when its session is lost right before it", func(ctx SpecContext) {
		s := newSDKServer()
		lost := false
		s.intercept(func(r seen) {
			if r.method == "tools/call" && r.tool == "write_note" && !lost {
				lost = true
				s.loseSessions(ctx)
			}
		})
		world := runs.New(ctx, env, "mcp")
		world.Apply(ctx, objects, "ENDPOINT", s.URL+"/mcp-sessions", "ALLOWED_1", sdk.allowed[0], "ALLOWED_2", sdk.allowed[1],
			"DENIED", sdk.denied, "GATED", sdk.gated, "EXPRESSION", `'results[0] == null ? "no note" : "a note"'`)
		world.Approve(ctx, "run")
		run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
		_, state := world.Journal(ctx, run)
		gated := state.Transcript[2].Calls[0]
		var refused []seen
		for _, r := range s.requests() {
			if r.tool == "write_note" && r.status != http.StatusOK {
				refused = append(refused, r)
			}
		}
		Expect(refused).To(HaveLen(1))
		notes := len(s.current.Load().Requests("mcp.write_note"))
		what := fmt.Sprintf("%d notes, %s, effect %s: %s", notes, gated.Last.Class, gated.Last.Effect, gated.Last.Message)
		AddReportEntry(what, ReportEntryVisibilityFailureOrVerbose)
		Expect(gated.Attempt).To(BeEquivalentTo(1))
		if gated.Last.Effect == journal.EffectCommitted {
			Expect(notes).To(Equal(1), what)
			Expect(run.Status.Result.Text).To(Equal("a note"))
		} else {
			Expect(gated.Last.Effect).To(Equal(journal.EffectRejected), what)
			Expect(notes).To(BeZero(), what)
			Expect(run.Status.Result.Text).To(Equal("no note"))
		}
	})
})

var _ = Describe("A run with the server of the npm package server-everything", func() {
	It("lists, calls, is denied and asks, and survives the loss of its session", func(ctx SpecContext) {
		s := newNodeServer(ctx)
		expectScenario(ctx, s, s.URL+"/mcp", node, true)
	}, NodeTimeout(npm.InstallTimeout))
})
