package integration

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// provider is a vendor as these specs see it: a wire, and what differs of its settings.
type provider struct {
	name v1alpha1.Provider
	wire fakemodel.Wire
	// parameters that the wire knows, and what has to be sent of them.
	parameters string
	sent       []string
}

var providers = []provider{
	{v1alpha1.ProviderOpenAI, fakemodel.Chat, "{temperature: 0, seed: 7}", []string{`"temperature":0`, `"seed":7`}},
	{v1alpha1.ProviderOpenAIResponses, fakemodel.Responses, "{temperature: 0, service_tier: flex}", []string{`"temperature":0`, `"service_tier":"flex"`}},
	{v1alpha1.ProviderAnthropic, fakemodel.Messages, "{thinking: {type: adaptive}, service_tier: auto}", []string{`"thinking":{"type":"adaptive"}`, `"service_tier":"auto"`}},
	{v1alpha1.ProviderOpenAIResponses, fakemodel.Responses, "{temperature: 0, top_p: 0.5}", []string{`"temperature":0`, `"top_p":0.5`}},
	{v1alpha1.ProviderGemini, fakemodel.Gemini, "{generationConfig: {temperature: 0, seed: 7}}", []string{`"temperature":0`, `"seed":7`}},
}

var _ = Describe("Models", func() {
	for _, p := range providers {
		Describe("of provider "+string(p.name), Ordered, ContinueOnFailure, func() { specifyModels(p) })
	}
})

