package run

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// Defaults of what a child run may spend; those in the schema are repeated for templates
// that were never defaulted.
const (
	defaultChildTokens   = 200_000
	defaultChildActive   = 900
	defaultChildDeadline = 604_800
)

const (
	// childMargin is how long after its time a child may take to end by itself before its
	// parent calls it off: it begins a little later than its call.
	childMargin = time.Minute
	// windUpTime is how long a child that was called off may take to end. The runs below it
	// end within it, and what they have under way.
	windUpTime = time.Minute
	// watchedPollInterval is how often something is asked about at least that is heard of
	// when it ends.
	watchedPollInterval = 15 * time.Second
)

// ChildWait is what a child run waits for, where that is people.
type ChildWait struct {
	// Name of the child.
	Name string
	// Reason of its condition Succeeded.
	Reason string
}

// message says where people are waited for.
func (w ChildWait) message() string {
	return fmt.Sprintf("the run %s below this one waits for people (%s): answer there", w.Name, w.Reason)
}

// declaredBudget is what a child run may spend by its template.
func declaredBudget(limits v1alpha1.Limits) *journal.Budget {
	return &journal.Budget{
		Tokens:          cmp.Or(limits.MaxTokens, defaultChildTokens),
		Cost:            limits.MaxCost,
		ActiveSeconds:   cmp.Or(limits.ActiveDeadlineSeconds, defaultChildActive),
		DeadlineSeconds: cmp.Or(limits.DeadlineSeconds, defaultChildDeadline),
	}
}

// limitDepth refuses a child run below the deepest level.
func limitDepth(f Facts, call *journal.Call) {
	if call.Child != nil && f.State.Level() >= v1alpha1.MaxDepth {
		call.Verdict = &journal.Verdict{Action: journal.ActionDeny, Message: fmt.Sprintf(
			"%s would begin a run below this one, and runs are at most %d levels deep; do it yourself, or go on without it", call.Tool, v1alpha1.MaxDepth)}
	}
}

// reserve gives each child run of the group that was not sent yet its share of what the run
// has left, nil where that is too little. What one does not need is there for those after
// it. A child that was sent before keeps what it was given.
func reserve(f Facts, turn *journal.Turn) map[string]*journal.Budget {
	budgets := map[string]*journal.Budget{}
	var waiting []*journal.CallState
	group, _ := currentGroup(turn)
	for _, call := range group {
		switch {
		case call.Call.Child == nil || call.Phase != journal.PhasePrepared && call.Phase != journal.PhaseRetrying:
		case call.Budget != nil:
			budgets[call.Call.ID] = call.Budget
		default:
			waiting = append(waiting, call)
		}
	}
	tokens, cost := left(f.State)
	for i, call := range waiting {
		sharers := len(waiting) - i
		granted := grant(f, *call.Call.Child, tokens/int64(sharers), cost/journal.Cost(sharers))
		budgets[call.Call.ID] = granted
		if granted != nil {
			tokens -= granted.Tokens
			cost -= journal.ParseCost(granted.Cost)
		}
	}
	return budgets
}

// left is what the run may still spend. The cost means something only where it is limited.
func left(s *journal.State) (int64, journal.Cost) {
	tokens, cost := s.Reserved()
	return s.Run.Limits.MaxTokens - s.TotalUsage().Total() - tokens,
		journal.ParseCost(s.Run.Limits.MaxCost) - s.TotalCost() - cost
}

// grant is what a child gets of a share, nil where that lets it do nothing.
func grant(f Facts, declared journal.Budget, tokens int64, cost journal.Cost) *journal.Budget {
	limits := f.State.Run.Limits
	granted := declared
	granted.Tokens = min(declared.Tokens, tokens)
	granted.ActiveSeconds = min(declared.ActiveSeconds, wholeSeconds(seconds(limits.ActiveDeadlineSeconds)-f.Active))
	granted.DeadlineSeconds = min(declared.DeadlineSeconds, wholeSeconds(deadline(f).Sub(f.Now)))
	if limits.MaxCost != "" {
		if declared.Cost != "" {
			cost = min(cost, journal.ParseCost(declared.Cost))
		}
		granted.Cost = cost.Floor()
		if journal.ParseCost(granted.Cost) < 1 {
			return nil
		}
	}
	if granted.Tokens < 1 {
		return nil
	}
	return &granted
}

