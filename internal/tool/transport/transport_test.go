package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "x": 0, "-5": 0, " 3 ": 3 * time.Second, "1.5": 0, "999999999999": 24 * time.Hour, "99999999999999999999": 0,
		"Tue, 01 Dec 2026 12:01:00 GMT": time.Minute, "Tue, 01 Dec 2026 11:00:00 GMT": 0, "Tue, 01 Dec 2099 11:00:00 GMT": 24 * time.Hour,
	} {
		if got := transport.RetryAfter(header, now); got != want {
			t.Errorf("RetryAfter(%q) = %v, want %v", header, got, want)
		}
	}
}

// Whatever a body holds, its value is one JSON value within the bound and a sentence.
func TestValuesAreBoundedJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		if rapid.Bool().Draw(t, "text") {
			body = []byte(rapid.String().Draw(t, "string"))
		}
		bound := rapid.IntRange(64, 128).Draw(t, "bound")
		resp := &http.Response{Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: -1}
		value, err := transport.ReadValue(resp, bound)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := strictjson.Parse(value.JSON, strictjson.Limits{}); err != nil {
			t.Fatalf("value %q of body %q: %v", value.JSON, body, err)
		}
		if len(value.JSON) > bound+100 {
			t.Fatalf("value of %d bytes, bound %d", len(value.JSON), bound)
		}
		var text string
		if value.Truncated && (json.Unmarshal(value.JSON, &text) != nil || !strings.Contains(text, "[cut here: the first ")) {
			t.Fatalf("value %q doesn't say that it was cut", value.JSON)
		}
		if value.Truncated == (value.Size == 0) {
			t.Fatalf("truncated %v with size %d", value.Truncated, value.Size)
		}
	})
}

func newRequest(ctx context.Context, url string) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	req.Header.Set("Idempotency-Key", "k")
	return req
}

// Cancelling at any moment: whoever says that nothing was sent is right.
func TestNotSentIsTrue(t *testing.T) {
	var arrived sync.Map
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Store(r.Header.Get("Idempotency-Key"), true)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer service.Close()
	client, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var notSent []string
	for i := range 600 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range i * 10 {
				_ = ctx.Err()
			}
			cancel()
		}()
		req := newRequest(ctx, service.URL)
		req.Header.Set("Idempotency-Key", strconv.Itoa(i))
		resp, sending, err := client.Send(req, i%2 == 0)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !sending.MayHaveArrived() {
			notSent = append(notSent, strconv.Itoa(i))
		}
		cancel()
	}
	time.Sleep(100 * time.Millisecond)
	for _, key := range notSent {
		if _, ok := arrived.Load(key); ok {
			t.Errorf("request %s arrived that was not sent", key)
		}
	}
	t.Logf("%d of 600 were not sent", len(notSent))
}

func TestGate(t *testing.T) {
	arrived := 0
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived++ }))
	defer service.Close()
	client, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked := 0
	var verdict error
	ctx := transport.WithGate(t.Context(), func() error { asked++; return verdict })
	resp, _, err := client.Send(newRequest(ctx, service.URL), false)
	if err != nil || asked != 1 || arrived != 1 {
		t.Fatalf("open gate: %v, asked %d times, %d requests", err, asked, arrived)
	}
	_ = resp.Body.Close()
	verdict = errors.New("too late")
	_, sending, err := client.Send(newRequest(ctx, service.URL), false)
	if err == nil || asked != 2 || arrived != 1 || sending.MayHaveArrived() || sending.Refused() == nil {
		t.Errorf("closed gate: %v, asked %d times, %d requests", err, asked, arrived)
	}
	out := transport.Failed(ctx, tool.Call{}, sending, err)
	if out.Class != tool.ClassNotRun || out.Effect != tool.EffectRejected {
		t.Errorf("outcome %+v", out)
	}
}

// Without its configured headers a request is not sent.
func TestHeadersFail(t *testing.T) {
	var arrived atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer service.Close()
	client, err := transport.New(transport.Options{Headers: func() (http.Header, error) { return nil, fmt.Errorf("no secret") }})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, sending, err := client.Send(newRequest(t.Context(), service.URL), true)
	if !errors.Is(err, transport.ErrHeaders) || sending.MayHaveArrived() || arrived.Load() != 0 {
		t.Errorf("error %v, %d requests", err, arrived.Load())
	}
}
