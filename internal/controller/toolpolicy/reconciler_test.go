package toolpolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/tool"
)

var key = types.NamespacedName{Namespace: "support", Name: "support-tools"}

func toolPolicy() *v1alpha1.ToolPolicy {
	return &v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 1},
		Spec: v1alpha1.ToolPolicySpec{
			Servers: []v1alpha1.ToolServer{
				{Name: "crm", MCP: &v1alpha1.MCPServer{URL: "http://crm.tools.svc/mcp"}},
				{Name: "billing", HTTP: &v1alpha1.HTTPServer{URL: "https://billing.internal", Tools: []v1alpha1.HTTPTool{
					{Name: "refund", Description: "Refund an order.", InputSchema: runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}},
					{Name: "status", InputSchema: runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}},
				}}},
			},
			Tools: []v1alpha1.ToolProperties{{Match: []string{"*.status"}, Effect: v1alpha1.EffectReadOnly}},
			Rules: []v1alpha1.ToolRule{{Name: "all", Match: []string{"*"}, Action: v1alpha1.ActionAllow}},
		},
	}
}

// world is a fake API server that counts writes, and the servers that policies declare.
type world struct {
	client.Client
	reconciler reconcile.Reconciler
	writes     int
	// offers is what the MCP server crm says, or fails with.
	offers tool.Listing
	fails  error
	asked  int
	// again is when it wants to be called again.
	again time.Duration
}

// Server implements Servers.
func (w *world) Server(_ context.Context, namespace string, declared v1alpha1.ToolServer) (tool.Server, error) {
	if namespace != key.Namespace || declared.Name != "crm" {
		return nil, fmt.Errorf("unexpected server %s in %s", declared.Name, namespace)
	}
	return lister{w}, nil
}

// lister is a server that is only ever asked for its tools.
type lister struct{ w *world }

func (l lister) List(context.Context) (tool.Listing, error) {
	l.w.asked++
	return l.w.offers, l.w.fails
}

func (l lister) Call(context.Context, tool.Call) tool.Outcome { panic("not to be called") }

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{}
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ToolPolicy{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
				w.writes++
				return c.SubResource(sub).Patch(ctx, o, p, options...)
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return fmt.Errorf("only status may be written")
			},
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return fmt.Errorf("only status may be written")
			},
		}).Build()
	w.reconciler = reconcile.AsReconciler[*v1alpha1.ToolPolicy](w.Client, New(w.Client, w))
	return w
}

func (w *world) reconcile(t *testing.T) *v1alpha1.ToolPolicy {
	t.Helper()
	result, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	w.again = result.RequeueAfter
	var found v1alpha1.ToolPolicy
	if err := w.Get(t.Context(), key, &found); err != nil {
		t.Fatal(err)
	}
	return &found
}

func TestAccepted(t *testing.T) {
	w := newWorld(t, toolPolicy())
	found := w.reconcile(t)
	condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReadyReasonAccepted {
		t.Fatalf("got %+v", condition)
	}
	if condition.ObservedGeneration != 1 || found.Status.ObservedGeneration != 1 || condition.LastTransitionTime.IsZero() {
		t.Errorf("got %+v with %d", condition, found.Status.ObservedGeneration)
	}
	tools := found.Status.Tools
	if len(tools) != 2 || tools[0].Name != "billing.refund" || tools[1].Name != "billing.status" {
		t.Fatalf("tools %+v", tools)
	}
	if tools[0].Effect != v1alpha1.EffectNonIdempotent || tools[1].Effect != v1alpha1.EffectReadOnly {
		t.Errorf("effects %s and %s", tools[0].Effect, tools[1].Effect)
	}
	if !strings.HasPrefix(tools[0].Digest, "sha256:") || tools[0].Digest == tools[1].Digest {
		t.Errorf("digests %s and %s", tools[0].Digest, tools[1].Digest)
	}
}

