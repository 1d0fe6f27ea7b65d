package gemini_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func startServer(t *testing.T, options fakemodel.Options) *fakemodel.Server {
	t.Helper()
	server, err := fakemodel.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func key() (string, error) { return secret, nil }

func question() model.Request {
	return model.Request{Decision: 1, Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, MaxOutputTokens: 100}
}

func TestDecide(t *testing.T) {
	server := startServer(t, fakemodel.Options{Key: secret})
	server.Enqueue(fakemodel.Text("42"))
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini) + "/", Model: "models/gemini-2.5-flash", APIKey: func() (string, error) { return secret + "\n", nil }})
	got, err := client.Decide(t.Context(), question())
	if err != nil {
		t.Fatal(err)
	}
	checkReply(t, got)
	if got.Decision.Text != "42" || got.RequestID != "response-test" || got.StopReason != "STOP" || !got.Usage.Reported {
		t.Errorf("got %+v", got)
	}
	sent := server.Requests()[0]
	want, err := client.Encode(question())
	if err != nil || string(sent.Body) != string(want) {
		t.Errorf("sent %s, Encode gives %s (%v)", sent.Body, want, err)
	}
	if sent.Model != "gemini-2.5-flash" || strings.Contains(sent.URL.String(), secret) || sent.Header.Get("Authorization") != "" || sent.Header.Get("Idempotency-Key") != "" {
		t.Errorf("sent to %s with headers %v", sent.URL, sent.Header)
	}
}

func TestDecideWithoutKey(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	server.Enqueue(fakemodel.Text("42"))
	if _, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: "m"}).Decide(t.Context(), question()); err != nil {
		t.Fatal(err)
	}
	if header, ok := server.Requests()[0].Header["X-Goog-Api-Key"]; ok {
		t.Errorf("sent %v without a key", header)
	}
}

func TestDecideBadKeys(t *testing.T) {
	for name, key := range map[string]func() (string, error){
		"an error":     func() (string, error) { return "", errors.New("secret " + secret) },
		"empty":        func() (string, error) { return " \n", nil },
		"two lines":    func() (string, error) { return secret + "\nx", nil },
		"not of ASCII": func() (string, error) { return secret + "é", nil },
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			_, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: "m", APIKey: key}).Decide(t.Context(), question())
			failure := asError(t, err)
			if failure.Class != model.ClassUnauthorized || failure.Sent || len(server.Requests()) != 0 {
				t.Errorf("got class %s, sent %v, %d requests", failure.Class, failure.Sent, len(server.Requests()))
			}
		})
	}
}

