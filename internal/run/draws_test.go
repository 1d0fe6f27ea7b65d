package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
)

// marker is in everything that a model, a tool or a person writes. Conditions must
// never show it.
const marker = "XyzzyMarker"

// dice gives 0 to n-1, each about as often. Rapid's own integers favour small ones, with
// which no conversation gets far.
func dice(t *rapid.T, label string, n int) int { return throws.Draw(t, label) % n }

var throws = rapid.Custom(func(t *rapid.T) int {
	value := 0
	for range 10 {
		value *= 2
		if rapid.Bool().Draw(t, "bit") {
			value++
		}
	}
	return value
})

func pick[V any](t *rapid.T, label string, values ...V) V {
	return values[dice(t, label, len(values))]
}

// chance is true about once in n times.
func chance(t *rapid.T, label string, n int) bool { return dice(t, label, n) == n-1 }

func anyRun(t *rapid.T) *journal.RunStarted {
	return sampleRun(func(r *journal.RunStarted) {
		r.SystemPrompt, r.Prompt = pick(t, "system", "", "You are "+marker), "Do "+marker
		r.HumanInput = !chance(t, "noHumanInput", 4)
		if !r.HumanInput {
			r.Tools = r.Tools[:len(sampleTools)]
		}
		if !chance(t, "noCheck", 4) {
			r.Tools = append(r.Tools, CheckTool())
		}
		r.Model.MaxAttempts = 1 + int32(dice(t, "modelAttempts", 3))
		r.Model.MaxOutputTokens = pick[int32](t, "maxOutputTokens", 1, 100, 4096)
		r.MaxToolResultBytes = pick[int32](t, "maxToolResultBytes", 64, 16384)
		r.Limits = journal.Limits{
			MaxTurns: 1 + int32(dice(t, "maxTurns", 12)), MaxToolCalls: pick[int32](t, "maxToolCalls", 3, 12, 40, 40),
			MaxTokens:             pick[int64](t, "maxTokens", 1500, 20_000, 200_000, 200_000),
			ActiveDeadlineSeconds: pick[int32](t, "activeDeadline", 90, 86400, 86400), DeadlineSeconds: pick[int32](t, "deadline", 900, 604800, 604800),
			MaxRepeatedPlans: 1 + int32(dice(t, "maxRepeatedPlans", 3)), MaxConsecutiveFailures: 2 + int32(dice(t, "maxFailures", 4)),
			MaxInvalidDecisions: int32(dice(t, "maxInvalid", 5)), InputTimeoutSeconds: pick[int32](t, "inputTimeout", 1, 600, 86400),
		}
		r.ContextTokens = pick[int64](t, "contextTokens", 0, 0, 900, 4000)
		if chance(t, "priced", 3) {
			r.Model.Prices = &journal.Prices{Input: "3", Output: "15", CacheWrite: "3.75"}
			r.Limits.MaxCost = pick(t, "maxCost", "", "0.05", "1")
		}
		if chance(t, "progress", 3) {
			r.Progress = &journal.Progress{Expression: pick(t, "measure", "results[0]", "results.size()", "results[0].left"), MaxUnchangedTurns: 1 + int32(dice(t, "maxUnchanged", 3))}
		}
		if chance(t, "output", 3) {
			r.Output = &journal.Output{Schema: json.RawMessage(`{"type":"object","required":["done"]}`),
				Validations: []journal.Validation{{Expression: "answer.done == true", Message: "be done, " + marker}}}
		}
	})
}

// anySpec draws a policy over the sample tools.
func anySpec(t *rapid.T) v1alpha1.ToolPolicySpec {
	spec := sampleSpec()
	spec.Tools = nil
	for _, name := range sampleTools {
		spec.Tools = append(spec.Tools, anyProperties(t, "s."+name))
	}
	spec.Rules = nil
	for i := range dice(t, "rules", 4) {
		spec.Rules = append(spec.Rules, anyRule(t, i))
	}
	if !chance(t, "denyRest", 8) {
		spec.Rules = append(spec.Rules, allowRule("rest", "s.*"))
	}
	return spec
}

