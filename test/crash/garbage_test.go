package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// garbled is a run whose tool nothing forbids, if only the model made sense.
const garbled = `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: NAME}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: 'PROMPT', limits: {maxInvalidDecisions: 1, maxTokens: 100000000}}
`

const garbledSetting = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: OpenAI, model: test-model, endpoint: MODELS, maxAttempts: 2, requestTimeoutSeconds: 1}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: profiles, http: {url: TOOLS/profiles, tools: [{name: lookup, inputSchema: {type: object, required: [key], properties: {key: {type: string}}}}]}}]
  tools: [{match: ["*"], effect: ReadOnly}]
  rules: [{name: everything, match: ["*"], action: Allow}]
`

// lookup is a proposed call as a model writes it.
func lookup(id string, arguments any) map[string]any {
	return map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "lookup", "arguments": arguments}}
}

func batch(calls ...any) map[string]any {
	return map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}
}

// nonsense are answers of the right form that no run can be moved by, by what is wrong
// with them.
func nonsense() map[string]fakemodel.Answer {
	good := `{"key":"profile"}`
	return map[string]fakemodel.Answer{
		"a tool that nobody offered":        fakemodel.Propose(fakemodel.Call{Name: "rm_rf", Arguments: good}),
		"arguments that are no JSON":        fakemodel.ChatReply(batch(lookup("call_1", `{"key": profile`)), "tool_calls"),
		"arguments that are a list":         fakemodel.ChatReply(batch(lookup("call_1", `["profile"]`)), "tool_calls"),
		"arguments that are a number":       fakemodel.ChatReply(batch(lookup("call_1", 7)), "tool_calls"),
		"arguments with a member twice":     fakemodel.ChatReply(batch(lookup("call_1", `{"key":"profile","key":"policy"}`)), "tool_calls"),
		"arguments of the wrong type":       fakemodel.ChatReply(batch(lookup("call_1", `{"key":{"$ne":1}}`)), "tool_calls"),
		"arguments that nobody declared":    fakemodel.ChatReply(batch(lookup("call_1", `{"key":"profile","sudo":true}`)), "tool_calls"),
		"arguments without end":             fakemodel.ChatReply(batch(lookup("call_1", strings.Repeat("[", 100000))), "tool_calls"),
		"the same id twice":                 fakemodel.ChatReply(batch(lookup("call_1", good), lookup("call_1", good)), "tool_calls"),
		"more calls than anybody wants":     fakemodel.ChatReply(batch(slices.Repeat([]any{lookup("", good)}, 500)...), "tool_calls"),
		"a batch that is cut off":           fakemodel.ChatReply(batch(lookup("call_1", good)), "length"),
		"a batch of a filtered reply":       fakemodel.ChatReply(batch(lookup("call_1", good)), "content_filter"),
		"a stop reason from the future":     fakemodel.ChatReply(map[string]any{"role": "assistant", "content": "Done."}, "teleported"),
		"a batch of no calls":               fakemodel.ChatReply(batch(), "tool_calls"),
		"calls that are no list":            fakemodel.ChatReply(map[string]any{"role": "assistant", "content": nil, "tool_calls": "lookup"}, "tool_calls"),
		"a call that is no function":        fakemodel.ChatReply(batch(map[string]any{"id": "call_1", "type": "custom", "custom": map[string]any{"name": "lookup", "input": good}}), "tool_calls"),
		"an empty answer":                   fakemodel.Text(""),
		"an answer of spaces":               fakemodel.Text(" \n\t "),
		"a reply that is too large":         fakemodel.Text(strings.Repeat("la ", 1<<20)),
		"a refusal with calls":              fakemodel.ChatReply(map[string]any{"role": "assistant", "content": nil, "refusal": "I won't.", "tool_calls": []any{lookup("call_1", good)}}, "tool_calls"),
		"an answer that never comes":        fakemodel.Hang(),
		"an answer that ends in the middle": fakemodel.CutAfter(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: good}), 200),
		"no answer":                         fakemodel.Cut(),
	}
}

var _ = Describe("A model that answers with garbage", func() {
	It("neither ends the operator nor makes a tool run", func(ctx SpecContext) {
		answers := nonsense()
		for name, body := range fakemodel.Garbage(fakemodel.Chat) {
			answers[name] = fakemodel.Raw(body)
		}
		Expect(len(answers)).To(BeNumerically(">=", 12))
		server, err := fakemodel.Start(fakemodel.Options{AllowUnknownPrefix: true, Answer: func(request fakemodel.Request) fakemodel.Answer {
			for _, m := range request.Messages {
				if m.Role == "user" {
					return answers[m.Text]
				}
			}
			return fakemodel.Refuse(400, "test", "who is asking?")
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(server.Close()).To(Succeed()) })
		operator := env.Operator()
		before := len(env.Tools.Ledger())

		world := runs.New(ctx, env, "garbage")
		world.Apply(ctx, garbledSetting, "MODELS", server.Endpoint(fakemodel.Chat), "TOOLS", tools.URL)
		names := slices.Sorted(maps.Keys(answers))
		for i, name := range names {
			world.Apply(ctx, garbled, "NAME", fmt.Sprintf("run-%d", i), "PROMPT", name)
		}
		for i, name := range names {
			run := world.AwaitEnd(ctx, fmt.Sprintf("run-%d", i))
			c := runs.Succeeded(run)
			GinkgoWriter.Printf("%s: %s: %s\n", name, c.Reason, c.Message)
			allowed := []v1alpha1.Reason{v1alpha1.ReasonInvalidDecision, v1alpha1.ReasonModelError}
			if strings.Contains(name, "refusal") || strings.Contains(name, "filtered") {
				allowed = []v1alpha1.Reason{v1alpha1.ReasonModelRefused}
			}
			Expect(c.Message).NotTo(ContainSubstring("Canceled"), name)
			Expect(v1alpha1.Reason(c.Reason)).To(BeElementOf(allowed), "%s: %s", name, c.Message)
			Expect(run.Status.ToolCalls).To(BeZero(), name)
			world.Journal(ctx, run)
		}
		Expect(env.Tools.Ledger()).To(HaveLen(before), "no tool has run")
		Expect(server.Refusals()).To(BeEmpty(), "what the operator sends stays in order")
		Expect(env.Operator()).To(BeIdenticalTo(operator))
		Expect(operator.Exited()).NotTo(BeClosed(), "the operator is alive")
	}, NodeTimeout(time.Minute))
})
