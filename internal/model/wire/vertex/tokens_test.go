package vertex_test

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/model/wire/vertex"
	"github.com/pawl-run/pawl/test/serviceaccount"
)

func endpoint(t *testing.T) *serviceaccount.Server {
	t.Helper()
	server, err := serviceaccount.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// tokens reads its credential from where the test can change it.
func tokens(t *testing.T, credential *string, now *time.Time) *vertex.Tokens {
	t.Helper()
	connection, err := wire.Connect(wire.Config{
		APIKey: func() (string, error) { return *credential, nil },
		Now:    func() time.Time { return *now },
		// A transport of its own, so that no connection outlives the test.
		Transport: &http.Transport{DisableKeepAlives: true},
		Timeout:   time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return vertex.NewTokens(connection)
}

func TestTokenIsKept(t *testing.T) {
	server := endpoint(t)
	credential, now := server.KeyFile(), time.Now()
	source := tokens(t, &credential, &now)
	take := func(want string, requests int) {
		t.Helper()
		got, failure := source.Token(t.Context())
		if failure != nil {
			t.Fatalf("%v; %v", failure, server.Refusals())
		}
		if got != want || server.Requests() != requests {
			t.Errorf("got token %s after %d requests, want %s after %d", got, server.Requests(), want, requests)
		}
		if !server.Valid(got) {
			t.Errorf("the endpoint does not know token %s", got)
		}
	}
	take("ya29.pawl-1", 1)
	now = now.Add(58 * time.Minute)
	take("ya29.pawl-1", 1)
	now = now.Add(2 * time.Minute)
	take("ya29.pawl-2", 2)
	source.Forget("ya29.pawl-1")
	take("ya29.pawl-2", 2)
	source.Forget("ya29.pawl-2")
	take("ya29.pawl-3", 3)
	// A rotated Secret: the old token is no answer to the new credential.
	credential += " "
	credential = strings.Replace(credential, `"client_id": "1`, `"client_id": "2`, 1)
	take("ya29.pawl-4", 4)
	credential = "ya29.given"
	if got, failure := source.Token(t.Context()); failure != nil || got != "ya29.given" || server.Requests() != 4 {
		t.Errorf("a plain token: got %q, %v after %d requests", got, failure, server.Requests())
	}
}

func TestTokenOfShortLife(t *testing.T) {
	server := endpoint(t)
	server.Lifetime = 50 * time.Second
	credential, now := server.KeyFile(), time.Now()
	source := tokens(t, &credential, &now)
	for want := 1; want <= 2; want++ {
		if _, failure := source.Token(t.Context()); failure != nil || server.Requests() != want {
			t.Errorf("got %v after %d requests, want %d", failure, server.Requests(), want)
		}
	}
}

func TestTokenRefused(t *testing.T) {
	server := endpoint(t)
	other := endpoint(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + listener.Addr().String() + "/token"
	_ = listener.Close()
	file := func(change map[string]string) string { return altered(t, server.KeyFile(), change) }
	busy := serviceaccount.Failure{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: `{"error":"rate_limit_exceeded"}`}
	tests := map[string]struct {
		credential string
		failure    *serviceaccount.Failure
		wantClass  model.Class
		wantCode   string
		wantStatus int
		wantWait   time.Duration
		// asked is how many requests reach the endpoint.
		asked int
	}{
		"no JSON":                     {credential: "{secret", wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"a user's credential":         {credential: `{"type":"authorized_user","client_email":"secret","private_key":"secret"}`, wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"a program to run":            {credential: `{"type":"external_account","credential_source":{"executable":{"command":"/bin/secret"}}}`, wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"no key in it":                {credential: file(map[string]string{"private_key": ""}), wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"a key that is none":          {credential: file(map[string]string{"private_key": "secret"}), wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"an address without TLS":      {credential: file(map[string]string{"token_uri": "http://tokens.example.com/secret"}), wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"an address that is a file":   {credential: file(map[string]string{"token_uri": "file:///etc/secret"}), wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"an address with a user":      {credential: file(map[string]string{"token_uri": "https://me:secret@example.com"}), wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"a token of two lines":        {credential: "ya29\nsecret", wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"nothing":                     {credential: " \n", wantClass: model.ClassUnauthorized, wantCode: "no_api_key"},
		"another account's key":       {credential: file(map[string]string{"private_key": other.PrivateKey()}), wantClass: model.ClassUnauthorized, wantCode: "invalid_grant", wantStatus: 400, asked: 1},
		"another account":             {credential: file(map[string]string{"client_email": "secret@example.com"}), wantClass: model.ClassUnauthorized, wantCode: "invalid_grant", wantStatus: 400, asked: 1},
		"nobody there":                {credential: file(map[string]string{"token_uri": refusing}), wantClass: model.ClassTransient, wantCode: "connection_refused"},
		"an endpoint that is busy":    {credential: server.KeyFile(), failure: &busy, wantClass: model.ClassThrottled, wantCode: "rate_limit_exceeded", wantStatus: 429, wantWait: 7 * time.Second, asked: 1},
		"an endpoint that failed":     {credential: server.KeyFile(), failure: &serviceaccount.Failure{Status: 503, Body: "secret"}, wantClass: model.ClassTransient, wantStatus: 503, asked: 1},
		"a redirect":                  {credential: server.KeyFile(), failure: &serviceaccount.Failure{Status: 307, Header: http.Header{"Location": {"/token"}}}, wantClass: model.ClassUnauthorized, wantStatus: 307, asked: 1},
		"an answer without a token":   {credential: server.KeyFile(), failure: &serviceaccount.Failure{Status: 200, Body: `{}`}, wantClass: model.ClassTransient, wantCode: "no_token", wantStatus: 200, asked: 1},
		"an answer that is no JSON":   {credential: server.KeyFile(), failure: &serviceaccount.Failure{Status: 200, Body: `<html>`}, wantClass: model.ClassTransient, wantCode: "no_token", wantStatus: 200, asked: 1},
		"a token that no header fits": {credential: server.KeyFile(), failure: &serviceaccount.Failure{Status: 200, Body: `{"access_token":"a\nb","expires_in":3600}`}, wantClass: model.ClassTransient, wantCode: "no_token", wantStatus: 200, asked: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := server.Requests()
			if test.failure != nil {
				server.Fail(*test.failure)
			}
			now := time.Now()
			token, failure := tokens(t, &test.credential, &now).Token(t.Context())
			if failure == nil {
				t.Fatalf("got token %s", token)
			}
			if failure.Class != test.wantClass || failure.Code != test.wantCode || failure.Status != test.wantStatus || failure.RetryAfter != test.wantWait {
				t.Errorf("got %+v", failure)
			}
			checkUnsent(t, failure)
			if asked := server.Requests() - before; asked != test.asked {
				t.Errorf("%d requests reached the endpoint, want %d", asked, test.asked)
			}
		})
	}
}

// checkUnsent checks what holds for every token that could not be had.
func checkUnsent(t *testing.T, failure *model.Error) {
	t.Helper()
	if failure.Sent {
		t.Error("a token that could not be had counts as a request to the model")
	}
	if strings.Contains(failure.Error(), "secret") || failure.Detail == "" {
		t.Errorf("the error is %v", failure)
	}
}

// altered is a key file in which members are changed.
func altered(t *testing.T, keyFile string, change map[string]string) string {
	t.Helper()
	members := map[string]string{}
	if err := json.Unmarshal([]byte(keyFile), &members); err != nil {
		t.Fatal(err)
	}
	maps.Copy(members, change)
	data, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestTokenEnds checks that fetching ends with its caller and within the timeout.
func TestTokenEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	credential := strings.Replace(endpoint(t).KeyFile(), `"token_uri": "`, `"token_uri": "http://`+listener.Addr().String()+`/", "old": "`, 1)
	now := time.Now()
	source := tokens(t, &credential, &now)
	_, failure := source.Token(t.Context())
	if failure == nil || failure.Class != model.ClassTransient || failure.Code != "timeout" || failure.Sent {
		t.Errorf("an endpoint that hangs: got %+v", failure)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, failure = source.Token(ctx)
	if failure == nil || failure.Class != model.ClassCanceled || failure.Sent {
		t.Errorf("a caller that gave up: got %+v", failure)
	}
}
