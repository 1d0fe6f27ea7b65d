package agentrun

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/run"
)

// secret stands where a model, a tool or a person wrote something.
const secret = "s3cr3t"

func TestNotices(t *testing.T) {
	tests := map[string]struct {
		payload journal.Payload
		want    string // reason, empty for no notice
	}{
		"start":              {journal.RunStarted{Prompt: secret, SystemPrompt: secret}, "Started"},
		"claim":              {journal.Claimed{Worker: "w"}, ""},
		"release":            {journal.Released{Worker: "w"}, ""},
		"decision":           {journal.DecisionMade{Text: secret}, ""},
		"failed request":     {journal.ModelFailed{Class: "Transient"}, ""},
		"request":            {journal.ApprovalRequested{Digest: "sha256:1", Message: secret}, "ApprovalRequired"},
		"approval":           {journal.ApprovalGranted{Digest: "sha256:1"}, "ApprovalGranted"},
		"denial":             {journal.ApprovalDenied{Digest: "sha256:1", Reason: secret}, "ApprovalDenied"},
		"expiry":             {journal.ApprovalDenied{Digest: "sha256:1", Expired: true}, "ApprovalExpired"},
		"dispatch":           {journal.CallDispatched{}, ""},
		"result":             {journal.CallCompleted{ID: "c", Final: true, Class: "ok", Value: json.RawMessage(`"` + secret + `"`)}, ""},
		"unknown outcome":    {journal.CallCompleted{ID: "c", Class: "unknown", Effect: journal.EffectUnknown, Message: secret}, "OutcomeUnknown"},
		"attempt to repeat":  {journal.CallCompleted{ID: "c", Class: "unknown", Effect: journal.EffectUnknown, Retryable: true}, ""},
		"settlement":         {journal.EffectReconciled{ID: "c", Effect: journal.EffectCommitted}, "EffectSettled"},
		"question":           {journal.QuestionAsked{ID: "q-1-00000000", Text: secret}, "InputRequired"},
		"answer":             {journal.QuestionAnswered{ID: "q-1-00000000", Text: secret}, "QuestionAnswered"},
		"suspension":         {journal.Suspended{}, "Suspended"},
		"resumption":         {journal.Resumed{}, "Resumed"},
		"end of a turn":      {journal.TurnCompleted{}, ""},
		"ending":             {journal.Finished{Reason: "MaxTurns", Message: "enough"}, "MaxTurns"},
		"ending with answer": {journal.Finished{Reason: "Completed", Message: "done", Answer: new(string)}, "Completed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(tt.payload)
			if err != nil {
				t.Fatal(err)
			}
			n, worth := noticeOf(journal.Event{Type: tt.payload.Type(), By: "dana", Data: data})
			if worth != (tt.want != "") || n.reason != tt.want {
				t.Errorf("notice %+v, want reason %q", n, tt.want)
			}
			if strings.Contains(n.note, secret) {
				t.Errorf("the note repeats what was said: %s", n.note)
			}
			if warns := n.kind == eventWarning; worth && warns != (tt.want == "ApprovalExpired" || tt.want == "OutcomeUnknown" || tt.want == "MaxTurns") {
				t.Errorf("kind %s", n.kind)
			}
		})
	}
}

func TestVerdictsOf(t *testing.T) {
	object := func(annotations map[string]string) *v1alpha1.AgentRun {
		return &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	got := verdictsOf(object(map[string]string{
		v1alpha1.AnnotationApprove: "a", v1alpha1.AnnotationApproveBy: "dana",
		v1alpha1.AnnotationDeny: "d", v1alpha1.AnnotationDenyBy: "erin", v1alpha1.AnnotationDenyReason: "no",
		v1alpha1.AnnotationAnswer: `{"q": "text"}`, v1alpha1.AnnotationAnswerBy: "fred",
		v1alpha1.AnnotationSettle: `{"k": "committed"}`, v1alpha1.AnnotationSettleBy: "gina",
	}))
	want := run.Verdicts{
		Approve: "a", ApproveBy: "dana", Deny: "d", DenyBy: "erin", DenyReason: "no",
		Answers: map[string]string{"q": "text"}, AnswerBy: "fred",
		Settlements: map[string]string{"k": "committed"}, SettleBy: "gina",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(run.Verdicts{}, verdictsOf(object(nil))); diff != "" {
		t.Errorf("without annotations (-want +got):\n%s", diff)
	}
	for _, text := range []string{"yes", "[]", `{"k": 1}`, `{"k": "committed"} {}`, `{"k": "committed", "k": "rejected"}`, `{"k": null}`} {
		v := verdictsOf(object(map[string]string{v1alpha1.AnnotationAnswer: text, v1alpha1.AnnotationSettle: text}))
		if !v.AnswersBroken || !v.SettlementsBroken || len(v.Answers) > 0 || len(v.Settlements) > 0 {
			t.Errorf("%s is read as %+v", text, v)
		}
	}
}

func TestSettlementGiven(t *testing.T) {
	object := &v1alpha1.AgentRun{}
	object.Annotations = map[string]string{v1alpha1.AnnotationSettle: `{"key": "committed"}`}
	if settlementGiven(object) {
		t.Error("nothing is unknown, but something is settled")
	}
	object.Status.UnknownEffects = []v1alpha1.UnknownEffect{{EffectKey: "key"}}
	if !settlementGiven(object) {
		t.Error("the settlement is not seen")
	}
	object.Annotations[v1alpha1.AnnotationSettle] = `{"other": "committed"}`
	if settlementGiven(object) {
		t.Error("the settlement of another effect counts")
	}
}
