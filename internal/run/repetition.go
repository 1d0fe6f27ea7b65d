package run

import (
	"fmt"
	"slices"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// longestCycle is how many plans a cycle may have and still count as repetition.
const longestCycle = 4

// repetition says what repeats when the batch would be executed once more than the
// limit allows with the same results, empty otherwise.
func repetition(s *journal.State, turn *journal.Turn, limit int32) string {
	var plans []string
	for i := range turn.Calls {
		if turn.Calls[i].Phase == journal.PhasePrepared {
			plans = append(plans, turn.Calls[i].Call.PlanDigest)
		}
	}
	if len(plans) == 0 {
		return ""
	}
	if n := repeats(s.History, planResult(digestOf(plans))); n >= limit {
		return fmt.Sprintf("the same plan was executed %d times with the same results (maxRepeatedPlans)", n)
	}
	for _, plan := range plans {
		if n := repeats(s.History, callResult(plan)); n >= limit {
			return fmt.Sprintf("the same call was executed %d times with the same result (maxRepeatedPlans)", n)
		}
	}
	return ""
}

// result finds what a turn gave for the plan or call that is looked for.
type result func(journal.TurnCompleted) (string, bool)

func planResult(plan string) result {
	return func(turn journal.TurnCompleted) (string, bool) { return turn.Results, turn.Plan == plan }
}

func callResult(plan string) result {
	return func(turn journal.TurnCompleted) (string, bool) {
		for _, call := range turn.Calls {
			if call.Plan == plan {
				return call.Result, true
			}
		}
		return "", false
	}
}

// repeats counts the newest executions that gave the same result, as long as no more
// than longestCycle turns lie between one and the next.
func repeats(history []journal.TurnCompleted, find result) int32 {
	count, gap, same := int32(0), 0, ""
	for _, turn := range slices.Backward(history) {
		value, found := find(turn)
		if !found {
			if gap++; gap >= longestCycle {
				return count
			}
			continue
		}
		if count > 0 && value != same {
			return count
		}
		count, gap, same = count+1, 0, value
	}
	return count
}

// digestOf names a set of digests, their order ignored.
func digestOf(digests []string) string {
	sorted := slices.Sorted(slices.Values(digests))
	return strictjson.Digest(mustJSON(sorted))
}
