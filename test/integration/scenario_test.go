package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// scenario is a run with its Model and ToolPolicy, all of the same name, written as YAML
// with what matters for a spec and nothing else.
type scenario struct {
	// Model has provider Scripted unless it says otherwise.
	Model v1alpha1.ModelSpec `json:"model"`
	// Policy is added to the standard one: its servers and tools come first, its rules
	// take the place of "allow everything".
	Policy v1alpha1.ToolPolicySpec `json:"policy"`
	// Run needs no modelRef, toolPolicyRefs and prompt.
	Run v1alpha1.AgentRunSpec `json:"run"`
}

// standardPolicy declares every tool of the tool server.
const standardPolicy = `
servers:
- {name: profiles, http: {url: TOOLS/profiles, tools: [{name: lookup, inputSchema: {type: object, required: [key], properties: {key: {type: string}}}}]}}
- {name: billing, http: {url: TOOLS/billing, tools: [{name: refund, description: Refund an order., inputSchema: {type: object, required: [order_id, amount], properties: {order_id: {type: string}, amount: {type: number}}}}]}}
- {name: status, http: {url: TOOLS/status, tools: [{name: get, inputSchema: {type: object, properties: {}}}, {name: timed, inputSchema: {type: object, properties: {}}}]}}
- {name: slow, http: {url: TOOLS/slow, tools: [{name: wait, inputSchema: {type: object, required: [seconds], properties: {seconds: {type: number}, key: {type: string}}}}, {name: never, inputSchema: {type: object, properties: {}}}]}}
- {name: counter, http: {url: TOOLS/counter, tools: [{name: next, inputSchema: {type: object, properties: {}}}]}}
- {name: calc, http: {url: TOOLS/calc, tools: [{name: add, inputSchema: {type: object, required: [a, b], properties: {a: {type: integer}, b: {type: integer}}}}]}}
- {name: fail, http: {url: TOOLS/fail, tools: [{name: internal, inputSchema: {type: object, properties: {}}}, {name: not_found, inputSchema: {type: object, properties: {number: {type: integer}}}}, {name: throttled, inputSchema: {type: object, properties: {times: {type: integer}}}}, {name: cut, inputSchema: {type: object, properties: {}}}, {name: huge, inputSchema: {type: object, properties: {}}}]}}
tools:
- {match: ["profiles.*", "status.*", "calc.*"], effect: ReadOnly, execution: Parallel, timeoutSeconds: 20}
- {match: ["slow.*"], effect: ReadOnly, execution: Parallel, timeoutSeconds: 900}
- {match: ["fail.internal", "fail.not_found", "fail.throttled", "fail.huge"], effect: ReadOnly, timeoutSeconds: 20}
- {match: ["billing.*"], effect: Idempotent, conflictKey: args.order_id, maxAttempts: 3, timeoutSeconds: 20}
- {match: ["*"], effect: NonIdempotent, timeoutSeconds: 20}
rules:
- {name: everything, match: ["*"], action: Allow}
`

// world is a namespace for the specs of one container.
type world struct{ namespace string }

func newWorld(ctx context.Context, name string) world {
	GinkgoHelper()
	// It goes with the control plane.
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}
	Expect(env.Admin.Create(ctx, object)).To(Succeed())
	return world{namespace: object.Name}
}

