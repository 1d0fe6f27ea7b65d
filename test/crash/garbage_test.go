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
	"github.com/pawl-run/pawl/test/models"
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

// call is a proposed call as a model writes it.
func call(id, name string, arguments any) map[string]any {
	return map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}}
}

func batch(calls ...any) map[string]any {
	return map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}
}

// nonsense are answers of the right form that no run can be moved by, by what is wrong
// with them.
func nonsense() map[string]models.Answer {
	good := `{"key":"profile"}`
	whole := models.Message(batch(call("call_1", "lookup", good)), "tool_calls").Body
	return map[string]models.Answer{
		"a tool that nobody offered":        models.Propose(models.Call{Name: "rm_rf", Arguments: good}),
		"arguments that are no JSON":        models.Message(batch(call("call_1", "lookup", `{"key": profile`)), "tool_calls"),
		"arguments that are a list":         models.Message(batch(call("call_1", "lookup", `["profile"]`)), "tool_calls"),
		"arguments that are a number":       models.Message(batch(call("call_1", "lookup", 7)), "tool_calls"),
		"arguments with a member twice":     models.Message(batch(call("call_1", "lookup", `{"key":"profile","key":"policy"}`)), "tool_calls"),
		"arguments of the wrong type":       models.Message(batch(call("call_1", "lookup", `{"key":{"$ne":1}}`)), "tool_calls"),
		"arguments that nobody declared":    models.Message(batch(call("call_1", "lookup", `{"key":"profile","sudo":true}`)), "tool_calls"),
		"arguments without end":             models.Message(batch(call("call_1", "lookup", strings.Repeat("[", 100000))), "tool_calls"),
		"the same id twice":                 models.Message(batch(call("call_1", "lookup", good), call("call_1", "lookup", good)), "tool_calls"),
		"more calls than anybody wants":     models.Message(batch(slices.Repeat([]any{call("", "lookup", good)}, 500)...), "tool_calls"),
		"a batch that is cut off":           models.Message(batch(call("call_1", "lookup", good)), "length"),
		"a batch of a filtered reply":       models.Message(batch(call("call_1", "lookup", good)), "content_filter"),
		"a stop reason from the future":     models.Message(map[string]any{"role": "assistant", "content": "Done."}, "teleported"),
		"a batch of no calls":               models.Message(batch(), "tool_calls"),
		"calls that are no list":            models.Message(map[string]any{"role": "assistant", "content": nil, "tool_calls": "lookup"}, "tool_calls"),
		"a call that is no function":        models.Message(batch(map[string]any{"id": "call_1", "type": "custom", "custom": map[string]any{"name": "lookup", "input": good}}), "tool_calls"),
		"an empty answer":                   models.Text(""),
		"an answer of spaces":               models.Text(" \n\t "),
		"a reply that is too large":         models.Text(strings.Repeat("la ", 1<<20)),
		"a refusal with calls":              models.Message(map[string]any{"role": "assistant", "content": nil, "refusal": "I won't.", "tool_calls": []any{call("call_1", "lookup", good)}}, "tool_calls"),
		"an answer that never comes":        models.Hang(),
		"an answer that ends in the middle": {Body: whole, CutAfter: len(whole) / 2},
		"no answer":                         models.Cut(),
	}
}

var _ = Describe("A model that answers with garbage", func() {
	It("neither ends the operator nor makes a tool run", func(ctx SpecContext) {
		answers := nonsense()
		for name, body := range models.Garbage() {
			answers[name] = models.Raw(body)
		}
		Expect(len(answers)).To(BeNumerically(">=", 12))
		server, err := models.Start(models.Options{AllowUnknownPrefix: true, Answer: func(request models.Request) models.Answer {
			for _, m := range request.Messages {
				if m.Role == "user" {
					return answers[m.Text()]
				}
			}
			return models.Refuse(400, "test", "who is asking?")
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(server.Close()).To(Succeed()) })
		operator := env.Operator()
		before := len(env.Tools.Ledger())

		world := runs.New(ctx, env, "garbage")
		world.Apply(ctx, garbledSetting, "MODELS", server.URL(), "TOOLS", tools.URL)
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
