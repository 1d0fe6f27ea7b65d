package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
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

	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

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
