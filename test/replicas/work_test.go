package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/runs"
)

// toolPolicy has a tool of every effect class: effect.* may be sent once and can be looked
// up, counter.* may be sent once and only people can settle it, billing.* honours its key,
// the others have no effect.
const toolPolicy = `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers:
  - name: effect
    http:
      url: TOOLS/effect
      tools:
      - {name: apply, inputSchema: {type: object, additionalProperties: true}}
      - {name: later, inputSchema: {type: object, additionalProperties: true}}
      - {name: cut, inputSchema: {type: object, additionalProperties: true}}
      - {name: fail, inputSchema: {type: object, additionalProperties: true}}
      - {name: refuse, inputSchema: {type: object, additionalProperties: true}}
  - {name: counter, http: {url: TOOLS/counter, tools: [{name: next, inputSchema: {type: object, additionalProperties: true}}]}}
  - {name: billing, http: {url: TOOLS/billing, tools: [{name: refund, inputSchema: {type: object, additionalProperties: true}}]}}
  - {name: profiles, http: {url: TOOLS/profiles, tools: [{name: lookup, inputSchema: {type: object, additionalProperties: true}}]}}
  - {name: slow, http: {url: TOOLS/slow, tools: [{name: wait, inputSchema: {type: object, additionalProperties: true}}]}}
  tools:
  - {match: ["effect.*"], effect: NonIdempotent, timeoutSeconds: 60, reconcile: {http: {url: TOOLS/effects}}}
  - {match: ["counter.*"], effect: NonIdempotent, timeoutSeconds: 60}
  - {match: ["billing.*"], effect: Idempotent, timeoutSeconds: 60, maxAttempts: 20}
  - {match: ["*"], effect: ReadOnly, execution: Parallel, timeoutSeconds: 3600, maxAttempts: 20}
  rules:
  - {name: ask, match: ["*"], when: "has(args.ask)", action: Ask}
  - {name: everything, match: ["*"], action: Allow}
`

// call is a scripted call of a tool.
type call struct {
	tool string
	args map[string]any
}

// turn is a scripted decision: calls after some thinking.
type turn struct {
	thinking time.Duration
	calls    []call
}

// script is a Model whose runs take the turns and then answer.
func script(name string, turns ...turn) *v1alpha1.Model {
	GinkgoHelper()
	var steps []map[string]any
	for _, t := range turns {
		var calls []map[string]any
		for _, c := range t.calls {
			calls = append(calls, map[string]any{"tool": c.tool, "arguments": c.args})
		}
		steps = append(steps, map[string]any{"toolCalls": calls, "delayMilliseconds": t.thinking.Milliseconds()})
	}
	steps = append(steps, map[string]any{"final": "done"})
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"provider": "Scripted", "script": steps, "maxAttempts": 100}})
	Expect(err).NotTo(HaveOccurred())
	model := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(json.Unmarshal(text, model)).To(Succeed())
	return model
}

// world is a namespace with the policy and models in it.
type world struct{ *runs.World }

func newWorld(ctx context.Context, prefix string, models ...*v1alpha1.Model) *world {
	GinkgoHelper()
	return newWorldAt(ctx, tools.URL, prefix, models...)
}

// newWorldAt is newWorld whose tools are at another address.
func newWorldAt(ctx context.Context, url, prefix string, models ...*v1alpha1.Model) *world {
	GinkgoHelper()
	w := &world{}
	DeferCleanup(w.clear)
	w.World = runs.New(ctx, env, prefix)
	w.Apply(ctx, toolPolicy, "TOOLS", url)
	for _, model := range models {
		w.Create(ctx, model)
	}
	return w
}

// clear leaves nothing for the operators of later specs to do.
func (w *world) clear(ctx SpecContext) {
	Expect(env.Admin.DeleteAllOf(ctx, &v1alpha1.AgentRun{}, client.InNamespace(w.Namespace))).To(Succeed())
	for _, run := range w.list(ctx) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		Expect(client.IgnoreNotFound(env.Admin.Patch(ctx, &run, patch))).To(Succeed())
	}
}

// start creates runs of a model, named after it and counted from 0.
func (w *world) start(ctx context.Context, model string, n int) {
	GinkgoHelper()
	w.startFrom(ctx, model, 0, n)
}

