package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// authority is an authorization server that gives out numbered tokens, and the service
// that takes the newest one only.
type authority struct {
	*httptest.Server
	given  atomic.Int32
	lives  int
	id     string
	secret string
	// answer replaces the token endpoint where it is set.
	answer http.HandlerFunc

	mu    sync.Mutex
	forms []url.Values
	valid string
	calls int
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{lives: 3600, id: "pawl", secret: "s3cr3t+/?"}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("/tool", a.tool)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func (a *authority) token(w http.ResponseWriter, r *http.Request) {
	if a.answer != nil {
		a.answer(w, r)
		return
	}
	_ = r.ParseForm()
	id, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	if user, password, ok := r.BasicAuth(); ok {
		id, _ = url.QueryUnescape(user)
		secret, _ = url.QueryUnescape(password)
	}
	if id != a.id || secret != a.secret {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s is wrong"}`, secret)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forms = append(a.forms, r.PostForm)
	a.valid = fmt.Sprintf("token-%d", a.given.Add(1))
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"%s","token_type":"Bearer","expires_in":%d}`, a.valid, a.lives)
}

func (a *authority) tool(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.valid == "" || r.Header.Get("Authorization") != "Bearer "+a.valid {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// revoke makes the newest token invalid.
func (a *authority) revoke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.valid = ""
}

func (a *authority) options(mods ...func(*transport.OAuth)) transport.Options {
	o := &transport.OAuth{TokenURL: a.URL + "/token", Client: func() (string, string, error) { return a.id, a.secret, nil }}
	for _, mod := range mods {
		mod(o)
	}
	return transport.Options{OAuth: o}
}

func call(t *testing.T, options transport.Options, to string) (int, *transport.Sending, error) {
	t.Helper()
	client, err := transport.New(options)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	resp, sending, err := client.Send(newRequest(t.Context(), to+"/tool"), true)
	if err != nil {
		return 0, sending, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, sending, nil
}

func TestTokenRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		mod  func(*transport.OAuth)
		want url.Values
	}{
		"basic": {func(*transport.OAuth) {}, url.Values{"grant_type": {"client_credentials"}}},
		"in the body": {func(o *transport.OAuth) { o.InBody = true },
			url.Values{"grant_type": {"client_credentials"}, "client_id": {"pawl"}, "client_secret": {"s3cr3t+/?"}}},
		"scopes and resource": {func(o *transport.OAuth) { o.Scopes, o.Resource = []string{"read", "write"}, "https://mcp.example/x" },
			url.Values{"grant_type": {"client_credentials"}, "scope": {"read write"}, "resource": {"https://mcp.example/x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			status, _, err := call(t, a.options(tc.mod), a.URL)
			if status != http.StatusOK || err != nil {
				t.Fatalf("status %d, %v", status, err)
			}
			if diff := cmp.Diff([]url.Values{tc.want}, a.forms); diff != "" {
				t.Errorf("forms (-want +got):\n%s", diff)
			}
		})
	}
}

// A token is used by every client of the process until shortly before its end, and again
// fetched once the service refuses it.
func TestTokensAreKept(t *testing.T) {
	a := newAuthority(t)
	now := time.Now()
	tokens := transport.NewTokens(func() time.Time { return now })
	kept := func(o *transport.OAuth) { o.Tokens = tokens }
	step := func(what string, fetched int32, wantStatus int, wantRefused bool, mods ...func(*transport.OAuth)) {
		t.Helper()
		status, sending, err := call(t, a.options(append(mods, kept)...), a.URL)
		if err != nil || status != wantStatus || sending.TokenRefused() != wantRefused || a.given.Load() != fetched {
			t.Errorf("%s: status %d, refused %v, %v, %d tokens given; want %d, %v and %d", what, status, sending.TokenRefused(), err, a.given.Load(), wantStatus, wantRefused, fetched)
		}
	}
	step("first", 1, 200, false)
	step("again", 1, 200, false)
	now = now.Add(59 * time.Minute)
	step("almost over", 1, 200, false)
	now = now.Add(45 * time.Second)
	step("over", 2, 200, false)
	step("another scope", 3, 200, false, func(o *transport.OAuth) { o.Scopes = []string{"more"} })
	a.revoke()
	step("revoked", 3, 401, true)
	step("after that", 4, 200, false)

	a.given.Store(0)
	tokens = transport.NewTokens(time.Now)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { _, _, _ = call(t, a.options(kept), a.URL) })
	}
	wait.Wait()
	if n := a.given.Load(); n != 1 {
		t.Errorf("%d tokens given to 20 at once", n)
	}
}

// A refused token is worth another attempt for what may be sent again.
func TestRefusedTokenIsRetryable(t *testing.T) {
	a := newAuthority(t)
	tokens := transport.NewTokens(time.Now)
	options := a.options(func(o *transport.OAuth) { o.Tokens = tokens })
	_, _, _ = call(t, options, a.URL)
	for _, repeatable := range []bool{true, false} {
		if _, _, err := call(t, options, a.URL); err != nil {
			t.Fatal(err)
		}
		a.revoke()
		_, sending, err := call(t, options, a.URL)
		if err != nil {
			t.Fatal(err)
		}
		out := transport.Status(tool.Call{Repeatable: repeatable}, sending, &http.Response{StatusCode: http.StatusUnauthorized}, transport.Value{})
		if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || out.Retryable != repeatable {
			t.Errorf("repeatable %v: %+v", repeatable, out)
		}
	}
}

// Without a token nothing is sent, and nothing of what the authorization server or the
// Secret says is repeated.
func TestNoToken(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	give := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		mod    func(*transport.OAuth)
		want   string
	}{
		"wrong secret": {nil, func(o *transport.OAuth) {
			o.Client = func() (string, string, error) { return "pawl", "s3cr3t", nil }
		}, "HTTP 401 (invalid_client)"},
		"no Secret": {nil, func(o *transport.OAuth) {
			o.Client = func() (string, string, error) { return "", "", errors.New("Secret x does not exist") }
		}, "headers can't be read"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, nil, "HTTP 307"},
		"odd code": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"s3cr3t"}`))
		}, nil, "HTTP 400"},
		"error with 200": {give(`{"error":"s3cr3t"}`), nil, "gave none"},
		"empty token":    {give(`{"access_token":""}`), nil, "answer can't be read"},
		"garbage":        {give(`s3cr3t`), nil, "answer can't be read"},
		"line break":     {give(`{"access_token":"a\r\ns3cr3t: x"}`), nil, "no valid header value"},
		"huge":           {give(`{"access_token":"` + strings.Repeat("s3cr3t", 10_000) + `"}`), nil, "no valid header value"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for range 10_000 {
				if _, err := w.Write(make([]byte, 10_000)); err != nil {
					return
				}
			}
		}, nil, "answer can't be read"},
		"other type":     {give(`{"access_token":"s3cr3t","token_type":"DPoP"}`), nil, "not of type Bearer"},
		"nobody listens": {nil, func(o *transport.OAuth) { o.TokenURL = "http://127.0.0.1:1/token" }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			a.answer = tc.answer
			if tc.mod == nil {
				tc.mod = func(*transport.OAuth) {}
			}
			_, sending, err := call(t, a.options(tc.mod), a.URL)
			if err == nil || sending.MayHaveArrived() || a.calls != 0 {
				t.Fatalf("error %v, %d calls", err, a.calls)
			}
			text := transport.Reason(err)
			if !strings.Contains(text, tc.want) || strings.Contains(text, "s3cr3t") {
				t.Errorf("reason %q, want %q in it", text, tc.want)
			}
			out := transport.Failed(t.Context(), tool.Call{Repeatable: true}, sending, err)
			if out.Class != tool.ClassTransport || out.Effect != tool.EffectRejected || !out.Retryable {
				t.Errorf("outcome %+v", out)
			}
		})
	}
}

