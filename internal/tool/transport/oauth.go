package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	// tokenTimeout bounds one request for a token.
	tokenTimeout = 10 * time.Second
	// tokenLeeway is how long before its end a token is not used any more: it has to
	// reach the service while it lives.
	tokenLeeway = 30 * time.Second
	// tokenLifetime holds where a token names no end.
	tokenLifetime = 10 * time.Minute
	// maxTokens bounds the tokens that are kept, maxTokenBytes each of them.
	maxTokens     = 1024
	maxTokenBytes = 16 << 10
)

// OAuth says how access tokens are had: by the client credentials grant (RFC 6749,
// section 4.4).
type OAuth struct {
	// TokenURL of the authorization server.
	TokenURL string
	// Client gives id and secret, asked each time so that a rotated Secret takes effect.
	Client func() (id, secret string, err error)
	// Scopes asked for, none for the server's default.
	Scopes []string
	// Resource that the token is for (RFC 8707), empty to name none.
	Resource string
	// InBody sends id and secret in the body instead of as HTTP Basic.
	InBody bool
	// CABundle holds PEM certificates trusted instead of the system's.
	CABundle []byte
	// Tokens keeps tokens for as long as they live; nil to fetch one each time.
	Tokens *Tokens
}

// tokenError says why there is no access token. Its text is ours.
type tokenError struct{ text string }

func (e *tokenError) Error() string { return "no access token: " + e.text }

// Tokens are the access tokens of a process, by who they were given to and what for. The
// secrets themselves are not kept.
type Tokens struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]*token
}

// token is one access token, or the place where one will be.
type token struct {
	// turn lets one caller at a time fetch it.
	turn  chan struct{}
	value string
	until time.Time
}

// NewTokens makes an empty store with a clock.
func NewTokens(now func() time.Time) *Tokens {
	return &Tokens{now: now, known: map[string]*token{}}
}

// place gives the place of a token, and makes room for it.
func (t *Tokens) place(key string) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.known[key]; found != nil {
		return found
	}
	for len(t.known) >= maxTokens {
		oldest := ""
		for other, entry := range t.known {
			if oldest == "" || entry.until.Before(t.known[oldest].until) {
				oldest = other
			}
		}
		delete(t.known, oldest)
	}
	made := &token{turn: make(chan struct{}, 1)}
	t.known[key] = made
	return made
}

// get gives a token that lives, or fetches one.
func (t *Tokens) get(ctx context.Context, key string, fetch func() (string, time.Duration, error)) (string, error) {
	place := t.place(key)
	select {
	case place.turn <- struct{}{}:
		defer func() { <-place.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	t.mu.Lock()
	value, until := place.value, place.until
	t.mu.Unlock()
	if value != "" && t.now().Before(until) {
		return value, nil
	}
	began := t.now()
	value, lifetime, err := fetch()
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	place.value, place.until = value, began.Add(lifetime)
	return value, nil
}

// forget drops a token that a service refused.
func (t *Tokens) forget(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, entry := range t.known {
		if entry.value == value {
			entry.value = ""
		}
	}
}

// accessToken gives a token that lives.
func (c *Client) accessToken(ctx context.Context) (string, error) {
	id, secret, err := c.oauth.Client()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrHeaders, err)
	}
	fetch := func() (string, time.Duration, error) { return c.fetchToken(ctx, id, secret) }
	if c.oauth.Tokens == nil {
		value, _, err := fetch()
		return value, err
	}
	return c.oauth.Tokens.get(ctx, c.oauth.key(id, secret), fetch)
}

// key names what a token is given for.
func (o *OAuth) key(id, secret string) string {
	sum := sha256.New()
	for _, part := range append([]string{o.TokenURL, id, secret, o.Resource, fmt.Sprint(o.InBody), string(o.CABundle)}, o.Scopes...) {
		_, _ = fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// fetchToken asks the authorization server, once.
func (c *Client) fetchToken(ctx context.Context, id, secret string) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(WithGate(ctx, nil), tokenTimeout)
	defer cancel()
	config := &clientcredentials.Config{
		ClientID: id, ClientSecret: secret, TokenURL: c.oauth.TokenURL, Scopes: slices.Clone(c.oauth.Scopes),
		AuthStyle: oauth2.AuthStyleInHeader, EndpointParams: url.Values{},
	}
	if c.oauth.InBody {
		config.AuthStyle = oauth2.AuthStyleInParams
	}
	if c.oauth.Resource != "" {
		config.EndpointParams.Set("resource", c.oauth.Resource)
	}
	given, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport:     plainly{c.tokens},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return "", 0, tokenFailure(ctx, err)
	}
	if len(given.AccessToken) > maxTokenBytes || !headerSafe(given.AccessToken) {
		return "", 0, &tokenError{"the authorization server gave one that is no valid header value"}
	}
	if kind := given.Type(); kind != "Bearer" {
		return "", 0, &tokenError{"the authorization server gave one that is not of type Bearer"}
	}
	return given.AccessToken, lifetime(given), nil
}

// lifetime is how long a token may be used.
func lifetime(given *oauth2.Token) time.Duration {
	if given.Expiry.IsZero() {
		return tokenLifetime
	}
	whole := time.Until(given.Expiry)
	return max(whole-tokenLeeway, whole/2)
}

// tokenFailure says why, without a word of what the authorization server wrote.
func tokenFailure(ctx context.Context, err error) error {
	var refused *oauth2.RetrieveError
	switch {
	case ctx.Err() != nil:
		return &tokenError{"the authorization server did not answer in time"}
	case errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode >= 300:
		text := fmt.Sprintf("the authorization server answered with HTTP %d", refused.Response.StatusCode)
		if slices.Contains(oauthErrors, refused.ErrorCode) {
			text += " (" + refused.ErrorCode + ")"
		}
		return &tokenError{text}
	case refused != nil:
		return &tokenError{"the authorization server gave none"}
	}
	var transported *url.Error
	if errors.As(err, &transported) {
		return &tokenError{"of the authorization server: " + Reason(transported.Err)}
	}
	return &tokenError{"the authorization server's answer can't be read"}
}

// oauthErrors are the codes of RFC 6749 and RFC 8707 that may be repeated.
var oauthErrors = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_target"}

func headerSafe(value string) bool {
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return value != ""
}

// plainly sends a request for a token through a connection of its own.
type plainly struct{ transport *http.Transport }

// RoundTrip implements http.RoundTripper.
func (p plainly) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, _, err := send(p.transport, req)
	return resp, err
}
