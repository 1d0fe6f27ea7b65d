package httptool_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

func newServer(t *testing.T, o httptool.Options) *httptool.Server {
	t.Helper()
	s, err := httptool.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func aCall(mods ...func(*tool.Call)) tool.Call {
	call := tool.Call{
		Tool: "refund", Arguments: json.RawMessage(`{"amount":9007199254740993}`), ID: "call-1", EffectKey: "key-1",
		Attempt: 2, Epoch: 7, RunNamespace: "shop", RunName: "order", RunUID: "uid-1", MaxResultBytes: 256,
	}
	for _, mod := range mods {
		mod(&call)
	}
	return call
}

func repeatable(call *tool.Call) { call.Repeatable = true }

// TestConflict checks that a conflict is the service's own refusal for a first attempt, and an
// attempt in flight for a later one.
func TestConflict(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `"it exists"`)
	}))
	defer service.Close()
	server := newServer(t, httptool.Options{URL: service.URL})
	first := server.Call(t.Context(), aCall(repeatable, func(call *tool.Call) { call.Attempt = 1 }))
	if first.Class != tool.ClassRejected || first.Effect != tool.EffectRejected || first.Retryable || string(first.Value) != `"it exists"` {
		t.Errorf("a first attempt: %+v", first)
	}
	again := server.Call(t.Context(), aCall(repeatable))
	if again.Class != tool.ClassThrottled || again.Effect != tool.EffectUnknown || !again.Retryable {
		t.Errorf("a second attempt: %+v", again)
	}
}

func TestRequest(t *testing.T) {
	type seen struct {
		Method, Path, Body string
		Header             map[string]string
		Close              bool
	}
	var got seen
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{Method: r.Method, Path: r.RequestURI, Body: string(body), Header: map[string]string{}, Close: r.Close}
		for name := range r.Header {
			got.Header[name] = r.Header.Get(name)
		}
		w.Header().Set("Effect-Id", "re_123")
		_, _ = io.WriteString(w, ` { "refunded" : 9007199254740993, "note": "a \" b" } `)
	}))
	defer service.Close()
	asked := 0
	s := newServer(t, httptool.Options{URL: service.URL + "/base/", Connection: transport.Options{Headers: func() (http.Header, error) {
		asked++
		return http.Header{
			"Authorization": {fmt.Sprintf("Bearer %d\n", asked)}, "Idempotency-Key": {"forged"}, "Content-Type": {"text/plain"},
			"Pawl-Epoch": {"99"}, "Host": {"evil"}, "Content-Length": {"1"},
		}, nil
	}}})
	for i := range 2 {
		out := s.Call(t.Context(), aCall())
		want := tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(`{"refunded":9007199254740993,"note":"a \" b"}`), Receipt: "re_123"}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
		wantSeen := seen{Method: "POST", Path: "/base/refund", Body: `{"amount":9007199254740993}`, Close: true, Header: map[string]string{
			"Content-Type": "application/json", "Accept": "application/json", "Idempotency-Key": "key-1", "Pawl-Run": "shop/order",
			"Pawl-Run-Uid": "uid-1", "Pawl-Call-Id": "call-1", "Pawl-Attempt": "2", "Pawl-Epoch": "7", "User-Agent": "pawl",
			"Authorization": fmt.Sprintf("Bearer %d", i+1), "Content-Length": "27", "Connection": "close",
		}}
		if diff := cmp.Diff(wantSeen, got); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
}