func TestSlowAuthority(t *testing.T) {
	a := newAuthority(t)
	release := make(chan struct{})
	a.answer = func(http.ResponseWriter, *http.Request) { <-release }
	t.Cleanup(func() { close(release) })
	client, err := transport.New(a.options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, sending, err := client.Send(newRequest(ctx, a.URL+"/tool"), true)
	out := transport.Failed(ctx, tool.Call{}, sending, err)
	if out.Class != tool.ClassTimeout || out.Effect != tool.EffectRejected {
		t.Errorf("outcome %+v", out)
	}
}

func TestCredentialsDigest(t *testing.T) {
	digest := func(header http.Header, key string) string {
		client, err := transport.New(transport.Options{Headers: func() (http.Header, error) { return header, nil }})
		if err != nil {
			t.Fatal(err)
		}
		found, err := client.Credentials(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found.Digest([]byte(key))
	}
	one := digest(http.Header{"Authorization": {"Bearer s3cr3t"}, "X-Tenant": {"a"}}, "k")
	if one != digest(http.Header{"X-Tenant": {"a"}, "Authorization": {"Bearer s3cr3t"}, "Mcp-Session-Id": {"reserved"}}, "k") {
		t.Error("equal credentials have different digests")
	}
	for name, other := range map[string]string{
		"value": digest(http.Header{"Authorization": {"Bearer other"}, "X-Tenant": {"a"}}, "k"),
		"key":   digest(http.Header{"Authorization": {"Bearer s3cr3t"}, "X-Tenant": {"a"}}, "other"),
		"place": digest(http.Header{"Authorization": {"Bearer s3cr3tX-Tenant"}, "A": {}}, "k"),
		"none":  digest(nil, "k"),
	} {
		if other == one {
			t.Errorf("another %s gives the same digest", name)
		}
	}
}
