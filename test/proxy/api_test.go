package proxy_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/test/proxy"
)

func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return mapper
}

// before starts an API before a server that counts its writes, and gives a client of it.
func before(t *testing.T, writes *atomic.Int32) (*proxy.API, client.Client) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes.Add(1)
		}
		if r.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":"a","resourceVersion":"1"}}`))
	}))
	t.Cleanup(server.Close)
	target := &rest.Config{Host: server.URL, BearerToken: "token", QPS: -1}
	target.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	api, err := proxy.NewAPI(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(api.Config(target), client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return api, c
}

// TestAPI checks that what the proxy refuses looks to a client like what an API server
// refuses, that everything else comes through, and that done is done.
func TestAPI(t *testing.T) {
	var writes atomic.Int32
	api, c := before(t, &writes)
	update := func() error {
		return c.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "1"}})
	}
	if err := update(); err != nil || writes.Load() != 1 {
		t.Fatalf("nothing refused: %v, %d writes", err, writes.Load())
	}
	for _, test := range []struct {
		refusal proxy.Refusal
		is      func(error) bool
		writes  int32
	}{
		{proxy.Refusal{Status: 409, Reason: metav1.StatusReasonConflict}, apierrors.IsConflict, 1},
		{proxy.Refusal{Status: 500, Reason: metav1.StatusReasonInternalError}, apierrors.IsInternalError, 1},
		{proxy.Refusal{Status: 500, Reason: metav1.StatusReasonInternalError, Done: true}, apierrors.IsInternalError, 2},
	} {
		api.Refuse(func(r *http.Request) *proxy.Refusal {
			if r.Method == http.MethodGet {
				return nil
			}
			return &test.refusal
		})
		if err := update(); !test.is(err) || writes.Load() != test.writes {
			t.Errorf("%+v: %v, %d writes, want %d", test.refusal, err, writes.Load(), test.writes)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, &corev1.ConfigMap{}); err != nil {
			t.Errorf("a read: %v", err)
		}
	}
}

// TestAPIThatIsBusy checks that a client is asked for patience in a way that it understands:
// it tries again by itself.
func TestAPIThatIsBusy(t *testing.T) {
	var writes atomic.Int32
	api, c := before(t, &writes)
	api.Refuse(func(*http.Request) *proxy.Refusal {
		api.Refuse(nil)
		return &proxy.Refusal{Status: 429, Reason: metav1.StatusReasonTooManyRequests, RetryAfter: time.Second}
	})
	err := c.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "1"}})
	if err != nil || writes.Load() != 1 || api.Refused() != 1 {
		t.Errorf("throttled once: %v, %d writes, %d refused", err, writes.Load(), api.Refused())
	}
}
