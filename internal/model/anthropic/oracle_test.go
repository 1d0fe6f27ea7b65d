package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/bedrock"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	sdkvertex "github.com/anthropics/anthropic-sdk-go/v2/vertex"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// meaning is JSON for comparing: members in any order, and numbers by their value, since
// the SDK writes 1.0 as 1 where it has read a request.
func meaning(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// requests are those of TestPlatformConversations and more: everything that is sent.
func requests() map[string]model.Request {
	long := conversation()
	long.Messages = append(long.Messages,
		model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + sealed + `,{"type":"text","text":"42"}]`)},
		model.Message{Role: model.RoleUser, Text: "Sure?"},
		model.Message{Role: model.RoleAssistant, Text: "Yes.", Calls: []model.Call{{ID: "x:1", Alias: "a.b", Arguments: "["}}},
		model.Message{Role: model.RoleTool, CallID: "x:1", Text: ""},
	)
	return map[string]model.Request{"a question": question(), "calls and results": conversation(), "a long conversation": long}
}

// TestSDKReadsRequests checks that the SDK's types know all that is in a request: what
// they write after reading it means the same.
func TestSDKReadsRequests(t *testing.T) {
	parameters := json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":2048},"metadata":{"user_id":"u"},"stop_sequences":["x"],"service_tier":"auto","tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`)
	for name, request := range requests() {
		for _, config := range []wire.Config{
			{Model: "m"},
			{Model: "m", Parameters: parameters},
			{Model: "m", Platform: onBedrock, Endpoint: "https://bedrock-mantle.eu-central-1.api.aws/anthropic"},
		} {
			t.Run(name, func(t *testing.T) {
				body := encoded(t, config, request)
				var read sdk.MessageNewParams
				if err := json.Unmarshal([]byte(body), &read); err != nil {
					t.Fatal(err)
				}
				written, err := json.Marshal(read)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(meaning(t, []byte(body)), meaning(t, written)); diff != "" {
					t.Errorf("the request (-ours +the SDK's):\n%s", diff)
				}
			})
		}
	}
}

// TestSDKRewrites is why blocks are not sent by way of the SDK's types: they lose members
// that they don't know, and write the rest in their own way.
func TestSDKRewrites(t *testing.T) {
	blocks := strings.Replace(callA, `"name"`, `"novelty":1,"name"`, 1)
	var read sdk.Message
	if err := json.Unmarshal([]byte(reply("tool_use", blocks)), &read); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(read.ToParam())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(back), "novelty") || strings.Contains(string(back), `"key": "a"`) {
		t.Errorf("the SDK keeps more than it did: see whether its types can be used: %s", back)
	}
	if got := anthropic.Decode([]byte(reply("tool_use", blocks))); string(got.Raw) != "["+blocks+"]" {
		t.Errorf("we lose something too: %s", got.Raw)
	}
}

// TestSDKReadsReplies checks that the SDK's types read each reply that we accept as we do,
// and that they would send it back as we do.
func TestSDKReadsReplies(t *testing.T) {
	search := `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"},"caller":{"type":"direct"}}`
	for _, stop := range []string{"end_turn", "stop_sequence", "tool_use", "pause_turn"} {
		for name, blocks := range map[string][]string{
			"text": {textBlock}, "thoughts": {thought, sealed, textBlock}, "calls": {thought, textBlock, callA, callB}, "a search": {textBlock, search},
		} {
			got := anthropic.Decode([]byte(reply(stop, blocks...)))
			if len(got.Raw) == 0 {
				continue
			}
			t.Run(stop+" "+name, func(t *testing.T) {
				var read sdk.Message
				if err := json.Unmarshal([]byte(reply(stop, blocks...)), &read); err != nil {
					t.Fatal(err)
				}
				if string(read.StopReason) != got.StopReason || read.ID != got.RequestID || read.Usage.InputTokens != got.Usage.InputTokens || read.Usage.OutputTokens != got.Usage.OutputTokens {
					t.Errorf("the SDK reads %+v", read)
				}
				var text strings.Builder
				var calls []model.Call
				for _, b := range read.Content {
					switch b := b.AsAny().(type) {
					case sdk.TextBlock:
						text.WriteString(b.Text)
					case sdk.ToolUseBlock:
						calls = append(calls, model.Call{ID: b.ID, Alias: b.Name, Arguments: string(b.Input)})
					}
				}
				if diff := cmp.Diff(model.Decision{Kind: got.Decision.Kind, Text: text.String(), Calls: calls, Code: got.Decision.Code, Problem: got.Decision.Problem}, got.Decision); diff != "" {
					t.Errorf("decision (-the SDK's +ours):\n%s", diff)
				}
				checkSentBack(t, read, got.Raw)
			})
		}
	}
}

