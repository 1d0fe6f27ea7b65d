package mcp

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	// reads are the tools that may be called; rules say what else may be.
	reads, rules string
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
  tools: [{match: READS, effect: ReadOnly, execution: Parallel}]
  rules:
  - {name: reads, match: READS, action: Allow}
RULES
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Try the tools.}
`

// sdk is the scenario for the Go SDK's server.
var sdk = scenario{
	listed: []string{"mcp.echo", "mcp.add", "mcp.write_note"},
	reads:  `["mcp.echo", "mcp.add"]`,
	rules: `
  - {name: secrets, match: ["mcp.write_note"], when: args.text == "a secret", action: Deny}
  - {name: writes, match: ["mcp.write_note"], action: Ask}`,
	allowed:    [2]string{`{tool: mcp.echo, arguments: {text: hello}}`, `{tool: mcp.add, arguments: {a: 2, b: 3}}`},
	results:    [2]string{`"hello"`, `{"sum":5}`},
	denied:     `{tool: mcp.write_note, arguments: {text: a secret}}`,
	gated:      `{tool: mcp.write_note, arguments: {text: a note}}`,
	expression: `'"notes: " + string(results[0].notes)'`,
	answer:     "notes: 1",
}

// node is the scenario for the Node package server-everything.
var node = scenario{
	listed:     []string{"mcp.echo", "mcp.get-sum", "mcp.get-structured-content", "mcp.get-env", "mcp.get-tiny-image"},
	reads:      `["mcp.echo", "mcp.get-sum"]`,
	rules:      `  - {name: writes, match: ["mcp.get-structured-content"], action: Ask}`,
	allowed:    [2]string{`{tool: mcp.echo, arguments: {message: hello}}`, `{tool: mcp.get-sum, arguments: {a: 2, b: 3}}`},
	results:    [2]string{`"Echo: hello"`, `"The sum of 2 and 3 is 5."`},
	denied:     `{tool: mcp.get-env, arguments: {}}`,
	gated:      `{tool: mcp.get-structured-content, arguments: {location: Chicago}}`,
	expression: `'"humidity: " + string(results[0].humidity)'`,
	answer:     "humidity: 82",
}

// everything is the scenario for the Go SDK's server for conformance tests. The gated call
// has an argument that the server demands in a header too.
var everything = scenario{
	listed:     []string{"mcp.test_simple_text", "mcp.test_x_mcp_header", "mcp.json_schema_2020_12_tool", "mcp.test_image_content"},
	reads:      `["mcp.test_simple_text", "mcp.test_image_content"]`,
	rules:      `  - {name: writes, match: ["mcp.test_x_mcp_header"], action: Ask}`,
	allowed:    [2]string{`{tool: mcp.test_simple_text, arguments: {}}`, `{tool: mcp.test_image_content, arguments: {}}`},
	results:    [2]string{`"This is a simple text response for testing."`, `[{"type":"image","mimeType":"image/png","bytes":70,"digest":"sha256:bc09c2590d2502c8ffaf1a3c09aa89df222e03d186a8daa0c7fce6321fb6e928"}]`},
	denied:     `{tool: mcp.test_error_handling, arguments: {}}`,
	gated:      `{tool: mcp.test_x_mcp_header, arguments: {region: "Zürich "}}`,
	expression: `'results[0]'`,
	answer:     "region=Zürich ",
}

// filesystem is the scenario for the Node package server-filesystem in the folder DIR.
var filesystem = scenario{
	listed:     []string{"mcp.list_directory", "mcp.read_text_file", "mcp.write_file", "mcp.move_file"},
	reads:      `["mcp.list_*", "mcp.read_*"]`,
	rules:      `  - {name: writes, match: ["mcp.write_file"], action: Ask}`,
	allowed:    [2]string{`{tool: mcp.list_directory, arguments: {path: DIR}}`, `{tool: mcp.read_text_file, arguments: {path: DIR/a.txt}}`},
	results:    [2]string{`{"content":"[FILE] a.txt"}`, `{"content":"hello"}`},
	denied:     `{tool: mcp.move_file, arguments: {source: DIR/a.txt, destination: DIR/b.txt}}`,
	gated:      `{tool: mcp.write_file, arguments: {path: DIR/c.txt, content: done}}`,
	expression: `'results[0].content'`,
	answer:     "Successfully wrote to DIR/c.txt",
}

// memory is the scenario for the Node package server-memory.
var memory = scenario{
	listed:     []string{"mcp.read_graph", "mcp.search_nodes", "mcp.create_entities", "mcp.delete_entities"},
	reads:      `["mcp.read_*", "mcp.search_*"]`,
	rules:      `  - {name: writes, match: ["mcp.create_*"], action: Ask}`,
	allowed:    [2]string{`{tool: mcp.read_graph, arguments: {}}`, `{tool: mcp.search_nodes, arguments: {query: pawl}}`},
	results:    [2]string{`{"entities":[],"relations":[]}`, `{"entities":[],"relations":[]}`},
	denied:     `{tool: mcp.delete_entities, arguments: {entityNames: [pawl]}}`,
	gated:      `{tool: mcp.create_entities, arguments: {entities: [{name: pawl, entityType: project, observations: [turns one way]}]}}`,
	expression: `'results[0].entities[0].observations[0]'`,
	answer:     "turns one way",
}

// in puts a folder in the place of DIR.
func (s scenario) in(dir string) scenario {
	for _, text := range []*string{&s.allowed[0], &s.allowed[1], &s.denied, &s.gated, &s.answer} {
		*text = strings.ReplaceAll(*text, "DIR", dir)
	}
	return s
}

// expectScenario moves a run through a scenario: tools are listed, those that are
// allowed are called, one is denied, and one runs once it was approved, in a session
// that did not exist when it was asked for.
func expectScenario(ctx context.Context, s server, endpoint string, want scenario, withSessions bool) {
	GinkgoHelper()
	world := runs.New(ctx, env, "mcp")
	world.Apply(ctx, objects, "ENDPOINT", endpoint, "READS", want.reads, "RULES", want.rules, "ALLOWED_1", want.allowed[0], "ALLOWED_2", want.allowed[1],
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
		world.Apply(ctx, objects, "ENDPOINT", s.URL+"/mcp-sessions", "READS", sdk.reads, "RULES", sdk.rules, "ALLOWED_1", sdk.allowed[0], "ALLOWED_2", sdk.allowed[1],
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

var _ = Describe("A run with the Go SDK's server for conformance tests", func() {
	It("lists, calls, is denied and asks, and survives a restart of the server", func(ctx SpecContext) {
		s := newEverythingServer(ctx)
		expectScenario(ctx, s, s.URL, everything, false)
	}, NodeTimeout(3*time.Minute))
})

var _ = Describe("A run with the server of an npm package", func() {
	It("lists, calls, is denied and asks, and survives the loss of its session: server-everything", func(ctx SpecContext) {
		s := newNodeServer(ctx, "@modelcontextprotocol/server-everything/dist/index.js", "streamableHttp")
		expectScenario(ctx, s, s.URL+"/mcp", node, true)
	}, NodeTimeout(npm.InstallTimeout))

	It("does so behind a proxy to standard input and output: server-filesystem", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600)).To(Succeed())
		s := newStdioServer(ctx, "NODE_ENV=test", "@modelcontextprotocol/server-filesystem/dist/index.js", dir)
		expectScenario(ctx, s, s.URL+"/mcp", filesystem.in(dir), false)
		Expect(os.ReadFile(filepath.Join(dir, "c.txt"))).To(Equal([]byte("done")))
		Expect(filepath.Join(dir, "b.txt")).NotTo(BeAnExistingFile())
	}, NodeTimeout(npm.InstallTimeout))

	It("does so behind a proxy to standard input and output: server-memory", func(ctx SpecContext) {
		s := newStdioServer(ctx, "MEMORY_FILE_PATH="+filepath.Join(GinkgoT().TempDir(), "memory.jsonl"), "@modelcontextprotocol/server-memory/dist/index.js")
		expectScenario(ctx, s, s.URL+"/mcp", memory, false)
	}, NodeTimeout(npm.InstallTimeout))
})
