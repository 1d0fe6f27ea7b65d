package model

import (
	"context"
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
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/responses"
)

var key = types.NamespacedName{Namespace: "support", Name: "gpt"}

func openAI(parameters string) v1alpha1.ModelSpec { return of(v1alpha1.ProviderOpenAI, parameters) }

func of(provider v1alpha1.Provider, parameters string) v1alpha1.ModelSpec {
	spec := v1alpha1.ModelSpec{Provider: provider, Model: "gpt-x"}
	if parameters != "" {
		spec.Parameters = &runtime.RawExtension{Raw: []byte(parameters)}
	}
	return spec
}

func at(provider v1alpha1.Provider, endpoint string) v1alpha1.ModelSpec {
	spec := of(provider, "")
	spec.Endpoint = endpoint
	return spec
}

func named(model string) v1alpha1.ModelSpec {
	spec := openAI("")
	spec.Model = model
	return spec
}

func on(provider v1alpha1.Provider, platform v1alpha1.Platform) v1alpha1.ModelSpec {
	spec := of(provider, "")
	spec.Platform = &platform
	return spec
}

func scripted(expressions ...string) v1alpha1.ModelSpec {
	spec := v1alpha1.ModelSpec{Provider: v1alpha1.ProviderScripted}
	for _, expression := range expressions {
		spec.Script = append(spec.Script, v1alpha1.ScriptStep{FinalExpression: expression})
	}
	return spec
}

func TestProblems(t *testing.T) {
	tests := map[string]struct {
		spec v1alpha1.ModelSpec
		// want are the beginnings of the problems, in their order.
		want []string
	}{
		"plain":                      {openAI(""), nil},
		"parameters":                 {openAI(`{"temperature": 0, "seed": 7}`), nil},
		"reserved parameters":        {openAI(`{"stream": true, "messages": []}`), []string{"parameters: parameters may not set messages, stream"}},
		"not an object":              {openAI(`[1]`), []string{"parameters: parameters must be a JSON object"}},
		"not JSON":                   {openAI(`{`), []string{"parameters: parameters must be a JSON object"}},
		"an endpoint that is copied": {at(v1alpha1.ProviderOpenAI, "https://api.openai.com/v1/chat/completions"), []string{"endpoint must be the base URL: remove /chat/completions"}},
		"the same with a slash":      {at(v1alpha1.ProviderOpenAIResponses, "https://api.openai.com/v1/responses/"), []string{"endpoint must be the base URL: remove /responses"}},
		"that of Messages":           {at(v1alpha1.ProviderAnthropic, "https://api.anthropic.com/v1/messages"), []string{"endpoint must be the base URL: remove /messages"}},
		"that of Gemini":             {at(v1alpha1.ProviderGemini, "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"), []string{"endpoint must be the base URL: remove :generateContent"}},
		"a port out of range":        {at(v1alpha1.ProviderGemini, "https://llm.internal:65536"), []string{"the port of endpoint"}},
		"port 0":                     {at(v1alpha1.ProviderAnthropic, "https://llm.internal:0"), []string{"the port of endpoint"}},
		"a port without host":        {at(v1alpha1.ProviderOpenAI, "https://:8443/v1"), []string{"endpoint must be an absolute"}},
		"a password":                 {at(v1alpha1.ProviderOpenAI, "https://me:secret@llm.internal"), []string{"endpoint may not have a user"}},
		"an at sign in a path":       {at(v1alpha1.ProviderOpenAI, "https://llm.internal/@prod/v1"), nil},
		"a model of two lines":       {named("gpt-x\n"), []string{"model has white space"}},
		"a model and a tab":          {named("gpt\tx"), []string{"model has white space"}},
		"a model with a space in it": {named("Llama 3 Instruct"), nil},
		"a platform of others":       {on(v1alpha1.ProviderGemini, v1alpha1.Platform{Bedrock: &v1alpha1.BedrockPlatform{Region: "eu-central-1"}}), []string{"platform bedrock does not serve"}},
		"Azure without a resource":   {on(v1alpha1.ProviderOpenAI, v1alpha1.Platform{Azure: &v1alpha1.AzurePlatform{}}), []string{"platform azure needs endpoint"}},
		"a sovereign region":         {on(v1alpha1.ProviderAnthropic, v1alpha1.Platform{Bedrock: &v1alpha1.BedrockPlatform{Region: "eusc-de-east-1"}}), nil},
		"a project of a domain":      {on(v1alpha1.ProviderGemini, v1alpha1.Platform{Vertex: &v1alpha1.VertexPlatform{Project: "example.com:project", Location: "eu"}}), nil},
		"all at once": {
			v1alpha1.ModelSpec{Provider: v1alpha1.ProviderOpenAI, Model: "m", Endpoint: "https://llm.internal:0", Parameters: &runtime.RawExtension{Raw: []byte(`{"stream":true}`)}},
			[]string{"parameters: ", "the port of endpoint"},
		},
		"script": {scripted(`"profile=" + results[0].value`, `string(results.size())`), nil},
		"broken expressions": {
			scripted(`results[0`, `"ok"`, `result + args`),
			[]string{"script[0]: finalExpression: column ", "script[2]: finalExpression: column 1: undeclared reference to 'result'", "script[2]: finalExpression: column 10: "},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Problems(tt.spec)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(got[i], want) || strings.Contains(got[i], "secret") {
					t.Errorf("problem %d is %q, want %q", i, got[i], want)
				}
			}
		})
	}
}