func (w world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

// start creates a scenario's objects; the run is the last of them.
func (w world) start(ctx context.Context, name, text string) client.ObjectKey {
	GinkgoHelper()
	var s scenario
	decode(text, &s)
	w.createModel(ctx, name, s.Model)
	w.createPolicy(ctx, name, s.Policy)
	w.createRun(ctx, name, s.Run)
	return w.key(name)
}

// createSome creates n runs named <name>-<i> that share a Model and a ToolPolicy.
func (w world) createSome(ctx context.Context, name, text string, n int) {
	GinkgoHelper()
	var s scenario
	decode(text, &s)
	w.createModel(ctx, name, s.Model)
	w.createPolicy(ctx, name, s.Policy)
	for i := range n {
		run := s.Run
		run.ModelRef, run.ToolPolicyRefs = v1alpha1.LocalReference{Name: name}, []v1alpha1.LocalReference{{Name: name}}
		w.createRun(ctx, fmt.Sprintf("%s-%d", name, i), run)
	}
}

func (w world) createModel(ctx context.Context, name string, spec v1alpha1.ModelSpec) {
	GinkgoHelper()
	if spec.Provider == "" {
		spec.Provider = v1alpha1.ProviderScripted
	}
	if len(spec.Script) == 0 && spec.Provider == v1alpha1.ProviderScripted {
		return // the scenario does without a Model of its own
	}
	Expect(env.Admin.Create(ctx, &v1alpha1.Model{ObjectMeta: w.meta(name), Spec: spec})).To(Succeed())
}

func (w world) createPolicy(ctx context.Context, name string, spec v1alpha1.ToolPolicySpec) {
	GinkgoHelper()
	var standard v1alpha1.ToolPolicySpec
	decode(standardPolicy, &standard)
	spec.Servers = append(spec.Servers, standard.Servers...)
	spec.Tools = append(spec.Tools, standard.Tools...)
	if len(spec.Rules) == 0 {
		spec.Rules = standard.Rules
	}
	Expect(env.Admin.Create(ctx, &v1alpha1.ToolPolicy{ObjectMeta: w.meta(name), Spec: spec})).To(Succeed())
}

func (w world) createRun(ctx context.Context, name string, spec v1alpha1.AgentRunSpec) {
	GinkgoHelper()
	if spec.ModelRef.Name == "" {
		spec.ModelRef.Name = name
	}
	if len(spec.ToolPolicyRefs) == 0 {
		spec.ToolPolicyRefs = []v1alpha1.LocalReference{{Name: name}}
	}
	if spec.Prompt == "" {
		spec.Prompt = "Do what the script says."
	}
	Expect(env.Admin.Create(ctx, &v1alpha1.AgentRun{ObjectMeta: w.meta(name), Spec: spec})).To(Succeed())
	touched.add(w.key(name))
}

func (w world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

// decode reads YAML strictly and puts in the addresses of the suite's servers.
func decode(text string, into any) {
	GinkgoHelper()
	text = strings.NewReplacer("TOOLS", tools.URL, "VOID", void.URL).Replace(text)
	// The mark keeps flow style from being taken for JSON.
	decoder := json.NewDecoder(bytes.NewReader(must(yaml.ToJSON([]byte("---\n" + text)))))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(into)).To(Succeed())
}

// registry remembers which runs a spec looked at, for the dump of one that failed.
type registry struct {
	mu   sync.Mutex
	list []client.ObjectKey
}

var touched registry

func (r *registry) add(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.list, key) {
		r.list = append(r.list, key)
	}
}

func (r *registry) keys() []client.ObjectKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

func (r *registry) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

func get(ctx context.Context, key client.ObjectKey) *v1alpha1.AgentRun {
	GinkgoHelper()
	touched.add(key)
	run := &v1alpha1.AgentRun{}
	Expect(env.Admin.Get(ctx, key, run)).To(Succeed())
	return run
}

// await waits for a run to have a reason and status of Succeeded. A run that has ended
// otherwise is not waited for.
func await(ctx context.Context, key client.ObjectKey, reason v1alpha1.Reason, status metav1.ConditionStatus) *v1alpha1.AgentRun {
	GinkgoHelper()
	return awaitWithin(ctx, 30*time.Second, key, reason, status)
}

func awaitWithin(ctx context.Context, limit time.Duration, key client.ObjectKey, reason v1alpha1.Reason, status metav1.ConditionStatus) *v1alpha1.AgentRun {
	GinkgoHelper()
	touched.add(key)
	run := &v1alpha1.AgentRun{}
	want := state{reason, status}
	Eventually(ctx, func() (state, error) {
		if err := env.Admin.Get(ctx, key, run); err != nil {
			return state{}, err
		}
		c := condition(run, v1alpha1.ConditionSucceeded)
		got := state{v1alpha1.Reason(c.Reason), c.Status}
		if got != want && got.status != metav1.ConditionUnknown {
			return got, StopTrying(fmt.Sprintf("the run has ended as %s: %s", c.Reason, c.Message))
		}
		return got, nil
	}).WithTimeout(limit).WithPolling(50 * time.Millisecond).Should(Equal(want))
	return run
}

