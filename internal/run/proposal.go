package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/strictjson"
)

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
	if answeredHere(call.Tool) {
		call.Effect, call.Verdict = journal.ReadOnly, &journal.Verdict{Action: journal.ActionAllow}
		return call
	}
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
	call.Background = p.Execution == v1alpha1.ExecutionBackground && mayDetach(f.State.Run)
	call.TimeoutSeconds, call.MaxAttempts = p.TimeoutSeconds, p.MaxAttempts
	call.KeyLifetimeSeconds, call.MaxResultBytes = p.IdempotencyKeyLifetimeSeconds, p.MaxResultBytes
	call.Required, call.IncludeBinary, call.Redact = p.Required, p.IncludeBinary, p.Redact
	if p.Reconcile != nil {
		call.Reconcile = p.Reconcile.HTTP.URL
	}
	if f.Policies.IsJob(call.Tool) {
		call.Handle = call.EffectKey
	}
	if child := f.Policies.Child(call.Tool); child != nil {
		call.Handle, call.Child = call.EffectKey, declaredBudget(child.Limits)
		call.TimeoutSeconds = call.Child.DeadlineSeconds
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
	if !callID.MatchString(call.ID) || madeUp.MatchString(call.ID) || f.State.Call(call.ID) != nil {
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
