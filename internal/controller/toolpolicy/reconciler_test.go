package toolpolicy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
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

// world is a fake API server that counts writes.
type world struct {
	client.Client
	reconciler reconcile.Reconciler
	writes     int
}

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
	w.reconciler = reconcile.AsReconciler[*v1alpha1.ToolPolicy](w.Client, New(w.Client))
	return w
}

func (w *world) reconcile(t *testing.T) *v1alpha1.ToolPolicy {
	t.Helper()
	result, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	if result != (reconcile.Result{}) {
		t.Errorf("asks to be called again: %+v", result)
	}
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
	if result, err := New(w.Client).Reconcile(t.Context(), stale); err != nil || result.RequeueAfter == 0 {
		t.Errorf("got %v, %v, want another try", result, err)
	}
}

func TestGone(t *testing.T) {
	w := newWorld(t)
	if _, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Errorf("never there: %v", err)
	}
	if _, err := New(w.Client).Reconcile(t.Context(), toolPolicy()); err != nil {
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
