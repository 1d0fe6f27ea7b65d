//go:build canary

package sim

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-run/pawl/internal/canary"
)

var (
	canarySeeds = flag.Int("canary-seeds", number("CANARY_SEEDS", 400), "how many seeds a canary may survive")
	onlyCanary  = flag.String("canary", "", "leave out this guard alone")
)

// TestCanaries leaves out one guard after the other. The simulator has to notice each;
// with none left out, the same seeds must be clean.
func TestCanaries(t *testing.T) {
	for _, guard := range canary.Guards {
		if *onlyCanary != "" && *onlyCanary != string(guard) {
			continue
		}
		canary.LeaveOut(guard)
		seed, violation := hunt(*canarySeeds, guard)
		canary.LeaveOut("")
		if seed == 0 {
			t.Errorf("%s survived %d seeds", guard, *canarySeeds)
			continue
		}
		fmt.Printf("| `%s` | %d | %s |\n", guard, seed, violation.Property)
	}
}

// hunt finds the first seed with a violation, 0 for none. Limits are looked at where they
// are what is left out.
func hunt(limit int, guard canary.Guard) (uint64, Violation) {
	var (
		mu    sync.Mutex
		found = map[uint64]Violation{}
		done  atomic.Bool
		group sync.WaitGroup
		next  atomic.Uint64
	)
	for range *workers {
		group.Go(func() {
			for !done.Load() {
				seed := next.Add(1)
				if seed > uint64(limit) {
					return
				}
				o := Options{Seed: seed}
				if guard == canary.ShareIgnored {
					o = sharing(seed)
				}
				if result := Run(o); len(result.Violations) > 0 {
					mu.Lock()
					found[seed] = result.Violations[0]
					mu.Unlock()
					done.Store(true)
				}
			}
		})
	}
	group.Wait()
	for seed := uint64(1); seed <= uint64(limit); seed++ {
		if violation, ok := found[seed]; ok {
			return seed, violation
		}
	}
	return 0, Violation{}
}