// What the operator sets itself is known to the adapter alone; none of it may pass.
func TestEveryReservedParameterIsRefused(t *testing.T) {
	for provider, reserved := range map[v1alpha1.Provider][]string{
		v1alpha1.ProviderOpenAI:          openai.ReservedParameters(),
		v1alpha1.ProviderOpenAIResponses: responses.ReservedParameters(),
	} {
		for _, name := range reserved {
			if got := Problems(of(provider, `{"`+name+`": 1}`)); len(got) != 1 {
				t.Errorf("%s: %s: got %q, want one problem", provider, name, got)
			}
		}
	}
}

// world is a fake API server that counts writes of status.
type world struct {
	client.Client
	writes int
}

func newWorld(t *testing.T, object client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{}
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(object).WithObjects(object).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
				w.writes++
				return c.SubResource(sub).Patch(ctx, o, p, options...)
			},
		}).Build()
	return w
}

func (w *world) get(t *testing.T) *v1alpha1.Model {
	t.Helper()
	found := &v1alpha1.Model{}
	if err := w.Get(t.Context(), key, found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (w *world) reconcile(t *testing.T) {
	t.Helper()
	reconciler := reconcile.AsReconciler[*v1alpha1.Model](w.Client, New(w.Client))
	if _, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
}

func modelWith(spec v1alpha1.ModelSpec) *v1alpha1.Model {
	return &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 5}, Spec: spec}
}

func TestAccepted(t *testing.T) {
	w := newWorld(t, modelWith(openAI(`{"temperature": 0}`)))
	w.reconcile(t)
	if !meta.IsStatusConditionTrue(w.get(t).Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("got %+v", w.get(t).Status)
	}
}

func TestInvalid(t *testing.T) {
	w := newWorld(t, modelWith(scripted(`results[0`)))
	w.reconcile(t)
	found := w.get(t)
	condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReadyReasonInvalid {
		t.Fatalf("got %+v", condition)
	}
	if condition.ObservedGeneration != 5 || found.Status.ObservedGeneration != 5 {
		t.Errorf("got %+v with %d", condition, found.Status.ObservedGeneration)
	}
	if !strings.Contains(condition.Message, "script[0]: finalExpression: ") {
		t.Errorf("message %q", condition.Message)
	}
}

func TestWritesOnlyWhatChanged(t *testing.T) {
	w := newWorld(t, modelWith(openAI("")))
	stale := w.get(t)
	w.reconcile(t)
	w.reconcile(t)
	if w.writes != 1 {
		t.Errorf("%d writes, want 1", w.writes)
	}
	if result, err := New(w.Client).Reconcile(t.Context(), stale); err != nil || result.RequeueAfter == 0 {
		t.Errorf("a stale read gives %v, %v, want another try", result, err)
	}
}

func TestGone(t *testing.T) {
	w := newWorld(t, modelWith(openAI("")))
	found := w.get(t)
	if err := w.Delete(t.Context(), found.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if _, err := New(w.Client).Reconcile(t.Context(), found); err != nil {
		t.Errorf("deleted meanwhile: %v", err)
	}
}
