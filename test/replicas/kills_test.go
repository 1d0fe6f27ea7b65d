package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// seed is new for every run of the suite; PAWL_REPLICAS_SEED repeats an old one, as far
// as processes can be repeated.
func seed() *rand.Rand {
	value := rand.Uint64()
	if text := os.Getenv("PAWL_REPLICAS_SEED"); text != "" {
		var err error
		value, err = strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred())
	}
	AddReportEntry(fmt.Sprintf("PAWL_REPLICAS_SEED=%d", value), ReportEntryVisibilityAlways)
	return rand.New(rand.NewPCG(value, 0))
}

// between is a random time.
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}

// pause lets time pass, unless the spec ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// every effect class, one call after another, and all of them again.
func mixedTurns(n int) []turn {
	var turns []turn
	for i := range n {
		turns = append(turns, turn{thinking: 100 * time.Millisecond, calls: []call{
			{"effect.apply", map[string]any{"n": 4 * i, "seconds": 0.2}},
			{"billing.refund", map[string]any{"n": 4*i + 1, "order_id": fmt.Sprint("o", i), "amount": 10}},
			{"counter.next", map[string]any{"n": 4*i + 2}},
			{"profiles.lookup", map[string]any{"n": 4*i + 3, "key": "profile"}},
		}})
	}
	return turns
}

var _ = Describe("Three operators that are killed at random", func() {
	It("do nothing twice and lose nothing in 200 runs with effects of every class", func(ctx SpecContext) {
		random := seed()
		f := newFleet(ctx, 3)
		w := newWorld(ctx, "kills", script("mixed", mixedTurns(2)...))
		w.start(ctx, "mixed", 200)

		settler := newSettler(w)
		kills, began := 0, time.Now()
		for time.Since(began) < pick(40*time.Second, 5*time.Minute) && w.moving(ctx) > 0 {
			pause(ctx, between(random, 50*time.Millisecond, pick(500*time.Millisecond, 2*time.Second)))
			victim := f.replicas()[random.IntN(3)]
			f.kill(victim)
			kills++
			pause(ctx, between(random, 0, 300*time.Millisecond))
			if random.IntN(3) == 0 {
				// As a new pod: its runs wait for the end of the old one's lease.
				f.remove(victim)
				f.add()
			} else {
				f.launch(victim)
			}
			settler.settle(ctx)
		}
		left := w.moving(ctx)
		Eventually(ctx, func() int { settler.settle(ctx); return w.moving(ctx) }).WithTimeout(time.Minute).Should(BeZero())
		w.awaitAll(ctx, time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("%d kills in %s, %d runs not at rest at the last one", kills, time.Since(began).Round(time.Second), left))
		Expect(t.runs).To(Equal(200))
		// A fast machine is through before many kills; what they cost shows in what was taken over.
		Expect(kills).To(BeNumerically(">=", 5))
		Expect(t.takeoverCount()).To(BeNumerically(">=", 50))
	}, NodeTimeout(10*time.Minute))
})

// held are the runs with a call whose effect is done and whose answer is not on its way yet.
type held struct {
	release chan struct{}
	open    sync.Once

	mu   sync.Mutex
	runs map[string]bool
}

func holdAnswers() *held {
	h := &held{release: make(chan struct{}), runs: map[string]bool{}}
	tools.use(func(_ string, r *http.Request) (bool, func() bool) {
		return true, func() bool {
			h.mu.Lock()
			h.runs[r.Header.Get("Pawl-Run-UID")] = true
			h.mu.Unlock()
			<-h.release
			return true
		}
	})
	DeferCleanup(h.let)
	return h
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runs)
}

// let gives the answers that were held, and from now on holds none.
func (h *held) let() {
	tools.use(nil)
	h.answer()
}

// answer gives the answers that were held.
func (h *held) answer() { h.open.Do(func() { close(h.release) }) }

var _ = Describe("The duplicate refund", func() {
	// Crash between effect and record, in every run: whoever was called has done it, and
	// whoever called is dead before the answer.
	classes := []struct{ name, tool string }{
		{"reconciled", "effect.apply"}, {"settled", "counter.next"}, {"idempotent", "billing.refund"}, {"readonly", "profiles.lookup"},
	}
	It("does not happen when owners die between the effect and its record", func(ctx SpecContext) {
		each := pick(50, 200)
		var models []*v1alpha1.Model
		for _, class := range classes {
			models = append(models, script(class.name, turn{calls: []call{{class.tool, map[string]any{"order_id": "4711", "amount": 50, "key": "profile"}}}}))
		}
		w := newWorld(ctx, "refund", models...)
		f := newFleet(ctx, 3)
		deaths := 0
		for batch := range 2 {
			h := holdAnswers()
			for _, m := range models {
				w.startFrom(ctx, m.Name, batch*each/2, each/2)
			}
			Eventually(ctx, h.count).WithTimeout(2 * time.Minute).Should(Equal(4 * each / 2))
			f.kill(f.replicas()...)
			deaths += h.count()
			h.let()
			for _, r := range f.replicas() {
				f.launch(r)
			}
			// The others have their answer without anybody's help.
			Eventually(ctx, func() int { return w.moving(ctx) }).WithTimeout(2 * time.Minute).Should(BeZero())
		}
		waiting := w.reasons(ctx)
		Expect(waiting).To(Equal(map[string]int{"Completed": 3 * each, "OutcomeUnknown": each}))
		w.awaitAll(ctx, time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("%d owners dead between effect and record, %d outcomes left to people", deaths, waiting["OutcomeUnknown"]))
		Expect(t.unknown).To(Equal(2*each), "unknown outcomes of what may be sent once")
		Expect(t.settled).To(Equal(map[string]int{"Service": each, "Person": each}))
	}, NodeTimeout(10*time.Minute))
})
