package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// bound is how long after the death of its owner a run may have to wait.
const bound = lease + 5*time.Second

// percentile of a list of durations; p is of 100.
func percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[(len(sorted)*p+99)/100-1]
}

func spread(of []time.Duration) string {
	r := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("n=%d p50=%s p90=%s p99=%s max=%s", len(of), r(percentile(of, 50)), r(percentile(of, 90)), r(percentile(of, 99)), r(percentile(of, 100)))
}

// inHand lists the runs of a world by the name of their owner.
func (w *world) inHand(ctx context.Context) map[string][]string {
	GinkgoHelper()
	found := map[string][]string{}
	for _, h := range w.histories(ctx) {
		found[workerName(h.state.Owner)] = append(found[workerName(h.state.Owner)], string(h.run.UID))
	}
	return found
}

// takenFrom lists when runs were claimed from workers that ended, by UID.
func (w *world) takenFrom(ctx context.Context, old []*replica) map[string]time.Time {
	GinkgoHelper()
	found := map[string]time.Time{}
	for _, h := range w.histories(ctx) {
		for _, record := range h.records {
			var claimed journal.Claimed
			if record.Event.Type != journal.TypeClaimed || json.Unmarshal(record.Event.Data, &claimed) != nil {
				continue
			}
			if slices.ContainsFunc(old, func(r *replica) bool { return r.is(claimed.Previous) }) {
				found[string(h.run.UID)] = record.Event.Time
			}
		}
	}
	return found
}

// newest is when the tool server was last asked on behalf of each run.
func newest(tool string) map[string]time.Time {
	found := map[string]time.Time{}
	for _, entry := range env.Tools.Requests(tool) {
		found[entry.RunUID] = entry.Time
	}
	return found
}

var _ = Describe("An owner that dies", func() {
	It("is replaced within a lease and five seconds", func(ctx SpecContext) {
		const active, victims = 60, 4
		rounds := pick(5, 13)
		w := newWorld(ctx, "takeover", script("slow", turn{calls: []call{{"slow.wait", map[string]any{"seconds": 3600}}}}))
		f := newFleet(ctx, victims)
		w.start(ctx, "slow", active)
		Eventually(ctx, func() int { return len(newest("slow.wait")) }).Should(Equal(active))
		var waited []time.Duration
		trials := 0
		for range rounds {
			// Whoever has the runs dies; as many new ones share them.
			old := f.replicas()
			f.grow(ctx, victims)
			pause(ctx, time.Second)
			var killed []time.Time
			inHand := w.inHand(ctx)
			for _, r := range old {
				killed = append(killed, time.Now())
				f.kill(r)
			}
			var taken map[string]time.Time
			Eventually(ctx, func() int {
				taken = w.takenFrom(ctx, old)
				return len(taken)
			}).WithTimeout(3 * bound).Should(Equal(active))
			for i, r := range old {
				uids := inHand[r.name]
				for _, uid := range uids {
					waited = append(waited, taken[uid].Sub(killed[i]))
				}
				if len(uids) >= 10 {
					trials++
				}
				f.remove(r)
			}
		}
		AddReportEntry(fmt.Sprintf("takeover after SIGKILL, from the kill to the claim, %d kills, of them %d with 10 runs or more: %s", rounds*victims, trials, spread(waited)), ReportEntryVisibilityAlways)
		Expect(trials).To(BeNumerically(">=", 3*rounds))
		Expect(percentile(waited, 99)).To(BeNumerically("<=", bound))
	}, NodeTimeout(10*time.Minute))

	It("hands its runs over within two seconds of their last call when it is asked to end", func(ctx SpecContext) {
		w := newWorld(ctx, "handover", script("two",
			turn{calls: []call{{"counter.next", map[string]any{"n": 1}}}},
			turn{calls: []call{{"profiles.lookup", map[string]any{"key": "policy"}}}}))
		f := newFleet(ctx, 2)
		leaving, staying := f.replicas()[0], f.replicas()[1]
		h := holdAnswers()
		w.start(ctx, "two", 24)
		Eventually(ctx, h.count).Should(Equal(24))
		theirs := w.inHand(ctx)[leaving.name]
		Expect(theirs).NotTo(BeEmpty())

		Expect(leaving.process.Signal(syscall.SIGTERM)).To(Succeed())
		pause(ctx, 2*time.Second)
		Expect(leaving.process.Exited()).NotTo(BeClosed(), "it waits for its calls")
		ended := time.Now()
		h.let()
		w.awaitAll(ctx, time.Minute, v1alpha1.ReasonCompleted)
		Eventually(ctx, leaving.process.Exited()).WithTimeout(10 * time.Second).Should(BeClosed())
		left := time.Since(ended)

		var waited []time.Duration
		sender := w.senders(ctx)
		for _, entry := range env.Tools.Requests("profiles.lookup") {
			if slices.Contains(theirs, entry.RunUID) {
				waited = append(waited, entry.Time.Sub(ended))
				Expect(staying.is(sender(entry))).To(BeTrue(), "sent by %s", sender(entry))
			}
		}
		Expect(waited).To(HaveLen(len(theirs)))
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("hand-over after SIGTERM, from the end of the last call to the next call by the other: %s; the process had ended by %s", spread(waited), left.Round(10*time.Millisecond)))
		Expect(percentile(waited, 100)).To(BeNumerically("<=", 2*time.Second))
		Expect(t.takeoverCount()).To(BeZero(), "every run was let go")
		Expect(t.unknown).To(BeZero())
	}, NodeTimeout(3*time.Minute))
})

