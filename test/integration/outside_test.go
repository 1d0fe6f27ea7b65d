package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// slowService accepts each call and has its result once it was asked so many times.
type slowService struct {
	*httptest.Server
	accepted, asked atomic.Int64
}

func startSlowService(questions int64) *slowService {
	s := &slowService{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /print", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", fmt.Sprintf("/jobs/%d", s.accepted.Add(1)))
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if s.asked.Add(1) < questions {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		_, _ = w.Write([]byte("3 pages"))
	})
	s.Server = httptest.NewServer(mux)
	DeferCleanup(s.Close)
	return s
}

// printing is a scenario whose one call goes on at a service.
func printing(s *slowService, timeout int) string {
	return fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: printer.print}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0])'}]}
policy:
  servers: [{name: printer, http: {url: %q, tools: [{name: print, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["printer.*"], timeoutSeconds: %d}]
`, s.URL, timeout)
}

var _ = Describe("A call that a service answers later", func() {
	It("is waited for without a worker, and asked about without a write", func(ctx SpecContext) {
		service, w := startSlowService(4), newWorld(ctx, "later")
		key := w.start(ctx, "print", printing(service, 60))
		run := awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		Expect(run.Status.Owner).To(BeNil())
		length := run.Status.Journal.Events
		Eventually(service.asked.Load).WithTimeout(10 * time.Second).Should(BeNumerically(">=", 2))
		Expect(env.Admin.Get(ctx, key, run)).To(Succeed())
		Expect(run.Status.Journal.Events).To(Equal(length))

		run = awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(ContainSubstring("3"))
		Expect(service.accepted.Load()).To(BeEquivalentTo(1), "asking is not sending")
		records, _ := journalOf(ctx, run)
		Expect(events[journal.CallDeferred](records)).To(HaveLen(1))
	})

	It("may be completed from outside, by whoever may", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "completed")
		key := w.start(ctx, "print", printing(service, 600))
		run := awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		_, state := journalOf(ctx, run)
		id := state.OpenTurn().Calls[0].Call.ID
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationComplete: fmt.Sprintf(`{%q: "all printed"}`, id)})).To(Succeed())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("all printed"))
		records, _ := journalOf(ctx, run)
		for _, r := range records {
			if r.Event.Type == journal.TypeCallCompleted {
				Expect(r.Event.By).NotTo(BeEmpty(), "who delivered it")
			}
		}
	})

	It("is unknown once its time is over and nobody can say", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "overdue")
		key := w.start(ctx, "print", printing(service, 3))
		run := awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown)
		Expect(run.Status.UnknownEffects).To(HaveLen(1))
		Expect(service.accepted.Load()).To(BeEquivalentTo(1), "it is never sent again")
	})

	It("ends with its run", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "cancelled")
		key := w.start(ctx, "print", printing(service, 600))
		awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		setState(ctx, key, v1alpha1.StateCancelled)
		run := awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		Expect(run.Status.UnknownEffects).To(HaveLen(1), "the service was not told")
	})
})