// awaitCompleted waits for an answer.
func awaitCompleted(ctx context.Context, key client.ObjectKey) *v1alpha1.AgentRun {
	GinkgoHelper()
	return await(ctx, key, v1alpha1.ReasonCompleted, metav1.ConditionTrue)
}

// awaitOpen waits for a reason of an open run, awaitEnd for one of a run that has failed.
func awaitOpen(ctx context.Context, key client.ObjectKey, reason v1alpha1.Reason) *v1alpha1.AgentRun {
	GinkgoHelper()
	return await(ctx, key, reason, metav1.ConditionUnknown)
}

func awaitEnd(ctx context.Context, key client.ObjectKey, reason v1alpha1.Reason) *v1alpha1.AgentRun {
	GinkgoHelper()
	return await(ctx, key, reason, metav1.ConditionFalse)
}

// requests are the ledger's entries of one run, of one tool where it is named.
func requests(run *v1alpha1.AgentRun, tool string) []toolserver.Entry {
	return slices.DeleteFunc(env.Tools.Ledger(), func(e toolserver.Entry) bool {
		return e.RunUID != string(run.UID) || (tool != "" && e.Tool != tool)
	})
}

// awaitRequests waits until the tool server has got so many requests of a run.
func awaitRequests(ctx context.Context, key client.ObjectKey, tool string, n int) {
	GinkgoHelper()
	run := get(ctx, key)
	Eventually(ctx, func() []toolserver.Entry { return requests(run, tool) }).WithPolling(20 * time.Millisecond).Should(HaveLen(n))
}

func applied(entries []toolserver.Entry) int {
	return len(slices.DeleteFunc(entries, func(e toolserver.Entry) bool { return !e.Applied }))
}

// setState sets spec.state as a developer or a pipeline would.
func setState(ctx context.Context, key client.ObjectKey, state v1alpha1.DesiredState) {
	GinkgoHelper()
	run := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	Expect(env.Admin.Patch(ctx, run, mergePatch(map[string]any{"spec": map[string]any{"state": state}}))).To(Succeed())
}

// annotate sets annotations as the given person.
func (p person) annotate(ctx context.Context, key client.ObjectKey, annotations map[string]string) error {
	run := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return p.api.Patch(ctx, run, mergePatch(map[string]any{"metadata": map[string]any{"annotations": annotations}}))
}

// approve waits for a request for approval and approves it as dana.
func approve(ctx context.Context, key client.ObjectKey) *v1alpha1.AgentRun {
	GinkgoHelper()
	run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
	Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationApprove: run.Status.Pending.Digest})).To(Succeed())
	return run
}

// deny waits for a request for approval and denies it as dana.
func deny(ctx context.Context, key client.ObjectKey, reason string) {
	GinkgoHelper()
	run := awaitOpen(ctx, key, v1alpha1.ReasonApprovalRequired)
	Expect(dana.annotate(ctx, key, map[string]string{
		v1alpha1.AnnotationDeny: run.Status.Pending.Digest, v1alpha1.AnnotationDenyReason: reason,
	})).To(Succeed())
}

// settle says as dana what became of the only effect that nobody knows of.
func settle(ctx context.Context, run *v1alpha1.AgentRun, effect string) {
	GinkgoHelper()
	Expect(run.Status.UnknownEffects).To(HaveLen(1))
	value := jsonText(map[string]string{run.Status.UnknownEffects[0].EffectKey: effect})
	Expect(dana.annotate(ctx, client.ObjectKeyFromObject(run), map[string]string{v1alpha1.AnnotationSettle: value})).To(Succeed())
}

func mergePatch(value any) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(jsonText(value)))
}

func jsonText(value any) string {
	GinkgoHelper()
	return string(must(json.Marshal(value)))
}