func specifyModels(p provider) {
	var w world
	servers := map[string]*fakemodel.Server{}

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "models")
		start := func(name string, options fakemodel.Options, model, rest string, answers ...fakemodel.Answer) {
			server := must(fakemodel.Start(options))
			DeferCleanup(server.Close)
			server.Enqueue(answers...)
			servers[name] = server
			w.start(ctx, name, fmt.Sprintf("model: {provider: %s, model: test-model, endpoint: %q%s}\n%s", p.name, server.Endpoint(p.wire), model, rest))
		}
		none := fakemodel.Options{}
		start("unreliable", none, "", "", fakemodel.ServerError(500), fakemodel.Throttled(time.Second), fakemodel.Cut(), fakemodel.Text("At last."))
		start("torn", none, "", "", fakemodel.CutAfter(fakemodel.Text("Lost on the way."), 20), fakemodel.Text("Whole."))
		start("locked", fakemodel.Options{Key: "another"}, "", "")
		start("slow", none, ", requestTimeoutSeconds: 1", "", fakemodel.Hang(), fakemodel.Text("Here."))
		start("cut-off", none, "", "", fakemodel.CutOff("The answer is"), fakemodel.Text("42."))
		start("cut-by-budget", none, "", "run: {humanInput: Disabled, limits: {maxTokens: 2000}}", fakemodel.CutOff("The answer is"))
		start("empty", none, "", "", fakemodel.Text(""), fakemodel.Text("Sorry."))
		start("rude", none, "", "", fakemodel.Refusal("I would rather not."))
		start("overflow", none, "", "", fakemodel.TooLong())
		start("parameters", none, ", parameters: "+p.parameters+", maxOutputTokens: 77", "run: {systemPrompt: Be brief.}", fakemodel.Text("Yes."))
		start("two-calls", none, "", "",
			fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"key":"profile"}`}, fakemodel.Call{Name: "lookup", Arguments: `{"key":"policy"}`}),
			fakemodel.Text("Both known."))
	})

	// asked gives the requests of a run's server, which has nothing to complain about.
	asked := func(name string) []fakemodel.Request {
		GinkgoHelper()
		expectStrict(servers[name])
		Expect(servers[name].Queued()).To(BeZero(), "answers that nobody asked for")
		return servers[name].Requests()
	}

	It("that fail are asked again, and what may have cost something is charged", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("unreliable"))
		Expect(run.Status.Result.Text).To(Equal("At last."))
		Expect(run.Status.Turns).To(BeEquivalentTo(1), "a failed request is no turn")
		Expect(run.Status.Usage.Estimated).To(BeTrue())
		Expect(asked("unreliable")).To(HaveLen(4))
		records, _ := journalOf(ctx, run)
		var classes []string
		for _, failure := range events[journal.ModelFailed](records) {
			classes = append(classes, failure.Class)
		}
		Expect(classes).To(Equal([]string{"Transient", "Throttled", "Transient"}))
		failures := events[journal.ModelFailed](records)
		Expect(failures[0].Usage.Total()).To(BeNumerically(">", 0), "the provider was at work when it failed")
		Expect(failures[1].Usage.Total()).To(BeZero(), "the provider refused")
		Expect(failures[2].Usage.Total()).To(BeNumerically(">", 0), "nobody knows what the request has cost that got no answer")
	})

	It("whose answer breaks off after its status are charged for it", func(ctx SpecContext) {
		run := awaitCompleted(ctx, w.key("torn"))
		Expect(run.Status.Result.Text).To(Equal("Whole."))
		Expect(asked("torn")).To(HaveLen(2))
		records, _ := journalOf(ctx, run)
		failures := events[journal.ModelFailed](records)
		Expect(failures).To(HaveLen(1))
		Expect(failures[0].Status).To(Equal(200))
		Expect(failures[0].Code).To(Equal("connection_cut"))
		Expect(failures[0].Usage.OutputTokens).To(BeEquivalentTo(4096), "it may have been as long as was allowed")
		Expect(failures[0].Usage.Estimated).To(BeTrue())
		Expect(run.Status.Usage.Estimated).To(BeTrue())
	})

	It("that refuse the key end a run within two requests", func(ctx SpecContext) {
		run := awaitEnd(ctx, w.key("locked"), v1alpha1.ReasonModelError)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(ContainSubstring("Unauthorized"))
		Expect(servers["locked"].Requests()).To(HaveLen(2))
	})

	It("that do not answer in time are asked again", func(ctx SpecContext) {
		Expect(awaitCompleted(ctx, w.key("slow")).Status.Result.Text).To(Equal("Here."))
		Expect(asked("slow")).To(HaveLen(2))
	})

	It("whose answer is cut off, or empty, are told so; it is no answer", func(ctx SpecContext) {
		Expect(awaitCompleted(ctx, w.key("cut-off")).Status.Result.Text).To(Equal("42."))
		Expect(asked("cut-off")[1].Last().Role).To(Equal("user"))
		Expect(awaitCompleted(ctx, w.key("empty")).Status.Result.Text).To(Equal("Sorry."))
		Expect(asked("empty")[1].Last().Role).To(Equal("user"))
	})

	It("whose answer was cut off by what was left of the budget have used it up", func(ctx SpecContext) {
		awaitEnd(ctx, w.key("cut-by-budget"), v1alpha1.ReasonTokenBudgetExhausted)
		Expect(asked("cut-by-budget")).To(HaveLen(1))
	})

	It("that refuse, or have no room left, end a run", func(ctx SpecContext) {
		awaitEnd(ctx, w.key("rude"), v1alpha1.ReasonModelRefused)
		awaitEnd(ctx, w.key("overflow"), v1alpha1.ReasonContextOverflow)
		Expect(asked("overflow")).To(HaveLen(1))
	})

	It("get what the Model and the run say, and nothing else", func(ctx SpecContext) {
		awaitCompleted(ctx, w.key("parameters"))
		request := asked("parameters")[0]
		for _, piece := range append([]string{"77"}, p.sent...) {
			Expect(string(request.Body)).To(ContainSubstring(piece))
		}
		Expect(request.System).To(Equal("Be brief."))
		Expect(request.Header.Get("Authorization")).To(BeEmpty())
		Expect(request.Last().Text).To(Equal("Do what the script says."))
	})

	It("get the results of two calls in the order of their calls", func(ctx SpecContext) {
		awaitCompleted(ctx, w.key("two-calls"))
		messages := asked("two-calls")[1].Messages
		last := messages[len(messages)-2:]
		Expect(last[0].Text).To(ContainSubstring("active"))
		Expect(last[1].Text).To(ContainSubstring("refund-under-100"))
		calls := messages[len(messages)-3].Calls
		Expect([]string{last[0].CallID, last[1].CallID}).To(Equal([]string{calls[0].ID, calls[1].ID}))
		for _, tool := range asked("two-calls")[0].Tools {
			Expect(tool.Name).NotTo(ContainSubstring("."), "names are safe for every provider")
			Expect(strings.ToLower(tool.Name)).To(Equal(tool.Name))
		}
	})
}
