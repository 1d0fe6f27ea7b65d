package agentrun

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// drainPoll is how often draining looks whether everything is out of hand.
const drainPoll = 100 * time.Millisecond

// Drain hands this worker's runs over: nothing new is started, what is in flight lands
// and is recorded, and each run is released as its last call ends. When the context
// ends, models and calls without effect are cut short; for the rest there are two more
// seconds.
func (r *Reconciler) Drain(ctx context.Context, ticks clock.WithTicker) {
	r.draining.Store(true)
	ticker := ticks.NewTicker(drainPoll)
	defer ticker.Stop()
	done := ctx.Done()
	var end time.Time
	for {
		busy := r.memory.busy()
		if len(busy) == 0 || (!end.IsZero() && !ticks.Now().Before(end)) {
			return
		}
		for _, key := range busy {
			r.wakeups.wake(key)
		}
		select {
		case <-done:
			r.flights.stopRepeatable()
			end, done = ticks.Now().Add(2*time.Second), nil
		case <-ticker.C():
		}
	}
}

// heartbeatRequest goes through the work queue like a run, to show that it moves.
var heartbeatRequest = reconcile.Request{NamespacedName: types.NamespacedName{Name: "pawl.run/heartbeat"}}

// heartbeat is when the work queue last moved.
type heartbeat struct {
	mu   sync.Mutex
	sent time.Time
	last time.Time
}

func (h *heartbeat) felt(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = now
}

// Heartbeat sends a beat through the work queue and says whether the one before came
// back. A worker whose queue hangs must not renew its lease.
func (r *Reconciler) Heartbeat() bool {
	r.beat.mu.Lock()
	moved := r.beat.sent.IsZero() || !r.beat.last.Before(r.beat.sent)
	now := r.clock.Now()
	r.beat.mu.Unlock()
	// Before the queue listens there is nothing that could hang.
	if moved && r.wakeups.wake(heartbeatRequest.NamespacedName) {
		r.beat.mu.Lock()
		r.beat.sent = now
		r.beat.mu.Unlock()
	}
	return moved
}
