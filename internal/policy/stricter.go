package policy

import (
	"cmp"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// Stricter gives the stricter of two verdicts on the same call: Deny before Ask
// before Allow, then End before ReturnToModel, then the shorter time. Between
// verdicts that are equally strict the choice is by name, so that the order of the
// arguments never matters.
func Stricter(a, b Verdict) Verdict {
	if compare(a, b) >= 0 {
		return a
	}
	return b
}

func compare(a, b Verdict) int {
	if c := cmp.Compare(actionRank(a.Action), actionRank(b.Action)); c != 0 {
		return c
	}
	consequence := 0
	switch a.Action {
	case v1alpha1.ActionAllow:
	case v1alpha1.ActionAsk:
		consequence = cmp.Or(
			cmp.Compare(endRank(a.Approval.OnDeny), endRank(b.Approval.OnDeny)),
			cmp.Compare(endRank(a.Approval.OnTimeout), endRank(b.Approval.OnTimeout)),
			cmp.Compare(b.Approval.TimeoutSeconds, a.Approval.TimeoutSeconds))
	default:
		consequence = cmp.Compare(endRank(a.OnDeny), endRank(b.OnDeny))
	}
	return cmp.Or(consequence,
		cmp.Compare(b.Policy, a.Policy),
		cmp.Compare(b.Rule, a.Rule),
		cmp.Compare(b.PolicyDigest, a.PolicyDigest),
		cmp.Compare(b.RuleDigest, a.RuleDigest),
		cmp.Compare(b.Reason, a.Reason),
		cmp.Compare(b.Message, a.Message),
		cmp.Compare(b.Approval.Message, a.Approval.Message))
}

// actionRank takes what it doesn't know for a denial.
func actionRank(a v1alpha1.Action) int {
	switch a {
	case v1alpha1.ActionAllow:
		return 0
	case v1alpha1.ActionAsk:
		return 1
	default:
		return 2
	}
}

func endRank(c v1alpha1.Consequence) int {
	if c == v1alpha1.ConsequenceReturnToModel {
		return 0
	}
	return 1
}