func TestInvalidNamesEveryProblem(t *testing.T) {
	object := toolPolicy()
	object.Spec.Servers[1].HTTP.Tools[0].InputSchema.Raw = []byte(`{"type":"string"}`)
	object.Spec.Rules[0].When = `run.nmae == "x"`
	object.Spec.Rules = append(object.Spec.Rules, v1alpha1.ToolRule{Name: "none", Match: []string{"erp.*"}, Action: v1alpha1.ActionAllow})
	found := newWorld(t, object).reconcile(t)
	condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReadyReasonInvalid {
		t.Fatalf("got %+v", condition)
	}
	for _, want := range []string{
		`servers[1] "billing": http.tools[0] "refund": inputSchema: `, `rules[0] "all": when: column 4: `, `rules[1] "none": match[0] "erp.*": `,
	} {
		if !strings.Contains(condition.Message, want) {
			t.Errorf("message %q lacks %q", condition.Message, want)
		}
	}
	if found.Status.Tools != nil {
		t.Errorf("tools of a policy that can't be used: %+v", found.Status.Tools)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	object := toolPolicy()
	for i := range 100 {
		object.Spec.Rules = append(object.Spec.Rules, v1alpha1.ToolRule{
			Name: fmt.Sprintf("rule-%d", i), Match: []string{"erp.*"}, Action: v1alpha1.ActionAllow,
		})
	}
	found := newWorld(t, object).reconcile(t)
	message := found.Status.Conditions[0].Message
	if len(message) > 1024 || !strings.HasSuffix(message, " more") {
		t.Errorf("%d bytes: %q", len(message), message)
	}
}

func TestWritesOnlyWhatChanged(t *testing.T) {
	w := newWorld(t, toolPolicy())
	first := w.reconcile(t)
	second := w.reconcile(t)
	if w.writes != 1 || first.ResourceVersion != second.ResourceVersion {
		t.Fatalf("%d writes, versions %s and %s", w.writes, first.ResourceVersion, second.ResourceVersion)
	}

	second.Spec.Rules[0].When = "nothing"
	second.Generation++
	w.replace(t, second)
	third := w.reconcile(t)
	if w.writes != 2 || third.Status.ObservedGeneration != second.Generation || third.Status.Tools != nil {
		t.Errorf("%d writes, status %+v", w.writes, third.Status)
	}
	w.reconcile(t)
	if w.writes != 2 {
		t.Errorf("%d writes for an object that did not change", w.writes)
	}
}

// replace puts another version of an object in the place of the stored one.
func (w *world) replace(t *testing.T, object *v1alpha1.ToolPolicy) {
	t.Helper()
	status := object.Status
	object.ResourceVersion = ""
	if err := w.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	object.Status = status
	if err := w.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func TestOtherConditionsStay(t *testing.T) {
	object := toolPolicy()
	object.Status.Conditions = []metav1.Condition{{Type: "Audited", Status: metav1.ConditionTrue, Reason: "Yes", LastTransitionTime: metav1.Now()}}
	found := newWorld(t, object).reconcile(t)
	if len(found.Status.Conditions) != 2 || meta.FindStatusCondition(found.Status.Conditions, "Audited") == nil {
		t.Errorf("conditions %+v", found.Status.Conditions)
	}
}

func TestStaleReadDoesNotWrite(t *testing.T) {
	w := newWorld(t, toolPolicy())
	stale := &v1alpha1.ToolPolicy{}
	if err := w.Get(t.Context(), key, stale); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if result, err := New(w.Client, w).Reconcile(t.Context(), stale); err != nil || result.RequeueAfter == 0 {
		t.Errorf("got %v, %v, want another try", result, err)
	}
}

func TestGone(t *testing.T) {
	w := newWorld(t)
	if _, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Errorf("never there: %v", err)
	}
	if _, err := New(w.Client, w).Reconcile(t.Context(), toolPolicy()); err != nil {
		t.Errorf("deleted meanwhile: %v", err)
	}
	deleted := toolPolicy()
	now := metav1.Now()
	deleted.DeletionTimestamp, deleted.Finalizers = &now, []string{"example.com/x"}
	w = newWorld(t, deleted)
	if w.reconcile(t); w.writes != 0 {
		t.Errorf("%d writes on an object that is being deleted", w.writes)
	}
}

func TestOffers(t *testing.T) {
	w := newWorld(t, toolPolicy())
	w.offers = tool.Listing{
		Tools:       []tool.Definition{{Name: "status", InputSchema: []byte(`{"type":"object"}`)}, {Name: "write", Description: "x"}},
		Quarantined: []tool.Quarantined{{Name: "tree", Reason: "input schema unusable:\nit leads back to itself"}, {Name: strings.Repeat("é", 150), Reason: strings.Repeat("é", 400)}},
	}
	found := w.reconcile(t)
	var names []string
	for _, tool := range found.Status.Tools {
		names = append(names, tool.Name+" "+string(tool.Effect))
	}
	if diff := cmp.Diff([]string{"billing.refund NonIdempotent", "billing.status ReadOnly", "crm.status ReadOnly", "crm.write NonIdempotent"}, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if got, want := found.Status.Tools[3].Digest, w.offers.Tools[1].Digest("crm.write"); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	want := []v1alpha1.QuarantinedTool{
		{Name: "crm.tree", Reason: "input schema unusable: it leads back to itself"},
		{Name: "crm." + strings.Repeat("é", 96) + "…", Reason: strings.Repeat("é", 254) + "…"},
	}
	if diff := cmp.Diff(want, found.Status.Quarantined); diff != "" || found.Status.Unavailable != nil {
		t.Errorf("unavailable %v, quarantined (-want +got):\n%s", found.Status.Unavailable, diff)
	}
	if w.again < 10*time.Minute || w.again > 11*time.Minute || w.writes != 2 {
		t.Errorf("again after %s, %d writes", w.again, w.writes)
	}
	w.reconcile(t)
	if w.asked != 2 || w.writes != 2 {
		t.Errorf("asked %d times, %d writes", w.asked, w.writes)
	}
	w.offers = tool.Listing{}
	if found := w.reconcile(t); len(found.Status.Tools) != 2 || found.Status.Quarantined != nil {
		t.Errorf("status %+v", found.Status)
	}
}

func TestUnavailableServer(t *testing.T) {
	w := newWorld(t, toolPolicy())
	w.fails = fmt.Errorf("list tools: the server answered with HTTP 503")
	found := w.reconcile(t)
	want := []v1alpha1.UnavailableServer{{Name: "crm", Reason: "list tools: the server answered with HTTP 503"}}
	if diff := cmp.Diff(want, found.Status.Unavailable); diff != "" {
		t.Errorf("unavailable (-want +got):\n%s", diff)
	}
	if condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady); condition.Status != metav1.ConditionTrue {
		t.Errorf("Ready %+v: the spec is as good as before", condition)
	}
	if w.again < time.Minute || w.again > 66*time.Second {
		t.Errorf("again after %s", w.again)
	}
	w.fails = nil
	if found := w.reconcile(t); found.Status.Unavailable != nil {
		t.Errorf("unavailable %+v", found.Status.Unavailable)
	}
}

// What a server said of an older spec is not shown for the new one.
func TestOffersOfAnotherSpec(t *testing.T) {
	object := toolPolicy()
	object.Generation = 2
	object.Status = v1alpha1.ToolPolicyStatus{ObservedGeneration: 1, Quarantined: []v1alpha1.QuarantinedTool{{Name: "crm.old", Reason: "x"}},
		Tools: []v1alpha1.ResolvedTool{{Name: "crm.gone", Effect: "ReadOnly", Digest: "sha256:0"}}}
	_, status := decide(object)
	if status.Quarantined != nil || len(status.Tools) != 2 {
		t.Errorf("status %+v", status)
	}
	object.Status.ObservedGeneration = 2
	if _, status = decide(object); len(status.Quarantined) != 1 || len(status.Tools) != 1 {
		t.Errorf("status %+v", status)
	}
}

// A policy without MCP servers asks nobody, and one that can't be used neither.
func TestNobodyToAsk(t *testing.T) {
	plain := toolPolicy()
	plain.Spec.Servers = plain.Spec.Servers[1:]
	broken := toolPolicy()
	broken.Spec.Rules[0].When = "nothing"
	for name, object := range map[string]*v1alpha1.ToolPolicy{"no MCP": plain, "broken": broken} {
		w := newWorld(t, object)
		if w.reconcile(t); w.asked != 0 || w.again != 0 {
			t.Errorf("%s: asked %d times, again after %s", name, w.asked, w.again)
		}
	}
}

// However much servers offer, the object can be stored.
func TestStatusIsBounded(t *testing.T) {
	w := newWorld(t, toolPolicy())
	for i := range 5000 {
		w.offers.Tools = append(w.offers.Tools, tool.Definition{Name: fmt.Sprintf("t%0120d", i)})
		w.offers.Quarantined = append(w.offers.Quarantined, tool.Quarantined{Name: fmt.Sprintf("q%d", i), Reason: strings.Repeat("x", 512)})
	}
	found := w.reconcile(t)
	data, err := json.Marshal(found)
	if err != nil || len(found.Status.Tools) != 2048 || len(found.Status.Quarantined) != 128 || len(data) > 1<<20 {
		t.Errorf("%d tools, %d quarantined, %d bytes, %v", len(found.Status.Tools), len(found.Status.Quarantined), len(data), err)
	}
}
