package agentrun

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
)

// notice is a Kubernetes event less the object it is about.
type notice struct {
	kind, reason, action, note string
}

// announce publishes an event for each transition that people may want to know of. It
// never repeats what a model or a tool said.
func (r *Reconciler) announce(object *v1alpha1.AgentRun, records []journal.Record) {
	for _, record := range records {
		if n, worth := noticeOf(record.Event); worth {
			r.recorder.Eventf(object, nil, n.kind, n.reason, n.action, "%s", n.note)
		}
	}
}

// noticeOf is the constructor of every event about a run.
func noticeOf(event journal.Event) (notice, bool) {
	switch event.Type {
	case journal.TypeRunStarted:
		return notice{eventNormal, "Started", "Start", "the run has started"}, true
	case journal.TypeApprovalRequested:
		var p journal.ApprovalRequested
		_ = json.Unmarshal(event.Data, &p)
		return notice{eventNormal, string(v1alpha1.ReasonApprovalRequired), "Ask", fmt.Sprintf("waiting for approval of %s (calls: %d)", p.Digest, len(p.Calls))}, true
	case journal.TypeApprovalGranted:
		return notice{eventNormal, "ApprovalGranted", "Approve", "approved by " + event.By}, true
	case journal.TypeApprovalDenied:
		var p journal.ApprovalDenied
		_ = json.Unmarshal(event.Data, &p)
		if p.Expired {
			return notice{eventWarning, string(v1alpha1.ReasonApprovalExpired), "Expire", "nobody answered the request for approval in time"}, true
		}
		return notice{eventNormal, string(v1alpha1.ReasonApprovalDenied), "Deny", "denied by " + event.By}, true
	case journal.TypeQuestionAsked:
		var p journal.QuestionAsked
		_ = json.Unmarshal(event.Data, &p)
		return notice{eventNormal, string(v1alpha1.ReasonInputRequired), "Ask", "question " + p.ID + " waits for an answer"}, true
	case journal.TypeQuestionAnswered:
		if event.By == "" {
			return notice{eventWarning, "QuestionExpired", "Expire", "nobody answered the question of a tool in time"}, true
		}
		return notice{eventNormal, "QuestionAnswered", "Answer", "answered by " + event.By}, true
	case journal.TypeEffectReconciled:
		return notice{eventNormal, "EffectSettled", "Settle", settledNote(event)}, true
	case journal.TypeSuspended:
		return notice{eventNormal, string(v1alpha1.ReasonSuspended), "Suspend", "the run is suspended"}, true
	case journal.TypeResumed:
		return notice{eventNormal, "Resumed", "Resume", "the run goes on"}, true
	case journal.TypeCallCompleted:
		return unknownNotice(event)
	case journal.TypeFinished:
		var p journal.Finished
		_ = json.Unmarshal(event.Data, &p)
		kind := eventWarning
		if p.Reason == string(v1alpha1.ReasonCompleted) {
			kind = eventNormal
		}
		return notice{kind, p.Reason, "Finish", p.Message}, true
	default:
		return notice{}, false
	}
}

func settledNote(event journal.Event) string {
	var p journal.EffectReconciled
	_ = json.Unmarshal(event.Data, &p)
	word := event.By
	if p.Source != journal.SourcePerson {
		word = "the " + strings.ToLower(string(p.Source))
	}
	return fmt.Sprintf("call %s, whose outcome was unknown, was %s, says %s", p.ID, p.Effect, word)
}

func unknownNotice(event journal.Event) (notice, bool) {
	var p journal.CallCompleted
	_ = json.Unmarshal(event.Data, &p)
	if p.Effect != journal.EffectUnknown || p.Retryable {
		return notice{}, false
	}
	return notice{eventWarning, string(v1alpha1.ReasonOutcomeUnknown), "Call", "nobody knows whether call " + p.ID + " took effect"}, true
}

// announceProblem publishes once for each problem with a verdict that a process sees.
func (r *Reconciler) announceProblem(object *v1alpha1.AgentRun, s *session, problem string) {
	notes := r.memory.of(s.uid)
	fresh := problem != "" && notes.problem != problem
	notes.problem = problem
	if !fresh {
		return
	}
	r.recorder.Eventf(object, nil, eventWarning, "VerdictIgnored", "Judge", "%s", problem)
}
