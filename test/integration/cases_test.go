package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/prompt"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// casesDir has one file per case, which its README explains.
const casesDir = "../cases"

// caseToolServer is the address that the files expect.
const caseToolServer = "http://127.0.0.1:8797"

// loopCase is one file.
type loopCase struct {
	name    string
	Alone   bool              `json:"alone"`
	Objects []json.RawMessage `json:"objects"`
	Acts    []act             `json:"acts"`
	Expect  expectation       `json:"expect"`
}

type act struct {
	When struct {
		Reason   v1alpha1.Reason `json:"reason"`
		Requests map[string]int  `json:"requests"`
	} `json:"when"`
	Do   string `json:"do"`
	Tool string `json:"tool"`
}

type expectation struct {
	Reason       v1alpha1.Reason  `json:"reason"`
	Result       string           `json:"result"`
	Turns        int32            `json:"turns"`
	ToolCalls    int32            `json:"toolCalls"`
	Requests     map[string]int   `json:"requests"`
	Applied      map[string]int   `json:"applied"`
	Keys         map[string]int   `json:"keys"`
	Disconnected map[string]int   `json:"disconnected"`
	Answered     []string         `json:"answered"`
	Results      []expectedResult `json:"results"`
}

type expectedResult struct {
	Tool  string `json:"tool"`
	Class string `json:"class"`
	Shows string `json:"shows"`
}

// wantedCases are those that have to be there.
var wantedCases = []string{
	"approval-required-write", "cancellation-while-tools-run", "crash-after-dispatch", "direct-answer",
	"final-answer-fails-validator", "malformed-arguments", "one-valid-call", "parallel-calls-out-of-order",
	"partial-batch-failure", "reference-program", "repeated-equivalent-plan", "resume-with-existing-effect-key",
	"unknown-tool",
}

var loopCases = readCases()

// readCases runs while the tree of specs is built, where nothing can be asserted.
func readCases() []loopCase {
	files, err := filepath.Glob(filepath.Join(casesDir, "*.yaml"))
	if err != nil {
		panic(err)
	}
	var cases []loopCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		data, err := yaml.ToJSON(text)
		if err != nil {
			panic(file + ": " + err.Error())
		}
		c := loopCase{name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&c); err != nil {
			panic(file + ": " + err.Error())
		}
		cases = append(cases, c)
	}
	// Those that crash the operator come when the others have ended.
	slices.SortStableFunc(cases, func(a, b loopCase) int {
		switch {
		case a.Alone == b.Alone:
			return 0
		case a.Alone:
			return 1
		default:
			return -1
		}
	})
	return cases
}

var _ = Describe("Cases", Ordered, ContinueOnFailure, func() {
	var w world

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "cases")
		var together []loopCase
		for _, c := range loopCases {
			if !c.Alone {
				together = append(together, c)
			}
		}
		w.apply(ctx, together...)
	})

	for _, c := range loopCases {
		It(c.name, func(ctx SpecContext) {
			if c.Alone {
				for _, a := range c.Acts {
					if a.Do == "HoldAnswers" {
						c.act(ctx, w, a)
					}
				}
				w.apply(ctx, c)
			}
			for _, a := range c.Acts {
				c.act(ctx, w, a)
			}
			c.check(ctx, w)
		})
	}

	It("has a file for each case", func() {
		var names []string
		for _, c := range loopCases {
			names = append(names, c.name)
		}
		Expect(names).To(ContainElements(wantedCases))
	})
})

