package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// Bounds on one reply. What is larger can't be journalled, so nothing of it is used.
const (
	maxReplyBytes = 512 << 10
	maxCalls      = 64
	// maxDecisionBytes bounds what is journalled of a reply, escapes included, so that
	// it always fits a segment.
	maxDecisionBytes = 768 << 10
	// maxUsage is the largest count of tokens that is believed.
	maxUsage = 1_000_000_000
)

// Codes of an invalid decision beside those of package model.
const (
	// CodeOutput is an answer that does not satisfy spec.output.
	CodeOutput = "OutputInvalid"
	// CodeCalls is a batch in which no call is valid.
	CodeCalls = "NoValidCall"
	// CodeTooLarge is a reply beyond what can be journalled.
	CodeTooLarge = "TooLarge"
)

// Asked is what is known of the request that a reply answers.
type Asked struct {
	Request model.Request
	// Clipped, CostClipped and Through are those of the step that asked.
	Clipped, CostClipped bool
	Through              int32
	Duration             time.Duration
}

// Asking is a request that a step of kind AskModel asks for.
func Asking(step Step) Asked {
	return Asked{Request: step.Request, Clipped: step.Clipped, CostClipped: step.CostClipped, Through: step.Through}
}

// lowered is the output limit of a request that a budget lowered, 0 of any other.
func (a Asked) lowered() int32 {
	if a.Clipped || a.CostClipped {
		return a.Request.MaxOutputTokens
	}
	return 0
}

// RecordReply turns a model's reply, which is untrusted, into a decision. Only what
// passes type, schema and policy here can ever be sent.
func RecordReply(f Facts, asked Asked, reply model.Reply) Entry {
	d := normalise(reply)
	if d.Kind == model.KindOverflow {
		return recordOverflow(f, asked, reply)
	}
	entry := recordDecision(f, asked, reply, d)
	if len(mustJSON(entry.Payload))+len(entry.Part) > maxDecisionBytes {
		entry = recordDecision(f, asked, reply, tooLarge)
	}
	return entry
}

var tooLarge = model.Decision{
	Kind: model.KindInvalid, Code: CodeTooLarge,
	Problem: fmt.Sprintf("Your reply was too large. Keep it under %d bytes and %d calls.", maxReplyBytes, maxCalls),
}

// normalise keeps of a reply's decision only what an adapter may give, so that the
// turn machine does not depend on every adapter being right.
func normalise(reply model.Reply) model.Decision {
	d := reply.Decision
	switch {
	case size(reply) > maxReplyBytes || len(d.Calls) > maxCalls:
		return tooLarge
	case d.Kind == model.KindFinal && strings.TrimSpace(d.Text) == "":
		return model.Decision{Kind: model.KindInvalid, Code: model.CodeEmpty, Problem: "Your reply was empty. Give an answer, or propose a tool call."}
	case d.Kind == model.KindCalls && duplicateIDs(d.Calls):
		return model.Decision{Kind: model.KindInvalid, Text: d.Text, Code: model.CodeDuplicateIDs, Problem: "Two calls of your reply had the same id, so nothing ran. Propose each call once."}
	case d.Kind == model.KindCalls && len(d.Calls) == 0:
		return model.Decision{Kind: model.KindInvalid, Text: d.Text, Code: model.CodeEmpty, Problem: "Your reply announced tool calls and held none. Propose them, or give the answer."}
	}
	switch {
	case d.Kind == model.KindFinal, d.Kind == model.KindCalls, d.Kind == model.KindRefused, d.Kind == model.KindOverflow:
	case d.Kind == model.KindPaused && len(d.Calls) == 0 && json.Valid(reply.Raw):
	default:
		d.Kind, d.Code = model.KindInvalid, bounded(cmp.Or(d.Code, model.CodeMalformed), 64)
		d.Problem = bounded(cmp.Or(d.Problem, "Your reply could not be understood. Give an answer, or propose tool calls."), 4096)
	}
	return d
}

func duplicateIDs(calls []model.Call) bool {
	seen := map[string]bool{}
	for _, call := range calls {
		if call.ID != "" && seen[call.ID] {
			return true
		}
		seen[call.ID] = true
	}
	return false
}

