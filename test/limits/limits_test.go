package limits

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// world is a namespace whose Model and tool are limited.
type world struct {
	*runs.World
	begin time.Time
}

func newWorld(ctx context.Context, limits, rate string) *world {
	GinkgoHelper()
	w := &world{World: runs.New(ctx, env, "limits"), begin: time.Now()}
	w.Apply(ctx, objects, "MODELS", fakemodel.Chat.Endpoint(meter.server.URL), "TOOLS", env.ToolsURL, "LIMITS", limits, "RATE", rate)
	return w
}

func (w *world) start(ctx context.Context, first, n int) {
	GinkgoHelper()
	for i := first; i < first+n; i++ {
		w.Create(ctx, newRun(nameOf(i)))
	}
}

// setLimits changes the Model while runs use it.
func (w *world) setLimits(ctx context.Context, limits string) {
	GinkgoHelper()
	model := &v1alpha1.Model{}
	model.Namespace, model.Name = w.Namespace, "limited"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"limits":`+limits+`}}`))
	Expect(env.Admin.Patch(ctx, model, patch)).To(Succeed())
}

// reasons counts the runs by reason.
func (w *world) reasons(ctx context.Context) map[string]int {
	GinkgoHelper()
	found := &v1alpha1.AgentRunList{}
	Expect(env.Admin.List(ctx, found, client.InNamespace(w.Namespace))).To(Succeed())
	counts := map[string]int{}
	for i := range found.Items {
		counts[runs.Succeeded(&found.Items[i]).Reason]++
	}
	return counts
}

func (w *world) awaitCompleted(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(ctx, func() map[string]int { return w.reasons(ctx) }).Should(Equal(map[string]int{"Completed": n}), "in "+w.Namespace)
}

// history counts, over all runs, the events of each type and the workers that claimed.
func (w *world) history(ctx context.Context) (events map[journal.Type]int, workers map[string]int) {
	GinkgoHelper()
	found := &v1alpha1.AgentRunList{}
	Expect(env.Admin.List(ctx, found, client.InNamespace(w.Namespace))).To(Succeed())
	events, workers = map[journal.Type]int{}, map[string]int{}
	for i := range found.Items {
		records, _ := w.Journal(ctx, &found.Items[i])
		for _, record := range records {
			events[record.Event.Type]++
		}
		for _, claimed := range runs.Events[journal.Claimed](records) {
			name, _, _ := strings.Cut(claimed.Worker, "-")
			workers[name]++
		}
	}
	return events, workers
}

func report(format string, args ...any) {
	AddReportEntry(fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}

var _ = Describe("Three replicas", Ordered, func() {
	It("ask a Model for no more than its limit at once, and bring 60 runs to their ends", func(ctx SpecContext) {
		w := newWorld(ctx, "{maxConcurrentRequests: 4}", "")
		w.start(ctx, 0, 60)
		w.awaitCompleted(ctx, 60)
		spans := meter.since(w.begin)
		events, workers := w.history(ctx)
		report("60 runs, maxConcurrentRequests 4: %d requests, at most %d at once, in %s; claims by worker %v, %d releases",
			len(spans), peak(spans), time.Since(w.begin).Round(time.Second), workers, events[journal.TypeReleased])
		Expect(spans).To(HaveLen(120), "each is asked once")
		Expect(peak(spans)).To(Equal(4))
	}, NodeTimeout(4*time.Minute))

	It("leave runs to the one that has the only slot", func(ctx SpecContext) {
		w := newWorld(ctx, "{maxConcurrentRequests: 100}", "")
		w.start(ctx, 0, 30)
		// All of them are somewhere when the limit falls.
		Eventually(ctx, func() int { return len(meter.since(w.begin)) }).Should(BeNumerically(">=", 20))
		w.setLimits(ctx, `{"maxConcurrentRequests":1}`)
		changed := time.Now().Add(time.Second)
		w.start(ctx, 30, 10)
		w.awaitCompleted(ctx, 40)
		all, after := meter.since(w.begin), meter.since(changed)
		events, workers := w.history(ctx)
		report("40 runs, from 100 at once to 1: %d requests, at most %d at once, %d after the change, then at most %d; claims by worker %v, %d releases",
			len(all), peak(all), len(after), peak(after), workers, events[journal.TypeReleased])
		Expect(all).To(HaveLen(80), "each is asked once")
		Expect(after).NotTo(BeEmpty())
		Expect(peak(after)).To(Equal(1))
		Expect(events[journal.TypeReleased]).To(BeNumerically(">", 0), "runs were handed over")
	}, NodeTimeout(4*time.Minute))

	It("keep the rates of a Model and of a tool", func(ctx SpecContext) {
		const many, modelRate, toolRate = 20, 120, 60
		w := newWorld(ctx, fmt.Sprintf("{requestsPerMinute: %d}", modelRate), fmt.Sprintf(", requestsPerMinute: %d", toolRate))
		w.start(ctx, 0, many)
		w.awaitCompleted(ctx, many)
		took := time.Since(w.begin)
		asked, called := begins(meter.since(w.begin)), []time.Time{}
		for _, entry := range env.Tools.Ledger() {
			if strings.HasPrefix(entry.Run, w.Namespace+"/") {
				called = append(called, entry.Time)
			}
		}
		const window = 10 * time.Second
		report("%d runs in %s: at most %d requests in %s with requestsPerMinute %d, at most %d calls with %d",
			many, took.Round(time.Second), densest(asked, window), window, modelRate, densest(called, window), toolRate)
		Expect(asked).To(HaveLen(2 * many))
		Expect(called).To(HaveLen(many))
		// Each of three replicas may begin one at the very start of the window.
		Expect(densest(asked, window)).To(BeNumerically("<=", modelRate/6+3))
		Expect(densest(called, window)).To(BeNumerically("<=", toolRate/6+3))
		Expect(densest(asked, time.Minute)).To(BeNumerically("<=", modelRate))
		Expect(took).To(BeNumerically(">", (many-4)*time.Second))
	}, NodeTimeout(4*time.Minute))

	It("let a run wait for a rate without a write, and say so", func(ctx SpecContext) {
		w := newWorld(ctx, "{requestsPerMinute: 1}", "")
		w.start(ctx, 0, 2)
		Eventually(ctx, func() int { return len(meter.since(w.begin)) }).Should(Equal(1))
		waiting := func() *v1alpha1.AgentRun {
			for i := range 2 {
				if run := w.Get(ctx, nameOf(i)); strings.Contains(runs.Succeeded(run).Message, "waiting for its turn: Model limited allows 1 requests in a minute (limits.requestsPerMinute)") {
					return run
				}
			}
			return nil
		}
		Eventually(ctx, waiting).ShouldNot(BeNil())
		run := waiting()
		before, _ := w.Journal(ctx, run)
		Consistently(ctx, func() string {
			run = w.Get(ctx, run.Name)
			return runs.Succeeded(run).Reason
		}).WithTimeout(6 * time.Second).Should(Equal("Running"))
		after, _ := w.Journal(ctx, run)
		Expect(after).To(HaveLen(len(before)))
		Expect(meter.since(w.begin)).To(HaveLen(1))
		w.setLimits(ctx, "null")
		w.awaitCompleted(ctx, 2)
	}, NodeTimeout(2*time.Minute))

	It("at most double a limit for a while when one of them is killed and another comes", func(ctx SpecContext) {
		w := newWorld(ctx, "{maxConcurrentRequests: 4}", "")
		const n, more = 100, 24
		w.start(ctx, 0, n)
		Eventually(ctx, func() int { return len(meter.since(w.begin)) }).Should(BeNumerically(">=", 20))
		fleet["r1"].Kill()
		delete(fleet, "r1")
		killed := time.Now()
		launch(ctx, "r4")
		// The lease of the dead one runs out, and the new one has waited for one.
		pause(ctx, 2*lease+2*time.Second)
		settled := time.Now()
		w.start(ctx, n, more)
		w.awaitCompleted(ctx, n+more)
		spans, after := meter.since(w.begin), meter.since(settled)
		var before []span
		for _, s := range spans {
			if s.begin.Before(killed) {
				before = append(before, s)
			}
		}
		_, workers := w.history(ctx)
		report("%d runs, maxConcurrentRequests 4: at most %d at once before the kill, %d all along, %d from two leases after it on (%d requests); claims by worker %v",
			n+more, peak(before), peak(spans), peak(after), len(after), workers)
		Expect(peak(before)).To(Equal(4))
		Expect(peak(spans)).To(BeNumerically("<=", 8))
		Expect(len(after)).To(BeNumerically(">=", 2*more))
		Expect(peak(after)).To(BeNumerically("<=", 4))
	}, NodeTimeout(5*time.Minute))
})
