package httptool_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
)

const effectKey = "pawl-0123456789abcdef"

// ledger is a service that is asked about one effect. It is strict: whatever is not the
// question that the contract describes fails the test.
func ledger(t *testing.T, answer http.HandlerFunc) (url string, asked *int) {
	t.Helper()
	asked = new(int)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		if r.Method != http.MethodGet || r.RequestURI != "/effects/"+effectKey || r.ContentLength != 0 || r.Header.Get("Idempotency-Key") != "" || r.Header.Get("Accept") != "application/json" {
			t.Errorf("asked %s %s, length %d, header %v", r.Method, r.RequestURI, r.ContentLength, r.Header)
		}
		answer(w, r)
	}))
	t.Cleanup(service.Close)
	return service.URL + "/effects", asked
}

func effectsOf(t *testing.T, url string, maxResultBytes int32) *httptool.Effects {
	t.Helper()
	effects, err := httptool.NewEffects(httptool.Options{URL: url}, maxResultBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(effects.Close)
	return effects
}

// TestAnEffectIsLookedUp checks every answer that a service may give: only the four words of
// the contract say anything, and whatever else comes leaves the effect unknown.
func TestAnEffectIsLookedUp(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		body   string
		state  tool.EffectState
		result string
		err    string
	}{
		"committed":                {200, `{"state":"committed"}`, "committed", "", ""},
		"committed with a result":  {200, `{"state":"committed","result":{"b":1,"a":90071992547409931}}`, "committed", `{"a":90071992547409931,"b":1}`, ""},
		"committed with null":      {200, `{"state":"committed","result":null}`, "committed", "null", ""},
		"committed, and more":      {200, `{"state":"committed","at":"noon"}`, "committed", "", ""},
		"rejected":                 {200, `{"state":"rejected"}`, "rejected", "", ""},
		"rejected with a result":   {200, `{"state":"rejected","result":1}`, "rejected", "", ""},
		"pending":                  {200, `{"state":"pending"}`, httptool.EffectPending, "", ""},
		"notFound":                 {200, `{"state":"notFound"}`, httptool.EffectNotFound, "", ""},
		"404":                      {404, `{"state":"committed"}`, httptool.EffectNotFound, "", ""},
		"404 with a page":          {404, "<html>", httptool.EffectNotFound, "", ""},
		"wrong case":               {200, `{"state":"Committed"}`, "", "", "none of"},
		"wrong case of the member": {200, `{"State":"committed"}`, "", "", "none of"},
		"no state":                 {200, `{}`, "", "", "none of"},
		"a state of another type":  {200, `{"state":["committed"]}`, "", "", "none of"},
		"a word of another list":   {200, `{"state":"unknown"}`, "", "", "none of"},
		"a duplicate member":       {200, `{"state":"rejected","state":"committed"}`, "", "", "not a JSON object"},
		"a page":                   {200, "<html>committed</html>", "", "", "not a JSON object"},
		"a string":                 {200, `"committed"`, "", "", "not a JSON object"},
		"a list":                   {200, `[{"state":"committed"}]`, "", "", "not a JSON object"},
		"nothing":                  {200, "", "", "", "not a JSON object"},
		"two values":               {200, `{"state":"committed"}{}`, "", "", "not a JSON object"},
		"oversize":                 {200, `{"state":"committed","result":"` + strings.Repeat("x", 128<<10) + `"}`, "", "", "128 KiB"},
		"201":                      {201, `{"state":"committed"}`, "", "", "HTTP 201"},
		"202":                      {202, `{"state":"committed"}`, "", "", "HTTP 202"},
		"204":                      {204, "", "", "", "HTTP 204"},
		"400":                      {400, `{"state":"rejected"}`, "", "", "HTTP 400"},
		"401":                      {401, `{"state":"rejected"}`, "", "", "HTTP 401"},
		"409":                      {409, `{"state":"rejected"}`, "", "", "HTTP 409"},
		"410":                      {410, `{"state":"rejected"}`, "", "", "HTTP 410"},
		"429":                      {429, "", "", "", "HTTP 429"},
		"500":                      {500, `{"state":"committed"}`, "", "", "HTTP 500"},
		"503":                      {503, "", "", "", "HTTP 503"},
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := ledger(t, func(w http.ResponseWriter, _ *http.Request) { answers(test.code, test.body)(w) })
			found, err := effectsOf(t, url, 0).Look(t.Context(), effectKey)
			if found.State != test.state || string(found.Result) != test.result || found.Truncated {
				t.Errorf("found %+v (%s), want %q, result %s", found, found.Result, test.state, test.result)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if err != nil && (strings.Contains(err.Error(), "xxx") || strings.Contains(err.Error(), effectKey)) {
				t.Errorf("the error repeats what was sent or said: %v", err)
			}
			if *asked != 1 {
				t.Errorf("asked %d times", *asked)
			}
		})
	}
}

