package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
)

// message is a request as a hostile server reads it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Cursor string `json:"cursor"`
	} `json:"params"`
	Header http.Header `json:"-"`
	HTTP   string      `json:"-"`
}

// hostile is a server that shakes hands properly, with sessions, and does then with
// the n-th list or call what answer says.
type hostile struct {
	*httptest.Server
	mu    sync.Mutex
	calls int
	inits int
}

func newHostile(t *testing.T, answer func(n int, m message, w http.ResponseWriter)) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := message{Header: r.Header, HTTP: r.Method}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		switch m.Method {
		case "server/discover":
			http.NotFound(w, r)
		case "initialize":
			h.mu.Lock()
			h.inits++
			h.mu.Unlock()
			w.Header().Set("Mcp-Session-Id", "s-1")
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"h","version":"1"}}}`, m.ID)
		case "notifications/initialized", "notifications/cancelled":
			w.WriteHeader(http.StatusAccepted)
		default:
			if r.Method == http.MethodDelete {
				return
			}
			h.mu.Lock()
			h.calls++
			n := h.calls
			h.mu.Unlock()
			answer(n, m, w)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hostile) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

func writeJSON(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, format, args...)
}

func writeStream(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, format, args...)
}

// deep nests arrays in a way that overflows the stack of readers without a bound.
var deep = strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)

func cut(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

func TestHostileAnswers(t *testing.T) {
	const self = `{"type":"object","$ref":"#"}`
	for name, tc := range map[string]struct {
		answer func(m message, w http.ResponseWriter)
		class  tool.Class
		effect tool.EffectState
		value  string
	}{
		"garbage": {func(_ message, w http.ResponseWriter) { writeJSON(w, "garbage") }, "unknown", "unknown", ""},
		"empty":   {func(_ message, w http.ResponseWriter) { writeJSON(w, "") }, "unknown", "unknown", ""},
		"text":    {func(_ message, w http.ResponseWriter) { _, _ = io.WriteString(w, "hello") }, "unknown", "unknown", ""},
		"array":   {func(m message, w http.ResponseWriter) { writeJSON(w, `[{"jsonrpc":"2.0","id":%s,"result":{}}]`, m.ID) }, "unknown", "unknown", ""},
		"wrong id": {func(_ message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":77,"result":{"content":[]}}`)
		}, "unknown", "unknown", ""},
		"no id":      {func(_ message, w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","result":{"content":[]}}`) }, "unknown", "unknown", ""},
		"no version": {func(m message, w http.ResponseWriter) { writeJSON(w, `{"id":%s,"result":{"content":[]}}`, m.ID) }, "unknown", "unknown", ""},
		"result and error": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]},"error":{"code":1}}`, m.ID)
		}, "unknown", "unknown", ""},
		"neither":      {func(m message, w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":%s}`, m.ID) }, "unknown", "unknown", ""},
		"null result":  {func(m message, w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID) }, "unknown", "unknown", ""},
		"empty result": {func(m message, w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID) }, "unknown", "unknown", ""},
		"content no array": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":"x"}}`, m.ID)
		}, "unknown", "unknown", ""},
		"null content": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[null]}}`, m.ID)
		}, "unknown", "unknown", ""},
		"twice": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[]}}`, m.ID)
		}, "unknown", "unknown", ""},
		"deep": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":%s}}`, m.ID, deep)
		}, "unknown", "unknown", ""},
		"task": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","taskId":"t","status":"working","content":[]}}`, m.ID)
		}, "unknown", "unknown", ""},
		"old task": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"taskId":"t","status":"working"}}}`, m.ID)
		}, "unknown", "unknown", ""},
		"unknown type": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"odd","content":[{"type":"text","text":"x"}]}}`, m.ID)
		}, "unknown", "unknown", ""},
		"type no string": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":[],"content":[]}}`, m.ID)
		}, "unknown", "unknown", ""},
		"complete": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"x"}]}}`, m.ID)
		}, "ok", "committed", `"x"`},
		"input required": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"requestedSchema":`+self+`}}}}}`, m.ID)
		}, "tool_error", "committed", ""},
		"elicits": {func(m message, w http.ResponseWriter) {
			writeStream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\",\"params\":{\"requestedSchema\":"+self+"}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
		}, "ok", "committed", "null"},
		"unknown content": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"hologram","secret":"x"}]}}`, m.ID)
		}, "ok", "committed", `[{"bytes":32,"digest":"` + strictjson.Digest([]byte(`{"secret":"x","type":"hologram"}`)) + `","type":"hologram"}]`},
		"too large": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, m.ID, strings.Repeat("x", 9<<20))
		}, "unknown", "unknown", ""},
		"endless stream": {endless, "unknown", "unknown", ""},
		"endless line":   {func(_ message, w http.ResponseWriter) { writeStream(w, "data: %s", strings.Repeat("x", 9<<20)) }, "unknown", "unknown", ""},
		"stream ends":    {func(_ message, w http.ResponseWriter) { writeStream(w, ": hello\n\n") }, "unknown", "unknown", ""},
		"event not ended": {func(m message, w http.ResponseWriter) {
			writeStream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n", m.ID)
		}, "unknown", "unknown", ""},
		"other event": {func(m message, w http.ResponseWriter) {
			writeStream(w, "event: other\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
		}, "unknown", "unknown", ""},
		"lines of an event": {func(m message, w http.ResponseWriter) {
			writeStream(w, "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata:\"id\":%s,\"result\":{\"content\":[]}}\r\n\r\n", m.ID)
		}, "ok", "committed", "null"},
		"wrong id in stream": {func(m message, w http.ResponseWriter) {
			writeStream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"no\"}]}}\n\ndata: x\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
		}, "ok", "committed", "null"},
		"accepted":  {func(_ message, w http.ResponseWriter) { w.WriteHeader(202) }, "unknown", "unknown", ""},
		"redirect":  {func(_ message, w http.ResponseWriter) { w.Header().Set("Location", "/elsewhere"); w.WriteHeader(307) }, "unknown", "unknown", ""},
		"broken":    {func(_ message, w http.ResponseWriter) { w.WriteHeader(500) }, "unknown", "unknown", ""},
		"throttled": {func(_ message, w http.ResponseWriter) { w.WriteHeader(429) }, "throttled", "rejected", ""},
		"forbidden": {func(_ message, w http.ResponseWriter) { w.WriteHeader(403) }, "rejected", "rejected", "null"},
		"gone":      {func(_ message, w http.ResponseWriter) { w.WriteHeader(404) }, "rejected", "rejected", "null"},
		"cut":       {func(_ message, w http.ResponseWriter) { cut(w, "") }, "unknown", "unknown", ""},
		"cut inside": {func(_ message, w http.ResponseWriter) {
			cut(w, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Type: application/json\r\n\r\n{")
		}, "unknown", "unknown", ""},
		"cut stream": {func(_ message, w http.ResponseWriter) {
			cut(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n: a\r\n")
		}, "unknown", "unknown", ""},
		"invalid params": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"amount"}}`, m.ID)
		}, "rejected", "rejected", `{"code":-32602,"message":"amount"}`},
		"huge code": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":1e300,"message":"x"}}`, m.ID)
		}, "tool_error", "committed", `{"code":1e300,"message":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, func(_ int, m message, w http.ResponseWriter) { tc.answer(m, w) })
			for _, again := range []bool{false, true} {
				s := newServer(t, h.URL)
				before := h.count()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				out := s.Call(ctx, aCall("x", func(c *tool.Call) { c.Repeatable = again }))
				cancel()
				if out.Class != tc.class || out.Effect != tc.effect {
					t.Errorf("outcome %+v", out)
				}
				if string(out.Value) != tc.value {
					t.Errorf("value %s, want %s", out.Value, tc.value)
				}
				if n := h.count() - before; n != 1 {
					t.Errorf("%d requests", n)
				}
				if (out.Class == tool.ClassOK) != (out.Message == "") || len(out.Message) > 300 {
					t.Errorf("message %q", out.Message)
				}
			}
		})
	}
}

// endless sends harmless events until nobody reads them.
func endless(_ message, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"x\":\"" + strings.Repeat("x", 10_000) + "\"}}\n\n"
	for range 10_000 {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
	}
}

func TestHostileLists(t *testing.T) {
	tools := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"name":"t%d","inputSchema":{}}`, i))
		}
		return strings.Join(list, ",")
	}
	for name, tc := range map[string]struct {
		answer func(m message, w http.ResponseWriter)
		want   string
	}{
		"endless pages": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"nextCursor":"%sx"}}`, m.ID, m.Params.Cursor)
		}, "more than 20 pages"},
		"many tools": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, m.ID, tools(513))
		}, "more than 512 tools"},
		"two of a name": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s,%s]}}`, m.ID, tools(1), tools(1))
		}, "two tools named t0"},
		"bad name": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a b"}]}}`, m.ID)
		}, `named "a b"`},
		"no name": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{}]}}`, m.ID)
		}, `named ""`},
		"null tool": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[null]}}`, m.ID)
		}, "not a valid MCP message"},
		"no tools": {func(m message, w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID) }, "not a valid MCP message"},
		"bad cursor": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"nextCursor":5}}`, m.ID)
		}, "nextCursor"},
		"large schema": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","inputSchema":"%s"}]}}`, m.ID, strings.Repeat("x", 65<<10))
		}, "input schema of its tool a"},
		"odd type": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","tools":[]}}`, m.ID)
		}, "not complete"},
		"error": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"s3cr3t"}}`, m.ID)
		}, "JSON-RPC error -32601"},
		"garbage": {func(_ message, w http.ResponseWriter) { writeJSON(w, `s3cr3t`) }, "not a valid MCP message"},
		"too large": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"x":"%s"}}`, m.ID, strings.Repeat("x", 9<<20))
		}, "too large"},
		"redirect": {func(_ message, w http.ResponseWriter) { w.Header().Set("Location", "/s3cr3t"); w.WriteHeader(302) }, "redirect"},
		"broken":   {func(_ message, w http.ResponseWriter) { http.Error(w, "s3cr3t", http.StatusServiceUnavailable) }, "HTTP 503"},
		"cut":      {func(_ message, w http.ResponseWriter) { cut(w, "") }, "connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, func(_ int, m message, w http.ResponseWriter) { tc.answer(m, w) })
			got, err := newServer(t, h.URL).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("List = %v, %v; want an error with %q", got, err, tc.want)
			}
		})
	}
}