// TestDecideFailures checks each failure on a real connection, and that one failure is
// one request.
func TestDecideFailures(t *testing.T) {
	tests := map[string]struct {
		answer     fakemodel.Answer
		wantClass  model.Class
		wantStatus int
		wantWait   time.Duration
		// timeout is long unless running into it is the point.
		timeout time.Duration
	}{
		"throttled":            {answer: fakemodel.Throttled(3 * time.Second), wantClass: model.ClassThrottled, wantStatus: 429, wantWait: 3 * time.Second},
		"out of quota":         {answer: fakemodel.OutOfQuota(), wantClass: model.ClassQuota, wantStatus: 429},
		"too long":             {answer: fakemodel.TooLong(), wantClass: model.ClassOverflow, wantStatus: 400},
		"overloaded":           {answer: fakemodel.Overloaded(), wantClass: model.ClassTransient, wantStatus: 503},
		"a server error":       {answer: fakemodel.ServerError(500), wantClass: model.ClassTransient, wantStatus: 500},
		"a bad gateway":        {answer: fakemodel.ServerError(502), wantClass: model.ClassTransient, wantStatus: 502},
		"a bad request":        {answer: fakemodel.Refuse(400, "INVALID_ARGUMENT", "no"), wantClass: model.ClassRequest, wantStatus: 400},
		"a bad key":            {answer: fakemodel.Answer{Trouble: &fakemodel.Trouble{Kind: fakemodel.TroubleKey, Message: secret}}, wantClass: model.ClassUnauthorized, wantStatus: 400},
		"a key that is quoted": {answer: fakemodel.Refuse(401, secret, "Incorrect key "+secret), wantClass: model.ClassUnauthorized, wantStatus: 401},
		"cut before an answer": {answer: fakemodel.Cut(), wantClass: model.ClassTransient},
		"cut in the answer":    {answer: fakemodel.CutAfter(fakemodel.Text("42"), 20), wantClass: model.ClassTransient, wantStatus: 200},
		"no answer":            {answer: fakemodel.Hang(), wantClass: model.ClassTransient, timeout: 500 * time.Millisecond},
		"a redirect":           {answer: fakemodel.Answer{Status: 307, Header: http.Header{"Location": {"/v1beta/models/m:generateContent"}}}, wantClass: model.ClassRequest, wantStatus: 307},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(test.answer, fakemodel.Text("a second request"))
			client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: "m", APIKey: key, Timeout: test.timeout})
			_, err := client.Decide(t.Context(), question())
			failure := asError(t, err)
			if failure.Class != test.wantClass || failure.Status != test.wantStatus || failure.RetryAfter != test.wantWait || !failure.Sent {
				t.Errorf("got %+v", failure)
			}
			if n := len(server.Requests()); n != 1 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func TestDecideGarbage(t *testing.T) {
	for name, body := range fakemodel.Garbage(fakemodel.Gemini) {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Raw(body))
			got, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: "m"}).Decide(t.Context(), question())
			if slices.Contains(fakemodel.NoReplies, name) {
				if failure := asError(t, err); failure.Class != model.ClassTransient || failure.Status != 200 || !failure.Sent {
					t.Errorf("got %+v", failure)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkReply(t, got)
			if got.Decision.Kind != model.KindInvalid || got.Decision.Code != model.CodeMalformed || got.Usage.Reported {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestDecideReplyTooLarge(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	server.Enqueue(fakemodel.Text(strings.Repeat("a", 5000)))
	got, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: "m", MaxReplyBytes: 4000}).Decide(t.Context(), question())
	if err != nil || got.Decision.Code != model.CodeMalformed {
		t.Errorf("got %+v, %v", got.Decision, err)
	}
}

func TestDecideCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := startServer(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer {
		cancel()
		return fakemodel.Hang()
	}})
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: "m"})
	_, err := client.Decide(ctx, question())
	if failure := asError(t, err); failure.Class != model.ClassCanceled || !failure.Sent {
		t.Errorf("ended while waiting: got %+v", failure)
	}
	_, err = client.Decide(ctx, question())
	if failure := asError(t, err); failure.Class != model.ClassCanceled || failure.Sent || len(server.Requests()) != 1 {
		t.Errorf("ended before: got %+v after %d requests", failure, len(server.Requests()))
	}
}

// broken is a transport that runs no hooks, so that nothing is known about sending.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("broken " + secret)
}

func TestDecideInjectedTransport(t *testing.T) {
	_, err := newClient(t, wire.Config{Model: "m", APIKey: key, Transport: broken{}}).Decide(t.Context(), question())
	if failure := asError(t, err); failure.Class != model.ClassTransient || !failure.Sent {
		t.Errorf("got %+v", failure)
	}
}

// watched notes where requests go, and that none can be sent twice.
type watched struct {
	t   *testing.T
	url string
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody != nil {
		w.t.Error("the request can be sent again")
	}
	w.url = r.URL.String()
	recorder := httptest.NewRecorder()
	_, _ = recorder.Write(fakemodel.Body(fakemodel.Gemini, fakemodel.Text("42")))
	return recorder.Result(), nil
}

// TestDecideAddresses checks where requests go by default.
func TestDecideAddresses(t *testing.T) {
	vertexIn := func(location string) wire.Platform {
		return wire.Platform{Vertex: &wire.Vertex{Project: "my-project", Location: location}}
	}
	for want, config := range map[string]wire.Config{
		"https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:generateContent":                                                                   {Model: "gemini-3-pro"},
		"https://generativelanguage.googleapis.com/v1beta/models/..%2Fx%3Fy%23z:generateContent":                                                                 {Model: "../x?y#z"},
		"https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/google/models/gemini-3-pro:generateContent":                        {Model: "models/gemini-3-pro", Platform: vertexIn("global")},
		"https://europe-west1-aiplatform.googleapis.com/v1/projects/my-project/locations/europe-west1/publishers/google/models/gemini-2.5-flash:generateContent": {Model: "gemini-2.5-flash", Platform: vertexIn("europe-west1")},
	} {
		transport := &watched{t: t}
		config.Transport, config.APIKey = transport, key
		if _, err := newClient(t, config).Decide(t.Context(), question()); err != nil {
			t.Fatal(err)
		}
		if transport.url != want {
			t.Errorf("model %s: asked %s, want %s", config.Model, transport.url, want)
		}
	}
}