// startFrom is start of runs counted from another number.
func (w *world) startFrom(ctx context.Context, model string, first, n int) {
	GinkgoHelper()
	for i := first; i < first+n; i++ {
		w.Create(ctx, &v1alpha1.AgentRun{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", model, i)},
			Spec: v1alpha1.AgentRunSpec{
				ModelRef: v1alpha1.LocalReference{Name: model}, ToolPolicyRefs: []v1alpha1.LocalReference{{Name: "policy"}}, Prompt: "Work.",
				Limits: v1alpha1.Limits{MaxTurns: 100, MaxToolCalls: 400, MaxTokens: 10_000_000, ActiveDeadlineSeconds: 3600, MaxConsecutiveFailures: 100},
			},
		})
	}
}

// list reads every run of the world.
func (w *world) list(ctx context.Context) []v1alpha1.AgentRun {
	GinkgoHelper()
	found := &v1alpha1.AgentRunList{}
	Eventually(ctx, func() error { return env.Admin.List(ctx, found, client.InNamespace(w.Namespace)) }).Should(Succeed())
	return found.Items
}

// reasons counts the runs by reason.
func (w *world) reasons(ctx context.Context) map[string]int {
	GinkgoHelper()
	counts := map[string]int{}
	for _, run := range w.list(ctx) {
		counts[runs.Succeeded(&run).Reason]++
	}
	return counts
}

// atRest says whether a run has ended or waits under a name.
func atRest(run *v1alpha1.AgentRun) bool {
	c := runs.Succeeded(run)
	switch v1alpha1.Reason(c.Reason) {
	case v1alpha1.ReasonApprovalRequired, v1alpha1.ReasonInputRequired, v1alpha1.ReasonOutcomeUnknown:
		return true
	default:
		return c.Status != metav1.ConditionUnknown
	}
}

// moving counts the runs that have neither ended nor wait under a name.
func (w *world) moving(ctx context.Context) int {
	GinkgoHelper()
	n := 0
	for _, run := range w.list(ctx) {
		if !atRest(&run) {
			n++
		}
	}
	return n
}

// awaitAll waits until every run has a reason, settling on the way what only people can.
func (w *world) awaitAll(ctx context.Context, limit time.Duration, reason v1alpha1.Reason) {
	GinkgoHelper()
	settler := newSettler(w)
	Eventually(ctx, func() map[string]int {
		settler.settle(ctx)
		return w.reasons(ctx)
	}).WithTimeout(limit).WithPolling(500*time.Millisecond).Should(And(HaveLen(1), HaveKey(string(reason))), "in "+w.Namespace)
}

// settler is the person who says of unknown outcomes what the tool server's ledger says.
type settler struct {
	world *world
	mu    sync.Mutex
	said  map[string]bool
}

func newSettler(w *world) *settler { return &settler{world: w, said: map[string]bool{}} }

// settle settles what is unknown now.
func (s *settler) settle(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := &v1alpha1.AgentRunList{}
	if err := env.Admin.List(ctx, found, client.InNamespace(s.world.Namespace)); err != nil {
		return
	}
	for i := range found.Items {
		run := &found.Items[i]
		verdict := map[string]string{}
		for _, unknown := range run.Status.UnknownEffects {
			if s.said[unknown.EffectKey] {
				continue
			}
			// What the service can be asked for is left to the service, unless it does
			// not know: the operator then waits for a person.
			state := env.Tools.Effect(unknown.EffectKey)
			switch applied := appliedTimes(unknown.EffectKey); {
			case state == "pending":
				continue
			case applied > 0 && unknown.Tool == "counter.next":
				verdict[unknown.EffectKey] = "committed"
			case applied == 0 && state == "notFound":
				verdict[unknown.EffectKey] = "rejected"
			}
		}
		if len(verdict) == 0 {
			continue
		}
		text, _ := json.Marshal(verdict)
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationSettle: string(text)}}})
		if env.Admin.Patch(ctx, run, client.RawPatch(types.MergePatchType, patch)) == nil {
			for key := range verdict {
				s.said[key] = true
			}
		}
	}
}

func appliedTimes(key string) int {
	n := 0
	for _, entry := range env.Tools.Ledger() {
		if entry.Key == key && entry.Applied {
			n++
		}
	}
	return n
}
