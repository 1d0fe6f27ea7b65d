package run

import (
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/journal"
)

// judged is a run that was granted one request, denied another, let a third lapse and
// asked one question before; now it is as edit says.
func judged(edit func(*journal.State)) *journal.State {
	s := journal.NewState("uid")
	s.Transcript = []journal.Turn{
		{Number: 1, Granted: &journal.ApprovalRequested{Digest: "granted"}, Completed: true},
		{Number: 2, Denied: &journal.ApprovalDenied{Digest: "denied"}, Completed: true},
		{Number: 3, Denied: &journal.ApprovalDenied{Digest: "lapsed", Expired: true}, Completed: true},
		{Number: 4, Decision: journal.DecisionMade{Kind: journal.DecisionQuestion}, Completed: true},
		{Number: 5, Calls: []journal.CallState{{Call: journal.Call{EffectKey: "settled"}}, {Call: journal.Call{EffectKey: "open"}}}},
	}
	s.Open = true
	edit(s)
	return s
}

func TestVerdictProblem(t *testing.T) {
	nothing := func(*journal.State) {}
	approval := func(s *journal.State) { s.Approval = &journal.ApprovalRequested{Digest: "pending"} }
	question := func(s *journal.State) {
		s.Transcript[4].Decision.Kind = journal.DecisionQuestion
		s.Question = &journal.QuestionAsked{ID: "q-5-00000000"}
	}
	unknown := func(s *journal.State) { s.Unknown = []journal.UnknownEffect{{EffectKey: "open"}} }
	tests := map[string]struct {
		edit     func(*journal.State)
		verdicts Verdicts
		want     string // part of the problem, empty for none
	}{
		"nothing said":                     {approval, Verdicts{}, ""},
		"what is pending":                  {approval, Verdicts{Approve: "pending", ApproveBy: "dana"}, ""},
		"by nobody":                        {approval, Verdicts{Approve: "pending"}, "approve counts only with pawl.run/approve-by"},
		"denied by nobody":                 {approval, Verdicts{Deny: "pending"}, "deny counts only with pawl.run/deny-by"},
		"something else":                   {approval, Verdicts{Approve: "other", ApproveBy: "dana"}, "approve does not name what is pending"},
		"something while nothing pends":    {nothing, Verdicts{Approve: "other", ApproveBy: "dana"}, "approve does not name what is pending"},
		"what was granted before":          {approval, Verdicts{Approve: "granted", ApproveBy: "dana"}, ""},
		"what was denied before":           {approval, Verdicts{Deny: "denied", DenyBy: "dana"}, ""},
		"what has lapsed":                  {nothing, Verdicts{Approve: "lapsed", ApproveBy: "dana"}, "approve names a request that has expired"},
		"the question":                     {question, Verdicts{Answers: map[string]string{"q-5-00000000": "yes"}, AnswerBy: "dana"}, ""},
		"the question, answered by nobody": {question, Verdicts{Answers: map[string]string{"q-5-00000000": "yes"}}, "answer counts only with pawl.run/answer-by"},
		"the question before":              {question, Verdicts{Answers: map[string]string{"q-4-11111111": "yes"}, AnswerBy: "dana"}, ""},
		"both questions":                   {question, Verdicts{Answers: map[string]string{"q-4-11111111": "yes", "q-5-00000000": "no"}, AnswerBy: "dana"}, ""},
		"another question":                 {question, Verdicts{Answers: map[string]string{"q-5-99999999": "yes"}, AnswerBy: "dana"}, "answer does not name the question that waits"},
		"a question while none waits":      {nothing, Verdicts{Answers: map[string]string{"q-9-00000000": "yes"}, AnswerBy: "dana"}, "answer does not name the question that waits"},
		"an unreadable answer":             {question, Verdicts{AnswersBroken: true}, "answer must be a JSON object of strings"},
		"the effect":                       {unknown, Verdicts{Settlements: map[string]string{"open": "rejected"}, SettleBy: "dana"}, ""},
		"the effect, settled by nobody":    {unknown, Verdicts{Settlements: map[string]string{"open": "rejected"}}, "settle counts only with pawl.run/settle-by"},
		"the effect, in other words":       {unknown, Verdicts{Settlements: map[string]string{"open": "done"}, SettleBy: "dana"}, `settle must say "committed" or "rejected"`},
		"the effect settled before":        {nothing, Verdicts{Settlements: map[string]string{"settled": "committed"}, SettleBy: "dana"}, ""},
		"another effect":                   {unknown, Verdicts{Settlements: map[string]string{"else": "committed"}, SettleBy: "dana"}, "settle does not name an unknown outcome"},
		"an unreadable settlement":         {unknown, Verdicts{SettlementsBroken: true}, "settle must be a JSON object of strings"},
		"two problems": {approval, Verdicts{Approve: "other", ApproveBy: "dana", SettlementsBroken: true},
			"approve does not name what is pending; the annotation pawl.run/settle must be"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.verdicts.Problem(judged(tt.edit))
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("problem %q, want %q in it", got, tt.want)
			}
			for range 10 {
				if again := tt.verdicts.Problem(judged(tt.edit)); again != got {
					t.Fatalf("first %q, then %q", got, again)
				}
			}
		})
	}
}
