package agentrun

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
)

const (
	// latestWrite is how long after its sender gave up on it a request may still be
	// executed: the API server ends it after a minute.
	latestWrite = 75 * time.Second
	// recentEnd is how long after its end a run's journal may still be written to by a
	// request that was given up.
	recentEnd = 2 * time.Minute
	// sweepRetry is how long to wait after a sweep that failed, and sweepTries how often.
	sweepRetry = 5 * time.Second
	sweepTries = 10
)

// Gone is told of every run that has left the cluster. Mostly nothing is left of it. But
// somebody may have taken its finalizer off by hand, or a segment may be created by a
// request that was given up long before; such a segment is held by a finalizer that
// nobody else knows of, and would hold its namespace with it.
func (r *Reconciler) Gone(object *v1alpha1.AgentRun) {
	if canary.Is(canary.Orphans) || !mayLeaveSegments(object, r.clock.Now()) {
		return
	}
	// One worker after the other looks, so that one finds everything and the others nothing.
	turn := time.Duration(r.turn(object.UID)) * rankDelay
	r.sweepAfter(turn, object, sweepTries)
	r.sweepAfter(latestWrite+turn, object, sweepTries)
}

// mayLeaveSegments says whether a segment may have a finalizer, now or when a write that
// was given up is executed. A run's status names its journal before its first call that
// may have an effect, and the run has the finalizer until none is under way.
func mayLeaveSegments(object *v1alpha1.AgentRun, now time.Time) bool {
	completed := object.Status.CompletionTime
	open := completed == nil || now.Sub(completed.Time) < recentEnd
	return controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects) || object.Status.Journal != nil && open
}

func (r *Reconciler) sweepAfter(wait time.Duration, object *v1alpha1.AgentRun, tries int) {
	r.clock.AfterFunc(wait, func() {
		r.flights.executor.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err := r.sweep(ctx, object)
			if err == nil {
				return
			}
			ctrl.Log.WithName("agentrun").Error(err, "Releasing what is left of a run failed", "namespace", object.Namespace, "name", object.Name)
			if tries > 1 {
				r.sweepAfter(sweepRetry, object, tries-1)
			}
		})
	})
}

// sweep takes the finalizer off the segments of a run, if it is really gone: a cache that
// was filled from a server that lags behind believes that of what it does not know yet.
func (r *Reconciler) sweep(ctx context.Context, object *v1alpha1.AgentRun) error {
	fresh := &v1alpha1.AgentRun{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(object), fresh)
	if err == nil && fresh.UID == object.UID {
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	known := int32(0)
	if j := object.Status.Journal; j != nil {
		known = j.Segments
	}
	return r.store.ReleaseAll(ctx, object, known)
}