// TestALookUpFollowsNoRedirect checks that nobody but the service itself is asked.
func TestALookUpFollowsNoRedirect(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		elsewhere := 0
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			elsewhere++
			answers(200, `{"state":"committed"}`)(w)
		}))
		t.Cleanup(other.Close)
		url, asked := ledger(t, func(w http.ResponseWriter, _ *http.Request) { answers(code, "", "Location", other.URL)(w) })
		found, err := effectsOf(t, url, 0).Look(t.Context(), effectKey)
		if err == nil || found.State != "" || elsewhere != 0 || *asked != 1 {
			t.Errorf("%d: found %+v, error %v, asked %d times and elsewhere %d", code, found, err, *asked, elsewhere)
		}
	}
}

// TestALookUpThatBreaksOff checks that half an answer is none.
func TestALookUpThatBreaksOff(t *testing.T) {
	for name, cut := range map[string]http.HandlerFunc{
		"before the answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"within it": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"state":"committed"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := ledger(t, cut)
			if found, err := effectsOf(t, url, 0).Look(t.Context(), effectKey); err == nil || found.State != "" {
				t.Errorf("found %+v, error %v", found, err)
			}
		})
	}
}

// TestALookUpThatTakesTooLong checks that its time ends it, and leaves the effect unknown.
func TestALookUpThatTakesTooLong(t *testing.T) {
	url, _ := ledger(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if found, err := effectsOf(t, url, 0).Look(ctx, effectKey); err == nil || found.State != "" {
		t.Errorf("found %+v, error %v", found, err)
	}
}

// TestALookedUpResultIsBounded checks that a result which comes after the call's own answer
// is bounded as that would have been.
func TestALookedUpResultIsBounded(t *testing.T) {
	url, _ := ledger(t, func(w http.ResponseWriter, _ *http.Request) {
		answers(200, `{"state":"committed","result":{"text":"`+strings.Repeat("x", 5000)+`"}}`)(w)
	})
	found, err := effectsOf(t, url, 1000).Look(t.Context(), effectKey)
	if err != nil || found.State != "committed" || !found.Truncated || len(found.Result) > 1200 || !strings.Contains(string(found.Result), "[cut here") {
		t.Errorf("found %s, %d bytes, truncated %v, error %v", found.State, len(found.Result), found.Truncated, err)
	}
	if found, err = effectsOf(t, url, 0).Look(t.Context(), effectKey); err != nil || found.Truncated || len(found.Result) < 5000 {
		t.Errorf("found %d bytes, truncated %v, error %v", len(found.Result), found.Truncated, err)
	}
}

// TestAnEffectServiceHasASoundAddress checks that what can't be an address is refused.
func TestAnEffectServiceHasASoundAddress(t *testing.T) {
	for _, url := range []string{"", "effects", "ftp://x/effects", "http://user@x/effects", "http://x/effects?key=1", "http://x/effects#a", ":"} {
		if effects, err := httptool.NewEffects(httptool.Options{URL: url}, 0); err == nil || effects != nil {
			t.Errorf("%q is taken", url)
		}
	}
}
