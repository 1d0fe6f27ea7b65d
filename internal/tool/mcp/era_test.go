package mcptool_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// eras is a server that refuses the current revision as refuse says, and speaks an older
// one with sessions. It records the methods and revisions that it saw.
type eras struct {
	*httptest.Server
	refuse func(n int, r modernRequest, w http.ResponseWriter)

	mu     sync.Mutex
	seen   []string
	modern int
}

func newEras(t *testing.T, refuse func(n int, r modernRequest, w http.ResponseWriter)) *eras {
	t.Helper()
	e := &eras{refuse: refuse}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		body, _ := io.ReadAll(hr.Body)
		r := modernRequest{Header: hr.Header}
		_ = json.Unmarshal(body, &r)
		version := hr.Header.Get("Mcp-Protocol-Version")
		if r.Method == "initialize" {
			var asked struct {
				Params struct{ ProtocolVersion string }
			}
			_ = json.Unmarshal(body, &asked)
			version = asked.Params.ProtocolVersion
		}
		e.mu.Lock()
		e.seen = append(e.seen, strings.Join(strings.Fields(hr.Method+" "+r.Method+" "+version), " "))
		if version == "2026-07-28" {
			e.modern++
		}
		n := e.modern
		e.mu.Unlock()
		switch {
		case version == "2026-07-28":
			e.refuse(n, r, w)
		case r.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}}`, r.ID, version)
		case r.Method == "tools/list":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, r.ID, plainTool)
		case r.Method == "tools/call":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, r.ID)
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// take gives what was seen since the last time.
func (e *eras) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.seen
	e.seen = nil
	return seen
}

// The current revision is tried by asking for the tools. Whatever no server of that
// revision would say leads to a session.
func TestProbe(t *testing.T) {
	inSession := func(version string) []string {
		return []string{"POST tools/list 2026-07-28", "POST initialize " + version, "POST notifications/initialized " + version, "POST tools/list " + version}
	}
	for name, tc := range map[string]struct {
		refuse func(n int, r modernRequest, w http.ResponseWriter)
		want   []string
		err    string
	}{
		"bad request":        {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(400) }, inSession("2025-11-25"), ""},
		"not found":          {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(404) }, inSession("2025-11-25"), ""},
		"method not allowed": {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(405) }, inSession("2025-11-25"), ""},
		"no session": {func(_ int, _ modernRequest, w http.ResponseWriter) {
			refuse(w, 400, json.RawMessage("null"), `{"code":-32000,"message":"Bad Request"}`)
		}, inSession("2025-11-25"), ""},
		"an error in a success": {func(_ int, r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"not initialized"}}`, r.ID)
		}, inSession("2025-11-25"), ""},
		"older revisions listed": {func(_ int, r modernRequest, w http.ResponseWriter) {
			refuse(w, 400, r.ID, `{"code":-32022,"message":"v","data":{"supported":["2024-11-05","2025-06-18","2030-01-01"]}}`)
		}, inSession("2025-06-18"), ""},
		"this revision listed": {func(n int, r modernRequest, w http.ResponseWriter) {
			if n == 1 {
				refuse(w, 400, r.ID, `{"code":-32022,"message":"v","data":{"supported":["2026-07-28"]}}`)
				return
			}
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[%s]}}`, r.ID, plainTool)
		}, []string{"POST tools/list 2026-07-28", "POST tools/list 2026-07-28"}, ""},
		"an older list": {func(_ int, r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, r.ID, plainTool)
		}, inSession("2025-11-25"), ""},
		"this revision listed for ever": {func(_ int, r modernRequest, w http.ResponseWriter) {
			refuse(w, 400, r.ID, `{"code":-32022,"message":"v","data":{"supported":["2026-07-28"]}}`)
		}, []string{"POST tools/list 2026-07-28", "POST tools/list 2026-07-28", "POST tools/list 2026-07-28", "POST tools/list 2026-07-28"}, "no revision of MCP that is supported"},
		"none of ours listed": {func(_ int, r modernRequest, w http.ResponseWriter) {
			refuse(w, 400, r.ID, `{"code":-32022,"message":"v","data":{"supported":["2030-01-01",5,null]}}`)
		}, []string{"POST tools/list 2026-07-28"}, "no revision of MCP that is supported"},
		"headers": {func(_ int, r modernRequest, w http.ResponseWriter) {
			refuse(w, 400, r.ID, `{"code":-32020,"message":"s3cr3t"}`)
		}, []string{"POST tools/list 2026-07-28"}, "HTTP 400"},
		"capability": {func(_ int, r modernRequest, w http.ResponseWriter) {
			refuse(w, 400, r.ID, `{"code":-32021,"message":"s3cr3t"}`)
		}, []string{"POST tools/list 2026-07-28"}, "HTTP 400"},
		"no tools": {func(_ int, r modernRequest, w http.ResponseWriter) {
			refuse(w, 404, r.ID, `{"code":-32601,"message":"s3cr3t"}`)
		}, []string{"POST tools/list 2026-07-28"}, "HTTP 404"},
		"who are you": {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(401) }, []string{"POST tools/list 2026-07-28"}, "credentials"},
		"not for you": {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(403) }, []string{"POST tools/list 2026-07-28"}, "credentials"},
		"too often":   {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(429) }, []string{"POST tools/list 2026-07-28"}, "HTTP 429"},
		"broken":      {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(500) }, []string{"POST tools/list 2026-07-28"}, "HTTP 500"},
		"redirect":    {func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(307) }, []string{"POST tools/list 2026-07-28"}, "redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEras(t, tc.refuse)
			listing, err := newServer(t, e.URL).List(t.Context())
			if diff := cmp.Diff(tc.want, e.take()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if tc.err == "" && (err != nil || len(listing.Tools) != 1) {
				t.Errorf("List = %v, %v", listing, err)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "s3cr3t")) {
				t.Errorf("error %v, want %q in it", err, tc.err)
			}
		})
	}
}

// What a server speaks is found out once for a process, for each URL and each credential.
func TestProbedOnce(t *testing.T) {
	e := newEras(t, func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(404) })
	memory := mcptool.NewMemory(time.Now)
	token := "a"
	visit := func() []string {
		s := serverWith(t, mcptool.Options{URL: e.URL, Memory: memory, Connection: transport.Options{Headers: func() (http.Header, error) {
			return http.Header{"Authorization": {token}}, nil
		}}})
		defer s.Close()
		if out := s.Call(t.Context(), aCall("x")); out.Class != tool.ClassOK {
			t.Errorf("outcome %+v", out)
		}
		return e.take()
	}
	whole := []string{
		"POST tools/list 2026-07-28", "POST initialize 2025-11-25", "POST notifications/initialized 2025-11-25",
		"POST tools/list 2025-11-25", "POST tools/call 2025-11-25",
	}
	if diff := cmp.Diff(whole, visit()); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	short := []string{"DELETE 2025-11-25", "POST initialize 2025-11-25", "POST notifications/initialized 2025-11-25", "POST tools/call 2025-11-25"}
	if diff := cmp.Diff(short, visit()); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	token = "b"
	if diff := cmp.Diff(append([]string{"DELETE 2025-11-25"}, whole...), visit()); diff != "" {
		t.Errorf("with other credentials (-want +got):\n%s", diff)
	}
}

// A server that lists its tools without what the current revision demands, and that knows
// no handshake, is taken as it is.
func TestNeitherOldNorNew(t *testing.T) {
	var methods []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		var r modernRequest
		body, _ := io.ReadAll(hr.Body)
		_ = json.Unmarshal(body, &r)
		methods = append(methods, r.Method)
		switch r.Method {
		case "tools/list":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, r.ID, plainTool)
		case "tools/call":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, r.ID)
		default:
			refuse(w, 404, r.ID, `{"code":-32601,"message":"m"}`)
		}
	}))
	defer server.Close()
	s := newServer(t, server.URL)
	for range 2 {
		if out := s.Call(t.Context(), aCall("x")); out.Class != tool.ClassOK {
			t.Fatalf("outcome %+v", out)
		}
	}
	if got := strings.Join(methods, " "); got != "tools/list initialize tools/call tools/call" {
		t.Errorf("requests %s", got)
	}
}

// A server of the current revision needs one list and one request a call, and no more once
// the list is known.
func TestModernNeedsNoHandshake(t *testing.T) {
	m := newModern(t, plainTool, fine)
	memory := mcptool.NewMemory(time.Now)
	for range 3 {
		if out := serverWith(t, mcptool.Options{URL: m.URL, Memory: memory}).Call(t.Context(), aCall("x")); out.Class != tool.ClassOK {
			t.Fatalf("outcome %+v", out)
		}
	}
	if got := m.methods(); got != "tools/list tools/call tools/call tools/call" {
		t.Errorf("requests %s", got)
	}
}

// A server that speaks something else by now is asked anew: a call goes out again where
// the refusal proves that it did nothing.
func TestRevisionLost(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse func(r modernRequest, w http.ResponseWriter)
		again  bool
	}{
		"not found": {func(_ modernRequest, w http.ResponseWriter) { w.WriteHeader(404) }, true},
		"no session": {func(_ modernRequest, w http.ResponseWriter) {
			refuse(w, 400, json.RawMessage("null"), `{"code":-32000,"message":"Bad Request"}`)
		}, true},
		"another revision": {func(r modernRequest, w http.ResponseWriter) {
			refuse(w, 400, r.ID, `{"code":-32022,"message":"v","data":{"supported":["2025-11-25"]}}`)
		}, true},
		"bad request": {func(_ modernRequest, w http.ResponseWriter) { w.WriteHeader(400) }, false},
	} {
		for _, repeatable := range []bool{false, true} {
			e := newEras(t, func(n int, r modernRequest, w http.ResponseWriter) {
				if n == 1 {
					writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[%s]}}`, r.ID, plainTool)
					return
				}
				tc.refuse(r, w)
			})
			out := newServer(t, e.URL).Call(t.Context(), aCall("x", func(c *tool.Call) { c.Repeatable = repeatable }))
			want := tool.ClassOK
			if !tc.again && !repeatable {
				want = tool.ClassRejected
			}
			if out.Class != want {
				t.Errorf("%s, repeatable %v: outcome %+v, want %s; requests %v", name, repeatable, out, want, e.take())
			}
		}
	}
}

// An error that a server of the current revision gives to a call is no reason to look for
// another revision.
func TestRejectionIsNoOtherRevision(t *testing.T) {
	m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
		refuse(w, 400, r.ID, `{"code":-32602,"message":"amount"}`)
	})
	out := newServer(t, m.URL).Call(t.Context(), aCall("x", repeatable))
	if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || !strings.Contains(string(out.Value), "amount") || m.methods() != "tools/list tools/call" {
		t.Errorf("outcome %+v after %s", out, m.methods())
	}
}

// A server may need more of a client than this one declares.
func TestMissingCapability(t *testing.T) {
	m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
		refuse(w, 400, r.ID, `{"code":-32021,"message":"m","data":{"requiredCapabilities":{"elicitation":{}}}}`)
	})
	out := newServer(t, m.URL).Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || !strings.Contains(out.Message, "more than this operator can give") || m.calls != 1 {
		t.Errorf("outcome %+v after %d calls", out, m.calls)
	}
}