// wholeSeconds rounds down, to no less than one: a run with less left is about to end.
func wholeSeconds(d time.Duration) int32 { return int32(max(d/time.Second, 1)) }

// tooPoor refuses child runs for which nothing is left, unless others may give it back.
func tooPoor(f Facts, turn *journal.Turn) (Step, bool) {
	if tokens, _ := f.State.Reserved(); tokens > 0 {
		return Step{}, false
	}
	budgets := reserve(f, turn)
	var payloads []journal.Payload
	for _, call := range startable(f, turn) {
		if call.Call.Child == nil || budgets[call.Call.ID] != nil {
			continue
		}
		payloads = append(payloads, journal.CallCompleted{
			ID: call.Call.ID, Final: true, Class: string(tool.ClassNotRun), Effect: journal.EffectRejected,
			Message: "not sent: too little is left of this run's budget (maxTokens, maxCost) for a run below it; nothing was done; go on without it",
		})
	}
	return commit(payloads...), len(payloads) > 0
}

// spent is what a child's adapter says of it, in the form that is journalled.
func spent(s *tool.Spent) *journal.Spent {
	if s == nil {
		return nil
	}
	return &journal.Spent{Cost: journal.Cost(s.CostPicos), Usage: journal.Usage{
		InputTokens: s.InputTokens, OutputTokens: s.OutputTokens, CacheReadTokens: s.CacheReadTokens, CacheWriteTokens: s.CacheWriteTokens,
		ReasoningTokens: s.ReasoningTokens, Estimated: s.Estimated,
	}}
}

// charged charges what was reserved for a child that can't be asked any more what it has
// spent.
func charged(call *journal.CallState, result journal.CallCompleted) journal.CallCompleted {
	if call.Budget == nil || call.Charged || !result.Final || result.Spent != nil {
		return result
	}
	switch tool.Class(result.Class) {
	case tool.ClassRejected, tool.ClassNotRun, tool.ClassDenied, tool.ClassValidation:
		return result // there was none
	default:
		result.Spent = &journal.Spent{
			Usage: journal.Usage{InputTokens: call.Budget.Tokens, Estimated: true}, Cost: journal.ParseCost(call.Budget.Cost),
		}
		return result
	}
}

// outsideUntil is when a call that goes on outside is given up.
func outsideUntil(call *journal.CallState) time.Time {
	if call.Budget != nil {
		return call.LastSent.Add(seconds(call.Budget.DeadlineSeconds) + childMargin)
	}
	return call.LastSent.Add(seconds(call.Call.TimeoutSeconds))
}

// windsUp says whether a child run that was called off may still come to its end.
func windsUp(f Facts, call *journal.CallState) bool {
	at, recalled := f.Recalled[call.Call.ID]
	return call.Call.Child != nil && recalled && f.Now.Before(at.Add(windUpTime))
}

// windUp waits, before a run ends, for the child runs that it has called off: what they
// spent is known when they have ended.
func windUp(f Facts) (Step, bool) {
	var due []Sending
	until := time.Time{}
	for _, call := range f.State.Outside() {
		if !windsUp(f, call) || f.Polling[call.Call.ID] {
			continue
		}
		at := earliest(pollAt(f, call), f.Recalled[call.Call.ID].Add(windUpTime))
		if !f.Now.Before(at) {
			due = append(due, inquiryInto(call))
		}
		until = earliest(until, at)
	}
	if len(due) > 0 {
		return Step{Kind: Poll, Calls: due}, true
	}
	return rest(journal.WaitingForTool, unwinding, until), !until.IsZero()
}

// onlyUnwinding says whether nothing is under way but questions about child runs that were
// called off.
func onlyUnwinding(f Facts) bool {
	if f.ModelInFlight || len(f.InFlight) > 0 {
		return false
	}
	for _, call := range f.State.Outside() {
		if f.Polling[call.Call.ID] && !windsUp(f, call) {
			return false
		}
	}
	return len(f.Polling) > 0
}
