package agentrun

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/status"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// showNow says whether status has to follow at once: on every wait and ending, when
// what the run waits for changed, and otherwise every few seconds.
func (r *Reconciler) showNow(object *v1alpha1.AgentRun, s *session, step run.Step, now time.Time) bool {
	if step.Kind == run.Rest || step.Kind == run.Done {
		return true
	}
	if step.Kind == run.Resolve && saysWhatIsMissing(object) {
		// It is tried again and again. Saying Pending each time would only flap.
		return false
	}
	return waitingReason(s, step) != s.waiting || object.Status.ObservedGeneration != object.Generation || now.Sub(s.shown) >= statusInterval
}

func saysWhatIsMissing(object *v1alpha1.AgentRun) bool {
	succeeded := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionSucceeded)
	return succeeded != nil && succeeded.Reason == string(v1alpha1.ReasonConfigurationNotReady)
}

func waitingReason(s *session, step run.Step) v1alpha1.Reason {
	switch {
	case step.Waiting != "":
		return v1alpha1.Reason(step.Waiting)
	case s.draft.State.Run == nil:
		return v1alpha1.ReasonPending
	default:
		return v1alpha1.ReasonRunning
	}
}

// show projects the journal into status. A conflict means that somebody changed spec
// or annotations meanwhile; the projection does not depend on either.
func (r *Reconciler) show(ctx context.Context, object *v1alpha1.AgentRun, s *session, step run.Step) error {
	verdicts := verdictsOf(object)
	facts := status.Facts{
		Now: r.clock.Now(), Generation: object.Generation, State: s.draft.State, Segments: s.log.Segments(),
		Waiting: waitingReason(s, step), Message: step.Message, VerdictProblem: verdicts.Problem(s.draft.State),
		Checked: r.memory.of(s.uid).checked, Children: s.pendingChildren,
	}
	if err := r.writeStatus(ctx, object, derivedFrom(facts)); err != nil {
		return err
	}
	r.announceProblem(object, s, facts.VerdictProblem)
	s.waiting, s.shown = facts.Waiting, facts.Now
	return nil
}

