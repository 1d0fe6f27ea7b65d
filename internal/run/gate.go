package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/tool"
)

// gate judges a batch before its first call is sent, with the rules as they are now:
// the stricter of then and now holds.
func gate(f Facts, turn *journal.Turn) (Step, bool) {
	if turn.Gate == journal.GateGranted && f.Verdicts.Deny == turn.Granted.Digest && f.Verdicts.DenyBy != "" {
		return denied(f, turn.Granted, journal.ApprovalDenied{Reason: bounded(f.Verdicts.DenyReason, 1024)}, f.Verdicts.DenyBy), true
	}
	if turn.Gate == journal.GateDenied {
		return conclude(f, turn), true
	}
	if f.Policies == nil {
		return rest("ConfigurationNotReady", f.PoliciesProblem, deadline(f)), true
	}
	if payloads := invalidResults(turn); len(payloads) > 0 {
		return commit(payloads...), true
	}
	verdicts := judge(f, turn)
	if step, handled := refuse(f, turn, verdicts); handled {
		return step, true
	}
	if step, handled := exhausted(f, turn); handled {
		return step, true
	}
	return ask(f, turn, verdicts)
}

// judge gives the stricter of the recorded and the live verdict for each call that has
// no result yet, by call id.
func judge(f Facts, turn *journal.Turn) map[string]journal.Verdict {
	verdicts := map[string]journal.Verdict{}
	for i := range turn.Calls {
		call := turn.Calls[i].Call
		if turn.Calls[i].Phase != journal.PhasePrepared || answeredHere(call.Tool) {
			continue
		}
		live := evaluate(f, call, turn.Number, i, len(turn.Calls))
		verdict := stricter(*call.Verdict, live)
		verdict.PolicyDigest = live.PolicyDigest
		verdicts[call.ID] = verdict
	}
	return verdicts
}

func strictness(action string) int {
	switch action {
	case journal.ActionAllow:
		return 0
	case journal.ActionAsk:
		return 1
	default:
		return 2
	}
}

// stricter prefers the live verdict among equals, since its rule is the one in force. Of
// two that ask, the rule in force asks and the stricter terms hold.
func stricter(recorded, live journal.Verdict) journal.Verdict {
	if strictness(recorded.Action) > strictness(live.Action) {
		return recorded
	}
	if recorded.Action == journal.ActionDeny && recorded.End && !live.End {
		return recorded
	}
	if recorded.Action == journal.ActionAsk && live.Action == journal.ActionAsk {
		live.ApprovedBy = recorded.ApprovedBy
		live.EndOnDeny = live.EndOnDeny || recorded.EndOnDeny
		live.EndOnTimeout = live.EndOnTimeout || recorded.EndOnTimeout
		live.TimeoutSeconds = min(live.TimeoutSeconds, recorded.TimeoutSeconds)
	}
	return live
}

// refuse answers the calls that may not run, and ends the run where a rule says so.
func refuse(f Facts, turn *journal.Turn, verdicts map[string]journal.Verdict) (Step, bool) {
	var payloads []journal.Payload
	for i := range turn.Calls {
		call := turn.Calls[i].Call
		verdict, open := verdicts[call.ID]
		switch {
		case !open:
		case verdict.Action == journal.ActionDeny && verdict.End:
			return finish(f, "PolicyDenied", fmt.Sprintf("rule %s of policy %s denies a call of %s and ends the run", verdict.Rule, verdict.Policy, call.Tool)), true
		case verdict.Action == journal.ActionDeny:
			payloads = append(payloads, refused(call, verdict.Message))
		case verdict.Action == journal.ActionAsk && f.State.Refused[call.PlanDigest]:
			payloads = append(payloads, refused(call, "a person has denied exactly this call before; do not ask for it again"))
		}
	}
	return commit(payloads...), len(payloads) > 0
}

// exhausted ends a run whose batch would pass a limit. Nothing of the batch runs.
func exhausted(f Facts, turn *journal.Turn) (Step, bool) {
	s, open := f.State, int32(0)
	for i := range turn.Calls {
		if turn.Calls[i].Phase == journal.PhasePrepared && !answeredHere(turn.Calls[i].Call.Tool) {
			open++
		}
	}
	limits := s.Run.Limits
	if s.ToolCalls+open > limits.MaxToolCalls {
		return finish(f, "ToolBudgetExhausted", fmt.Sprintf("%d of %d tool calls are used and the next batch has %d (maxToolCalls)", s.ToolCalls, limits.MaxToolCalls, open)), true
	}
	if what := repetition(s, turn, limits.MaxRepeatedPlans); what != "" {
		return finish(f, "NoProgress", what), true
	}
	return Step{}, false
}

