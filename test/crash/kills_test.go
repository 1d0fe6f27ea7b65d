package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

const (
	turns = 10
	// thinking is how long the model takes.
	thinking = 50 * time.Millisecond
)

// tenTurns is a run of ten turns: nine with a call of each effect, and the answer.
const tenTurns = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: OpenAI, model: test-model, endpoint: MODELS, maxAttempts: 100}
---
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers:
  - {name: calc, http: {url: TOOLS/calc, tools: [{name: add, inputSchema: {type: object, required: [a, b], properties: {a: {type: integer}, b: {type: integer}}}}]}}
  - {name: billing, http: {url: TOOLS/billing, tools: [{name: refund, inputSchema: {type: object, required: [order_id, amount], properties: {order_id: {type: string}, amount: {type: number}}}}]}}
  - {name: counter, http: {url: TOOLS/counter, tools: [{name: next, inputSchema: {type: object, properties: {turn: {type: integer}}}}]}}
  tools:
  - {match: ["calc.*"], effect: ReadOnly, execution: Parallel, timeoutSeconds: 20}
  - {match: ["billing.*"], effect: Idempotent, timeoutSeconds: 20}
  - {match: ["counter.*"], effect: NonIdempotent, timeoutSeconds: 20}
  rules:
  - {name: everything, match: ["*"], action: Allow}
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Work for ten turns., humanInput: Disabled}
`

// toolNames are the calls of a turn, in an order that changes from turn to turn.
func toolNames(turn int) []string {
	names := []string{"calc.add", "billing.refund", "counter.next"}
	n := turn % len(names)
	return append(names[n:len(names):len(names)], names[:n]...)
}

func proposal(turn int) fakemodel.Answer {
	var calls []fakemodel.Call
	for _, name := range toolNames(turn) {
		switch name {
		case "calc.add":
			calls = append(calls, fakemodel.Call{Name: "add", Arguments: fmt.Sprintf(`{"a":%d,"b":1}`, turn)})
		case "billing.refund":
			calls = append(calls, fakemodel.Call{Name: "refund", Arguments: fmt.Sprintf(`{"order_id":"order-%d","amount":%d}`, turn, turn)})
		default:
			calls = append(calls, fakemodel.Call{Name: "next", Arguments: fmt.Sprintf(`{"turn":%d}`, turn)})
		}
	}
	return fakemodel.Slow(fakemodel.Propose(calls...), thinking)
}

// score knows where the run is by what the model and the tools are asked.
type score struct {
	mu   sync.Mutex
	turn int
}

func (s *score) set(turn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = turn
}

func (s *score) current() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// turnOf is the turn that a request to the model is for.
func turnOf(request fakemodel.Request) int {
	turn := 1
	for _, m := range request.Messages {
		if m.Role == "assistant" {
			turn++
		}
	}
	return turn
}

// seed is new for every run of the suite; PAWL_CRASH_SEED repeats an old one.
func seed() uint64 {
	if text := os.Getenv("PAWL_CRASH_SEED"); text != "" {
		value, err := strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred())
		return value
	}
	return rand.Uint64()
}

var _ = Describe("An operator that is killed twenty times during a run of ten turns", func() {
	It("brings it to its end, with nothing done twice", func(ctx SpecContext) {
		seed := seed()
		AddReportEntry(fmt.Sprintf("PAWL_CRASH_SEED=%d", seed), ReportEntryVisibilityAlways)
		kills := plan(rand.New(rand.NewPCG(seed, 0)), turns, func(turn int) int {
			if turn == turns {
				return answered + 1
			}
			return done(len(toolNames(turn))-1) + 1
		})
		Expect(kills).To(HaveLen(20))
		conductor := newConductor(kills, env.KillOperator)

		var at score
		model, err := fakemodel.Start(fakemodel.Options{RequireOfferedCalls: true, Answer: func(request fakemodel.Request) fakemodel.Answer {
			turn := turnOf(request)
			at.set(turn)
			if !conductor.see(moment{turn, asked}) {
				return fakemodel.Cut()
			}
			answer := fakemodel.Slow(fakemodel.Text("That were ten turns."), thinking)
			if turn < turns {
				answer = proposal(turn)
			}
			if !conductor.see(moment{turn, answered}) {
				return fakemodel.Cut()
			}
			return answer
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(model.Close()).To(Succeed()) })
		tools.use(func(tool string, isDone bool) bool {
			turn, step := at.current(), 0
			for n, name := range toolNames(turn) {
				if name == tool && isDone {
					step = done(n)
				} else if name == tool {
					step = sent(n)
				}
			}
			return conductor.see(moment{turn, step})
		})
		DeferCleanup(func() { tools.use(nil) })

		world := runs.New(ctx, env, "kills")
		world.Apply(ctx, tenTurns, "MODELS", model.Endpoint(fakemodel.Chat), "TOOLS", tools.URL)
		conductor.born()
		for range kills {
			awaitKill(ctx, world, conductor)
			Expect(env.StartOperator()).To(Succeed())
			conductor.born()
		}
		run := awaitCompleted(ctx, world)

		Expect(run.Status.Result.Text).To(Equal("That were ten turns."))
		Expect(run.Status.Turns).To(BeEquivalentTo(turns))
		Expect(model.Refusals()).To(BeEmpty(), "every request repeats the ones before")
		records, state := world.Journal(ctx, run)
		expectOnce(state, env.Tools.Ledger(), string(run.UID))
		Expect(run.Status.ToolCalls).To(Equal(state.ToolCalls))
		Expect(runs.Events[journal.DecisionMade](records)).To(HaveLen(turns))
		Expect(runs.Events[journal.RunStarted](records)).To(HaveLen(1))
		claims := runs.Events[journal.Claimed](records)
		// Kills that hit a process before it had done anything leave no claim behind.
		AddReportEntry(fmt.Sprintf("%d kills, %d claims, %d events, %d settled by hand", len(kills), len(claims), state.Events,
			len(runs.Events[journal.EffectReconciled](records))), ReportEntryVisibilityAlways)
		Expect(run.Status.Journal.Events).To(Equal(state.Events))
		Expect(run.Status.Journal.Head).To(Equal(state.Head))
	}, NodeTimeout(3*time.Minute))
})

// awaitKill waits for the operator's end, and plays the person who settles meanwhile.
func awaitKill(ctx context.Context, world *runs.World, c *conductor) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		settle(ctx, world)
		select {
		case <-c.dead:
			return true
		default:
			return false
		}
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(BeTrue())
}

func awaitCompleted(ctx context.Context, world *runs.World) *v1alpha1.AgentRun {
	GinkgoHelper()
	Eventually(ctx, func() string {
		settle(ctx, world)
		return runs.Succeeded(world.Get(ctx, "run")).Reason
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(BeEquivalentTo(v1alpha1.ReasonCompleted))
	return world.Get(ctx, "run")
}

// settle says of effects that nobody knows of what the tool server's ledger says.
func settle(ctx context.Context, world *runs.World) {
	GinkgoHelper()
	run := world.Get(ctx, "run")
	if len(run.Status.UnknownEffects) == 0 {
		return
	}
	said := map[string]string{}
	for _, unknown := range run.Status.UnknownEffects {
		said[unknown.EffectKey] = journal.EffectRejected
		for _, entry := range env.Tools.Ledger() {
			if entry.Key == unknown.EffectKey && entry.Applied {
				said[unknown.EffectKey] = journal.EffectCommitted
			}
		}
	}
	text, err := json.Marshal(said)
	Expect(err).NotTo(HaveOccurred())
	if run.Annotations[v1alpha1.AnnotationSettle] != string(text) {
		GinkgoWriter.Println("settled:", string(text))
		world.Annotate(ctx, "run", map[string]string{v1alpha1.AnnotationSettle: string(text)})
	}
}

// expectOnce compares a journal with the tool server's ledger: a call that may be sent
// once was, an effect that is applied once per key was applied once, no attempt was sent
// that the journal does not announce, and none twice.
func expectOnce(state *journal.State, ledger []toolserver.Entry, uid string) {
	GinkgoHelper()
	type attempt struct {
		id     string
		number int64
	}
	seen := map[attempt]int{}
	byKey := map[string][]toolserver.Entry{}
	for _, entry := range ledger {
		if entry.RunUID == uid {
			byKey[entry.Key] = append(byKey[entry.Key], entry)
			seen[attempt{entry.CallID, entry.Attempt}]++
		}
	}
	for a, times := range seen {
		Expect(times).To(Equal(1), "requests of attempt %d at call %s", a.number, a.id)
	}
	for i := range state.Transcript {
		for _, call := range state.Transcript[i].Calls {
			requests := byKey[call.Call.EffectKey]
			delete(byKey, call.Call.EffectKey)
			what := fmt.Sprintf("turn %d, %s, %s", i+1, call.Call.Tool, call.Call.ID)
			applied := 0
			for _, entry := range requests {
				Expect(entry.Tool).To(Equal(call.Call.Tool), what)
				Expect(entry.Arguments).To(MatchJSON(call.Call.Arguments), what)
				Expect(entry.Attempt).To(BeNumerically("<=", call.Attempt), what)
				if entry.Applied {
					applied++
				}
			}
			if call.Attempt == 0 {
				// A call before it turned out not to have happened.
				Expect(call.Last.Class).To(Equal("not_run"), what)
				Expect(requests).To(BeEmpty(), what)
				continue
			}
			switch call.Call.Effect {
			case journal.ReadOnly:
				Expect(call.Last.Class).To(Equal("ok"), what)
			case journal.Idempotent:
				Expect(call.Last.Class).To(Equal("ok"), what)
				Expect(applied).To(Equal(1), what)
			default:
				Expect(len(requests)).To(BeNumerically("<=", 1), what)
				Expect(call.Attempt).To(BeEquivalentTo(1), what)
				want := 0
				if call.Last.Effect == journal.EffectCommitted {
					want = 1
				}
				Expect(applied).To(Equal(want), what)
			}
		}
	}
	Expect(byKey).To(BeEmpty(), "requests that no call accounts for")
}
