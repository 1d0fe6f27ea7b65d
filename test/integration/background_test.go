package integration

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// inBackground is a scenario with a printer that answers later, whose calls go on in the
// background.
func inBackground(s *slowService, script string) string {
	return fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: printer.print}]}, %s]}
policy:
  servers: [{name: printer, http: {url: %q, tools: [{name: print, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["printer.*"], execution: Background, timeoutSeconds: 600}]
`, script, s.URL)
}

// The scripted model's first call has the id call_1_0.
const waitForIt = `{toolCalls: [{tool: check, arguments: {call: call_1_0, wait: true}}]}`

var _ = Describe("A call in the background", func() {
	It("goes on while the model works on, and is waited for without a worker", func(ctx SpecContext) {
		service, w := startSlowService(3), newWorld(ctx, "background")
		key := w.start(ctx, "print", inBackground(service, `{toolCalls: [{tool: counter.next}]}, `+waitForIt+`, {finalExpression: 'string(results[0])'}`))
		Expect(awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool).Status.Owner).To(BeNil())
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("3 pages"))
		Expect(service.accepted.Load()).To(BeEquivalentTo(1))
		records, state := journalOf(ctx, run)
		Expect(events[journal.CallDetached](records)).To(HaveLen(1))
		Expect(state.Transcript[1].Calls[0].Last.Class).To(Equal("ok"), "another tool was called meanwhile")
		Expect(state.Transcript[1].Calls[0].EndedAt).To(BeTemporally("<", state.Transcript[0].Calls[0].EndedAt))
	})

	It("has ended, and the model knows of it, before the run ends", func(ctx SpecContext) {
		service, w := startSlowService(2), newWorld(ctx, "background-answer")
		key := w.start(ctx, "print", inBackground(service, `{final: It prints.}, {final: Three pages are printed.}`))
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(Equal("Three pages are printed."))
		Expect(run.Status.Turns).To(BeEquivalentTo(3))
	})

	It("may be completed from outside", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "background-completed")
		key := w.start(ctx, "print", inBackground(service, waitForIt+`, {finalExpression: 'string(results[0])'}`))
		awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationComplete: `{"call_1_0": "all printed"}`})).To(Succeed())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("all printed"))
	})

	It("is called off with its run", func(ctx SpecContext) {
		url, _, cancelled := taskServer(1 << 40)
		w := newWorld(ctx, "background-cancelled")
		key := w.start(ctx, "bake", fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: oven.bake}]}, {question: "What else?"}]}
policy:
  servers: [{name: oven, mcp: {url: %q}}]
  tools: [{match: ["oven.*"], execution: Background, timeoutSeconds: 600}]
`, url))
		awaitOpen(ctx, key, v1alpha1.ReasonInputRequired)
		setState(ctx, key, v1alpha1.StateCancelled)
		run := awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		Expect(cancelled.Load()).To(BeNumerically(">=", 1))
		_, state := journalOf(ctx, run)
		Expect(state.Transcript[0].Calls[0].Phase).To(Equal(journal.PhaseDone))
	})

	It("is asked about while people are asked something else", func(ctx SpecContext) {
		service, w := startSlowService(3), newWorld(ctx, "background-people")
		key := w.start(ctx, "print", inBackground(service, `{question: "Which colour?"}, `+waitForIt+`, {finalExpression: 'string(results[0])'}`))
		run := awaitOpen(ctx, key, v1alpha1.ReasonInputRequired)
		Eventually(ctx, func() journal.Phase {
			_, state := journalOf(ctx, run)
			return state.Transcript[0].Calls[0].Phase
		}).WithTimeout(20e9).Should(Equal(journal.PhaseDone))
		Expect(get(ctx, key).Status.Question).NotTo(BeNil())
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationAnswer: fmt.Sprintf(`{%q: "blue"}`, run.Status.Question.ID)})).To(Succeed())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("3 pages"))
	})
})
