package anthropic_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/serviceaccount"
)

var keys = fakemodel.AWSKeys{AccessKeyID: "AKIAPAWLTEST", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCY", SessionToken: "FwoGZXIvYXdzEBY//token=="}

func credentials(text string) func() (string, error) {
	return func() (string, error) { return text, nil }
}

func pair(keys fakemodel.AWSKeys) string {
	members := map[string]string{"accessKeyId": keys.AccessKeyID, "secretAccessKey": keys.SecretAccessKey}
	if keys.SessionToken != "" {
		members["sessionToken"] = keys.SessionToken
	}
	data, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// signing is a clock that is not the machine's.
func signing() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// TestBedrockSignature checks requests against a server that computes signatures again.
func TestBedrockSignature(t *testing.T) {
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "ambient-token")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAAMBIENT")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "ambient")
	t.Setenv("AWS_REGION", "us-east-1")
	permanent := keys
	permanent.SessionToken = ""
	tests := map[string]struct {
		keys           fakemodel.AWSKeys
		model          string
		below, service string
		path           string
	}{
		"temporary keys":   {keys, "eu.anthropic.claude-sonnet-5-v1:0", "", "bedrock", "/model/eu.anthropic.claude-sonnet-5-v1:0/invoke"},
		"permanent keys":   {permanent, "m", "", "bedrock", "/model/m/invoke"},
		"an ARN":           {keys, "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.x", "", "bedrock", "/model/arn:aws:bedrock:eu-central-1:1:inference-profile%2Feu.x/invoke"},
		"Bedrock's own":    {keys, "anthropic.claude-opus-5", "/anthropic", "bedrock-mantle", "/anthropic/v1/messages"},
		"its own, version": {keys, "anthropic.claude-opus-5", "/anthropic/v1/", "bedrock-mantle", "/anthropic/v1/messages"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{Authorize: fakemodel.SignedBy(test.keys, "eu-central-1", test.service, signing)})
			server.Enqueue(fakemodel.Text("42"))
			client := newClient(t, wire.Config{
				Endpoint: server.Root() + test.below, Model: test.model, Platform: onBedrock, APIKey: credentials(pair(test.keys) + "\n"), Now: signing,
			})
			got, err := client.Decide(t.Context(), question())
			if err != nil || got.Decision.Text != "42" {
				t.Fatalf("got %+v, %v: %v", got.Decision, err, server.Refusals())
			}
			request := server.Requests()[0]
			if path := request.URL.EscapedPath(); path != test.path {
				t.Errorf("got path %s, want %s", path, test.path)
			}
			want, err := client.Encode(question())
			if err != nil || string(request.Body) != string(want) {
				t.Errorf("sent %s, Encode gives %s (%v)", request.Body, want, err)
			}
		})
	}
}

func TestBedrockAPIKey(t *testing.T) {
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "ambient-token")
	server := startServer(t, fakemodel.Options{Key: secret})
	server.Enqueue(fakemodel.Text("42"))
	client := newClient(t, wire.Config{Endpoint: server.Root(), Model: "m", Platform: onBedrock, APIKey: key})
	if _, err := client.Decide(t.Context(), question()); err != nil {
		t.Fatal(err)
	}
	if header := server.Requests()[0].Header; header.Get("Anthropic-Version") != "" || header.Get("X-Amz-Date") != "" {
		t.Errorf("sent %v", header)
	}
}

