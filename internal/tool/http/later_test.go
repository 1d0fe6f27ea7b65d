package httptool_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
)

// later is a service that accepts calls and answers questions about them one by one.
func later(t *testing.T, location string, answers ...func(http.ResponseWriter)) (*httptool.Server, *[]http.Header) {
	t.Helper()
	var asked []http.Header
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refund", func(w http.ResponseWriter, _ *http.Request) {
		if location != "" {
			w.Header().Set("Location", location)
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /jobs/1", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header)
		answers[len(asked)-1](w)
	})
	service := httptest.NewServer(mux)
	t.Cleanup(service.Close)
	return newServer(t, httptool.Options{URL: service.URL}), &asked
}

func answers(code int, body string, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func TestAcceptedCallsGoOn(t *testing.T) {
	server, asked := later(t, "/jobs/1",
		answers(202, ""), answers(202, "", "Retry-After", "9"), answers(503, "busy"), answers(429, "", "Retry-After", "11"),
		answers(200, `{"refunded":5}`, "Effect-Id", "re_1"))
	out := server.Call(t.Context(), aCall())
	if out.Class != tool.ClassDeferred || out.Deferred.PollAfter != 7*time.Second {
		t.Fatalf("got %+v", out)
	}
	for i, want := range []time.Duration{0, 9 * time.Second, -1, 11 * time.Second} {
		got := server.Poll(t.Context(), aCall(), out.Deferred.Handle)
		if want < 0 {
			if got.Deferred != nil || !got.Retryable {
				t.Errorf("question %d: got %+v", i, got)
			}
			continue
		}
		if got.Deferred == nil || got.Deferred.PollAfter != want || got.Deferred.Handle != out.Deferred.Handle {
			t.Errorf("question %d: got %+v", i, got)
		}
	}
	want := tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: []byte(`{"refunded":5}`), Receipt: "re_1"}
	got := server.Poll(t.Context(), aCall(), out.Deferred.Handle)
	want.Size = got.Size
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if h := (*asked)[0]; h.Get("Pawl-Run-Uid") != "uid-1" || h.Get("Idempotency-Key") != "key-1" || h.Get("Pawl-Epoch") != "7" {
		t.Errorf("headers %v", h)
	}
}

// TestRefusedLater checks that an accepted call is refused by a verdict of the service's own
// alone: gateways, expired tokens and forgotten calls teach nothing.
func TestRefusedLater(t *testing.T) {
	for code := 400; code < 500; code++ {
		server, _ := later(t, "jobs/1",
			answers(code, `"no such order"`, "Content-Type", "application/problem+json"),
			answers(code, `"no such order"`, "Content-Type", "text/html"),
			answers(code, `"no such order"`, "Content-Type", "application/json", "Retry-After", "5"))
		handle := server.Call(t.Context(), aCall()).Deferred.Handle
		got := server.Poll(t.Context(), aCall(repeatable), handle)
		switch {
		case slices.Contains([]int{400, 402, 409, 412, 422, 424}, code):
			if got.Class != tool.ClassRejected || got.Effect != tool.EffectRejected || got.Retryable || string(got.Value) != `"no such order"` {
				t.Errorf("%d: got %+v", code, got)
			}
		case got.Effect == tool.EffectRejected || got.Class == tool.ClassRejected:
			t.Errorf("%d: got %+v", code, got)
		}
		for _, other := range []string{"a page", "one to come back to"} {
			if got := server.Poll(t.Context(), aCall(repeatable), handle); got.Effect == tool.EffectRejected || got.Class == tool.ClassRejected {
				t.Errorf("%d as %s: got %+v", code, other, got)
			}
		}
	}
}

// Credentials and questions go to the service alone, whatever it says or the journal holds.
func TestStatusURLsAreOfTheService(t *testing.T) {
	for _, location := range []string{"", "http://169.254.169.254/latest", "//other.example/jobs", "https://127.0.0.1/jobs/1", "ftp://x/y", "http://me:secret@127.0.0.1/", "http://%zz"} {
		server, asked := later(t, location)
		if out := server.Call(t.Context(), aCall()); out.Deferred != nil || out.Class != tool.ClassUnknown {
			t.Errorf("%q: got %+v", location, out)
		}
		if location == "" {
			continue
		}
		if out := server.Poll(t.Context(), aCall(), location); out.Deferred != nil || !out.Retryable || len(*asked) != 0 {
			t.Errorf("%q: polled, got %+v", location, out)
		}
	}
}

func TestPollsThatLearnNothing(t *testing.T) {
	server, _ := later(t, "/jobs/1", answers(500, ""), answers(302, "", "Location", "/elsewhere"), func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"cut`))
	}, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	out := server.Call(t.Context(), aCall())
	for i := range 4 {
		if got := server.Poll(t.Context(), aCall(), out.Deferred.Handle); !got.Retryable {
			t.Errorf("question %d: got %+v", i, got)
		}
	}
	if server.CancelDeferred(t.Context(), aCall(), out.Deferred.Handle) == nil {
		t.Error("a call was given up")
	}
}
