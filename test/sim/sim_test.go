package sim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	seeds     = flag.Int("seeds", number("SIM_SEEDS", 500), "how many seeds to simulate")
	first     = flag.Uint64("first", uint64(number("SIM_FIRST", 1)), "the first of them")
	workers   = flag.Int("workers", 2, "how many simulations run at once")
	showSite  = flag.String("site", "", "with -show: force a fault at this site of the crash matrix, all else being calm")
	showFault = flag.String("fault", "", "with -site: the fault")
	showNth   = flag.Int("nth", 1, "with -site: the passage")
	showSeed  = flag.Uint64("show", uint64(number("SIM_SHOW", 0)), "print the whole history of this seed and do nothing else")
)

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	// A crash unwinds through code that would report it as a panic.
	utilruntime.PanicHandlers = nil
	os.Exit(m.Run())
}

// TestSeeds is the simulation: no schedule may violate any property.
func TestSeeds(t *testing.T) {
	if *showSeed > 0 {
		o := Options{Seed: *showSeed, Echo: func(line string) { fmt.Println(line) }}
		if *showSite != "" {
			o.Calm, o.Force = true, &Force{Site: Site(*showSite), Fault: Fault(*showFault), Nth: *showNth}
		}
		result := Run(o)
		for _, violation := range result.Violations {
			t.Errorf("seed %d: %s", result.Seed, violation)
		}
		return
	}
	var (
		mu     sync.Mutex
		total  Counts
		failed int
		group  sync.WaitGroup
		next   = make(chan uint64)
	)
	for range *workers {
		group.Go(func() {
			for seed := range next {
				result := Run(Options{Seed: seed})
				mu.Lock()
				total.add(result.Counts)
				for _, violation := range result.Violations {
					if failed++; failed <= 5 {
						t.Errorf("seed %d: %s", seed, violation)
					} else {
						t.Errorf("seed %d: %s: %s", seed, violation.Property, violation.Detail)
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := range *seeds {
		next <- *first + uint64(i)
	}
	close(next)
	group.Wait()
	fmt.Printf("simulator: %d seeds, %s, %d violations\n", *seeds, total, failed)
}

// TestReplay holds the simulator to its promise that a seed is a schedule.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		one, other := Run(Options{Seed: seed}), Run(Options{Seed: seed})
		if one.Hash != other.Hash || one.Lines != other.Lines {
			t.Errorf("seed %d: two executions differ (%d and %d lines)", seed, one.Lines, other.Lines)
		}
	}
}
