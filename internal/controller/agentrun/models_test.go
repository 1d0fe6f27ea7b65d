package agentrun

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
)

// vendors are two providers' Secrets, one of whom has a server that notes what key it gets.
type vendors struct {
	t        *testing.T
	api      client.Client
	adapters *Adapters
	endpoint string
	got      string
}

func newVendors(t *testing.T) *vendors {
	v := &vendors{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.got = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	v.endpoint = server.URL
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	v.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(v.secret("a", "key-of-a"), v.secret("b", "key-of-b")).Build()
	v.adapters = NewAdapters(v.api, nil, nil)
	return v
}

func (v *vendors) secret(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{"key": []byte(value)}}
}

// model is the Model as it was when the run started: of vendor a.
func (v *vendors) model(edits ...func(*v1alpha1.ModelSpec)) *v1alpha1.Model {
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: v1alpha1.ModelSpec{
		Provider: v1alpha1.ProviderOpenAI, Model: "large", Endpoint: v.endpoint, RequestTimeoutSeconds: 5,
		CredentialsSecretRef: &v1alpha1.KeyReference{Name: "a", Key: "key"},
	}}
	for _, edit := range edits {
		edit(&m.Spec)
	}
	return m
}

// ask asks as a run does that froze one model and finds another. It returns the key that
// vendor a was sent, or why nothing was sent.
func (v *vendors) ask(frozen journal.Model, live *v1alpha1.Model) string {
	v.t.Helper()
	ctx := context.Background()
	_ = v.api.Delete(ctx, live)
	live.ResourceVersion = ""
	if err := v.api.Create(ctx, live); err != nil {
		v.t.Fatal(err)
	}
	decider, problem, err := v.adapters.Model(ctx, "ns", frozen)
	if err != nil {
		v.t.Fatal(err)
	}
	if problem != "" {
		return problem
	}
	v.got = "nothing"
	_, _ = decider.Decide(ctx, model.Request{Decision: 1, MaxOutputTokens: 10, Messages: []model.Message{{Role: model.RoleUser, Text: "hi"}}})
	return strings.TrimPrefix(v.got, "Bearer ")
}

func moved(s *v1alpha1.ModelSpec) {
	s.Endpoint, s.CredentialsSecretRef = "https://vendor-b.example/v1", &v1alpha1.KeyReference{Name: "b", Key: "key"}
}

// Whose key a run sends to its endpoint is frozen with the endpoint; what the key is, is not.
func TestCredentialsStayWithTheirEndpoint(t *testing.T) {
	v := newVendors(t)
	frozen := freezeModel(v.model())
	if got := v.ask(frozen, v.model()); got != "key-of-a" {
		t.Errorf("vendor a was sent %q", got)
	}
	if got := v.ask(frozen, v.model(moved)); got != "key-of-a" {
		t.Errorf("the Model was moved to vendor b, and vendor a was sent %q", got)
	}
	if err := v.api.Update(context.Background(), v.secret("a", "rotated-key-of-a")); err != nil {
		t.Fatal(err)
	}
	if got := v.ask(frozen, v.model(moved)); got != "rotated-key-of-a" {
		t.Errorf("the key was rotated, and vendor a was sent %q", got)
	}
	none := freezeModel(v.model(func(s *v1alpha1.ModelSpec) { s.CredentialsSecretRef = nil }))
	if got := v.ask(none, v.model()); got != "" {
		t.Errorf("a run that began without credentials sent %q", got)
	}
	trusting := freezeModel(v.model(func(s *v1alpha1.ModelSpec) {
		s.CABundleConfigMapRef = &v1alpha1.KeyReference{Name: "ca-of-a", Key: "ca"}
	}))
	if got := v.ask(trusting, v.model()); got != "ConfigMap ca-of-a does not exist" {
		t.Errorf("a run that began with a CA bundle sent %q", got)
	}
}

// A run that began before references were frozen has the Model's, while that means the same
// endpoint.
func TestCredentialsOfOlderJournals(t *testing.T) {
	v := newVendors(t)
	older := func(edits ...func(*v1alpha1.ModelSpec)) journal.Model {
		frozen := freezeModel(v.model(edits...))
		frozen.References = nil
		return frozen
	}
	azure := func(s *v1alpha1.ModelSpec) { s.Platform = &v1alpha1.Platform{Azure: &v1alpha1.AzurePlatform{}} }
	renamed := func(s *v1alpha1.ModelSpec) { s.CredentialsSecretRef.Name = "b" }
	for name, test := range map[string]struct {
		frozen journal.Model
		live   *v1alpha1.Model
		want   string
	}{
		"nothing has changed":      {older(), v.model(), "key-of-a"},
		"the Secret is another":    {older(), v.model(renamed), "key-of-b"},
		"the platform is the same": {older(azure), v.model(azure), ""},
		"another endpoint":         {older(), v.model(moved), "another endpoint or platform"},
		"another platform":         {older(), v.model(azure), "another endpoint or platform"},
		"no platform any more":     {older(azure), v.model(), "another endpoint or platform"},
	} {
		t.Run(name, func(t *testing.T) {
			v.t = t
			if got := v.ask(test.frozen, test.live); got != test.want && (test.want == "" || !strings.Contains(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
