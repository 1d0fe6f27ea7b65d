package aimock

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/runs"
)

// spokenWire is a wire as the server speaks it.
type spokenWire struct {
	provider v1alpha1.Provider
	// path is what the endpoint has after the server's root.
	path string
	// input and output are the members of a usage report. Unless a fixture sets them the
	// server reports zeros, which nobody believes: such replies are charged by estimate.
	input, output string
	// countsItself is true where the server reports usage of its own accord.
	countsItself bool
}

var spokenWires = []spokenWire{
	{v1alpha1.ProviderOpenAI, "/v1", "prompt_tokens", "completion_tokens", true},
	{v1alpha1.ProviderOpenAIResponses, "/v1", "input_tokens", "output_tokens", false},
	// Its calls end with FUNCTION_CALL, which the vendor never says.
	{v1alpha1.ProviderGemini, "/v1beta", "promptTokenCount", "candidatesTokenCount", false},
	{v1alpha1.ProviderAnthropic, "", "input_tokens", "output_tokens", false},
}

// course is what a run does and what has to come of it.
type course struct {
	name string
	// replies answer the run's requests in order. The last one answers all that follow.
	replies []reply
	reason  v1alpha1.Reason
	turns   int32
	// calls that ran.
	calls int32
	// failures are the classes of the requests that brought no decision.
	failures []string
	// message is a part of what the run's condition says.
	message string
	// requests that were made.
	requests int
}

// reply is a response, or the failure in its place.
type reply struct {
	response
	chaos *chaos
}

const answer = "The profile is active."

var (
	final    = reply{response: response{Content: answer}}
	one      = reply{response: response{ToolCalls: []toolCall{{"lookup", `{"key":"profile"}`}}}}
	two      = reply{response: response{ToolCalls: []toolCall{{"lookup", `{"key":"profile"}`}, {"lookup", `{"key":"policy"}`}}}}
	limited  = reply{response: final.response, chaos: &chaos{RateLimit: 1}}
	dropped  = reply{response: final.response, chaos: &chaos{Drop: 1}}
	mangled  = reply{response: final.response, chaos: &chaos{Malformed: 1}}
	gone     = reply{response: final.response, chaos: &chaos{Disconnect: 1}}
	busy     = failing(503, "server_error")
	broken   = failing(500, "server_error")
	refusing = failing(400, "invalid_request_error")
)

func failing(status int, kind string) reply {
	return reply{response: response{Status: status, Error: &responseError{Message: "this is a test", Type: kind}}}
}

const (
	transient = "Transient"
	throttled = "Throttled"
)

// courses are the same on every wire.
var courses = []course{
	{name: "answer", replies: []reply{final}, reason: v1alpha1.ReasonCompleted, turns: 1, requests: 1},
	{name: "loop", replies: []reply{one, final}, reason: v1alpha1.ReasonCompleted, turns: 2, calls: 1, requests: 2},
	{name: "several", replies: []reply{two, one, two, final}, reason: v1alpha1.ReasonCompleted, turns: 4, calls: 5, requests: 4},
	{name: "limited", replies: []reply{limited, one, limited, final}, reason: v1alpha1.ReasonCompleted, turns: 2, calls: 1,
		failures: []string{throttled, throttled}, requests: 4},
	{name: "limited-always", replies: []reply{limited}, reason: v1alpha1.ReasonModelError,
		failures: []string{throttled, throttled}, message: "Throttled, status 429", requests: 2},
	{name: "dropped", replies: []reply{one, dropped, final}, reason: v1alpha1.ReasonCompleted, turns: 2, calls: 1,
		failures: []string{transient}, requests: 3},
	{name: "busy", replies: []reply{busy, final}, reason: v1alpha1.ReasonCompleted, turns: 1, failures: []string{"*"}, requests: 2},
	{name: "broken-always", replies: []reply{broken}, reason: v1alpha1.ReasonModelError,
		failures: []string{transient, transient}, message: "Transient, status 500", requests: 2},
	{name: "refused", replies: []reply{one, refusing}, reason: v1alpha1.ReasonModelError, turns: 1, calls: 1,
		failures: []string{"Request"}, message: "Request, status 400", requests: 2},
	{name: "gone", replies: []reply{gone, one, gone, final}, reason: v1alpha1.ReasonCompleted, turns: 2, calls: 1,
		failures: []string{transient, transient}, requests: 4},
	{name: "gone-always", replies: []reply{gone}, reason: v1alpha1.ReasonModelError,
		failures: []string{transient, transient}, message: "Transient", requests: 2},
	// A malformed reply is a decision that makes no sense: it counts as a turn, and the
	// model is told.
	{name: "malformed", replies: []reply{one, mangled, final}, reason: v1alpha1.ReasonCompleted, turns: 3, calls: 1, requests: 3},
	{name: "malformed-always", replies: []reply{mangled}, reason: v1alpha1.ReasonInvalidDecision, turns: 2, requests: 2},
}

// nameOf is the name of a run and of its Model, and what the provider calls the model.
func nameOf(w spokenWire, c course) string { return strings.ToLower(string(w.provider)) + "-" + c.name }

