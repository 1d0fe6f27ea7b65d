package agentrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
)

// fail maps an error to what happens next.
func (r *Reconciler) fail(ctx context.Context, object *v1alpha1.AgentRun, err error) (ctrl.Result, error) {
	if unrecordable(object, err) && (!endedInStatusAlone(object) || !settlementGiven(object)) {
		if r.settledElsewhere(ctx, object) {
			return r.letGoOfDeleted(ctx, object, nil)
		}
		r.tellAbandoned(ctx, object, "the run was deleted and its journal can no longer be written")
		return r.letGoOfDeleted(ctx, object, nil)
	}
	problem, broken := corrupt(err)
	var refused *store.RefusedError
	isRefused := errors.As(err, &refused)
	if (broken || isRefused) && endedInStatusAlone(object) {
		return r.settleInStatus(ctx, object, broken)
	}
	if broken {
		return r.checkpointFailed(ctx, object, problem, true)
	}
	if isRefused {
		return r.refused(ctx, object, refused)
	}
	var newer *journal.NewerError
	if errors.As(err, &newer) {
		return r.leaveToNewer(ctx, object, newer)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errBehind) {
		// The race for the next place is lost: fold again.
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

// Bounds of the back-off while the API server refuses a journal: at most a handful of
// writes in the first minute, and soon after a quota was raised the run goes on.
const (
	minRefusalWait = time.Second
	maxRefusalWait = 30 * time.Second
)

// refused shows that the journal can't be written, tries again later, and ends the run
// when that has lasted too long.
func (r *Reconciler) refused(ctx context.Context, object *v1alpha1.AgentRun, refused *store.RefusedError) (ctrl.Result, error) {
	lasted := r.clock.Since(since(&r.memory.of(object.UID).refused, r.clock.Now()))
	problem := fmt.Sprintf("the API server refuses journal segment %s: %s", refused.Segment, refused.Reason())
	if lasted >= r.refusalTimeout {
		return r.checkpointFailed(ctx, object, fmt.Sprintf("%s; this has lasted for %s", problem, r.refusalTimeout), false)
	}
	ctrl.LoggerFrom(ctx).Info("The journal is refused", "segment", refused.Segment, "reason", refused.Reason(), "since", lasted.Round(time.Second))
	if err := r.showRefusal(ctx, object, problem); err != nil {
		return ctrl.Result{}, err
	}
	wait := min(max(lasted/2, minRefusalWait), maxRefusalWait)
	owner := object.Status.Owner
	if turn := r.turn(object.UID); turn > 0 && (owner == nil || owner.Worker != r.members.Identity()) {
		// Others that live come first; of many replicas one is enough to see how it goes on.
		wait = time.Duration(turn) * maxRefusalWait
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// vanished forgets a run that the cache does not have any more.
func (r *Reconciler) vanished(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	uid, known := r.memory.lookup(key)
	if !known {
		return ctrl.Result{}, nil
	}
	if there, err := r.stillThere(ctx, key, uid); err != nil || there {
		return ctrl.Result{RequeueAfter: lagRetry}, err
	}
	r.memory.forgetKey(key)
	r.abandon(uid)
	r.flights.forget(uid)
	return ctrl.Result{}, nil
}

// stillThere says whether a run is there although the cache has none of its name, or another
// one. While something is under way for it a live read decides: what an effect came to is not
// thrown away on the word of a server that lags behind.
func (r *Reconciler) stillThere(ctx context.Context, key types.NamespacedName, uid types.UID) (bool, error) {
	if r.flights.underWay(uid, nil).empty() {
		return false, nil
	}
	live := &v1alpha1.AgentRun{}
	if err := r.live.Get(ctx, key, live); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading the run live: %w", err)
	}
	return live.UID == uid, nil
}

// lagRetry is how long to wait for a cache that lags behind.
const lagRetry = time.Second

// abandon lets a run out of hand that is gone or needs nothing more.
func (r *Reconciler) abandon(uid types.UID) {
	r.flights.drop(uid)
	r.leaveQueues(uid)
	r.memory.forget(uid)
}

// leaveToNewer leaves a run alone whose journal a later build wrote: while replicas are
// replaced, the new ones go on with it. A deleted run must not wait for ones that never come.
func (r *Reconciler) leaveToNewer(ctx context.Context, object *v1alpha1.AgentRun, newer *journal.NewerError) (ctrl.Result, error) {
	again := lookInterval + jitter(object.UID)
	if deleted := object.DeletionTimestamp; !deleted.IsZero() {
		left := deleted.Add(r.deletionGrace).Sub(r.clock.Now())
		if left <= 0 {
			r.tellAbandoned(ctx, object, "the run was deleted and no replica that reads its journal settled it: %s", newer)
			return r.letGoOfDeleted(ctx, object, nil)
		}
		again = min(again, left)
	}
	r.recorder.Eventf(object, nil, eventWarning, "JournalTooNew", "Read", "the run is left to newer replicas: %s", newer)
	return ctrl.Result{RequeueAfter: again}, nil
}