// derive makes the next status of the one that is stored.
type derive func(previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus

func derivedFrom(facts status.Facts) derive {
	return func(previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus { return status.Derive(facts, previous) }
}

// atOnce repeats a write that met a conflict without a pause: a live read comes between.
var atOnce = wait.Backoff{Steps: 4}

func (r *Reconciler) writeStatus(ctx context.Context, object *v1alpha1.AgentRun, derive derive) error {
	target := object.DeepCopy()
	err := retry.RetryOnConflict(atOnce, func() error {
		next := derive(target.Status)
		if equality.Semantic.DeepEqual(next, target.Status) {
			return nil
		}
		if eventsIn(target.Status) > eventsIn(next) && !canary.Is(canary.LateStatus) {
			return nil
		}
		target.Status = next
		err := r.client.Status().Update(ctx, target)
		if apierrors.IsConflict(err) {
			if readErr := r.live.Get(ctx, client.ObjectKeyFromObject(object), target); readErr != nil {
				return readErr
			}
			if target.UID != object.UID {
				return nil
			}
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	object.Status, object.ResourceVersion = target.Status, target.ResourceVersion
	return nil
}

// eventsIn is how far a status has seen the journal come.
func eventsIn(status v1alpha1.AgentRunStatus) int64 {
	if status.Journal == nil {
		return 0
	}
	return status.Journal.Events
}

// showRefusal says in status why a run stands still whose journal is refused.
func (r *Reconciler) showRefusal(ctx context.Context, object *v1alpha1.AgentRun, problem string) error {
	state, segments := r.lastKnown(ctx, object)
	if state == nil {
		return nil
	}
	waiting := v1alpha1.ReasonPending
	if state.Run != nil {
		waiting = v1alpha1.ReasonRunning
	}
	return r.writeStatus(ctx, object, derivedFrom(status.Facts{
		Now: r.clock.Now(), Generation: object.Generation, State: state, Segments: segments,
		Waiting: waiting, Message: problem,
	}))
}

// lastKnown is what the journal says, as far as it can be read; nil when it can't.
func (r *Reconciler) lastKnown(ctx context.Context, object *v1alpha1.AgentRun) (*journal.State, int32) {
	log, records, err := r.store.Load(ctx, object)
	if err != nil {
		return nil, 0
	}
	state, _ := journal.Fold(string(object.UID), records)
	return state, log.Segments()
}

// checkpointFailed ends a run whose journal can't be relied on, or, where it is not broken,
// is refused. It is the one ending that status carries alone.
func (r *Reconciler) checkpointFailed(ctx context.Context, object *v1alpha1.AgentRun, problem string, broken bool) (ctrl.Result, error) {
	r.abandon(object.UID)
	r.flights.forget(object.UID)
	facts := status.Facts{Now: r.clock.Now(), Generation: object.Generation, CheckpointFailed: problem, Broken: broken}
	facts.State, _ = r.lastKnown(ctx, object)
	facts.Held = r.isHeld(ctx, object)
	if err := r.writeStatus(ctx, object, derivedFrom(facts)); err != nil {
		return ctrl.Result{}, err
	}
	r.recorder.Eventf(object, nil, eventWarning, string(v1alpha1.ReasonCheckpointFailed), "Finish", "%s", problem)
	return ctrl.Result{}, nil
}

// isHeld says whether the run has the finalizer that it gets before its first call that may
// have an effect. A cache may not know yet.
func (r *Reconciler) isHeld(ctx context.Context, object *v1alpha1.AgentRun) bool {
	if controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects) {
		return true
	}
	fresh := &v1alpha1.AgentRun{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(object), fresh)
	return err == nil && fresh.UID == object.UID && controllerutil.ContainsFinalizer(fresh, v1alpha1.FinalizerEffects)
}

// outcomesKnown says whether nothing that a run did is unknown, as far as status goes.
func outcomesKnown(object *v1alpha1.AgentRun) bool {
	return len(object.Status.UnknownEffects) == 0 &&
		!meta.IsStatusConditionPresentAndEqual(object.Status.Conditions, v1alpha1.ConditionOutcomeUnknown, metav1.ConditionUnknown)
}

// expire deletes a finished run once its time to live has passed.
func (r *Reconciler) expire(ctx context.Context, object *v1alpha1.AgentRun) (ctrl.Result, error) {
	ttl, completed := object.Spec.TTLSecondsAfterFinished, object.Status.CompletionTime
	if ttl == nil || completed == nil || !outcomesKnown(object) {
		// With the run its record of an unknown effect would go; settling it wakes the run.
		return ctrl.Result{}, nil
	}
	left := completed.Add(time.Duration(*ttl) * time.Second).Sub(r.clock.Now())
	if left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return ctrl.Result{}, fmt.Errorf("deleting the finished run: %w", err)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, nil
}

// verdictsOf reads what people said. Values that are not JSON where they should be, or
// say two things of the same name, count as nothing said; Problem tells.
func verdictsOf(object *v1alpha1.AgentRun) run.Verdicts {
	a := object.Annotations
	verdicts := run.Verdicts{
		Approve: a[v1alpha1.AnnotationApprove], ApproveBy: a[v1alpha1.AnnotationApproveBy],
		Deny: a[v1alpha1.AnnotationDeny], DenyBy: a[v1alpha1.AnnotationDenyBy], DenyReason: a[v1alpha1.AnnotationDenyReason],
		AnswerBy: a[v1alpha1.AnnotationAnswerBy], SettleBy: a[v1alpha1.AnnotationSettleBy],
		CompleteBy: a[v1alpha1.AnnotationCompleteBy],
	}
	verdicts.Answers, verdicts.AnswersBroken = readMap(a[v1alpha1.AnnotationAnswer])
	verdicts.Settlements, verdicts.SettlementsBroken = readMap(a[v1alpha1.AnnotationSettle])
	verdicts.Completions, verdicts.CompletionsBroken = readValues(a[v1alpha1.AnnotationComplete])
	return verdicts
}

// readValues reads a JSON object whose members may be anything, each kept as written.
func readValues(text string) (map[string]json.RawMessage, bool) {
	if text == "" {
		return nil, false
	}
	if _, err := strictjson.Object([]byte(text), strictjson.Limits{}); err != nil {
		return nil, true
	}
	var values map[string]json.RawMessage
	return values, json.Unmarshal([]byte(text), &values) != nil
}

func readMap(text string) (map[string]string, bool) {
	if text == "" {
		return nil, false
	}
	object, err := strictjson.Object([]byte(text), strictjson.Limits{})
	if err != nil {
		return nil, true
	}
	values := map[string]string{}
	for name, value := range object {
		said, ok := value.(string)
		if !ok {
			return nil, true
		}
		values[name] = said
	}
	return values, false
}