// checkSentBack compares the SDK's echo of a reply with ours. The SDK leaves out members
// that are null.
func checkSentBack(t *testing.T, read sdk.Message, echo json.RawMessage) {
	t.Helper()
	back, err := json.Marshal(read.ToParam())
	if err != nil {
		t.Fatal(err)
	}
	var message struct{ Content json.RawMessage }
	if err := json.Unmarshal(back, &message); err != nil {
		t.Fatal(err)
	}
	ours, _ := meaning(t, echo).([]any)
	for _, b := range ours {
		block, _ := b.(map[string]any)
		for name, value := range block {
			if value == nil {
				delete(block, name)
			}
		}
	}
	if diff := cmp.Diff(meaning(t, message.Content), any(ours)); diff != "" {
		t.Errorf("echo (-the SDK's +ours):\n%s", diff)
	}
}

// TestSDKWritesReplies checks that we read what the SDK's types write, for each stop
// reason that they know.
func TestSDKWritesReplies(t *testing.T) {
	for stop, want := range map[sdk.StopReason]model.Kind{
		sdk.StopReasonEndTurn: model.KindFinal, sdk.StopReasonStopSequence: model.KindFinal, sdk.StopReasonToolUse: model.KindInvalid,
		sdk.StopReasonMaxTokens: model.KindInvalid, sdk.StopReasonRefusal: model.KindRefused, sdk.StopReasonPauseTurn: model.KindPaused,
		sdk.StopReasonModelContextWindowExceeded:           model.KindOverflow,
		sdk.StopReason(sdk.BetaStopReasonCompaction):       model.KindPaused,
		sdk.StopReason("a reason that nobody knows today"): model.KindInvalid,
	} {
		var message sdk.Message
		if err := json.Unmarshal([]byte(reply(string(stop), textBlock)), &message); err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		got := anthropic.Decode(written)
		checkReply(t, got)
		if got.Decision.Kind != want || got.StopReason != string(stop) {
			t.Errorf("%s: got %+v", stop, got.Decision)
		}
	}
}

// sent is a request as it reached the transport.
type sent struct {
	request *http.Request
	body    []byte
}

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.request = r
	s.body, _ = io.ReadAll(r.Body)
	body := fakemodel.Body(fakemodel.Messages, fakemodel.Text("42"))
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

const modelName = "eu.anthropic.claude-v1:0"

// typed is our request for the vendor in the SDK's own types.
func typed(t *testing.T) sdk.MessageNewParams {
	t.Helper()
	body := encoded(t, wire.Config{Model: modelName, Parameters: json.RawMessage(`{"cache_control":null}`)}, conversation())
	var params sdk.MessageNewParams
	if err := json.Unmarshal([]byte(body), &params); err != nil {
		t.Fatal(err)
	}
	return params
}