// apply runs kubectl apply on what the cases apply.
func (w world) apply(ctx context.Context, cases ...loopCase) {
	GinkgoHelper()
	var manifest bytes.Buffer
	for _, c := range cases {
		for _, object := range c.Objects {
			manifest.WriteString("---\n" + strings.ReplaceAll(string(object), caseToolServer, tools.URL) + "\n")
		}
	}
	command := env.Plane.KubectlCommand(ctx, env.Plane.Kubeconfig(), "apply", "--namespace", w.namespace, "--filename=-")
	command.Stdin = &manifest
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

func (c loopCase) act(ctx context.Context, w world, a act) {
	GinkgoHelper()
	key := w.key(c.name)
	if a.When.Reason != "" {
		awaitOpen(ctx, key, a.When.Reason)
	}
	for tool, n := range a.When.Requests {
		awaitRequests(ctx, key, tool, n)
	}
	switch a.Do {
	case "Approve":
		approve(ctx, key)
	case "Deny":
		deny(ctx, key, "")
	case "Cancel":
		setState(ctx, key, v1alpha1.StateCancelled)
	case "SettleCommitted":
		settle(ctx, get(ctx, key), journal.EffectCommitted)
	case "SettleRejected":
		settle(ctx, get(ctx, key), journal.EffectRejected)
	case "KillOperator":
		env.KillOperator()
	case "StartOperator":
		Expect(env.StartOperator()).To(Succeed())
	case "HoldAnswers":
		tools.hold(a.Tool, true)
	case "LetAnswers":
		tools.hold(a.Tool, false)
	default:
		Fail("unknown act " + a.Do)
	}
}

func (c loopCase) check(ctx context.Context, w world) {
	GinkgoHelper()
	want := c.Expect
	status := metav1.ConditionFalse
	if want.Reason == v1alpha1.ReasonCompleted {
		status = metav1.ConditionTrue
	}
	run := await(ctx, w.key(c.name), want.Reason, status)
	if want.Result != "" {
		Expect(run.Status.Result.Text).To(Equal(want.Result))
	}
	Expect(run.Status.Turns).To(Equal(want.Turns), "turns")
	Expect(run.Status.ToolCalls).To(Equal(want.ToolCalls), "tool calls")
	want.checkLedger(ctx, run)
	_, state := journalOf(ctx, run)
	want.checkResults(state)
}

func (want expectation) checkLedger(ctx context.Context, run *v1alpha1.AgentRun) {
	GinkgoHelper()
	for tool, n := range want.Disconnected {
		Eventually(ctx, func() int {
			return count(requests(run, tool), func(e toolserver.Entry) bool { return e.Disconnected })
		}).Should(Equal(n), "requests to %s whose caller went away", tool)
	}
	got := map[string]int{}
	for _, e := range requests(run, "") {
		got[e.Tool]++
	}
	if want.Requests == nil {
		want.Requests = map[string]int{}
	}
	Expect(got).To(Equal(want.Requests), "requests per tool")
	for tool, n := range want.Applied {
		Expect(applied(requests(run, tool))).To(Equal(n), "effects of %s", tool)
	}
	for tool, n := range want.Keys {
		keys := map[string]bool{}
		for _, e := range requests(run, tool) {
			keys[e.Key] = true
		}
		Expect(slices.Collect(maps.Keys(keys))).To(HaveLen(n), "effect keys of %s", tool)
	}
	if want.Answered != nil {
		Expect(answered(run)).To(Equal(want.Answered), "arguments in the order of the answers")
	}
}

func count(entries []toolserver.Entry, is func(toolserver.Entry) bool) int {
	n := 0
	for _, e := range entries {
		if is(e) {
			n++
		}
	}
	return n
}

// answered lists the arguments of a run's requests in the order of their answers.
func answered(run *v1alpha1.AgentRun) []string {
	entries := slices.DeleteFunc(requests(run, ""), func(e toolserver.Entry) bool { return e.Done == nil })
	slices.SortFunc(entries, func(a, b toolserver.Entry) int { return a.Done.Compare(*b.Done) })
	var arguments []string
	for _, e := range entries {
		arguments = append(arguments, string(e.Arguments))
	}
	return arguments
}

// checkResults compares every call's result, and what the model is shown of it.
func (want expectation) checkResults(state *journal.State) {
	GinkgoHelper()
	var shown []string
	for _, message := range prompt.Project(state).Messages {
		if message.CallID != "" {
			shown = append(shown, message.Text)
		}
	}
	var got []expectedResult
	for i := range state.Transcript {
		for _, call := range state.Transcript[i].Calls {
			result := expectedResult{Tool: call.Call.Tool, Class: call.Last.Class}
			if n := len(got); n < len(want.Results) {
				Expect(shown[n]).To(ContainSubstring(want.Results[n].Shows), "what the model is shown of call %d", n+1)
				result.Shows = want.Results[n].Shows
			}
			got = append(got, result)
		}
	}
	if len(want.Results) == 0 {
		Expect(got).To(BeEmpty(), "results")
		return
	}
	Expect(got).To(Equal(want.Results), "results in call order")
}