// busy is a run that never stops asking its model, which is one over HTTP so that its
// requests can be seen, and calling tools.
const busy = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: busy}
spec: {provider: OpenAI, model: test-model, endpoint: MODELS, maxAttempts: 100}
`

var _ = Describe("A cancellation", func() {
	var (
		mu    sync.Mutex
		asked []time.Time
		model *fakemodel.Server
	)
	lastAsked := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return asked[len(asked)-1]
	}
	BeforeEach(func() {
		var err error
		model, err = fakemodel.Start(fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer {
			mu.Lock()
			asked = append(asked, time.Now())
			n := len(asked)
			mu.Unlock()
			name := "lookup"
			if n%2 == 0 {
				name = "next"
			}
			return fakemodel.Slow(fakemodel.Propose(fakemodel.Call{Name: name, Arguments: fmt.Sprintf(`{"key":"profile","n":%d}`, n)}), 200*time.Millisecond)
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(model.Close()).To(Succeed()) })
	})

	// lastSent is when the tool server was last asked for a world.
	lastSent := func(w *world) time.Time {
		var last time.Time
		for _, entry := range env.Tools.Ledger() {
			if strings.HasPrefix(entry.Run, w.Namespace+"/") {
				last = entry.Time
			}
		}
		return last
	}

	DescribeTable("ends everything in time", func(ctx SpecContext, limit time.Duration, befalls func(f *fleet), after func(f *fleet)) {
		w := newWorld(ctx, "cancel")
		w.Apply(ctx, busy, "MODELS", model.Endpoint(fakemodel.Chat))
		f := newFleet(ctx, 2)
		w.start(ctx, "busy", 10)
		Eventually(ctx, func() int { return w.reasons(ctx)["Running"] }).Should(Equal(10))
		pause(ctx, time.Second)
		befalls(f)
		for i := range 10 {
			w.SetState(ctx, fmt.Sprintf("busy-%03d", i), v1alpha1.StateCancelled)
		}
		cancelled := time.Now()
		if limit == bound {
			f.grow(ctx, 1)
		}
		Eventually(ctx, func() map[string]int { return w.reasons(ctx) }).WithTimeout(limit + 5*time.Second).WithPolling(100 * time.Millisecond).
			Should(Equal(map[string]int{"Cancelled": 10}))
		ended := time.Since(cancelled)
		after(f)
		pause(ctx, 3*time.Second)
		spent := max(lastAsked().Sub(cancelled), lastSent(w).Sub(cancelled))
		w.check(ctx).expectSound(fmt.Sprintf("cancelled: the last request or call left %s after it, all runs had ended %s after it", spent.Round(10*time.Millisecond), ended.Round(10*time.Millisecond)))
		Expect(spent).To(BeNumerically("<=", limit))
		Expect(ended).To(BeNumerically("<=", limit+3*time.Second))
		for _, run := range w.list(ctx) {
			Expect(runs.Succeeded(&run).Reason).To(Equal("Cancelled"))
		}
	},
		Entry("with an owner that lives", 2*time.Second, func(*fleet) {}, func(*fleet) {}),
		Entry("with owners that are dead", bound, func(f *fleet) { f.kill(f.replicas()...) }, func(*fleet) {}),
		Entry("with owners that hang, and wake up later", bound,
			func(f *fleet) {
				for _, r := range f.replicas() {
					Expect(r.process.Pause()).To(Succeed())
				}
			}, func(f *fleet) {
				for _, r := range f.replicas() {
					Expect(r.process.Resume()).To(Succeed())
				}
			}),
	)
})
