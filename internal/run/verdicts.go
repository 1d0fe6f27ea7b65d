package run

import (
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
)

// Problem says why a verdict that somebody gave does not act, empty where there is
// nothing to say. What was used before is no problem: annotations stay on the object.
func (v Verdicts) Problem(s *journal.State) string {
	var problems []string
	if a := s.Approval; a != nil {
		problems = append(problems, verdictProblem(s, "approve", v.Approve, v.ApproveBy, a.Digest))
		problems = append(problems, verdictProblem(s, "deny", v.Deny, v.DenyBy, a.Digest))
	}
	if q := s.Question; q != nil {
		_, named := v.Answers[q.ID]
		problems = append(problems, mapProblem("answer", v.AnswersBroken, named, v.AnswerBy))
	}
	if len(s.Unknown) > 0 {
		named := false
		for _, unknown := range s.Unknown {
			effect, given := v.Settlements[unknown.EffectKey]
			named = named || given
			if given && effect != journal.EffectCommitted && effect != journal.EffectRejected {
				problems = append(problems, `the annotation pawl.run/settle must say "committed" or "rejected"`)
			}
		}
		problems = append(problems, mapProblem("settle", v.SettlementsBroken, named, v.SettleBy))
	}
	var said []string
	for _, problem := range problems {
		if problem != "" {
			said = append(said, problem)
		}
	}
	return strings.Join(said, "; ")
}

func verdictProblem(s *journal.State, name, value, by, pending string) string {
	switch {
	case value == "" || (value != pending && usedDigest(s, value)):
		return ""
	case value != pending:
		return fmt.Sprintf("the annotation pawl.run/%s does not name what is pending", name)
	case by == "":
		return fmt.Sprintf("the annotation pawl.run/%s counts only with pawl.run/%s-by, the name of who gave it", name, name)
	default:
		return ""
	}
}

func mapProblem(name string, broken, named bool, by string) string {
	switch {
	case broken:
		return fmt.Sprintf("the annotation pawl.run/%s must be a JSON object of strings", name)
	case named && by == "":
		return fmt.Sprintf("the annotation pawl.run/%s counts only with pawl.run/%s-by, the name of who gave it", name, name)
	default:
		return ""
	}
}

// usedDigest says whether a verdict on an earlier request named the digest.
func usedDigest(s *journal.State, digest string) bool {
	for i := range s.Transcript {
		turn := &s.Transcript[i]
		if turn.Granted != nil && turn.Granted.Digest == digest || turn.Denied != nil && turn.Denied.Digest == digest {
			return true
		}
	}
	return false
}
