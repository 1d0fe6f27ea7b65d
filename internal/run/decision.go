package run

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/jsonschema"
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
	Request  model.Request
	Clipped  bool
	Duration time.Duration
}

// RecordReply turns a model's reply, which is untrusted, into a decision. Only what
// passes type, schema and policy here can ever be sent.
func RecordReply(f Facts, asked Asked, reply model.Reply) Entry {
	d := normalise(reply)
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
	switch d.Kind {
	case model.KindFinal, model.KindCalls, model.KindRefused, model.KindOverflow:
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
		Usage: charge(asked.Request, reply), Attempt: f.State.ModelAttempts + 1,
		DurationMillis: asked.Duration.Milliseconds(), Clipped: asked.Clipped,
		RequestDigest: prompt.Digest(asked.Request), Projection: prompt.Version,
	}
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
	case model.KindOverflow:
		decision.Kind, part = journal.DecisionOverflow, nil
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
func charge(request model.Request, reply model.Reply) journal.Usage {
	if u := reply.Usage; u.Reported && believable(u) {
		return journal.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens, ReasoningTokens: u.ReasoningTokens}
	}
	return journal.Usage{InputTokens: prompt.EstimateTokens(request), OutputTokens: int64(size(reply)+3) / 4, Estimated: true}
}

func believable(u model.Usage) bool {
	for _, n := range []int64{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.ReasoningTokens} {
		if n < 0 || n > maxUsage {
			return false
		}
	}
	return u.CacheReadTokens <= u.InputTokens && u.ReasoningTokens <= u.OutputTokens
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
		if call.Verdict != nil && call.Verdict.Action != journal.ActionDeny {
			counts[call.Tool]++
			limitCalls(f, &call, counts[call.Tool])
		}
		decision.Calls = append(decision.Calls, call)
	}
	if valid == 0 {
		decision.Kind, decision.Code = journal.DecisionInvalid, CodeCalls
		decision.Problem = "None of the calls is valid; each result says why."
	}
	coverByIntents(f.State.Intents, decision.Calls)
}

// resolveCall finds the tool, checks the arguments and asks policy. A call that fails
// any of this carries the reason and gets it as its result.
func resolveCall(f Facts, call journal.Call, proposed model.Call, position, size int) journal.Call {
	if builtIn(f, proposed.Alias) {
		call.Invalid = fmt.Sprintf("%s must be the only call of a reply; propose it alone", proposed.Alias)
		return call
	}
	entry := findTool(f.State.Run.Tools, proposed.Alias)
	if entry == nil {
		call.Invalid = fmt.Sprintf("there is no tool %q; use one of those offered", strictjson.Preview([]byte(proposed.Alias), 64))
		return call
	}
	call.Tool = entry.Name
	arguments, err := checkArguments(entry.InputSchema, proposed.Arguments)
	if err != nil {
		call.Invalid = err.Error()
		return call
	}
	call.PlanDigest = planDigest(call.Tool, arguments)
	call.EffectKey = effectKey(f.State.UID, f.State.Turns+1, position)
	if f.Policies == nil {
		call.Invalid = "the rules for this tool are not ready"
		return call
	}
	freeze(f, &call, arguments)
	verdict := evaluate(f, call, f.State.Turns+1, position, size)
	call.Verdict = &verdict
	return call
}

// planDigest recognises a call, however its arguments are written.
func planDigest(tool string, arguments any) string {
	return strictjson.Digest(append([]byte(tool+"\n"), strictjson.Canonical(arguments)...))
}

// freeze copies the tool's properties into the call, so that a later change of the
// policy can't turn a call that may be sent once into one that may be repeated.
func freeze(f Facts, call *journal.Call, arguments map[string]any) {
	p := f.Policies.Properties(call.Tool)
	call.Effect = string(p.Effect)
	call.Parallel = p.Execution == v1alpha1.ExecutionParallel
	call.TimeoutSeconds, call.MaxAttempts = p.TimeoutSeconds, p.MaxAttempts
	call.KeyLifetimeSeconds, call.MaxResultBytes = p.IdempotencyKeyLifetimeSeconds, p.MaxResultBytes
	call.Required = p.Required
	if p.Reconcile != nil {
		call.Reconcile = p.Reconcile.HTTP.URL
	}
	key, has, err := f.Policies.ConflictKey(call.Tool, arguments)
	switch {
	case err != nil:
		// Nothing is known of what the call may conflict with.
		call.Parallel = false
	case has:
		call.ConflictKey = key
	}
}