// ask puts the batch before people unless nothing in it asks, or what was granted
// still covers it.
func ask(f Facts, turn *journal.Turn, verdicts map[string]journal.Verdict) (Step, bool) {
	if covered(f, turn, verdicts) {
		return Step{}, false
	}
	if step, waits := alreadyAsked(f); waits {
		return step, true
	}
	var calls []journal.PendingCall
	var messages []string
	arguments := map[string]string{}
	asked := terms{}
	for i := range turn.Calls {
		call := turn.Calls[i].Call
		verdict, open := verdicts[call.ID]
		if !open {
			continue
		}
		arguments[call.ID] = call.Arguments
		asks := verdict.Action == journal.ActionAsk && verdict.ApprovedBy == ""
		calls = append(calls, journal.PendingCall{
			ID: call.ID, Tool: call.Tool, Policy: verdict.Policy, Rule: verdict.Rule,
			RuleDigest: verdict.RuleDigest, PolicyDigest: verdict.PolicyDigest, Asks: asks,
			Effect: call.Effect, EffectKey: call.EffectKey, ArgumentsDigest: call.ArgumentsDigest,
		})
		if asks {
			asked = asked.and(verdict)
			if verdict.Message != "" {
				messages = append(messages, verdict.Message)
			}
		}
	}
	asked.message = strings.Join(unique(messages), "; ")
	return askApproval(f, calls, arguments, asked), true
}

// covered says whether every call that asks was granted under the rule that asks now,
// and the grant has not lapsed.
func covered(f Facts, turn *journal.Turn, verdicts map[string]journal.Verdict) bool {
	for id, verdict := range verdicts {
		if verdict.Action != journal.ActionAsk || verdict.ApprovedBy != "" {
			continue
		}
		if turn.Gate != journal.GateGranted || !f.Now.Before(turn.Granted.ExpiresAt) {
			return false
		}
		if !grantCovers(turn.Granted, id, verdict) {
			return false
		}
	}
	if turn.Gate == journal.GateGranted && !samePolicies(turn.Granted, verdicts) {
		return false
	}
	// A gate that was opened for a rule which no longer asks is still a gate: the
	// journal refuses to dispatch behind one that is not granted.
	return turn.Gate != journal.GateDenied && turn.Gate != journal.GatePending
}

// samePolicies says whether the policies are those that were approved under: where calls
// go is part of a policy, and so of what was shown.
func samePolicies(granted *journal.ApprovalRequested, verdicts map[string]journal.Verdict) bool {
	for _, call := range granted.Calls {
		if verdict, open := verdicts[call.ID]; open && verdict.PolicyDigest != call.PolicyDigest {
			return false
		}
	}
	return true
}

func grantCovers(granted *journal.ApprovalRequested, id string, verdict journal.Verdict) bool {
	for _, call := range granted.Calls {
		if call.ID == id {
			return call.Asks && call.Policy == verdict.Policy && call.Rule == verdict.Rule && call.RuleDigest == verdict.RuleDigest
		}
	}
	return false
}

// and joins the terms of several rules: the earliest expiry holds and End beats
// ReturnToModel.
func (t terms) and(v journal.Verdict) terms {
	timeout := time.Duration(v.TimeoutSeconds) * time.Second
	if t.timeout == 0 || timeout < t.timeout {
		t.timeout = timeout
	}
	t.endOnTimeout = t.endOnTimeout || v.EndOnTimeout
	t.endOnDeny = t.endOnDeny || v.EndOnDeny
	return t
}

// evaluate asks policy about one call of a turn.
func evaluate(f Facts, call journal.Call, turn int32, position, size int) journal.Verdict {
	return evaluateAnswered(f, call, nil, turn, position, size)
}

// evaluateAnswered asks policy about a call together with the answers that it goes on with.
func evaluateAnswered(f Facts, call journal.Call, answers []tool.Answer, turn int32, position, size int) journal.Verdict {
	s, usage := f.State, f.State.TotalUsage()
	arguments, err := parseArguments(call.Arguments)
	if err != nil {
		return journal.Verdict{Action: journal.ActionDeny, Message: err.Error()}
	}
	verdict := f.Policies.Evaluate(policy.Input{
		Tool: call.Tool, Arguments: arguments,
		Call: policy.Call{ID: call.ID, Position: position, BatchSize: size, Answers: answersOf(answers)},
		Run: policy.Run{
			Namespace: s.Run.Namespace, Name: s.Run.Name, Labels: s.Run.Labels, CreatedBy: s.Run.CreatedBy,
			Turn: int(turn), Usage: v1alpha1.Usage{TotalTokens: usage.Total(), InputTokens: usage.InputTokens, OutputTokens: usage.OutputTokens},
		},
	})
	return recordVerdict(verdict)
}

func unique(texts []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return out
}