func anyProperties(t *rapid.T, name string) v1alpha1.ToolProperties {
	p := v1alpha1.ToolProperties{
		Match:          []string{name},
		Effect:         pick(t, "effect", v1alpha1.EffectReadOnly, v1alpha1.EffectIdempotent, v1alpha1.EffectNonIdempotent),
		Execution:      pick(t, "execution", v1alpha1.ExecutionParallel, v1alpha1.ExecutionSequential, v1alpha1.ExecutionBackground),
		ConflictKey:    pick(t, "conflictKey", "", "args.k", "1 / 0"),
		TimeoutSeconds: pick[int32](t, "timeout", 1, 30, 3600),
		MaxCallsPerRun: pick[int32](t, "maxCalls", 0, 0, 2, 5),
		Required:       chance(t, "required", 6),
	}
	if p.Effect != v1alpha1.EffectNonIdempotent {
		p.MaxAttempts = 1 + int32(dice(t, "maxAttempts", 4))
	}
	if p.Effect == v1alpha1.EffectIdempotent {
		p.IdempotencyKeyLifetimeSeconds = pick[int32](t, "lifetime", 600, 86400)
	}
	if chance(t, "ignores", 3) {
		p.IgnoreForProgress = []string{"$.time"}
	}
	return p
}

func anyRule(t *rapid.T, i int) v1alpha1.ToolRule {
	consequence := func(label string) v1alpha1.Consequence {
		return pick(t, label, v1alpha1.ConsequenceReturnToModel, v1alpha1.ConsequenceReturnToModel, v1alpha1.ConsequenceEnd)
	}
	rule := v1alpha1.ToolRule{
		Name:   fmt.Sprintf("r%d", i),
		Match:  []string{pick(t, "match", "s.read", "s.look", "s.put", "s.act", "s.pay", "s.*", "s.*", "s.*")},
		When:   pick(t, "when", "", "", "", "", "has(args.n) && args.n > 1.0", "run.turn > 2", "args.missing == 1", "call.position == 0", "run.usage.totalTokens > 500"),
		Action: pick(t, "action", v1alpha1.ActionAllow, v1alpha1.ActionAsk, v1alpha1.ActionAsk, v1alpha1.ActionAsk, v1alpha1.ActionDeny),
	}
	switch rule.Action {
	case v1alpha1.ActionAllow:
	case v1alpha1.ActionAsk:
		rule.Approval = &v1alpha1.Approval{
			TimeoutSeconds: pick[int32](t, "approvalTimeout", 1, 300, 86400), OnTimeout: consequence("onTimeout"),
			OnDeny: consequence("onDeny"), Message: pick(t, "approvalMessage", "", "look closely"),
		}
	case v1alpha1.ActionDeny:
		rule.OnDeny = consequence("denyEnds")
	}
	return rule
}

var (
	soundArguments  = []string{`{}`, `{"k":"a"}`, `{"k":"b","n":2}`, `{"n":200}`, `{ "k" : "` + marker + `" }`, ``}
	brokenArguments = []string{`{"k":`, `[]`, `null`, `{"k":1}`, `{"k":"a","k":"b"}`, `{"other":"` + marker + `"}`, "\xff", `{} {}`, marker}
)

func anyArguments(t *rapid.T) string {
	if chance(t, "broken", 16) {
		return pick(t, "arguments", brokenArguments...)
	}
	return pick(t, "arguments", soundArguments...)
}

// anyCalls draws a batch. Most ids are fresh; some are missing, used before, or odd.
func anyCalls(t *rapid.T, fresh func() string) []model.Call {
	var calls []model.Call
	for range 1 + dice(t, "calls", 4) {
		call := model.Call{ID: fresh(), Alias: pick(t, "alias", sampleTools...), Arguments: anyArguments(t)}
		switch dice(t, "odd", 36) {
		case 16:
			call.ID = pick(t, "id", "", "", "call-1-1", "call-2-1", "c1", "an id\n", strings.Repeat("long", 40))
		case 17:
			call.Alias = pick(t, "unknown", "nothing", "", "s.read", marker, "READ", strings.Repeat("x", 300))
		case 18:
			call.Alias = pick(t, "builtin", ToolAsk, ToolRequestApproval, ToolCannotContinue)
		case 19:
			if len(calls) > 0 {
				call.ID = calls[0].ID
			}
		}
		calls = append(calls, call)
	}
	return calls
}

func anyBuiltIn(t *rapid.T, fresh func() string) model.Call {
	call := model.Call{ID: fresh()}
	switch dice(t, "builtIn", 7) {
	case 0:
		call.Alias, call.Arguments = ToolAsk, `{"question":"Which one, `+marker+`?"}`
	case 1, 2, 3, 4:
		intents := []string{}
		for range dice(t, "intents", 3) {
			intents = append(intents, fmt.Sprintf(`{"tool":%q,"arguments":%s}`, pick(t, "intended", sampleTools...), pick(t, "arguments", soundArguments[:5]...)))
		}
		call.Alias, call.Arguments = ToolRequestApproval, `{"text":"May I, `+marker+`?","calls":[`+strings.Join(intents, ",")+`]}`
	case 5:
		call.Alias, call.Arguments = ToolCannotContinue, `{"reason":"`+marker+`"}`
	default:
		call.Alias, call.Arguments = pick(t, "alias", ToolAsk, ToolRequestApproval, ToolCannotContinue), anyArguments(t)
	}
	return call
}

