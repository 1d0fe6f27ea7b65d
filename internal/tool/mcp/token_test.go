package mcptool_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// A token that the server refuses by now is fetched anew before the call, in either era.
func TestRevokedToken(t *testing.T) {
	for name, inner := range map[string]http.Handler{
		"modern":   newModern(t, plainTool, fine).Config.Handler,
		"sessions": newEras(t, func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(404) }).Config.Handler,
	} {
		t.Run(name, func(t *testing.T) {
			var given, calls atomic.Int32
			var revoked atomic.Bool
			authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				revoked.Store(false)
				writeJSON(w, `{"access_token":"t%d","token_type":"Bearer"}`, given.Add(1))
			}))
			defer authority.Close()
			guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if revoked.Load() || r.Header.Get("Authorization") != fmt.Sprintf("Bearer t%d", given.Load()) {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				calls.Add(1)
				inner.ServeHTTP(w, r)
			}))
			defer guarded.Close()
			oauth := &transport.OAuth{TokenURL: authority.URL, Client: func() (string, string, error) { return "id", "secret", nil }, Tokens: transport.NewTokens(time.Now)}
			memory := mcptool.NewMemory(time.Now)
			call := func() tool.Outcome {
				s := serverWith(t, mcptool.Options{URL: guarded.URL, Memory: memory, Connection: transport.Options{OAuth: oauth}})
				defer s.Close()
				return s.Call(t.Context(), aCall("x"))
			}
			if out := call(); out.Class != tool.ClassOK || given.Load() != 1 {
				t.Fatalf("outcome %+v, %d tokens", out, given.Load())
			}
			// Known: the list, so that the call itself is refused, and nothing was done.
			revoked.Store(true)
			before := calls.Load()
			out := call()
			if name == "modern" && (out.Class != tool.ClassRejected || calls.Load() != before) {
				t.Errorf("outcome %+v", out)
			}
			if out := call(); out.Class != tool.ClassOK || given.Load() != 2 {
				t.Errorf("outcome %+v, %d tokens", out, given.Load())
			}
			// Not known any more: the list, which is asked for again with a new token.
			revoked.Store(true)
			memory = mcptool.NewMemory(time.Now)
			if out := call(); out.Class != tool.ClassOK || given.Load() != 3 {
				t.Errorf("outcome %+v, %d tokens", out, given.Load())
			}
		})
	}
}