func recordDecision(f Facts, asked Asked, reply model.Reply, d model.Decision) Entry {
	decision := journal.DecisionMade{
		StopReason: bounded(reply.StopReason, 64), RequestID: bounded(reply.RequestID, 128),
		Usage: charge(f.State, asked.Request, reply), Attempt: f.State.ModelAttempts + 1,
		DurationMillis: asked.Duration.Milliseconds(), Clipped: asked.Clipped, CostClipped: asked.CostClipped,
		RequestDigest: prompt.Digest(asked.Request), Projection: max(f.State.Run.Projection, 1),
		RequestTokens: prompt.EstimateTokens(asked.Request),
	}
	decision.MaxOutputTokens = asked.lowered()
	part := reply.Raw
	if !json.Valid(part) {
		part = nil // it could not be echoed
	}
	switch d.Kind {
	case model.KindFinal:
		decision.Kind, decision.Text = journal.DecisionFinal, d.Text
		if problem := checkOutput(f.State.Run.Output, d.Text); problem != "" {
			decision.Kind, decision.Code, decision.Problem = journal.DecisionInvalid, CodeOutput, problem
		}
	case model.KindCalls:
		decision.Text = d.Text
		decideCalls(f, &decision, d.Calls)
	case model.KindRefused:
		decision.Kind, decision.Text, part = journal.DecisionRefused, d.Text, nil
	case model.KindPaused:
		decision.Kind, decision.Text = journal.DecisionPaused, d.Text
	default:
		decision.Kind, decision.Text, decision.Code, decision.Problem = journal.DecisionInvalid, d.Text, d.Code, d.Problem
		part = nil
	}
	if len(part) > 0 {
		decision.Part = strictjson.Digest(part)
	}
	return Entry{Payload: decision, Part: part}
}

func size(reply model.Reply) int {
	n := len(reply.Raw) + len(reply.Decision.Text)
	for _, call := range reply.Decision.Calls {
		n += len(call.ID) + len(call.Alias) + len(call.Arguments)
	}
	return n
}

// charge is the usage to book. What the provider did not report, or reported so that
// nobody can believe it, is estimated.
func charge(s *journal.State, request model.Request, reply model.Reply) journal.Usage {
	if u := reply.Usage; u.Reported && believable(u) {
		return reported(u)
	}
	output := int64(size(reply)+3) / 4
	if output == 0 && reply.Decision.Code == model.CodeMalformed {
		// It could not be read, so that it may have been as long as was allowed.
		output = int64(request.MaxOutputTokens)
	}
	return journal.Usage{InputTokens: inputTokens(s, request), OutputTokens: output, Estimated: true}
}

func reported(u model.Usage) journal.Usage {
	return journal.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens, ReasoningTokens: u.ReasoningTokens}
}

func believable(u model.Usage) bool {
	for _, n := range []int64{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens} {
		if n < 0 || n > maxUsage {
			return false
		}
	}
	return u.CacheReadTokens+u.CacheWriteTokens <= u.InputTokens && u.ReasoningTokens <= u.OutputTokens
}

func decideCalls(f Facts, decision *journal.DecisionMade, calls []model.Call) {
	if len(calls) == 1 && builtIn(f, calls[0].Alias) {
		decideBuiltIn(f, decision, calls[0])
		return
	}
	decision.Kind = journal.DecisionToolCalls
	valid := 0
	counts := map[string]int32{}
	for i, proposed := range calls {
		call := resolveCall(f, identify(f, calls, i), proposed, i, len(calls))
		if call.Invalid == "" {
			valid++
		}
		if call.Verdict != nil && call.Verdict.Action != journal.ActionDeny && !answeredHere(call.Tool) {
			counts[call.Tool]++
			limitCalls(f, &call, counts[call.Tool])
			limitDepth(f, &call)
		}
		decision.Calls = append(decision.Calls, call)
	}
	if valid == 0 {
		decision.Kind, decision.Code = journal.DecisionInvalid, CodeCalls
		decision.Problem = "None of the calls is valid; each result says why."
	}
	coverByIntents(f.State.Intents, decision.Calls)
}

// recordVerdict copies a verdict into the form that is journalled.
func recordVerdict(v policy.Verdict) journal.Verdict {
	verdict := journal.Verdict{
		Action: string(v.Action), Policy: v.Policy, Rule: v.Rule, RuleDigest: v.RuleDigest,
		PolicyDigest: v.PolicyDigest, Message: v.Message,
	}
	switch verdict.Action {
	case journal.ActionAllow:
	case journal.ActionAsk:
		verdict.TimeoutSeconds = v.Approval.TimeoutSeconds
		verdict.EndOnTimeout = v.Approval.OnTimeout == v1alpha1.ConsequenceEnd
		verdict.EndOnDeny = v.Approval.OnDeny == v1alpha1.ConsequenceEnd
		verdict.Message = v.Approval.Message
	default:
		verdict.Action, verdict.End = journal.ActionDeny, v.OnDeny == v1alpha1.ConsequenceEnd
	}
	return verdict
}

func jsonString(text string) json.RawMessage { return mustJSON(text) }

// mustJSON encodes values made of strings, numbers, booleans, slices and maps only,
// for which encoding can't fail.
func mustJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a value that this package made: %v", err))
	}
	return data
}
