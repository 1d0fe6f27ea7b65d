package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
)

// Problem says why a verdict that somebody gave does not act, empty where there is
// nothing to say. What was used before is no problem: annotations stay on the object.
func (v Verdicts) Problem(s *journal.State) string {
	var said []string
	for _, problem := range []string{
		digestProblem(s, "approve", v.Approve, v.ApproveBy),
		digestProblem(s, "deny", v.Deny, v.DenyBy),
		v.answerProblem(s),
		v.settleProblem(s),
		v.completeProblem(s),
	} {
		if problem != "" {
			said = append(said, problem)
		}
	}
	return strings.Join(said, "; ")
}

func digestProblem(s *journal.State, name, value, by string) string {
	pending := s.Approval != nil && value == s.Approval.Digest
	switch {
	case value == "":
		return ""
	case pending && by == "":
		return unnamed(name)
	case pending:
		return ""
	case lapsed(s, value):
		return fmt.Sprintf("the annotation pawl.run/%s names a request that has expired", name)
	case used(s, value):
		return ""
	default:
		return fmt.Sprintf("the annotation pawl.run/%s does not name what is pending", name)
	}
}

func (v Verdicts) answerProblem(s *journal.State) string {
	if v.AnswersBroken {
		return unreadable("answer")
	}
	for _, id := range slices.Sorted(maps.Keys(v.Answers)) {
		switch {
		case s.Question == nil || id != s.Question.ID:
			if !askedBefore(s, id) {
				return "the annotation pawl.run/answer does not name the question that waits"
			}
		case v.AnswerBy == "":
			return unnamed("answer")
		case !answerFits(s, v.Answers[id]):
			return "the answer in the annotation pawl.run/answer does not have the form that the question says"
		}
	}
	return ""
}

func (v Verdicts) settleProblem(s *journal.State) string {
	if v.SettlementsBroken {
		return unreadable("settle")
	}
	open := map[string]bool{}
	for _, unknown := range s.Unknown {
		open[unknown.EffectKey] = true
	}
	for _, key := range slices.Sorted(maps.Keys(v.Settlements)) {
		switch effect := v.Settlements[key]; {
		case !open[key]:
			if s.Effect(key) == nil {
				return "the annotation pawl.run/settle does not name an unknown outcome"
			}
		case effect != journal.EffectCommitted && effect != journal.EffectRejected:
			return `the annotation pawl.run/settle must say "committed" or "rejected"`
		case v.SettleBy == "":
			return unnamed("settle")
		}
	}
	return ""
}

func (v Verdicts) completeProblem(s *journal.State) string {
	if v.CompletionsBroken {
		return "the annotation pawl.run/complete must be a JSON object"
	}
	for _, id := range slices.Sorted(maps.Keys(v.Completions)) {
		switch call := s.Call(id); {
		case call == nil || call.Phase != journal.PhaseDeferred && call.Phase != journal.PhaseDone:
			return "the annotation pawl.run/complete does not name a call that waits outside"
		case call.Phase == journal.PhaseDeferred && v.CompleteBy == "":
			return unnamed("complete")
		}
	}
	return ""
}

func unnamed(name string) string {
	return fmt.Sprintf("the annotation pawl.run/%s counts only with pawl.run/%s-by, the name of who gave it", name, name)
}

func unreadable(name string) string {
	return fmt.Sprintf("the annotation pawl.run/%s must be a JSON object of strings", name)
}

// used says whether a verdict on an earlier request named the digest.
func used(s *journal.State, digest string) bool {
	for i := range s.Transcript {
		turn := &s.Transcript[i]
		if turn.Granted != nil && turn.Granted.Digest == digest || turn.Denied != nil && turn.Denied.Digest == digest {
			return true
		}
	}
	return slices.ContainsFunc(inputsOf(s), func(in journal.CallInput) bool {
		return in.Granted != nil && in.Granted.Digest == digest || in.Denied != nil && in.Denied.Digest == digest
	})
}

// lapsed says whether the digest is that of a request which nobody answered in time.
func lapsed(s *journal.State, digest string) bool {
	for i := range s.Transcript {
		if denied := s.Transcript[i].Denied; denied != nil && denied.Digest == digest && denied.Expired {
			return true
		}
	}
	return slices.ContainsFunc(inputsOf(s), func(in journal.CallInput) bool {
		return in.Denied != nil && in.Denied.Digest == digest && in.Denied.Expired
	})
}

// inputsOf lists everything that services asked.
func inputsOf(s *journal.State) []journal.CallInput {
	var inputs []journal.CallInput
	for i := range s.Transcript {
		for j := range s.Transcript[i].Calls {
			inputs = append(inputs, s.Transcript[i].Calls[j].Inputs...)
		}
	}
	return inputs
}

// answerFits says whether an answer has the form that the question wants. To the model's
// own any text is an answer.
func answerFits(s *journal.State, text string) bool {
	call := s.AskingCall()
	if call == nil {
		return true
	}
	_, err := readAnswers(call.Input().Asked.Questions, text)
	return err == nil
}

// askedBefore says whether an earlier turn asked a question with such an id. That the
// digits at its end fit does not matter any more: nothing waits for that answer.
func askedBefore(s *journal.State, id string) bool {
	for i := range s.Transcript {
		turn := &s.Transcript[i]
		waits := s.Question != nil && turn == s.OpenTurn()
		if turn.Decision.Kind == journal.DecisionQuestion && !waits && strings.HasPrefix(id, fmt.Sprintf("q-%d-", turn.Number)) {
			return true
		}
	}
	return slices.ContainsFunc(inputsOf(s), func(in journal.CallInput) bool { return in.Question == id })
}