// anyReply draws whatever a model, or something that pretends to be one, may say.
func anyReply(t *rapid.T, fresh func() string) model.Reply {
	reply := model.Reply{StopReason: pick(t, "stop", "", "stop", marker), RequestID: pick(t, "requestID", "", "req-1")}
	d := &reply.Decision
	d.Text = pick(t, "text", "", "I think of "+marker)
	switch dice(t, "kind", 40) {
	case 24:
		d.Kind, d.Text = model.KindFinal, pick(t, "answer", marker, `{"done":true}`, `{"done":false}`, "", " \n", "```json\n{\"done\":true}\n```")
	case 23:
		d.Kind = pick(t, "ending", model.KindRefused, model.KindOverflow)
	case 22:
		d.Kind, d.Code = model.KindInvalid, pick(t, "code", model.CodeCutOff, model.CodeEmpty, model.CodeMalformed)
		d.Problem = pick(t, "problem", "", "Say something else than "+marker)
	case 21:
		d.Kind, d.Calls = pick[model.Kind](t, "garbage", "", "Nonsense", model.KindCalls), nil
	case 17, 18, 19, 20, 25, 26, 27, 28:
		d.Kind, d.Calls = model.KindCalls, []model.Call{anyBuiltIn(t, fresh)}
	default:
		d.Kind, d.Calls = model.KindCalls, anyCalls(t, fresh)
	}
	if chance(t, "raw", 3) {
		reply.Raw = json.RawMessage(pick(t, "rawPart", `{"role":"assistant","content":"`+marker+`"}`, `{`, `null`))
	}
	reply.Usage = model.Usage{Reported: !chance(t, "unreported", 4), InputTokens: 50, OutputTokens: 20}
	if chance(t, "absurd", 12) {
		reply.Usage.InputTokens = pick[int64](t, "input", 0, 1000, -1_000_000, 1<<62)
		reply.Usage.OutputTokens = pick[int64](t, "output", 0, 1000, -1, 1<<62)
	}
	return reply
}

func anyFailure(t *rapid.T) *model.Error {
	return &model.Error{
		Class: pick[model.Class](t, "class", model.ClassTransient, model.ClassTransient, model.ClassThrottled, model.ClassUnauthorized,
			model.ClassQuota, model.ClassOverflow, model.ClassRequest, model.ClassCanceled, "Odd"),
		Status: pick(t, "status", 0, 429, 500, 401), Code: pick(t, "code", "", "overloaded_error"),
		RetryAfter: pick(t, "retryAfter", 0, time.Second, time.Hour, 240*time.Hour, -time.Second), Sent: rapid.Bool().Draw(t, "sent"),
		Detail: marker,
	}
}

// anyOutcome draws what honest adapters report, and now and then what none should.
func anyOutcome(t *rapid.T) tool.Outcome {
	if !chance(t, "dishonest", 6) {
		outcome := pick(t, "outcome", gave(`{"left":3,"time":1,"m":"`+marker+`"}`), gave(`{"left":2,"time":2}`), gave(`"`+marker+`"`), gave(`null`),
			notSent, lostReply, timedOut, throttled, turnedOff, toolError)
		outcome.RetryAfter = pick(t, "retryAfter", 0, 0, time.Second, 20*time.Minute, 48*time.Hour)
		return outcome
	}
	return tool.Outcome{
		Class: pick[tool.Class](t, "class", tool.ClassOK, tool.ClassTimeout, tool.ClassTransport, tool.ClassToolError, tool.ClassRejected,
			tool.ClassThrottled, tool.ClassNotRun, tool.ClassUnknown, tool.ClassDenied, tool.ClassValidation, "odd", ""),
		Effect:    pick[tool.EffectState](t, "effect", tool.EffectCommitted, tool.EffectRejected, tool.EffectUnknown, "", "odd"),
		Retryable: rapid.Bool().Draw(t, "retryable"), RetryAfter: pick(t, "retryAfter", 0, -time.Hour, 48*time.Hour),
		Value: json.RawMessage(pick(t, "value", "", `{"a":1}`, `{`, "\xff", `"`+strings.Repeat(marker, 50)+`"`)), Message: pick(t, "message", "", marker),
		Receipt: pick(t, "receipt", "", marker),
	}
}
