package sim

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// limitsOf differ from seed to seed.
func limitsOf(seed uint64) *v1alpha1.ModelLimits {
	return []*v1alpha1.ModelLimits{
		{MaxConcurrentRequests: 1}, {MaxConcurrentRequests: 2}, {MaxConcurrentRequests: 3, RequestsPerMinute: 60},
		{RequestsPerMinute: 6}, {RequestsPerMinute: 1}, {MaxConcurrentRequests: 1, RequestsPerMinute: 20},
	}[seed%6]
}

// sharing is a simulation whose runs share a Model with limits.
func sharing(seed uint64) Options {
	return Options{Seed: seed, Limits: limitsOf(seed), setup: func(w *world) { w.populate(5 + w.rng.IntN(4)) }}
}

// TestLimits lets all runs of a simulation share a Model with limits: they hold, and every
// run still comes to its end.
func TestLimits(t *testing.T) {
	var (
		mu    sync.Mutex
		total Counts
		group sync.WaitGroup
		next  = make(chan uint64)
	)
	for range *workers {
		group.Go(func() {
			for seed := range next {
				o := sharing(seed)
				o.Calm = seed/6%3 == 0
				result := Run(o)
				mu.Lock()
				total.add(result.Counts)
				for _, violation := range result.Violations {
					t.Errorf("seed %d: %s", seed, violation)
				}
				mu.Unlock()
			}
		})
	}
	for i := range max(*seeds/5, 1) {
		next <- *first + uint64(i)
	}
	close(next)
	group.Wait()
	fmt.Printf("limits: %d requests, of them %d while the members stayed the same, %d at the limit\n", total.ModelCalls, total.Steady, total.AtLimit)
	if *seeds >= 100 && (total.Steady == 0 || total.AtLimit == 0) {
		t.Error("nothing was seen that the limits hold for")
	}
}
