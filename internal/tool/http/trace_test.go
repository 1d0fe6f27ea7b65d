package httptool_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	httptool "github.com/pawl-run/pawl/internal/tool/http"
)

// The trace goes along, what else is carried with it does not.
func TestTraceContext(t *testing.T) {
	var got http.Header
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer service.Close()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	member, err := baggage.NewMember("customer", "4711")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})
	s := newServer(t, httptool.Options{URL: service.URL})
	for name, tc := range map[string]struct {
		ctx                context.Context
		wantParent, wantSt string
	}{
		"traced":   {baggage.ContextWithBaggage(trace.ContextWithSpanContext(t.Context(), span), bag), "00-01000000000000000000000000000000-0200000000000000-01", "vendor=1"},
		"untraced": {t.Context(), "", ""},
	} {
		s.Call(tc.ctx, aCall())
		if got.Get("Traceparent") != tc.wantParent || got.Get("Tracestate") != tc.wantSt || got.Get("Baggage") != "" {
			t.Errorf("%s: headers %v", name, got)
		}
	}
}