func TestListBounds(t *testing.T) {
	h := newHostile(t, func(_ int, m message, w http.ResponseWriter) {
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","description":"%s","inputSchema":{"type":"object","maximum":9007199254740993}}],"nextCursor":""}}`, m.ID, strings.Repeat("é", 3000))
	})
	got, err := newServer(t, h.URL).List(t.Context())
	if err != nil || len(got) != 1 || len(got[0].Description) != 4096 || string(got[0].InputSchema) != `{"maximum":9007199254740993,"type":"object"}` {
		t.Errorf("List = %.100v, %v", got, err)
	}
}

// A handshake with a hostile server ends as "not sent", soon, and with nothing of
// what the server said.
func TestHostileHandshakes(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"garbage":  func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "s3cr3t") },
		"not HTTP": func(w http.ResponseWriter, _ *http.Request) { cut(w, "s3cr3t\r\n\r\n") },
		"cut":      func(w http.ResponseWriter, _ *http.Request) { cut(w, "") },
		"broken":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "s3cr3t", http.StatusInternalServerError) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/s3cr3t", http.StatusTemporaryRedirect)
		},
		"too large": func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "%s", strings.Repeat("s3cr3t", 1<<20)) },
		"deep":      func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "%s", deep) },
		"endless":   func(w http.ResponseWriter, _ *http.Request) { endless(message{}, w) },
		"odd version": func(w http.ResponseWriter, r *http.Request) {
			initialize(w, r, `{"protocolVersion":"1999-01-01","capabilities":{}}`)
		},
		"odd result": func(w http.ResponseWriter, r *http.Request) {
			initialize(w, r, `{"protocolVersion":5,"capabilities":[],"serverInfo":null}`)
		},
		"empty": func(w http.ResponseWriter, r *http.Request) { initialize(w, r, `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(answer)
			defer h.Close()
			s, err := mcptool.New(mcptool.Options{URL: h.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			start := time.Now()
			out := s.Call(t.Context(), aCall("x"))
			if out.Class != tool.ClassTransport || out.Effect != tool.EffectRejected || strings.Contains(out.Message, "s3cr3t") || !strings.HasPrefix(out.Message, "not sent") {
				t.Errorf("outcome %+v", out)
			}
			if _, err := s.List(t.Context()); err == nil || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("List: %v", err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func initialize(w http.ResponseWriter, r *http.Request, result string) {
	var m message
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)
	if m.Method != "initialize" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// The server says that it doesn't know the session: one repair, one more request,
// and no more, whatever it says then.
func TestSessionRepair(t *testing.T) {
	for _, status := range []int{400, 404} {
		good := func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
		}
		h := newHostile(t, func(n int, m message, w http.ResponseWriter) {
			if n == 2 {
				w.WriteHeader(status)
				return
			}
			good(m, w)
		})
		s := newServer(t, h.URL)
		for range 2 {
			if out := s.Call(t.Context(), aCall("x")); out.Class != tool.ClassOK {
				t.Errorf("%d: outcome %+v", status, out)
			}
		}
		if h.calls != 3 || h.inits != 2 {
			t.Errorf("%d: %d calls in %d sessions, want 3 in 2", status, h.calls, h.inits)
		}

		h = newHostile(t, func(n int, m message, w http.ResponseWriter) {
			if n > 1 {
				w.WriteHeader(status)
				return
			}
			good(m, w)
		})
		s = newServer(t, h.URL)
		s.Call(t.Context(), aCall("x"))
		out := s.Call(t.Context(), aCall("x"))
		if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || h.calls != 3 {
			t.Errorf("%d: outcome %+v after %d calls, want 3", status, out, h.calls)
		}
	}
}

// A stream that breaks off is taken up where it stopped, without a second request.
func TestResume(t *testing.T) {
	var last string
	h := newHostile(t, func(n int, m message, w http.ResponseWriter) {
		switch {
		case n == 1:
			last = string(m.ID)
			writeStream(w, "id: e-1\nretry: 20\ndata:\n\n")
		case m.HTTP != http.MethodGet || m.Header.Get("Last-Event-ID") != fmt.Sprintf("e-%d", n-1) || m.Header.Get("Mcp-Session-Id") != "s-1":
			w.WriteHeader(http.StatusBadRequest)
		case n < 4:
			writeStream(w, "id: e-%d\nretry: 20\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n", n)
		default:
			writeStream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"at last\"}]}}\n\n", last)
		}
	})
	out := newServer(t, h.URL).Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassOK || string(out.Value) != `"at last"` || h.calls != 4 {
		t.Errorf("outcome %+v after %d requests", out, h.calls)
	}
}

func TestResumeGivesUp(t *testing.T) {
	h := newHostile(t, func(_ int, _ message, w http.ResponseWriter) {
		writeStream(w, "id: e-1\nretry: 1\ndata:\n\n")
	})
	out := newServer(t, h.URL).Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassUnknown || out.Effect != tool.EffectUnknown || h.calls > 25 {
		t.Errorf("outcome %+v after %d requests", out, h.calls)
	}
}