// bySDK sends it by the SDK's own packages.
func bySDK(t *testing.T, options ...option.RequestOption) *sent {
	t.Helper()
	s := &sent{}
	client := sdk.NewClient(append([]option.RequestOption{option.WithHTTPClient(&http.Client{Transport: s}), option.WithMaxRetries(0)}, options...)...)
	if _, err := client.Messages.New(t.Context(), typed(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

func ourConfig(platform wire.Platform, credential string, now time.Time, transport http.RoundTripper) wire.Config {
	return wire.Config{
		Model: modelName, Platform: platform, Parameters: json.RawMessage(`{"cache_control":null}`),
		APIKey: credentials(credential), Transport: transport, Now: func() time.Time { return now },
	}
}

// byUs sends the same by Decide.
func byUs(t *testing.T, platform wire.Platform, credential string, now time.Time) *sent {
	t.Helper()
	s := &sent{}
	if _, err := newClient(t, ourConfig(platform, credential, now, s)).Decide(t.Context(), conversation()); err != nil {
		t.Fatal(err)
	}
	return s
}

func compare(t *testing.T, theirs, ours *sent) {
	t.Helper()
	if theirs.request.URL.String() != ours.request.URL.String() {
		t.Errorf("got %s, the SDK's package asks %s", ours.request.URL, theirs.request.URL)
	}
	if diff := cmp.Diff(meaning(t, theirs.body), meaning(t, ours.body)); diff != "" {
		t.Errorf("body (-the SDK's +ours):\n%s", diff)
	}
}

func TestSDKVendor(t *testing.T) {
	theirs := bySDK(t, option.WithoutEnvironmentDefaults(), option.WithAPIKey(secret))
	ours := byUs(t, wire.Platform{}, secret, time.Now())
	compare(t, theirs, ours)
	for _, name := range []string{"Authorization", "Anthropic-Version", "Content-Type", "Accept"} {
		if theirs, ours := theirs.request.Header.Get(name), ours.request.Header.Get(name); theirs != ours {
			t.Errorf("%s is %q, the SDK's is %q", name, ours, theirs)
		}
	}
}

// TestSDKBedrock compares with the SDK's package for Bedrock: path and body. Its clock is
// the machine's, and the bytes and headers that it signs are others; TestBedrockSignature
// checks signatures.
func TestSDKBedrock(t *testing.T) {
	config := aws.Config{Region: "eu-central-1", Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.SessionToken}, nil
	})}
	theirs := bySDK(t, bedrock.WithConfig(config))
	now, err := time.Parse("20060102T150405Z", theirs.request.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Fatal(err)
	}
	ours := byUs(t, onBedrock, pair(keys), now)
	compare(t, theirs, ours)
	for name, s := range map[string]*sent{"the SDK's": theirs, "ours": ours} {
		s.request.Host = s.request.URL.Host
		if problem := fakemodel.SignedBy(keys, "eu-central-1", "bedrock", func() time.Time { return now })(s.request, s.body); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// TestSDKBedrockPrefersTheEnvironment is why that package is not used: a token in the
// environment wins over the credentials that it is given.
func TestSDKBedrockPrefersTheEnvironment(t *testing.T) {
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "ambient-token")
	theirs := bySDK(t, bedrock.WithConfig(aws.Config{Region: "eu-central-1", Credentials: aws.AnonymousCredentials{}}))
	if got := theirs.request.Header.Get("Authorization"); got != "Bearer ambient-token" {
		t.Errorf("the SDK's package sends %q now: see whether it can be used", got)
	}
}

func TestSDKBedrockMessages(t *testing.T) {
	theirs := &sent{}
	client, err := bedrock.NewMantleClient(t.Context(), bedrock.MantleClientConfig{
		AWSRegion: "eu-central-1", AWSAccessKey: keys.AccessKeyID, AWSSecretAccessKey: keys.SecretAccessKey, AWSSessionToken: keys.SessionToken,
	}, option.WithHTTPClient(&http.Client{Transport: theirs}), option.WithMaxRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Messages.New(t.Context(), typed(t)); err != nil {
		t.Fatal(err)
	}
	ours := &sent{}
	config := ourConfig(onBedrock, pair(keys), time.Now(), ours)
	config.Endpoint = "https://bedrock-mantle.eu-central-1.api.aws/anthropic"
	if _, err := newClient(t, config).Decide(t.Context(), conversation()); err != nil {
		t.Fatal(err)
	}
	compare(t, theirs, ours)
	for name, s := range map[string]*sent{"the SDK's": theirs, "ours": ours} {
		s.request.Host = s.request.URL.Host
		if problem := fakemodel.SignedBy(keys, "eu-central-1", "bedrock-mantle", time.Now)(s.request, s.body); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

func TestSDKVertex(t *testing.T) {
	source := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: secret})
	theirs := bySDK(t, sdkvertex.WithCredentials(t.Context(), "europe-west1", "pawl-test", &google.Credentials{TokenSource: source}))
	ours := byUs(t, onVertex, secret, time.Now())
	compare(t, theirs, ours)
	if theirs, ours := theirs.request.Header.Get("Authorization"), ours.request.Header.Get("Authorization"); theirs != ours {
		t.Errorf("Authorization is %q, the SDK's is %q", ours, theirs)
	}
}

// TestSDKErrors checks that errors are named as the SDK names them.
func TestSDKErrors(t *testing.T) {
	for _, body := range []string{
		said("rate_limit_error", "enforced_spend_limit_reached", "x"), said("overloaded_error", "", "x"), said("invalid_request_error", "", "x"),
	} {
		var read sdk.ErrorResponse
		if err := json.Unmarshal([]byte(body), &read); err != nil {
			t.Fatal(err)
		}
		var code struct {
			Details struct {
				ErrorCode string `json:"error_code"`
			} `json:"details"`
		}
		if err := json.Unmarshal([]byte(read.Error.RawJSON()), &code); err != nil {
			t.Fatal(err)
		}
		want := code.Details.ErrorCode
		if want == "" {
			want = read.Error.Type
		}
		_, failure := anthropic.Interpret(wire.Response{Status: 400, Body: []byte(body)}, model.Request{})
		if failure.Code != want || !strings.Contains(failure.Detail, read.RequestID) {
			t.Errorf("got %+v, the SDK reads %s of %s", failure, want, read.RequestID)
		}
	}
}
