package openaiapi_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

const secret = "sk-test-0123456789"

func key() (string, error) { return secret, nil }

// client is what both wires' clients are.
type client interface {
	model.Client
	Encode(request model.Request) ([]byte, error)
	CloseIdleConnections()
}

// spoken is a wire of the vendor's.
type spoken struct {
	wire      fakemodel.Wire
	operation string
	open      func(wire.Config) (client, error)
}

var wires = map[string]spoken{
	"Chat Completions": {fakemodel.Chat, "/chat/completions", func(c wire.Config) (client, error) { return openai.New(c) }},
	"Responses":        {fakemodel.Responses, "/responses", func(c wire.Config) (client, error) { return responses.New(c) }},
}

func (s spoken) client(t *testing.T, config wire.Config) client {
	t.Helper()
	c, err := s.open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// onEach runs a test on both wires.
func onEach(t *testing.T, test func(t *testing.T, s spoken)) {
	for name, s := range wires {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func startServer(t *testing.T, options fakemodel.Options) *fakemodel.Server {
	t.Helper()
	server, err := fakemodel.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	var failure *model.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a *model.Error", err)
	}
	if strings.Contains(failure.Error(), secret) {
		t.Errorf("the error holds the key: %v", failure)
	}
	return failure
}

func question() model.Request {
	return model.Request{
		Decision: 1, System: "Be <brief>.", Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}},
		Tools:           []model.Tool{{Name: "crm.lookup", Alias: "lookup", InputSchema: json.RawMessage(`{"type": "object"}`)}},
		MaxOutputTokens: 100, Conversation: "run-1",
	}
}

// seen keeps the request that a transport is given, and answers it.
type seen struct {
	request *http.Request
	body    []byte
	answer  []byte
}

func (s *seen) RoundTrip(r *http.Request) (*http.Response, error) {
	s.request = r
	s.body, _ = io.ReadAll(r.Body)
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	_, _ = recorder.Write(s.answer)
	return recorder.Result(), nil
}

// check compares all that was sent beside the body.
func (s *seen) check(t *testing.T, url string, header http.Header) {
	t.Helper()
	r := s.request
	if r.Method != http.MethodPost || r.URL.String() != url || (r.Host != "" && r.Host != r.URL.Host) {
		t.Errorf("got %s %s for %q, want %s", r.Method, r.URL, r.Host, url)
	}
	if diff := cmp.Diff(header, r.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if r.GetBody != nil {
		t.Error("the request can be sent again")
	}
}

// TestRequest checks the whole request that leaves: address, headers, bytes. Nothing in it
// comes from the SDK's own ideas or from the environment.
func TestRequest(t *testing.T) {
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "ambient", "OPENAI_ADMIN_KEY": "ambient", "OPENAI_ORG_ID": "ambient", "OPENAI_PROJECT_ID": "ambient",
		"OPENAI_BASE_URL": "https://ambient.example.com/v1", "OPENAI_CUSTOM_HEADERS": "X-Ambient: ambient", "OPENAI_LOG": "debug",
		"AZURE_OPENAI_API_KEY": "ambient", "AZURE_OPENAI_ENDPOINT": "https://ambient.example.com",
	} {
		t.Setenv(name, value)
	}
	azure := func(version string) wire.Platform { return wire.Platform{Azure: &wire.Azure{APIVersion: version}} }
	bearer := http.Header{"Authorization": {"Bearer " + secret}}
	apiKey := http.Header{"Api-Key": {secret}}
	resource := "https://x.openai.azure.com"
	tests := map[string]struct {
		config wire.Config
		// urls by operation.
		urls   map[string]string
		header http.Header
	}{
		"the vendor": {wire.Config{APIKey: key}, map[string]string{
			"/chat/completions": "https://api.openai.com/v1/chat/completions", "/responses": "https://api.openai.com/v1/responses",
		}, bearer},
		"a compatible server": {wire.Config{Endpoint: "http://vllm.svc:8000/v1/"}, map[string]string{
			"/chat/completions": "http://vllm.svc:8000/v1/chat/completions", "/responses": "http://vllm.svc:8000/v1/responses",
		}, nil},
		"a server without a path": {wire.Config{Endpoint: "http://vllm.svc", APIKey: key}, map[string]string{
			"/chat/completions": "http://vllm.svc/chat/completions", "/responses": "http://vllm.svc/responses",
		}, bearer},
		"the platform": {wire.Config{Endpoint: resource, APIKey: key, Platform: azure("")}, map[string]string{
			"/chat/completions": resource + "/openai/v1/chat/completions", "/responses": resource + "/openai/v1/responses",
		}, apiKey},
		"the platform, as its portal shows it": {wire.Config{Endpoint: resource + "/openai/v1/", APIKey: key, Platform: azure("")}, map[string]string{
			"/chat/completions": resource + "/openai/v1/chat/completions", "/responses": resource + "/openai/v1/responses",
		}, apiKey},
		"the platform behind a gateway": {wire.Config{Endpoint: "https://gateway.example.com/ai/", APIKey: key, Platform: azure("")}, map[string]string{
			"/chat/completions": "https://gateway.example.com/ai/openai/v1/chat/completions", "/responses": "https://gateway.example.com/ai/openai/v1/responses",
		}, apiKey},
		"a dated version of the platform": {wire.Config{Endpoint: resource, APIKey: key, Platform: azure("2024-10-21")}, map[string]string{
			"/chat/completions": resource + "/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21",
			"/responses":        resource + "/openai/responses?api-version=2024-10-21",
		}, apiKey},
		"a version of the platform that moves on": {wire.Config{Endpoint: resource, APIKey: key, Platform: azure("preview")}, map[string]string{
			"/chat/completions": resource + "/openai/v1/chat/completions?api-version=preview",
			"/responses":        resource + "/openai/v1/responses?api-version=preview",
		}, apiKey},
		"a token of the platform": {
			wire.Config{Endpoint: resource, APIKey: func() (string, error) { return "Bearer " + secret + "\n", nil }, Platform: azure("2024-10-21")},
			map[string]string{
				"/chat/completions": resource + "/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21",
				"/responses":        resource + "/openai/responses?api-version=2024-10-21",
			}, bearer,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s spoken) {
				transport := &seen{answer: fakemodel.Body(s.wire, fakemodel.Text("42"))}
				test.config.Model, test.config.Transport = "my-deployment", transport
				c := s.client(t, test.config)
				got, err := c.Decide(t.Context(), question())
				if err != nil || got.Decision.Text != "42" {
					t.Fatalf("got %+v, %v", got, err)
				}
				want := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"pawl"}}
				maps.Copy(want, test.header)
				transport.check(t, test.urls[s.operation], want)
				body, err := c.Encode(question())
				if err != nil || string(body) != string(transport.body) || transport.request.ContentLength != int64(len(body)) {
					t.Errorf("sent %d bytes %s\nEncode gives %s (%v)", transport.request.ContentLength, transport.body, body, err)
				}
			})
		})
	}
}