// limitCalls refuses a call beyond its tool's maxCallsPerRun.
func limitCalls(f Facts, call *journal.Call, inBatch int32) {
	limit := f.Policies.Properties(call.Tool).MaxCallsPerRun
	if limit > 0 && f.State.CallsByTool[call.Tool]+inBatch > limit {
		call.Verdict = &journal.Verdict{Action: journal.ActionDeny, Message: fmt.Sprintf("%s may be called at most %d times in this run; go on without it", call.Tool, limit)}
	}
}

// coverByIntents lets calls skip the question that a person has answered: byte for byte
// the same call, each approval used once.
func coverByIntents(intents []journal.Intent, calls []journal.Call) {
	used := map[int]bool{}
	for i := range calls {
		verdict := calls[i].Verdict
		if verdict == nil || verdict.Action != journal.ActionAsk {
			continue
		}
		for j, intent := range intents {
			if !used[j] && intent.Tool == calls[i].Tool && intent.ArgumentsDigest == calls[i].ArgumentsDigest {
				used[j], verdict.ApprovedBy = true, intent.Approval
				break
			}
		}
	}
}

var callID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// identify gives a call of a batch an id that is unique in the run, the provider's own
// where that serves.
func identify(f Facts, batch []model.Call, position int) journal.Call {
	proposed := batch[position]
	call := journal.Call{
		ID: proposed.ID, ProviderID: proposed.ID, Alias: bounded(proposed.Alias, 256),
		Arguments: proposed.Arguments, ArgumentsDigest: strictjson.Digest([]byte(proposed.Arguments)),
	}
	if !callID.MatchString(call.ID) || madeUp.MatchString(call.ID) || usedID(f.State, call.ID) {
		call.ID = makeUpID(f.State, batch, position)
	}
	if call.ID == call.ProviderID {
		call.ProviderID = ""
	}
	return call
}

// madeUp is the form of the ids that makeUpID makes up; providers' own are replaced.
var madeUp = regexp.MustCompile(`^call-\d+-\d+x*$`)

// makeUpID gives an id that no call of the run has, and that the provider knows no
// other call of the batch by.
func makeUpID(s *journal.State, batch []model.Call, position int) string {
	id := fmt.Sprintf("call-%d-%d", s.Turns+1, position+1)
	for slices.ContainsFunc(batch, func(call model.Call) bool { return call.ID == id }) {
		id += "x"
	}
	return id
}

func usedID(s *journal.State, id string) bool {
	for i := range s.Transcript {
		for j := range s.Transcript[i].Calls {
			if s.Transcript[i].Calls[j].Call.ID == id {
				return true
			}
		}
	}
	return false
}

// effectKey is the idempotency key of a call: a function of the run and the call's
// place in it, so that it is the same after any restart.
func effectKey(uid string, turn int32, position int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "pawl.run/effect\n%s\n%d\n%d", uid, turn, position))
	return "pawl-" + hex.EncodeToString(sum[:16])
}

func findTool(tools []journal.Tool, alias string) *journal.Tool {
	for i := range tools {
		if tools[i].Alias == alias {
			return &tools[i]
		}
	}
	return nil
}

// checkArguments parses strictly and validates. Nothing at all counts as {}, where the
// schema accepts that.
func checkArguments(schema json.RawMessage, text string) (map[string]any, error) {
	arguments, err := parseArguments(text)
	if err != nil {
		return nil, err
	}
	compiled, err := jsonschema.CompileObject(schema)
	if err != nil {
		return nil, fmt.Errorf("the tool can't be used, its schema is broken: %w", err)
	}
	if err := compiled.Validate(arguments); err != nil {
		return nil, fmt.Errorf("arguments do not fit the tool's schema: %w", err)
	}
	return arguments, nil
}

func parseArguments(text string) (map[string]any, error) {
	arguments, err := strictjson.Object(ArgumentBytes(text), strictjson.Limits{})
	if err != nil {
		return nil, fmt.Errorf("arguments must be one JSON object: %w", err)
	}
	return arguments, nil
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