func TestAnswers(t *testing.T) {
	long := strings.Repeat("é", 300)
	for name, tc := range map[string]struct {
		status int
		body   string
		header map[string]string
		want   tool.Outcome
	}{
		"text":          {200, "hello", nil, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`"hello"`)}},
		"invalid utf-8": {200, "a\xffb", nil, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage("\"a\ufffdb\"")}},
		"duplicates":    {200, `{"a":1,"a":2}`, nil, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`"{\"a\":1,\"a\":2}"`)}},
		"scalar":        {201, "5", nil, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`5`)}},
		"empty":         {200, "", nil, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`null`)}},
		"no content":    {204, "", nil, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`null`)}},
		"accepted":      {202, "{}", nil, tool.Outcome{Class: "unknown", Effect: "unknown"}},
		"redirect":      {307, "", map[string]string{"Location": "/elsewhere"}, tool.Outcome{Class: "unknown", Effect: "unknown"}},
		"bad request":   {400, `{"error":"amount"}`, nil, tool.Outcome{Class: "rejected", Effect: "rejected", Value: json.RawMessage(`{"error":"amount"}`)}},
		"unauthorized":  {401, "who?", nil, tool.Outcome{Class: "rejected", Effect: "rejected", Value: json.RawMessage(`"who?"`)}},
		"not found":     {404, "", nil, tool.Outcome{Class: "rejected", Effect: "rejected", Value: json.RawMessage(`null`)}},
		"mismatch":      {422, "", nil, tool.Outcome{Class: "rejected", Effect: "rejected", Value: json.RawMessage(`null`)}},
		"in flight":     {409, "x", map[string]string{"Retry-After": "1"}, tool.Outcome{Class: "throttled", Effect: "unknown", RetryAfter: time.Second}},
		"gave up":       {408, "x", nil, tool.Outcome{Class: "timeout", Effect: "unknown"}},
		"too early":     {425, "x", nil, tool.Outcome{Class: "throttled", Effect: "rejected"}},
		"too many":      {429, "x", map[string]string{"Retry-After": "7"}, tool.Outcome{Class: "throttled", Effect: "rejected", RetryAfter: 7 * time.Second}},
		"absurd wait":   {429, "x", map[string]string{"Retry-After": "99999999999"}, tool.Outcome{Class: "throttled", Effect: "rejected", RetryAfter: 24 * time.Hour}},
		"broken":        {500, "oops", nil, tool.Outcome{Class: "unknown", Effect: "unknown"}},
		"unavailable":   {503, "", map[string]string{"Retry-After": "3"}, tool.Outcome{Class: "unknown", Effect: "unknown", RetryAfter: 3 * time.Second}},
		"receipt":       {200, "1", map[string]string{"Effect-Id": strings.Repeat("x", 500)}, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`1`), Receipt: strings.Repeat("x", 253) + "…"}},
		"long": {200, long, nil, tool.Outcome{Class: "ok", Effect: "committed", Truncated: true, Size: 600,
			Value: json.RawMessage(`"` + strings.Repeat("é", 128) + `\n[cut here: the first 256 of at least 600 bytes; ask for less]"`)}},
		"long json": {200, `{"a":"` + long + `"}`, nil, tool.Outcome{Class: "ok", Effect: "committed", Truncated: true, Size: 608,
			Value: json.RawMessage(`"{\"a\":\"` + strings.Repeat("é", 123) + `\n[cut here: the first 252 of at least 608 bytes; ask for less]"`)}},
		"long when escaped": {200, strings.Repeat("\x01", 100), nil, tool.Outcome{Class: "ok", Effect: "committed", Truncated: true, Size: 100,
			Value: json.RawMessage(`"` + strings.Repeat(`\u0001`, 42) + `\n[cut here: the first 42 of at least 100 bytes; ask for less]"`)}},
		"long error": {400, long, nil, tool.Outcome{Class: "rejected", Effect: "rejected", Truncated: true, Size: 600,
			Value: json.RawMessage(`"` + strings.Repeat("é", 128) + `\n[cut here: the first 256 of at least 600 bytes; ask for less]"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				for name, value := range tc.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer service.Close()
			s := newServer(t, httptool.Options{URL: service.URL})
			for _, call := range []tool.Call{aCall(), aCall(repeatable)} {
				requests = 0
				out := s.Call(t.Context(), call)
				if requests != 1 {
					t.Errorf("%d requests", requests)
				}
				if (out.Class == tool.ClassOK) != (out.Message == "") {
					t.Errorf("class %s with message %q", out.Class, out.Message)
				}
				if !json.Valid(out.Value) && out.Value != nil {
					t.Errorf("value %q is not JSON", out.Value)
				}
				out.Message = ""
				want := tc.want
				again := want.Class == tool.ClassThrottled || want.Class == tool.ClassTimeout || want.Class == tool.ClassUnknown && tc.status != 307
				want.Retryable = call.Repeatable && again
				if diff := cmp.Diff(want, out); diff != "" {
					t.Errorf("repeatable %v: outcome (-want +got):\n%s", call.Repeatable, diff)
				}
			}
		})
	}
}

func TestNotSent(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	gated := transport.WithGate(t.Context(), func() error { return errors.New("no longer the owner") })
	noHeaders := func() (http.Header, error) { return nil, errors.New("secret s3cr3t not found") }
	badHeader := func() (http.Header, error) { return http.Header{"Authorization": {"s3cr3t\nx"}}, nil }
	for name, tc := range map[string]struct {
		ctx  context.Context
		o    httptool.Options
		call tool.Call
		want tool.Class
		text string
	}{
		"refused":        {t.Context(), httptool.Options{URL: "http://" + closed.Addr().String()}, aCall(), "transport", "refused"},
		"unknown host":   {t.Context(), httptool.Options{URL: "http://no.such.host.invalid"}, aCall(), "transport", "can't be resolved"},
		"not TLS":        {t.Context(), httptool.Options{URL: "https://" + plain.Listener.Addr().String()}, aCall(), "transport", "TLS"},
		"not trusted":    {t.Context(), httptool.Options{URL: secure.URL}, aCall(), "transport", "not trusted"},
		"cancelled":      {cancelled, httptool.Options{URL: plain.URL}, aCall(), "not_run", "cancelled"},
		"late":           {late, httptool.Options{URL: plain.URL}, aCall(), "timeout", "in time"},
		"gate":           {gated, httptool.Options{URL: plain.URL}, aCall(), "not_run", "lapsed"},
		"no headers":     {t.Context(), httptool.Options{URL: plain.URL, Connection: transport.Options{Headers: noHeaders}}, aCall(), "transport", "headers"},
		"invalid header": {t.Context(), httptool.Options{URL: plain.URL, Connection: transport.Options{Headers: badHeader}}, aCall(), "transport", "headers"},
		"path traversal": {t.Context(), httptool.Options{URL: plain.URL}, aCall(func(c *tool.Call) { c.Tool = "../admin" }), "not_run", "name"},
		"dots":           {t.Context(), httptool.Options{URL: plain.URL}, aCall(func(c *tool.Call) { c.Tool = ".." }), "not_run", "name"},
		"query":          {t.Context(), httptool.Options{URL: plain.URL}, aCall(func(c *tool.Call) { c.Tool = "a?b=c" }), "not_run", "name"},
		"no tool":        {t.Context(), httptool.Options{URL: plain.URL}, aCall(func(c *tool.Call) { c.Tool = "" }), "not_run", "name"},
		"bad key":        {t.Context(), httptool.Options{URL: plain.URL}, aCall(func(c *tool.Call) { c.EffectKey = "a\nb" }), "transport", "not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tc.o)
			for _, again := range []bool{false, true} {
				tc.call.Repeatable = again
				out := s.Call(tc.ctx, tc.call)
				if out.Class != tc.want || out.Effect != tool.EffectRejected || !strings.Contains(out.Message, tc.text) {
					t.Errorf("outcome %+v, want class %s, rejected, a message with %q", out, tc.want, tc.text)
				}
				if strings.Contains(out.Message, "s3cr3t") {
					t.Errorf("a secret in %q", out.Message)
				}
			}
		})
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	arrived := make(chan struct{}, 8)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(w, `{"a":`)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	defer service.Close()
	s := newServer(t, httptool.Options{URL: service.URL})
	for _, name := range []string{"none", "half"} {
		call := aCall(repeatable, func(c *tool.Call) { c.Tool = name })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		out := s.Call(ctx, call)
		cancel()
		<-arrived
		if out.Class != tool.ClassTimeout || out.Effect != tool.EffectUnknown || !out.Retryable {
			t.Errorf("%s: timeout gives %+v", name, out)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		out = s.Call(ctx, call)
		if out.Class != tool.ClassUnknown || out.Effect != tool.EffectUnknown || out.Retryable {
			t.Errorf("%s: cancelling gives %+v", name, out)
		}
	}
}

func TestCABundle(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) }))
	defer secure.Close()
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	s := newServer(t, httptool.Options{URL: secure.URL, Connection: transport.Options{CABundle: bundle}})
	for _, call := range []tool.Call{aCall(), aCall(repeatable), aCall(repeatable)} {
		if out := s.Call(t.Context(), call); out.Class != tool.ClassOK {
			t.Errorf("outcome %+v", out)
		}
	}
	if _, err := httptool.New(httptool.Options{URL: secure.URL, Connection: transport.Options{CABundle: []byte("nonsense")}}); err == nil {
		t.Error("a CA bundle without certificates was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "host/path", "ftp://h/", "http://u:p@h/", "http://h/?q=1", "http://h/?", "http://h/#f", "http://%zz/"} {
		if _, err := httptool.New(httptool.Options{URL: url}); err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("New(%q): %v", url, err)
		}
	}
	if _, err := httptool.New(httptool.Options{URL: "http://h", Tools: []tool.Definition{{Name: "a/b"}}}); err == nil {
		t.Error("a tool name with a slash was accepted")
	}
}

func TestList(t *testing.T) {
	s := newServer(t, httptool.Options{URL: "http://h", Tools: []tool.Definition{{Name: "b"}, {Name: "a", Description: "x"}}})
	got, err := s.List(t.Context())
	if err != nil || !cmp.Equal(got, tool.Listing{Tools: []tool.Definition{{Name: "a", Description: "x"}, {Name: "b"}}}) {
		t.Errorf("List = %v, %v", got, err)
	}
}

// What the model was shown is what is called, or nothing is.
func TestChangedDefinition(t *testing.T) {
	requests := 0
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer service.Close()
	s := newServer(t, httptool.Options{URL: service.URL, Tools: []tool.Definition{{Name: "refund", Description: "now"}}})
	for digest, want := range map[string]tool.Class{
		"": tool.ClassOK, tool.Definition{Description: "now"}.Digest("billing.refund"): tool.ClassOK,
		tool.Definition{Description: "before"}.Digest("billing.refund"): tool.ClassDenied,
	} {
		before := requests
		call := aCall()
		call.FullName, call.Digest = "billing.refund", digest
		out := s.Call(t.Context(), call)
		if out.Class != want || (requests > before) != (want == tool.ClassOK) {
			t.Errorf("digest %q: outcome %+v after %d requests", digest, out, requests-before)
		}
	}
	call := aCall()
	call.Tool, call.Digest = "other", "x"
	if out := s.Call(t.Context(), call); out.Class != tool.ClassValidation || out.Effect != tool.EffectRejected {
		t.Errorf("a tool that is gone: %+v", out)
	}
}