func TestBedrockBadCredentials(t *testing.T) {
	for name, text := range map[string]string{
		"no secret":              `{"accessKeyId":"AKIA` + secret + `"}`,
		"no key":                 `{"secretAccessKey":"` + secret + `"}`,
		"a list":                 `{"accessKeyId":["` + secret + `"],"secretAccessKey":"x"}`,
		"a line in the token":    `{"accessKeyId":"a","secretAccessKey":"b","sessionToken":"x\n` + secret + `"}`,
		"cut":                    `{"accessKeyId":"` + secret,
		"a member twice":         `{"accessKeyId":"` + secret + `","accessKeyId":"a","secretAccessKey":"b"}`,
		"the names of a program": `{"AccessKeyId":"` + secret + `","SecretAccessKey":"b"}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			client := newClient(t, wire.Config{Endpoint: server.Root(), Model: "m", Platform: onBedrock, APIKey: credentials(text)})
			_, err := client.Decide(t.Context(), question())
			failure := asError(t, err)
			if failure.Class != model.ClassUnauthorized || failure.Sent || len(server.Requests()) != 0 {
				t.Errorf("got %+v after %d requests", failure, len(server.Requests()))
			}
		})
	}
}

// TestPlatformsNeedCredentials checks that without a Secret nobody else's identity is used.
func TestPlatformsNeedCredentials(t *testing.T) {
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "ambient-token")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
	for _, platform := range []wire.Platform{onBedrock, onVertex} {
		server := startServer(t, fakemodel.Options{})
		_, err := newClient(t, wire.Config{Endpoint: server.Root(), Model: "m", Platform: platform}).Decide(t.Context(), question())
		if failure := asError(t, err); failure.Class != model.ClassUnauthorized || len(server.Requests()) != 0 {
			t.Errorf("%s: got %+v after %d requests", platform.Name(), failure, len(server.Requests()))
		}
	}
}

// address keeps where a request would have gone.
type address struct{ url string }

func (a *address) RoundTrip(r *http.Request) (*http.Response, error) {
	a.url = r.URL.String()
	return nil, http.ErrServerClosed
}

func TestPlatformEndpoints(t *testing.T) {
	for want, config := range map[string]wire.Config{
		"https://api.anthropic.com/v1/messages":                                       {},
		"https://gateway.example.com/llm/v1/messages":                                 {Endpoint: "https://gateway.example.com/llm/v1/"},
		"https://bedrock-runtime.eu-central-1.amazonaws.com/model/m/invoke":           {Platform: onBedrock},
		"https://bedrock-runtime.eusc-de-east-1.amazonaws.eu/model/m/invoke":          {Platform: wire.Platform{Bedrock: &wire.Bedrock{Region: "eusc-de-east-1"}}},
		"https://bedrock-runtime.cn-north-1.amazonaws.com.cn/model/m/invoke":          {Platform: wire.Platform{Bedrock: &wire.Bedrock{Region: "cn-north-1"}}},
		"https://vpce.example.com/x/model/m/invoke":                                   {Platform: onBedrock, Endpoint: "https://vpce.example.com/x"},
		"https://bedrock-mantle.eu-central-1.api.aws/anthropic/v1/messages":           {Platform: onBedrock, Endpoint: "https://bedrock-mantle.eu-central-1.api.aws/anthropic"},
		"https://europe-west1-aiplatform.googleapis.com" + vertexPath("europe-west1"): {Platform: onVertex},
		"https://aiplatform.googleapis.com" + vertexPath("global"):                    {Platform: vertexIn("global")},
		"https://aiplatform.eu.rep.googleapis.com" + vertexPath("eu"):                 {Platform: vertexIn("eu")},
		"https://gateway.example.com" + vertexPath("europe-west1"):                    {Platform: onVertex, Endpoint: "https://gateway.example.com"},
		"https://gateway.example.com/x/y" + vertexPath("europe-west1"):                {Platform: onVertex, Endpoint: "https://gateway.example.com/x/y/v1"},
	} {
		at := &address{}
		config.Model, config.APIKey, config.Transport = "m", key, at
		if _, err := newClient(t, config).Decide(t.Context(), question()); err == nil || at.url != want {
			t.Errorf("got %s (%v), want %s", at.url, err, want)
		}
	}
}

func vertexIn(location string) wire.Platform {
	return wire.Platform{Vertex: &wire.Vertex{Project: "pawl-test", Location: location}}
}

func vertexPath(location string) string {
	return "/v1/projects/pawl-test/locations/" + location + "/publishers/anthropic/models/m:rawPredict"
}

// TestVertex checks a service account against a token endpoint that checks assertions, and
// a server that takes only its tokens.
func TestVertex(t *testing.T) {
	accounts, err := serviceaccount.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accounts.Close() })
	server := startServer(t, fakemodel.Options{Authorize: func(r *http.Request, _ []byte) string {
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || !accounts.Valid(token) {
			return "UNAUTHENTICATED"
		}
		return ""
	}})
	server.Enqueue(fakemodel.Text("one"), fakemodel.Text("two"), fakemodel.Text("three"))
	client := newClient(t, wire.Config{Endpoint: server.Root(), Model: "claude-sonnet-5@1", Platform: onVertex, APIKey: credentials(accounts.KeyFile())})
	decide := func() error { _, err := client.Decide(t.Context(), question()); return err }
	if first, second := decide(), decide(); first != nil || second != nil || accounts.Requests() != 1 {
		t.Fatalf("got %v and %v after %d requests for tokens: %v %v", first, second, accounts.Requests(), accounts.Refusals(), server.Refusals())
	}
	request := server.Requests()[0]
	if request.Model != "claude-sonnet-5@1" || request.Header.Get("Anthropic-Version") != "" {
		t.Errorf("got model %q, headers %v", request.Model, request.Header)
	}
	accounts.Revoke()
	if failure := asError(t, decide()); failure.Class != model.ClassUnauthorized {
		t.Errorf("a revoked token: got %+v", failure)
	}
	if err := decide(); err != nil || accounts.Requests() != 2 {
		t.Errorf("after a revoked token: got %v after %d requests for tokens", err, accounts.Requests())
	}
	accounts.Revoke()
	accounts.Fail(serviceaccount.Failure{Status: 400, Body: `{"error":"invalid_grant"}`})
	_ = decide()
	if failure := asError(t, decide()); failure.Class != model.ClassUnauthorized || failure.Code != "invalid_grant" || failure.Sent {
		t.Errorf("a refused account: got %+v", failure)
	}
}

func TestVertexToken(t *testing.T) {
	server := startServer(t, fakemodel.Options{Key: secret})
	server.Enqueue(fakemodel.Text("42"))
	client := newClient(t, wire.Config{Endpoint: server.Root() + "/v1", Model: "m", Platform: onVertex, APIKey: key})
	if _, err := client.Decide(t.Context(), question()); err != nil {
		t.Fatalf("%v: %v", err, server.Refusals())
	}
}

// TestPlatformConversations checks a run of several turns on each platform: breakpoints
// move, and nothing else changes.
func TestPlatformConversations(t *testing.T) {
	for name, config := range map[string]wire.Config{
		"the vendor": {},
		"bedrock":    {Platform: onBedrock},
		"vertex":     {Platform: onVertex},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{RequireOfferedCalls: true})
			config.Endpoint, config.Model, config.APIKey = server.Root(), "m", key
			converse(t, server, newClient(t, config))
		})
	}
}

// converse holds a conversation with calls, thoughts, a pause and an answer.
func converse(t *testing.T, server *fakemodel.Server, client *anthropic.Client) {
	t.Helper()
	request := conversation()
	request.Messages = request.Messages[:1]
	answers := []fakemodel.Answer{
		fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"key": "<a>"}`}, fakemodel.Call{Name: "lookup"}), "First, <this> & that."),
		fakemodel.Thinking(fakemodel.Paused("Let me search."), "Second."),
		fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), "Third."),
		{Reply: &fakemodel.Reply{Thoughts: []fakemodel.Thought{{Text: "x", Redacted: true}, {Text: ""}}, Text: "42"}},
	}
	for n, answer := range answers {
		server.Enqueue(answer)
		request.Decision = n + 1
		got, err := client.Decide(t.Context(), request)
		if err != nil {
			t.Fatalf("turn %d: %v: %v", n, err, server.Refusals())
		}
		checkReply(t, got)
		request.Messages = append(request.Messages, model.Message{Role: model.RoleAssistant, Text: got.Decision.Text, Calls: got.Decision.Calls, Raw: got.Raw})
		for i, c := range got.Decision.Calls {
			request.Messages = append(request.Messages, model.Message{Role: model.RoleTool, CallID: c.ID, Text: "1", Failed: i == 1})
		}
	}
	request.Messages = append(request.Messages, model.Message{Role: model.RoleUser, Text: "Sure?"})
	server.Enqueue(fakemodel.Text("Yes."))
	if _, err := client.Decide(t.Context(), request); err != nil {
		t.Fatalf("%v: %v", err, server.Refusals())
	}
}
