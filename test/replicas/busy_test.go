package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/proxy"
)

// refuse makes every operator's API server answer a share of the requests with an error.
func (f *fleet) refuse(random *rand.Rand, share float64, answer func(*http.Request) *proxy.Refusal) {
	for _, r := range f.replicas() {
		// Requests come at the same time.
		dice := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		draws := make(chan float64, 1)
		draws <- dice.Float64()
		r.api.Refuse(func(request *http.Request) *proxy.Refusal {
			draw := <-draws
			draws <- dice.Float64()
			if draw >= share {
				return nil
			}
			return answer(request)
		})
	}
}

func (f *fleet) refused() int64 {
	n := int64(0)
	for _, r := range f.replicas() {
		n += r.api.Refused()
	}
	return n
}

var _ = Describe("An API server that answers with errors", func() {
	conflict := &proxy.Refusal{Status: http.StatusConflict, Reason: metav1.StatusReasonConflict}
	always := func(refusal proxy.Refusal) func(*http.Request) *proxy.Refusal {
		return func(*http.Request) *proxy.Refusal { return &refusal }
	}
	writes := func(r *http.Request) bool { return r.Method != http.MethodGet }

	It("in bursts of 429, of 5xx and of conflicts costs no run anything, and is not asked without pause", func(ctx SpecContext) {
		random := seed()
		const size = 45
		w := newWorld(ctx, "busy", script("steady", steadyTurns(9, 1500*time.Millisecond)...))
		f := newFleetBehind(ctx, 3)
		w.start(ctx, "steady", size)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(size))
		for _, burst := range []struct {
			what   string
			share  float64
			answer func(*http.Request) *proxy.Refusal
		}{
			{"429 for everything", 1, always(proxy.Refusal{Status: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, RetryAfter: time.Second})},
			{"500 for everything", 1, always(proxy.Refusal{Status: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError})},
			{"conflicts for most writes", 0.8, func(r *http.Request) *proxy.Refusal {
				if writes(r) {
					return conflict
				}
				return nil
			}},
			{"503 for a third, done or not", 0.33, func(r *http.Request) *proxy.Refusal {
				return &proxy.Refusal{Status: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Done: writes(r)}
			}},
		} {
			By(burst.what)
			before, began := f.refused(), time.Now()
			f.refuse(random, burst.share, burst.answer)
			pause(ctx, lease/2)
			f.refuse(random, 0, nil)
			n, lasted := f.refused()-before, time.Since(began)
			AddReportEntry(fmt.Sprintf("%s: %d requests of 3 replicas with %d runs refused in %s", burst.what, n, size, lasted.Round(100*time.Millisecond)), ReportEntryVisibilityAlways)
			Expect(n).To(BeNumerically(">", 0))
			// Back-off from 5 ms doubles: nine attempts in two seconds, of a few requests each.
			Expect(n).To(BeNumerically("<", size*30), "no hot loop")
			pause(ctx, lease/2)
		}
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		// Where the write that announces a call was done and reported as failed, and the read
		// that would have shown so failed too, nobody may send the call.
		t.expectSound(fmt.Sprintf("bursts of errors, %d calls that nobody was sure to have announced", t.unknown))
		Expect(t.takeovers).To(BeEmpty())
	}, NodeTimeout(5*time.Minute))
})

var _ = Describe("A fleet that changes its size under load", func() {
	It("from one to ten at once and back to one steals nothing, repeats nothing and loses nothing", func(ctx SpecContext) {
		const size = 30
		w := newWorld(ctx, "resize", script("steady", steadyTurns(9, 2*time.Second)...))
		f := newFleet(ctx, 1)
		w.start(ctx, "steady", size)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(size))
		By("growing from one to ten while new runs come")
		w.startFrom(ctx, "steady", size, size)
		f.grow(ctx, 9)
		w.startFrom(ctx, "steady", 2*size, size)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(3 * size))
		byOwner := w.inHand(ctx)
		By("shrinking to five, all at the same time, and to one, one after another")
		f.stop(ctx, f.replicas()[5:]...)
		for _, r := range f.replicas()[1:] {
			f.stop(ctx, r)
		}
		left := w.moving(ctx)
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("one, ten, five and one replicas; %d of ten had runs in hand, %d runs were active with the last one alone", len(byOwner), left))
		Expect(t.runs).To(Equal(3 * size))
		Expect(len(byOwner)).To(BeNumerically(">=", 8), "the runs that came last are shared out")
		Expect(left).To(BeNumerically(">", 0), "runs were active all the time")
		Expect(t.takeovers).To(BeEmpty(), "every run was let go")
		Expect(t.unknown).To(BeZero())
	}, NodeTimeout(5*time.Minute))
})

// stop asks replicas to end, all at the same time, and waits for them.
func (f *fleet) stop(ctx context.Context, leaving ...*replica) {
	GinkgoHelper()
	for _, r := range leaving {
		Expect(r.process.Signal(terminate)).To(Succeed())
	}
	for _, r := range leaving {
		Eventually(ctx, r.process.Exited()).WithTimeout(45 * time.Second).Should(BeClosed())
		Expect(r.process.Err()).NotTo(HaveOccurred())
		f.remove(r)
	}
}