// TestCredentials checks what can't be sent.
func TestCredentials(t *testing.T) {
	azure := wire.Platform{Azure: &wire.Azure{}}
	for name, test := range map[string]struct {
		credential string
		platform   wire.Platform
	}{
		"nothing":               {" \n", wire.Platform{}},
		"a token at the vendor": {"Bearer " + secret, wire.Platform{}},
		"two lines":             {secret + "\nx", azure},
		"a key with a space":    {"my " + secret, azure},
		"a token with a space":  {"Bearer my " + secret, azure},
		"two tokens":            {"Bearer Bearer " + secret, azure},
		"not of ASCII":          {"Bearer " + secret + "é", azure},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s spoken) {
				server := startServer(t, fakemodel.Options{})
				c := s.client(t, wire.Config{
					Endpoint: server.Root(), Model: "m", Platform: test.platform, APIKey: func() (string, error) { return test.credential, nil },
				})
				_, err := c.Decide(t.Context(), question())
				if failure := asError(t, err); failure.Class != model.ClassUnauthorized || failure.Sent || len(server.Requests()) != 0 {
					t.Errorf("got %+v after %d requests", failure, len(server.Requests()))
				}
			})
		})
	}
}

// TestPlatform runs a conversation on a server that checks what the platform checks.
func TestPlatform(t *testing.T) {
	for version, credential := range map[string]string{"": secret, "preview": secret, "2024-10-21": secret, "2025-03-01-preview": "Bearer " + secret} {
		t.Run(version+" "+credential, func(t *testing.T) {
			onEach(t, func(t *testing.T, s spoken) {
				server := startServer(t, fakemodel.Options{Key: secret})
				server.Enqueue(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), fakemodel.Text("42"))
				c := s.client(t, wire.Config{
					Endpoint: server.Root(), Model: "my-deployment", Platform: wire.Platform{Azure: &wire.Azure{APIVersion: version}},
					APIKey: func() (string, error) { return credential, nil },
				})
				request := question()
				got, err := c.Decide(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				request.Messages = append(request.Messages,
					model.Message{Role: model.RoleAssistant, Calls: got.Decision.Calls, Raw: got.Raw},
					model.Message{Role: model.RoleTool, CallID: got.Decision.Calls[0].ID, Text: "1"})
				got, err = c.Decide(t.Context(), request)
				if err != nil || got.Decision.Text != "42" || len(server.Refusals()) != 0 {
					t.Errorf("got %+v, %v; %v", got, err, server.Refusals())
				}
			})
		})
	}
}

