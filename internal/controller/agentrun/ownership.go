package agentrun

import (
	"context"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/worker"
)

const (
	// rankDelay is how long a worker leaves a run to each one that is preferred to it.
	rankDelay = time.Second
	// lookInterval is how often a worker looks at a run that another one has.
	lookInterval = 60 * time.Second
	// preemptMargin is added to a lease before a live owner that ignores a cancellation
	// loses its run.
	preemptMargin = 2 * time.Second
)

// Membership says which workers there are. It never makes anything safe: the journal does.
type Membership interface {
	// Identity is this worker's.
	Identity() string
	// Fresh says whether this worker may start anything.
	Fresh(now time.Time) bool
	// State says whether a worker lives.
	State(identity string) worker.State
	// Confirm says whether a worker lives, from a look at its lease that begins now.
	Confirm(ctx context.Context, identity string) worker.State
	// Workers lists those that live and take up runs.
	Workers() []string
	// Sharers lists those among whom limits are divided, and says from when on this worker
	// may use its share; known is false while it has not looked lately.
	Sharers(now time.Time) (members []string, from time.Time, known bool)
	// Lease is how long a worker that stopped renewing is waited for.
	Lease() time.Duration
}

// entitled says whether this worker may look after the run now, and when to look again
// otherwise. It goes by hints; a claim is decided by the journal.
func (r *Reconciler) entitled(ctx context.Context, object *v1alpha1.AgentRun) (ok bool, again time.Duration) {
	now := r.clock.Now()
	if !r.members.Fresh(now) {
		// Without a lease of one's own nothing is started; what is in the air may land.
		return r.memory.session(object.UID) != nil, r.members.Lease() / 15
	}
	if r.memory.session(object.UID) != nil || len(r.flights.landed(object.UID)) > 0 {
		return true, 0
	}
	owner := object.Status.Owner
	if owner != nil && owner.Worker != r.members.Identity() && r.members.State(owner.Worker) == worker.Live {
		r.memory.of(object.UID).claimable = time.Time{}
		return r.mayPreempt(object, now)
	}
	r.memory.of(object.UID).ending = time.Time{}
	if r.draining.Load() {
		return false, 0
	}
	return r.preferred(ctx, object, now)
}

// mayPreempt lets a run be taken from a live owner that has ignored a cancellation for
// longer than any owner that works needs: it hangs.
func (r *Reconciler) mayPreempt(object *v1alpha1.AgentRun, now time.Time) (bool, time.Duration) {
	if !ends(object) {
		r.memory.of(object.UID).ending = time.Time{}
		return false, lookInterval + jitter(object.UID)
	}
	left := since(&r.memory.of(object.UID).ending, now).Add(r.members.Lease() + preemptMargin).Sub(now)
	return left <= 0, left
}

// ends says whether people want the run to end.
func ends(object *v1alpha1.AgentRun) bool {
	return object.Spec.State == v1alpha1.StateCancelled || !object.DeletionTimestamp.IsZero()
}

// preferred leaves a run without owner to the workers that come before this one in its
// order of preference, a second each.
func (r *Reconciler) preferred(ctx context.Context, object *v1alpha1.AgentRun, now time.Time) (bool, time.Duration) {
	notes := r.memory.of(object.UID)
	rank := r.rank(ctx, object, now)
	if now.Before(notes.passed) {
		rank += len(r.members.Workers())
	}
	if rank == 0 {
		return true, 0
	}
	left := since(&notes.claimable, now).Add(time.Duration(rank) * rankDelay).Sub(now)
	return left <= 0, left
}

// turn is this worker's place in a run's order of preference, whatever else it has to do.
func (r *Reconciler) turn(uid types.UID) int {
	return worker.Rank(string(uid), r.members.Identity(), r.members.Workers())
}

// jitter spreads periodic looks over time, the same way for a run each time.
func jitter(uid types.UID) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	return time.Duration(hash.Sum32()%10000) * time.Millisecond
}

// foreign says whether the journal names another owner that lives. Only a cancellation
// that was ignored overrides that. The newest look may be older than the owner's claim,
// so nothing is taken from anybody without another one.
func (r *Reconciler) foreign(ctx context.Context, object *v1alpha1.AgentRun, s *session) (bool, time.Duration) {
	owner := s.draft.State.Owner
	if owner == "" || owner == r.members.Identity() || s.draft.State.Finished != nil || s.closed {
		return false, 0
	}
	if r.members.State(owner) == worker.Dead && (canary.Is(canary.LastLook) || r.members.Confirm(ctx, owner) == worker.Dead) {
		return false, 0
	}
	if preempt, again := r.mayPreempt(object, r.clock.Now()); !preempt {
		return true, again
	}
	return false, 0
}

// correctHint shows who owns a run where status names somebody else who lives. A claim
// that was executed long after its writer gave it up is known to nobody: the owner would
// leave the run to the one whom status names, and that one to the owner.
func (r *Reconciler) correctHint(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	hint := object.Status.Owner
	if hint == nil || hint.Worker == s.draft.State.Owner || r.members.State(hint.Worker) != worker.Live {
		return nil
	}
	return r.show(ctx, object, s, run.Step{})
}