// fixtures are what the server answers to a course.
func fixtures(w spokenWire, c course) []fixture {
	var list []fixture
	for i, r := range c.replies {
		f := fixture{Match: match{Model: nameOf(w, c)}, Chaos: r.chaos, Response: r.response}
		if i < len(c.replies)-1 {
			f.Match.SequenceIndex = at(i)
		}
		if c.name == "loop" {
			f.Response.Usage = map[string]int{w.input: 50, w.output: 7}
		}
		list = append(list, f)
	}
	return list
}

func create(ctx context.Context, world *runs.World, w spokenWire, c course, root string) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: nameOf(w, c)}
	world.Create(ctx, &v1alpha1.Model{ObjectMeta: meta, Spec: v1alpha1.ModelSpec{
		Provider: w.provider, Model: meta.Name, Endpoint: root + w.path, MaxAttempts: 2, RequestTimeoutSeconds: 10,
	}})
	world.Create(ctx, &v1alpha1.AgentRun{ObjectMeta: meta, Spec: v1alpha1.AgentRunSpec{
		ModelRef: v1alpha1.LocalReference{Name: meta.Name}, ToolPolicyRefs: []v1alpha1.LocalReference{{Name: "policy"}},
		SystemPrompt: "Be brief.", Prompt: "Is the profile active?", HumanInput: v1alpha1.HumanInputDisabled,
		Limits: v1alpha1.Limits{MaxInvalidDecisions: ptr.To[int32](1)},
	}})
}

func createPolicy(ctx context.Context, world *runs.World) {
	GinkgoHelper()
	world.Create(ctx, &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Spec: v1alpha1.ToolPolicySpec{
		Servers: []v1alpha1.ToolServer{{Name: "profiles", HTTP: &v1alpha1.HTTPServer{URL: env.ToolsURL + "/profiles", Tools: []v1alpha1.HTTPTool{{
			Name: "lookup", Description: "Looks up a key.",
			InputSchema: runtime.RawExtension{Raw: []byte(`{"type":"object","required":["key"],"properties":{"key":{"type":"string"}}}`)},
		}}}}},
		Tools: []v1alpha1.ToolProperties{{Match: []string{"profiles.*"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel}},
		Rules: []v1alpha1.ToolRule{{Name: "everything", Match: []string{"profiles.*"}, Action: v1alpha1.ActionAllow}},
	}})
}

var _ = Describe("A provider of the npm package @copilotkit/aimock", Ordered, ContinueOnFailure, func() {
	var (
		world *runs.World
		root  string
	)
	BeforeAll(func(ctx SpecContext) {
		var all []fixture
		for _, w := range spokenWires {
			for _, c := range courses {
				all = append(all, fixtures(w, c)...)
			}
		}
		root = serve(ctx, all)
		world = runs.New(ctx, env, "aimock")
		createPolicy(ctx, world)
		// All at once, since most of them wait.
		for _, w := range spokenWires {
			for _, c := range courses {
				create(ctx, world, w, c, root)
			}
		}
	})

	for _, w := range spokenWires {
		for _, c := range courses {
			It(fmt.Sprintf("on wire %s: %s", w.provider, c.name), func(ctx SpecContext) {
				run := world.AwaitEnd(ctx, nameOf(w, c))
				expectCourse(ctx, world, w, c, run)
				Expect(journalled(root, nameOf(w, c))).To(Equal(c.requests))
			}, NodeTimeout(time.Minute))
		}
	}
})

func expectCourse(ctx context.Context, world *runs.World, w spokenWire, c course, run *v1alpha1.AgentRun) {
	GinkgoHelper()
	ended := runs.Succeeded(run)
	Expect(v1alpha1.Reason(ended.Reason)).To(Equal(c.reason), ended.Message)
	Expect(ended.Message).To(ContainSubstring(c.message))
	Expect(run.Status.Turns).To(Equal(c.turns))
	Expect(run.Status.ToolCalls).To(Equal(c.calls))
	if c.reason == v1alpha1.ReasonCompleted {
		Expect(run.Status.Result.Text).To(Equal(answer))
	}
	records, _ := world.Journal(ctx, run)
	failures := runs.Events[journal.ModelFailed](records)
	Expect(failures).To(HaveLen(len(c.failures)))
	for i, want := range c.failures {
		if want == "*" {
			Expect(failures[i].Class).To(BeElementOf(transient, throttled))
			continue
		}
		Expect(failures[i].Class).To(Equal(want))
		if want == throttled {
			Expect(failures[i].RetryAfterMillis).To(BeEquivalentTo(1000), "Retry-After: 1")
		}
	}
	if c.name == "loop" {
		Expect(run.Status.Usage.Estimated).To(BeFalse())
		Expect([]int64{run.Status.Usage.InputTokens, run.Status.Usage.OutputTokens}).To(Equal([]int64{100, 14}))
	}
	if c.name == "answer" {
		Expect(run.Status.Usage.Estimated).To(Equal(!w.countsItself))
	}
}
