//go:build canary

package sim

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-run/pawl/internal/canary"
)

var (
	canarySeeds   = flag.Int("canary-seeds", number("CANARY_SEEDS", 400), "how many seeds a canary may survive")
	writeCanaries = flag.Bool("write", false, "write the seeds into docs/simulator.md")
	onlyCanary    = flag.String("canary", "", "leave out this guard alone")
)

// TestCanaries leaves out one guard after the other. The simulator has to notice each, by a
// seed that is clean when nothing is left out.
func TestCanaries(t *testing.T) {
	page, err := os.ReadFile(canaryPage)
	if err != nil {
		t.Fatal(err)
	}
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
		if result := Run(optionsOf(guard, seed)); len(result.Violations) > 0 {
			t.Errorf("seed %d is no evidence against %s: with nothing left out %s", seed, guard, result.Violations[0])
		}
		fmt.Printf("%s: seed %d, %s\n", guard, seed, violation.Property)
		row := regexp.MustCompile("(?m)^(\\| `" + string(guard) + "` \\| [^|]* \\|) \\d+ \\| [^|]* \\|$")
		if !row.Match(page) {
			t.Errorf("%s has no row in %s", guard, canaryPage)
		}
		page = row.ReplaceAll(page, []byte(fmt.Sprintf("${1} %d | %s |", seed, violation.Property)))
	}
	if *writeCanaries {
		if err := os.WriteFile(canaryPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// canaryPage lists the guards with the seeds that they took.
const canaryPage = "../../docs/simulator.md"

// optionsOf are what a guard is hunted with. Limits are looked at where they are what is left
// out.
func optionsOf(guard canary.Guard, seed uint64) Options {
	if guard == canary.ShareIgnored {
		return sharing(seed)
	}
	return Options{Seed: seed}
}

// hunt finds the first seed with a violation, 0 for none.
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
				if result := Run(optionsOf(guard, seed)); len(result.Violations) > 0 {
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
