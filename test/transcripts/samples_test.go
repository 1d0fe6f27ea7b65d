package transcripts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// wireUnderTest is a wire with the client that speaks it.
type wireUnderTest struct {
	wire   fakemodel.Wire
	client func(endpoint string) (model.Client, error)
	// textArguments is true where arguments are a text, which may be no JSON at all.
	textArguments bool
	// pauses is true where the provider may pause.
	pauses bool
}

var wiresUnderTest = []wireUnderTest{
	{wire: fakemodel.Chat, textArguments: true, client: func(endpoint string) (model.Client, error) {
		return openai.New(wire.Config{Endpoint: endpoint, Model: "test-model"})
	}},
	// Of a family that reasons.
	{wire: fakemodel.Responses, textArguments: true, client: func(endpoint string) (model.Client, error) {
		return responses.New(wire.Config{Endpoint: endpoint, Model: "gpt-5"})
	}},
	// Of a generation that refuses a call without its signature.
	{wire: fakemodel.Gemini, client: func(endpoint string) (model.Client, error) {
		return gemini.New(wire.Config{Endpoint: endpoint, Model: "gemini-3-pro"})
	}},
	{wire: fakemodel.Messages, pauses: true, client: func(endpoint string) (model.Client, error) {
		return anthropic.New(wire.Config{Endpoint: endpoint, Model: "test-model"})
	}},
}

// The tools of the server "s": what they do, and what the rules say about them.
//
//	read    ReadOnly, tried three times
//	put     Idempotent, tried three times
//	act     NonIdempotent
//	pay     NonIdempotent, a person decides
//	erase   denied
var toolNames = []string{"read", "put", "act", "pay", "erase", "render"}

const toolSchema = `{"type":"object","properties":{"k":{"type":"string"},"n":{"type":"number"}},"additionalProperties":false}`

func rules(t *testing.T) *policy.Set {
	t.Helper()
	server := &v1alpha1.HTTPServer{URL: "https://s.internal"}
	for _, name := range toolNames {
		server.Tools = append(server.Tools, v1alpha1.HTTPTool{
			Name: name, Description: "Does " + name + ".", InputSchema: runtime.RawExtension{Raw: []byte(toolSchema)},
		})
	}
	one, problems := policy.Compile("tools", v1alpha1.ToolPolicySpec{
		Servers: []v1alpha1.ToolServer{{Name: "s", HTTP: server}},
		Tools: []v1alpha1.ToolProperties{
			{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel, MaxAttempts: 3},
			{Match: []string{"s.put"}, Effect: v1alpha1.EffectIdempotent, MaxAttempts: 3, IdempotencyKeyLifetimeSeconds: 3600},
			{Match: []string{"s.render"}, Execution: v1alpha1.ExecutionBackground, TimeoutSeconds: 600},
		},
		Rules: []v1alpha1.ToolRule{
			{Name: "never", Match: []string{"s.erase"}, Action: v1alpha1.ActionDeny},
			{Name: "payments", Match: []string{"s.pay"}, Action: v1alpha1.ActionAsk, Approval: &v1alpha1.Approval{
				TimeoutSeconds: 60, OnTimeout: v1alpha1.ConsequenceReturnToModel,
			}},
			{Name: "rest", Match: []string{"s.*"}, Action: v1alpha1.ActionAllow},
		},
	})
	if len(problems) > 0 {
		t.Fatalf("compiling the policy: %v", problems)
	}
	set, err := policy.NewSet([]*policy.Policy{one})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func started(w wireUnderTest, contextTokens int64) *journal.RunStarted {
	s := &journal.RunStarted{
		Namespace: "support", Name: "order-17", SystemPrompt: "You help.", Prompt: "Please help.",
		Model: journal.Model{Name: "m", Provider: w.wire.Name(), MaxOutputTokens: 1000, RequestTimeoutSeconds: 60, MaxAttempts: 3},
		Limits: journal.Limits{
			MaxTurns: 20, MaxToolCalls: 40, MaxTokens: 1_000_000, ActiveDeadlineSeconds: 86400, DeadlineSeconds: 7 * 86400,
			MaxRepeatedPlans: 3, MaxConsecutiveFailures: 3, MaxInvalidDecisions: 3, InputTimeoutSeconds: 3600,
		},
		MaxToolResultBytes: 4096, HumanInput: true, ContextTokens: contextTokens, Projection: prompt.Version,
	}
	var names []string
	for _, name := range toolNames {
		names = append(names, "s."+name)
	}
	aliases := run.Aliases(names)
	for i, name := range names {
		description := "Does " + toolNames[i] + "."
		s.Tools = append(s.Tools, journal.Tool{
			Name: name, Alias: aliases[name], Description: description, InputSchema: json.RawMessage(toolSchema),
			Digest: tool.Definition{Description: description, InputSchema: json.RawMessage(toolSchema)}.Digest(name),
		})
	}
	s.Tools = append(append(s.Tools, run.BuiltInTools()...), run.ReadTool(), run.CheckTool())
	return s
}

// Outcomes that adapters report.
var (
	fine      = tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(`{"total":12.50}`)}
	large     = tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(`"` + strings.Repeat("all work ", 400) + `"`)}
	goesOn    = tool.Outcome{Class: tool.ClassDeferred, Deferred: &tool.Deferred{Handle: "https://s.internal/1", PollAfter: 5 * time.Minute}}
	notSent   = tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: true, Message: "not sent"}
	timedOut  = tool.Outcome{Class: tool.ClassTimeout, Effect: tool.EffectUnknown, Retryable: true, Message: "no answer in time"}
	turnedOff = tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected, Message: "the service refused"}
	toolError = tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: json.RawMessage(`"no such order"`), Message: "the tool reports a failure"}
)

func call(name, arguments string) fakemodel.Call {
	return fakemodel.Call{Name: name, Arguments: arguments}
}

// proposes is a reply with calls, and with thoughts that the provider signs where it does.
func proposes(calls ...fakemodel.Call) fakemodel.Answer {
	return fakemodel.Thinking(fakemodel.Propose(calls...), "Let me see.")
}
