package integration

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// overlap says whether two requests were at work at the same time.
func overlap(a, b toolserver.Entry) bool {
	return a.Time.Before(*b.Done) && b.Time.Before(*a.Done)
}

// sorted are a run's finished requests of one tool in the order in which they began.
func sorted(run *v1alpha1.AgentRun, tool string) []toolserver.Entry {
	GinkgoHelper()
	entries := requests(run, tool)
	for _, e := range entries {
		Expect(e.Done).NotTo(BeNil(), "a request to %s has not ended", tool)
	}
	slices.SortFunc(entries, func(a, b toolserver.Entry) int { return a.Time.Compare(b.Time) })
	return entries
}

var _ = Describe("Calls", Ordered, ContinueOnFailure, func() {
	var (
		w                   world
		chatCut, chatBounds *fakemodel.Server
	)

	const twoWaits = `
model:
  script:
  - toolCalls: [{tool: slow.wait, arguments: {seconds: 0.7, key: a}}, {tool: slow.wait, arguments: {seconds: 0.7, key: a}}, {tool: slow.wait, arguments: {seconds: 0.7, key: b}}]
  - final: Done.
`
	// unknown has a call whose reply is cut off, and one that was planned on its success.
	const unknown = `{model: {script: [{toolCalls: [{tool: fail.cut}, {tool: counter.next}]}, {final: Done.}]}}`

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "calls")
		for name, text := range map[string]string{
			"parallel":     twoWaits,
			"sequential":   twoWaits + `policy: {tools: [{match: ["slow.*"], effect: ReadOnly, execution: Sequential}]}`,
			"conflict":     twoWaits + `policy: {tools: [{match: ["slow.*"], effect: ReadOnly, execution: Parallel, conflictKey: args.key}]}`,
			"committed":    unknown,
			"rejected":     unknown,
			"settled-late": unknown,
			"unsettled":    unknown,
			"throttled":    `{model: {script: [{toolCalls: [{tool: fail.throttled, arguments: {times: 1}}]}, {finalExpression: 'string(results[0].requests)'}]}, policy: {tools: [{match: ["fail.throttled"], effect: ReadOnly, maxAttempts: 3}]}}`,
			"throttled-once": `
model: {script: [{toolCalls: [{tool: fail.throttled, arguments: {times: 1}}]}, {finalExpression: 'results[0] == null ? "not now" : "done"'}]}
policy: {tools: [{match: ["fail.throttled"], effect: NonIdempotent}]}`,
			"keeps-failing": `
model: {script: [{toolCalls: [{tool: fail.internal}]}, {finalExpression: 'results[0] == null ? "failed" : "done"'}]}
policy: {tools: [{match: ["fail.internal"], effect: Idempotent, maxAttempts: 2}]}`,
			"read-too-slow": `
model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}, {final: Done.}]}
policy: {tools: [{match: ["slow.*"], effect: ReadOnly, maxAttempts: 1, timeoutSeconds: 1}]}`,
			"write-too-slow": `
model: {script: [{toolCalls: [{tool: slow.wait, arguments: {seconds: 600}}]}, {final: Done.}]}
policy: {tools: [{match: ["slow.*"], effect: NonIdempotent, timeoutSeconds: 1}]}`,
			"too-often": `
model: {script: [{toolCalls: [{tool: counter.next}, {tool: counter.next}, {tool: counter.next}]}, {toolCalls: [{tool: counter.next}]}, {final: Done.}]}
policy: {tools: [{match: ["counter.*"], maxCallsPerRun: 2}]}`,
			"no-rule": `
model: {script: [{toolCalls: [{tool: status.get}, {tool: counter.next}]}, {final: Done.}]}
policy: {rules: [{name: reads, match: ["status.*"], action: Allow}]}`,
			"moving-parts": `
model: {script: [{toolCalls: [{tool: status.timed}]}, {toolCalls: [{tool: status.timed}]}, {toolCalls: [{tool: status.timed}]}, {final: Done.}]}
policy: {tools: [{match: ["status.timed"], effect: ReadOnly, ignoreForProgress: ["$.time"]}]}
run: {limits: {maxRepeatedPlans: 2}}`,
		} {
			w.start(ctx, name, text)
		}
		huge := fakemodel.Propose(fakemodel.Call{Name: "huge"})
		var model string
		chatCut, model = startChat(huge, fakemodel.Text("Too much."))
		w.start(ctx, "cut-by-policy", model+`policy: {tools: [{match: ["fail.huge"], effect: ReadOnly, maxResultBytes: 300}]}`)
		chatBounds, model = startChat(huge, fakemodel.Text("Too much."))
		w.start(ctx, "cut-by-context", model+`run: {context: {maxToolResultBytes: 64}}`)
	})

	It("overlap where the policy says Parallel", func(ctx SpecContext) {
		entries := sorted(awaitCompleted(ctx, w.key("parallel")), "slow.wait")
		Expect(entries).To(HaveLen(3))
		Expect(overlap(entries[0], entries[1]) && overlap(entries[1], entries[2]) && overlap(entries[0], entries[2])).To(BeTrue())
	})

	It("run one after another where it says Sequential", func(ctx SpecContext) {
		entries := sorted(awaitCompleted(ctx, w.key("sequential")), "slow.wait")
		Expect(entries).To(HaveLen(3))
		Expect(overlap(entries[0], entries[1]) || overlap(entries[1], entries[2])).To(BeFalse())
	})

	It("with the same conflict key never overlap, others do", func(ctx SpecContext) {
		entries := sorted(awaitCompleted(ctx, w.key("conflict")), "slow.wait")
		Expect(entries).To(HaveLen(3))
		var a []toolserver.Entry
		for _, e := range entries {
			if string(e.Arguments) == `{"key":"a","seconds":0.7}` {
				a = append(a, e)
			}
		}
		Expect(a).To(HaveLen(2))
		Expect(overlap(a[0], a[1])).To(BeFalse())
		Expect(overlap(entries[0], entries[1])).To(BeTrue(), "the one with another key runs beside the first")
	})

	It("whose reply is lost are settled as committed, and the batch goes on", func(ctx SpecContext) {
		key := w.key("committed")
		settle(ctx, awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown), journal.EffectCommitted)
		run := awaitCompleted(ctx, key)
		Expect(requests(run, "fail.cut")).To(HaveLen(1))
		Expect(requests(run, "counter.next")).To(HaveLen(1))
		Expect(run.Status.UnknownEffects).To(BeEmpty())
		records, state := journalOf(ctx, run)
		Expect(by(records, journal.TypeEffectReconciled)).To(Equal([]string{"dana"}))
		Expect(results(state, 1)[0].Class).To(Equal("ok"))
	})

	It("whose reply is lost are settled as rejected, and what was planned on them does not run", func(ctx SpecContext) {
		key := w.key("rejected")
		settle(ctx, awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown), journal.EffectRejected)
		run := awaitCompleted(ctx, key)
		Expect(requests(run, "fail.cut")).To(HaveLen(1))
		Expect(requests(run, "counter.next")).To(BeEmpty())
		_, state := journalOf(ctx, run)
		Expect([]string{results(state, 1)[0].Class, results(state, 1)[1].Class}).To(Equal([]string{"rejected", "not_run"}))
	})

	It("whose reply is lost can be settled after the run was cancelled, which changes nothing else", func(ctx SpecContext) {
		key := w.key("settled-late")
		awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown)
		setState(ctx, key, v1alpha1.StateCancelled)
		ended := awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		Expect(isTrue(ended, v1alpha1.ConditionOutcomeUnknown)).To(BeTrue())
		settle(ctx, ended, journal.EffectCommitted)
		Eventually(ctx, func() bool { return isTrue(get(ctx, key), v1alpha1.ConditionOutcomeUnknown) }).Should(BeFalse())
		run := get(ctx, key)
		Expect(run.Status.UnknownEffects).To(BeEmpty())
		Expect(condition(run, v1alpha1.ConditionSucceeded)).To(Equal(condition(ended, v1alpha1.ConditionSucceeded)))
		Expect(run.Status.CompletionTime).To(Equal(ended.Status.CompletionTime))
		records, _ := journalOf(ctx, run)
		Expect(records[len(records)-1].Event.Type).To(Equal(journal.TypeEffectReconciled))
		Expect(records[len(records)-1].Event.By).To(Equal("dana"))
	})

	It("are settled by nothing but a word that means something", func(ctx SpecContext) {
		key := w.key("unsettled")
		run := awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown)
		effectKey := run.Status.UnknownEffects[0].EffectKey
		for value, problem := range map[string]string{
			jsonText(map[string]string{effectKey: "maybe"}):       `must say "committed" or "rejected"`,
			jsonText(map[string]string{"pawl-0000": "committed"}): "does not name an unknown outcome",
			"committed": "must be a JSON object of strings",
		} {
			Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationSettle: value})).To(Succeed())
			Eventually(ctx, func() string { return condition(get(ctx, key), v1alpha1.ConditionOutcomeUnknown).Message }).Should(ContainSubstring(problem))
		}
		Expect(condition(get(ctx, key), v1alpha1.ConditionSucceeded).Reason).To(Equal(string(v1alpha1.ReasonOutcomeUnknown)))
		err := erin.annotate(ctx, key, map[string]string{v1alpha1.AnnotationSettle: jsonText(map[string]string{effectKey: "committed"})})
		Expect(err).To(MatchError(ContainSubstring(`needs the verb "settle"`)))
		settle(ctx, run, journal.EffectRejected)
		awaitCompleted(ctx, key)
	})

	It("that are throttled are sent again when they may be, under the same key", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("throttled"))
		entries := sorted(run, "fail.throttled")
		Expect(entries).To(HaveLen(2))
		Expect([]int64{entries[0].Attempt, entries[1].Attempt}).To(Equal([]int64{1, 2}))
		Expect(entries[1].Key).To(Equal(entries[0].Key))
		Expect(entries[1].Time.Sub(entries[0].Time).Seconds()).To(BeNumerically(">=", 1), "Retry-After")
		Expect(run.Status.ToolCalls).To(BeEquivalentTo(1), "an attempt is no call of its own")
	})

	It("that are throttled are not sent again when they may be sent once", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("throttled-once"))
		Expect(run.Status.Result.Text).To(Equal("not now"))
		Expect(requests(run, "fail.throttled")).To(HaveLen(1))
		_, state := journalOf(ctx, run)
		Expect(results(state, 1)[0].Message).To(ContainSubstring("wait at least 1 seconds"))
	})

	It("that keep failing in every attempt are put before a person", func(ctx SpecContext) {
		key := w.key("keeps-failing")
		run := awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown)
		entries := sorted(run, "fail.internal")
		Expect(entries).To(HaveLen(2))
		Expect(entries[0].Key).NotTo(BeEmpty())
		Expect(entries[1].Key).To(Equal(entries[0].Key))
		settle(ctx, run, journal.EffectRejected)
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("failed"))
	})

	It("that take too long are cut off: a read has failed, of a write nobody knows", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("read-too-slow"))
		_, state := journalOf(ctx, run)
		Expect(results(state, 1)[0].Class).To(Equal("timeout"))
		Expect(awaitOpen(ctx, w.key("write-too-slow"), v1alpha1.ReasonOutcomeUnknown).Status.UnknownEffects).To(HaveLen(1))
	})

	It("beyond maxCallsPerRun are refused and the others run", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("too-often"))
		Expect(requests(run, "counter.next")).To(HaveLen(2))
		_, state := journalOf(ctx, run)
		for _, result := range []*journal.CallCompleted{results(state, 1)[2], results(state, 2)[0]} {
			Expect(result.Class).To(Equal("denied"))
			Expect(result.Message).To(ContainSubstring("at most 2 times"))
		}
	})

	It("that no rule allows are denied and the others run", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("no-rule"))
		Expect(requests(run, "status.get")).To(HaveLen(1))
		Expect(requests(run, "counter.next")).To(BeEmpty())
		_, state := journalOf(ctx, run)
		Expect(results(state, 1)[1].Class).To(Equal("denied"))
	})

	It("repeat themselves also where their results differ in what does not count", func(ctx SpecContext) {
		Expect(requests(awaitEnd(ctx, w.key("moving-parts"), v1alpha1.ReasonNoProgress), "status.timed")).To(HaveLen(2))
	})

	It("with a large result are cut off, and the model is told", func(ctx SpecContext) {
		awaitCompleted(ctx, w.key("cut-by-policy"))
		Expect(chatCut.Requests()).To(HaveLen(2))
		shown := chatCut.Requests()[1].Last().Text
		Expect(len(shown)).To(BeNumerically("<", 500))
		Expect(shown).To(ContainSubstring("[cut here: the first "))
		expectStrict(chatCut)

		awaitCompleted(ctx, w.key("cut-by-context"))
		Expect(chatBounds.Requests()).To(HaveLen(2))
		shown = chatBounds.Requests()[1].Last().Text
		Expect(len(shown)).To(BeNumerically("<", 200))
		Expect(shown).To(ContainSubstring("[cut: the first 64 of "))
		expectStrict(chatBounds)
	})
})
