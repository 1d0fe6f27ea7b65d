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
spec: {modelRef: {name: MODEL}, toolPolicyRefs: [{name: policy}], prompt: 'PROMPT', limits: {maxInvalidDecisions: 1, maxTokens: 100000000}}
`

const garbledPolicy = `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers: [{name: profiles, http: {url: TOOLS/profiles, tools: [{name: lookup, inputSchema: {type: object, required: [key], properties: {key: {type: string}}}}]}}]
  tools: [{match: ["*"], effect: ReadOnly}]
  rules: [{name: everything, match: ["*"], action: Allow}]
`

const garbledModel = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: NAME}
spec: {provider: PROVIDER, model: test-model, endpoint: MODELS, maxAttempts: 2, requestTimeoutSeconds: 1}
`

// garbledWires are the wires on which garbage comes.
var garbledWires = []fakemodel.Wire{fakemodel.Chat, fakemodel.Responses, fakemodel.Messages, fakemodel.Gemini}

// lookup is a proposed call as a model writes it.
func lookup(id string, arguments any) map[string]any {
	return map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "lookup", "arguments": arguments}}
}

func batch(calls ...any) map[string]any {
	return map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}
}

const good = `{"key":"profile"}`

// nonsense are answers that no run can be moved by, by what is wrong with them.
func nonsense(wire fakemodel.Wire) map[string]fakemodel.Answer {
	call := func(arguments string) fakemodel.Call { return fakemodel.Call{Name: "lookup", Arguments: arguments} }
	ends := func(text string, stop fakemodel.Stop, calls ...fakemodel.Call) fakemodel.Answer {
		return fakemodel.Answer{Reply: &fakemodel.Reply{Text: text, Calls: calls, Stop: stop}}
	}
	answers := map[string]fakemodel.Answer{
		"a tool that nobody offered":        fakemodel.Propose(fakemodel.Call{Name: "rm_rf", Arguments: good}),
		"arguments with a member twice":     fakemodel.Propose(call(`{"key":"profile","key":"policy"}`)),
		"arguments of the wrong type":       fakemodel.Propose(call(`{"key":{"$ne":1}}`)),
		"arguments that nobody declared":    fakemodel.Propose(call(`{"key":"profile","sudo":true}`)),
		"more calls than anybody wants":     fakemodel.Propose(slices.Repeat([]fakemodel.Call{call(good)}, 500)...),
		"a batch that is cut off":           ends("", fakemodel.StopCutOff, call(good)),
		"a refusal with calls":              ends("I won't.", fakemodel.StopRefused, call(good)),
		"a stop reason from the future":     {Reply: &fakemodel.Reply{Text: "Done.", StopReason: "teleported"}},
		"an empty answer":                   fakemodel.Text(""),
		"an answer of spaces":               fakemodel.Text(" \n\t "),
		"a reply that is too large":         fakemodel.Text(strings.Repeat("la ", 3<<20)),
		"an answer that never comes":        fakemodel.Hang(),
		"an answer that ends in the middle": fakemodel.CutAfter(fakemodel.Propose(call(good)), 100),
		"no answer":                         fakemodel.Cut(),
	}
	for name, body := range fakemodel.Garbage(wire) {
		answers[name] = fakemodel.Raw(body)
	}
	if wire == fakemodel.Chat {
		maps.Copy(answers, chatNonsense())
	}
	return answers
}

// chatNonsense is what can be wrong on Chat Completions alone, where arguments are a text
// and the servers are many.
func chatNonsense() map[string]fakemodel.Answer {
	return map[string]fakemodel.Answer{
		"arguments that are no JSON":  fakemodel.ChatReply(batch(lookup("call_1", `{"key": profile`)), "tool_calls"),
		"arguments that are a list":   fakemodel.ChatReply(batch(lookup("call_1", `["profile"]`)), "tool_calls"),
		"arguments that are a number": fakemodel.ChatReply(batch(lookup("call_1", 7)), "tool_calls"),
		"arguments without end":       fakemodel.ChatReply(batch(lookup("call_1", strings.Repeat("[", 100000))), "tool_calls"),
		"the same id twice":           fakemodel.ChatReply(batch(lookup("call_1", good), lookup("call_1", good)), "tool_calls"),
		"calls without an id":         fakemodel.ChatReply(batch(slices.Repeat([]any{lookup("", good)}, 500)...), "tool_calls"),
		"a batch of a filtered reply": fakemodel.ChatReply(batch(lookup("call_1", good)), "content_filter"),
		"a batch of no calls":         fakemodel.ChatReply(batch(), "tool_calls"),
		"calls that are no list":      fakemodel.ChatReply(map[string]any{"role": "assistant", "content": nil, "tool_calls": "lookup"}, "tool_calls"),
		"a call that is no function":  fakemodel.ChatReply(batch(map[string]any{"id": "call_1", "type": "custom", "custom": map[string]any{"name": "lookup", "input": good}}), "tool_calls"),
	}
}

var _ = Describe("A model that answers with garbage", func() {
	It("neither ends the operator nor makes a tool run", func(ctx SpecContext) {
		// answers are by the run's prompt, which names wire and trouble.
		answers := map[string]fakemodel.Answer{}
		for _, wire := range garbledWires {
			for name, answer := range nonsense(wire) {
				answers[wire.Name()+": "+name] = answer
			}
		}
		Expect(len(answers)).To(BeNumerically(">=", 12*len(garbledWires)))
		server, err := fakemodel.Start(fakemodel.Options{AllowUnknownPrefix: true, Answer: func(request fakemodel.Request) fakemodel.Answer {
			for _, m := range request.Messages {
				if m.Role == "user" {
					// What was wrong with a reply may stand behind the prompt.
					prompt, _, _ := strings.Cut(m.Text, "\n\n")
					return answers[prompt]
				}
			}
			return fakemodel.Refuse(400, "test", "who is asking?")
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(server.Close()).To(Succeed()) })
		operator := env.Operator()
		before := len(env.Tools.Ledger())

		world := runs.New(ctx, env, "garbage")
		world.Apply(ctx, garbledPolicy, "TOOLS", tools.URL)
		for _, wire := range garbledWires {
			world.Apply(ctx, garbledModel, "NAME", strings.ToLower(wire.Name()), "PROVIDER", wire.Name(), "MODELS", server.Endpoint(wire))
		}
		names := slices.Sorted(maps.Keys(answers))
		for i, name := range names {
			wire, _, _ := strings.Cut(name, ":")
			world.Apply(ctx, garbled, "NAME", fmt.Sprintf("run-%d", i), "PROMPT", name, "MODEL", strings.ToLower(wire))
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