// TestOneAttempt checks on real connections that nothing is sent twice, whatever the SDK
// would do about an answer, and that no answer is waited for.
func TestOneAttempt(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	defer elsewhere.Close()
	retry := http.Header{"X-Should-Retry": {"true"}, "Retry-After-Ms": {"1"}}
	tests := map[string]struct {
		answer     fakemodel.Answer
		wantClass  model.Class
		wantStatus int
		timeout    time.Duration
	}{
		"throttled":          {fakemodel.Answer{Trouble: &fakemodel.Trouble{Kind: fakemodel.TroubleThrottled}, Header: retry}, model.ClassThrottled, 429, 0},
		"a server error":     {fakemodel.Answer{Status: 500, Header: retry}, model.ClassTransient, 500, 0},
		"a conflict":         {fakemodel.Answer{Status: 409, Header: retry}, model.ClassTransient, 409, 0},
		"a bad request":      {fakemodel.Refuse(400, "invalid_value", "no"), model.ClassRequest, 400, 0},
		"a quoted key":       {fakemodel.Refuse(401, secret, "Incorrect key "+secret), model.ClassUnauthorized, 401, 0},
		"cut":                {fakemodel.Cut(), model.ClassTransient, 0, 0},
		"cut in the answer":  {fakemodel.CutAfter(fakemodel.Text("42"), 20), model.ClassTransient, 200, 0},
		"no answer":          {fakemodel.Hang(), model.ClassTransient, 0, 500 * time.Millisecond},
		"an answer in drops": {fakemodel.Drip(fakemodel.Text("42"), 50*time.Millisecond), model.ClassTransient, 200, time.Second},
		"a redirect":         {fakemodel.Answer{Status: 307, Header: http.Header{"Location": {elsewhere.URL}}}, model.ClassRequest, 307, 0},
		"a redirect by GET":  {fakemodel.Answer{Status: 302, Header: http.Header{"Location": {elsewhere.URL}}}, model.ClassRequest, 302, 0},
		"a redirect astray":  {fakemodel.Answer{Status: 302, Header: http.Header{"Location": {"http://%zz"}}}, model.ClassRequest, 302, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s spoken) {
				server := startServer(t, fakemodel.Options{})
				server.Enqueue(test.answer, fakemodel.Text("a second request"))
				c := s.client(t, wire.Config{Endpoint: server.Endpoint(s.wire), Model: "m", APIKey: key, Timeout: test.timeout})
				_, err := c.Decide(t.Context(), question())
				failure := asError(t, err)
				if failure.Class != test.wantClass || failure.Status != test.wantStatus || !failure.Sent || len(server.Requests()) != 1 {
					t.Errorf("got %+v after %d requests", failure, len(server.Requests()))
				}
			})
		})
	}
}

// TestCanceled checks that giving up ends the request at once.
func TestCanceled(t *testing.T) {
	onEach(t, func(t *testing.T, s spoken) {
		ctx, cancel := context.WithCancel(t.Context())
		server := startServer(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer {
			cancel()
			return fakemodel.Hang()
		}})
		c := s.client(t, wire.Config{Endpoint: server.Endpoint(s.wire), Model: "m"})
		_, err := c.Decide(ctx, question())
		if failure := asError(t, err); failure.Class != model.ClassCanceled || !failure.Sent {
			t.Errorf("ended while waiting: got %+v", failure)
		}
		_, err = c.Decide(ctx, question())
		if failure := asError(t, err); failure.Class != model.ClassCanceled || failure.Sent || len(server.Requests()) != 1 {
			t.Errorf("ended before: got %+v after %d requests", failure, len(server.Requests()))
		}
	})
}

// TestKeptConnection checks a connection that breaks after it was kept, by both versions
// of the protocol and with a private certificate.
func TestKeptConnection(t *testing.T) {
	for version, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(version, func(t *testing.T) {
			onEach(t, func(t *testing.T, s spoken) {
				requests := 0
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if requests++; requests > 1 {
						panic(http.ErrAbortHandler)
					}
					if r.Proto != version {
						t.Errorf("the request came by %s", r.Proto)
					}
					_, _ = w.Write(fakemodel.Body(s.wire, fakemodel.Text("42")))
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
				c := s.client(t, wire.Config{Endpoint: server.URL, Model: "m", CABundle: bundle})
				if got, err := c.Decide(t.Context(), question()); err != nil || got.Decision.Text != "42" {
					t.Errorf("got %+v, %v", got.Decision, err)
				}
				_, err := c.Decide(t.Context(), question())
				if failure := asError(t, err); failure.Class != model.ClassTransient || !failure.Sent || requests != 2 {
					t.Errorf("a request that was cut: got %+v after %d requests", failure, requests)
				}
			})
		})
	}
}

// TestReplyTooLarge checks that a reply is read up to its bound.
func TestReplyTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, s spoken) {
		server := startServer(t, fakemodel.Options{})
		large := fakemodel.Text(strings.Repeat("a", 5000))
		server.Enqueue(large, large)
		got, err := s.client(t, wire.Config{Endpoint: server.Endpoint(s.wire), Model: "m", MaxReplyBytes: 4000}).Decide(t.Context(), question())
		if err != nil || got.Decision.Code != model.CodeMalformed {
			t.Errorf("got %+v, %v", got.Decision, err)
		}
		got, err = s.client(t, wire.Config{Endpoint: server.Endpoint(s.wire), Model: "m"}).Decide(t.Context(), question())
		if err != nil || got.Decision.Kind != model.KindFinal {
			t.Errorf("got %+v, %v", got.Decision, err)
		}
	})
}
