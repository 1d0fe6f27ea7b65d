package vertex

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const (
	// scope of the tokens: the platform knows no narrower one for asking a model.
	scope = "https://www.googleapis.com/auth/cloud-platform"
	// defaultTokenURI is where a service account without an address of its own asks.
	defaultTokenURI = "https://oauth2.googleapis.com/token"
	// margin is how long before its end a token is no longer used: a request is to
	// arrive with it.
	margin = time.Minute
	// longest bounds how long a token is believed to live, whatever is said of it.
	longest = time.Hour
)

// Tokens turns what a Secret holds into access tokens, and keeps a token until shortly
// before it ends. It knows no other identity than the Secret's.
type Tokens struct {
	connection *wire.Connection

	mu   sync.Mutex
	kept kept
}

// kept is the newest token, and the credential that it was given for.
type kept struct {
	credential [sha256.Size]byte
	token      string
	end        time.Time
}

// NewTokens makes tokens by means of the connection: its credential, its transport, its
// timeout and its clock.
func NewTokens(connection *wire.Connection) *Tokens { return &Tokens{connection: connection} }

// Token returns an access token. The credential is read anew each time, so that a rotated
// one takes effect. It is the JSON key of a service account, for which a token is
// fetched, or a token itself. Callers at the same moment may each fetch one: that costs
// little, and none has to wait for another's trouble.
func (t *Tokens) Token(ctx context.Context) (string, *model.Error) {
	credential, failure := t.connection.Credential()
	if failure != nil {
		return "", failure
	}
	if credential == "" {
		return "", wire.Unauthorized("platform vertex needs a credential: a service account's JSON key or an access token")
	}
	if !strings.HasPrefix(credential, "{") {
		if !wire.FitsHeader(credential) {
			return "", wire.Unauthorized("the access token has characters that no header can carry")
		}
		return credential, nil
	}
	digest := sha256.Sum256([]byte(credential))
	if token := t.cached(digest); token != "" {
		return token, nil
	}
	account, failure := readAccount(credential)
	if failure != nil {
		return "", failure
	}
	fresh, failure := t.fetch(ctx, account)
	if failure != nil {
		return "", failure
	}
	fresh.credential = digest
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = fresh
	return fresh.token, nil
}

// Forget drops a token that the platform refused, so that the next request fetches
// another.
func (t *Tokens) Forget(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept.token == token {
		t.kept = kept{}
	}
}

func (t *Tokens) cached(digest [sha256.Size]byte) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept.credential != digest || !t.connection.Now().Before(t.kept.end) {
		return ""
	}
	return t.kept.token
}

// readAccount reads the JSON key of a service account. Other kinds of Google credentials
// are refused: some name programs to run, or addresses to take an identity from.
func readAccount(credential string) (*jwt.Config, *model.Error) {
	var file struct {
		Type         string `json:"type"`
		ClientEmail  string `json:"client_email"`
		PrivateKey   string `json:"private_key"`
		PrivateKeyID string `json:"private_key_id"`
		TokenURI     string `json:"token_uri"`
	}
	if err := json.Unmarshal([]byte(credential), &file); err != nil {
		return nil, wire.Unauthorized("the credential begins like JSON and is none: store the service account's key file as it was downloaded")
	}
	if file.Type != "service_account" || file.ClientEmail == "" || file.PrivateKey == "" {
		return nil, wire.Unauthorized("the credential is not the JSON key of a service account: it needs type service_account, client_email and private_key")
	}
	if file.TokenURI == "" {
		file.TokenURI = defaultTokenURI
	}
	if !safe(file.TokenURI) {
		return nil, wire.Unauthorized("the token_uri of the service account must be an https URL")
	}
	return &jwt.Config{
		Email: file.ClientEmail, PrivateKey: []byte(file.PrivateKey), PrivateKeyID: file.PrivateKeyID,
		Scopes: []string{scope}, TokenURL: file.TokenURI,
	}, nil
}

// safe reports whether an assertion may be sent to the address: over TLS, or without
// leaving the machine.
func safe(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	if u.Scheme == "http" {
		ip := net.ParseIP(u.Hostname())
		return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
	}
	return u.Scheme == "https"
}

// fetch exchanges a signed assertion for a token, in one attempt.
func (t *Tokens) fetch(ctx context.Context, account *jwt.Config) (kept, *model.Error) {
	var token *oauth2.Token
	response, failure := t.connection.Exchange(ctx, func(ctx context.Context, once http.RoundTripper) error {
		client := &http.Client{
			Transport:     bound{ctx, once},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		var err error
		token, err = account.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, client)).Token()
		if err != nil {
			// It matters only where nothing was asked yet, and then the key is at fault.
			return wire.Unauthorized("the private key of the service account can't be used: it must be an RSA key in PEM form")
		}
		return nil
	})
	if failure != nil {
		return kept{}, unsent(failure)
	}
	if !response.Success() {
		return kept{}, refused(response, account)
	}
	if token == nil || token.AccessToken == "" || !wire.FitsHeader(token.AccessToken) {
		return kept{}, &model.Error{
			Class: model.ClassTransient, Status: response.Status, Code: "no_token",
			Detail: "the token endpoint answered without an access token",
		}
	}
	return kept{token: token.AccessToken, end: response.ReceivedAt.Add(lifetime(token) - margin)}, nil
}

// unsent marks that no request to the model was made, whatever became of the one for the
// token: it can't have cost anything.
func unsent(failure *model.Error) *model.Error {
	marked := *failure
	marked.Sent = false
	if marked.Class != model.ClassUnauthorized {
		marked.Detail = "fetching an access token: " + marked.Detail
	}
	return &marked
}

// oauthCode is what codes of token endpoints look like, and pieces of what they are sent
// do not.
var oauthCode = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

// refused classifies an answer of the token endpoint that is no token.
func refused(response wire.Response, account *jwt.Config) *model.Error {
	e := &model.Error{Class: model.ClassUnauthorized, Status: response.Status, Detail: "the token endpoint refused the service account"}
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(response.Body, &body) == nil && wire.IsCode(body.Error) && oauthCode.MatchString(body.Error) {
		e.Code = wire.WithoutSecret(wire.WithoutSecret(body.Error, string(account.PrivateKey)), account.PrivateKeyID)
	}
	switch status := response.Status; {
	case status == http.StatusTooManyRequests:
		e.Class, e.Detail = model.ClassThrottled, "the token endpoint has too much to do"
	case status == http.StatusRequestTimeout || status >= 500:
		e.Class, e.Detail = model.ClassTransient, "the token endpoint failed"
	}
	wire.WaitOut(e, response)
	return e
}

// lifetime is how long a token is good for; 0 where nothing believable is said of it.
func lifetime(token *oauth2.Token) time.Duration {
	seconds, ok := token.Extra("expires_in").(float64)
	if !ok || math.IsNaN(seconds) || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, longest.Seconds()) * float64(time.Second))
}

// bound gives requests the context that the library does not pass on.
type bound struct {
	ctx       context.Context
	transport http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bound) RoundTrip(request *http.Request) (*http.Response, error) {
	return b.transport.RoundTrip(request.WithContext(b.ctx))
}
