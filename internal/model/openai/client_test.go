package openai_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
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
	server.Enqueue(fakemodel.Answer{Body: fakemodel.Body(fakemodel.Chat, fakemodel.Text("42")), Header: http.Header{"X-Request-Id": {"req_9"}}})
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat) + "/", Model: "m", APIKey: func() (string, error) { return secret + "\n", nil }})
	got, err := client.Decide(t.Context(), question())
	if err != nil {
		t.Fatal(err)
	}
	checkReply(t, got)
	if got.Decision.Text != "42" || got.RequestID != "req_9" || !got.Usage.Reported {
		t.Errorf("got %+v", got)
	}
	sent := server.Requests()[0]
	want, err := client.Encode(question())
	if err != nil || string(sent.Body) != string(want) {
		t.Errorf("sent %s, Encode gives %s (%v)", sent.Body, want, err)
	}
	if sent.Header.Get("Content-Type") != "application/json" || sent.Header.Get("Idempotency-Key") != "" {
		t.Errorf("headers %v", sent.Header)
	}
}

func TestDecideWithoutKey(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	server.Enqueue(fakemodel.Text("42"))
	if _, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m"}).Decide(t.Context(), question()); err != nil {
		t.Fatal(err)
	}
	if header, ok := server.Requests()[0].Header["Authorization"]; ok {
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
			_, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m", APIKey: key}).Decide(t.Context(), question())
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
		"a server error":       {answer: fakemodel.ServerError(500), wantClass: model.ClassTransient, wantStatus: 500},
		"a bad gateway":        {answer: fakemodel.ServerError(502), wantClass: model.ClassTransient, wantStatus: 502},
		"a bad request":        {answer: fakemodel.Refuse(400, "invalid_value", "no"), wantClass: model.ClassRequest, wantStatus: 400},
		"cut before an answer": {answer: fakemodel.Cut(), wantClass: model.ClassTransient},
		"cut in the answer":    {answer: fakemodel.CutAfter(fakemodel.Text("42"), 20), wantClass: model.ClassTransient, wantStatus: 200},
		"no answer":            {answer: fakemodel.Hang(), wantClass: model.ClassTransient, timeout: 500 * time.Millisecond},
		"an answer that drips": {answer: fakemodel.Drip(fakemodel.Text("42"), 50*time.Millisecond), wantClass: model.ClassTransient, wantStatus: 200, timeout: time.Second},
		"a redirect":           {answer: fakemodel.Answer{Status: 307, Header: http.Header{"Location": {"/v1/chat/completions"}}}, wantClass: model.ClassRequest, wantStatus: 307},
		"a redirect to where":  {answer: fakemodel.Answer{Status: 302, Header: http.Header{"Location": {"http://%zz"}}}, wantClass: model.ClassRequest, wantStatus: 302},
		"a key that is quoted": {answer: fakemodel.Refuse(401, secret, "Incorrect key "+secret), wantClass: model.ClassUnauthorized, wantStatus: 401},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(test.answer, fakemodel.Text("a second request"))
			client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m", APIKey: key, Timeout: test.timeout})
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
	for name, body := range fakemodel.Garbage(fakemodel.Chat) {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Raw(body))
			got, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m"}).Decide(t.Context(), question())
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
			if got.Decision.Kind != model.KindInvalid {
				t.Errorf("got %+v", got.Decision)
			}
		})
	}
}

func TestDecideReplyTooLarge(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	large := fakemodel.Text(strings.Repeat("a", 5000))
	server.Enqueue(large, large)
	got, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m", MaxReplyBytes: 4000}).Decide(t.Context(), question())
	if err != nil || got.Decision.Code != model.CodeMalformed {
		t.Errorf("got %+v, %v", got.Decision, err)
	}
	got, err = newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m"}).Decide(t.Context(), question())
	if err != nil || got.Decision.Kind != model.KindFinal {
		t.Errorf("got %+v, %v", got.Decision, err)
	}
}

func TestDecideNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + listener.Addr().String()
	_ = listener.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	unknown := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "models.invalid", IsNotFound: true}}
	}}
	for name, config := range map[string]wire.Config{
		"refused":                  {Endpoint: refusing},
		"an untrusted certificate": {Endpoint: untrusted.URL},
		"TLS that is not spoken":   {Endpoint: strings.Replace(startServer(t, fakemodel.Options{}).Endpoint(fakemodel.Chat), "http:", "https:", 1)},
		"no such host":             {Endpoint: "http://models.invalid", Transport: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			config.Model = "m"
			_, err := newClient(t, config).Decide(t.Context(), question())
			failure := asError(t, err)
			if failure.Class != model.ClassTransient || failure.Sent || failure.Status != 0 || failure.Detail == "the connection failed" {
				t.Errorf("got %+v", failure)
			}
		})
	}
}

func TestDecideCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := startServer(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer {
		cancel()
		return fakemodel.Hang()
	}})
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m"})
	_, err := client.Decide(ctx, question())
	if failure := asError(t, err); failure.Class != model.ClassCanceled || !failure.Sent {
		t.Errorf("ended while waiting: got %+v", failure)
	}
	_, err = client.Decide(ctx, question())
	if failure := asError(t, err); failure.Class != model.ClassCanceled || failure.Sent || len(server.Requests()) != 1 {
		t.Errorf("ended before: got %+v after %d requests", failure, len(server.Requests()))
	}
}

// TestDecideOnAKeptConnection checks the case in which Go's transport would send a
// request again by itself: a kept connection that breaks.
func TestDecideOnAKeptConnection(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	server.Enqueue(fakemodel.Text("first"), fakemodel.Cut(), fakemodel.Text("a second request"))
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m"})
	if _, err := client.Decide(t.Context(), question()); err != nil {
		t.Fatal(err)
	}
	_, err := client.Decide(t.Context(), question())
	if failure := asError(t, err); failure.Class != model.ClassTransient || !failure.Sent {
		t.Errorf("got %+v", failure)
	}
	if n := len(server.Requests()); n != 2 {
		t.Errorf("%d requests were sent, want 2", n)
	}
}

// TestDecideTrustsTheBundle checks a server with a private certificate, by both
// versions of the protocol.
func TestDecideTrustsTheBundle(t *testing.T) {
	for version, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(version, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if requests.Add(1) > 1 {
					panic(http.ErrAbortHandler)
				}
				if r.Proto != version {
					t.Errorf("the request came by %s", r.Proto)
				}
				_, _ = w.Write(fakemodel.Body(fakemodel.Chat, fakemodel.Text("42")))
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			client := newClient(t, wire.Config{Endpoint: server.URL, Model: "m", CABundle: bundle})
			got, err := client.Decide(t.Context(), question())
			if err != nil || got.Decision.Text != "42" {
				t.Errorf("got %+v, %v", got.Decision, err)
			}
			_, err = client.Decide(t.Context(), question())
			if failure := asError(t, err); failure.Class != model.ClassTransient || !failure.Sent {
				t.Errorf("a request that was cut: got %+v", failure)
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("%d requests arrived, want 2", n)
			}
		})
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

// unreplayable checks the request that a transport is given.
type unreplayable struct{ t *testing.T }

func (u unreplayable) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody != nil {
		u.t.Error("the request can be sent again")
	}
	if r.URL.String() != "https://api.openai.com/v1/chat/completions" {
		u.t.Errorf("the default endpoint is %s", r.URL)
	}
	recorder := httptest.NewRecorder()
	_, _ = recorder.Write(fakemodel.Body(fakemodel.Chat, fakemodel.Text("42")))
	return recorder.Result(), nil
}

func TestDecideIsUnreplayable(t *testing.T) {
	if _, err := newClient(t, wire.Config{Model: "m", Transport: unreplayable{t}}).Decide(t.Context(), question()); err != nil {
		t.Fatal(err)
	}
}
