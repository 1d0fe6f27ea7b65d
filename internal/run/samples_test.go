package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/tool"
)

// sampleTools are the tools of the server "s".
var sampleTools = []string{"read", "look", "put", "act", "pay"}

const sampleSchema = `{"type":"object","properties":{"k":{"type":"string"},"n":{"type":"number"}}}`

// sampleSpec declares the tools and their properties, and allows everything: read and
// look are ReadOnly, put is Idempotent, act and pay are NonIdempotent.
func sampleSpec() v1alpha1.ToolPolicySpec {
	server := &v1alpha1.HTTPServer{URL: "https://s.internal"}
	for _, name := range sampleTools {
		server.Tools = append(server.Tools, v1alpha1.HTTPTool{
			Name: name, Description: name, InputSchema: runtime.RawExtension{Raw: []byte(sampleSchema)},
		})
	}
	return v1alpha1.ToolPolicySpec{
		Servers: []v1alpha1.ToolServer{{Name: "s", HTTP: server}},
		Tools: []v1alpha1.ToolProperties{
			{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel, MaxAttempts: 3},
			{Match: []string{"s.look"}, Effect: v1alpha1.EffectReadOnly},
			{Match: []string{"s.put"}, Effect: v1alpha1.EffectIdempotent, MaxAttempts: 3, IdempotencyKeyLifetimeSeconds: 3600},
		},
		Rules: []v1alpha1.ToolRule{{Name: "all", Match: []string{"s.*"}, Action: v1alpha1.ActionAllow}},
	}
}

// ruled is sampleSpec with other rules.
func ruled(rules ...v1alpha1.ToolRule) v1alpha1.ToolPolicySpec {
	spec := sampleSpec()
	spec.Rules = rules
	return spec
}

// withProperties is sampleSpec where a tool has other properties.
func withProperties(properties ...v1alpha1.ToolProperties) v1alpha1.ToolPolicySpec {
	spec := sampleSpec()
	spec.Tools = append(properties, spec.Tools...)
	return spec
}

func allowRule(name string, match ...string) v1alpha1.ToolRule {
	return v1alpha1.ToolRule{Name: name, Match: match, Action: v1alpha1.ActionAllow}
}

func denyRule(name string, match ...string) v1alpha1.ToolRule {
	return v1alpha1.ToolRule{Name: name, Match: match, Action: v1alpha1.ActionDeny}
}

func askRule(name string, approval v1alpha1.Approval, match ...string) v1alpha1.ToolRule {
	return v1alpha1.ToolRule{Name: name, Match: match, Action: v1alpha1.ActionAsk, Approval: &approval}
}

func compiled(t tb, spec v1alpha1.ToolPolicySpec) *policy.Set {
	t.Helper()
	one, problems := policy.Compile("tools", spec)
	if len(problems) > 0 {
		t.Fatalf("compiling the policy: %v", problems)
	}
	set, err := policy.NewSet([]*policy.Policy{one})
	if err != nil {
		t.Fatalf("joining policies: %v", err)
	}
	return set
}

// sampleRun is a RunStarted with generous limits and every sample tool.
func sampleRun(edits ...func(*journal.RunStarted)) *journal.RunStarted {
	started := &journal.RunStarted{
		Namespace: "support", Name: "order-17", SystemPrompt: "You help.", Prompt: "Please help.",
		Model: journal.Model{Name: "m", Provider: "Scripted", MaxOutputTokens: 1000, RequestTimeoutSeconds: 60, MaxAttempts: 3},
		Limits: journal.Limits{
			MaxTurns: 20, MaxToolCalls: 40, MaxTokens: 1_000_000, ActiveDeadlineSeconds: 86400, DeadlineSeconds: 7 * 86400,
			MaxRepeatedPlans: 3, MaxConsecutiveFailures: 3, MaxInvalidDecisions: 2, InputTimeoutSeconds: 3600,
		},
		MaxToolResultBytes: 4096, HumanInput: true, Projection: prompt.Version,
	}
	var names []string
	for _, name := range sampleTools {
		names = append(names, "s."+name)
	}
	aliases := Aliases(names)
	for _, name := range names {
		started.Tools = append(started.Tools, journal.Tool{
			Name: name, Alias: aliases[name], InputSchema: []byte(sampleSchema),
			Digest: tool.Definition{InputSchema: []byte(sampleSchema)}.Digest(name),
		})
	}
	started.Tools = append(append(started.Tools, ReadTool()), BuiltInTools()...)
	for _, edit := range edits {
		edit(started)
	}
	return started
}

// called is a proposed call; its id is what comes before the colon of "id:alias".
func called(name, arguments string) model.Call {
	id, alias, _ := strings.Cut(name, ":")
	return model.Call{ID: id, Alias: alias, Arguments: arguments}
}

func proposes(calls ...model.Call) model.Reply {
	return counted(model.Decision{Kind: model.KindCalls, Calls: calls})
}

// readsAgain proposes one call of read with arguments that tell turns apart.
func readsAgain(n int) model.Reply {
	return proposes(called(fmt.Sprintf("r%d:read", n), fmt.Sprintf(`{"n":%d}`, n)))
}

func finalAnswer(text string) model.Reply {
	return counted(model.Decision{Kind: model.KindFinal, Text: text})
}

func invalidReply(code string) model.Reply {
	return counted(model.Decision{Kind: model.KindInvalid, Code: code, Problem: "That was wrong."})
}

func counted(decision model.Decision) model.Reply {
	return model.Reply{Decision: decision, StopReason: "stop", Usage: model.Usage{InputTokens: 100, OutputTokens: 10, Reported: true}}
}

func gave(value string) tool.Outcome {
	return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(value)}
}

// Outcomes that adapters report.
var (
	notSent   = tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: true, Message: "not sent"}
	lostReply = tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Message: "the answer was lost"}
	timedOut  = tool.Outcome{Class: tool.ClassTimeout, Effect: tool.EffectUnknown, Retryable: true, Message: "no answer in time"}
	throttled = tool.Outcome{Class: tool.ClassThrottled, Effect: tool.EffectRejected, Retryable: true, Message: "later"}
	goesOn    = tool.Outcome{Class: tool.ClassDeferred, Deferred: &tool.Deferred{Handle: "https://tools/1", PollAfter: 10 * time.Second}}
	turnedOff = tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected, Message: "refused"}
	toolError = tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: json.RawMessage(`"no such order"`), Message: "the tool reports a failure"}
)

// types lists the types of the records, to show what happened.
func types(records []journal.Record) []journal.Type {
	return slices.Collect(func(yield func(journal.Type) bool) {
		for _, record := range records {
			if !yield(record.Event.Type) {
				return
			}
		}
	})
}
