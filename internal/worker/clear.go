package worker

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// clearInterval is how often a worker clears away Leases that others left behind.
	clearInterval = time.Minute
	// keepLeases is how long the Lease of a worker that died stays: pods get new names, so
	// that nobody ever takes it over.
	keepLeases = time.Hour
)

// clear deletes the Leases of workers that died long ago. They count as dead before and
// after; whoever does come back begins a new one.
func (m *Membership) clear(ctx context.Context, now time.Time) {
	m.mu.Lock()
	left := m.observer.LongDead(now, keepLeases)
	m.mu.Unlock()
	for _, seen := range left {
		uid := types.UID(seen.UID)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.options.Namespace, Name: seen.Name}}
		err := m.options.Client.Delete(ctx, lease, client.Preconditions{UID: &uid, ResourceVersion: &seen.Version})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			log.FromContext(ctx).Error(err, "Deleting the lease of a worker that died long ago failed", "lease", seen.Name)
		}
	}
}
