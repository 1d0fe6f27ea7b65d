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

// hostile is a server with sessions that shakes hands properly, offers the tool x, and does
// with the n-th call what answer says.
type hostile struct {
	*httptest.Server
	// list answers tools/list, where it is set.
	list func(m message, w http.ResponseWriter)

	mu    sync.Mutex
	calls int
	inits int
	lists int
}

func newHostile(t *testing.T, answer func(n int, m message, w http.ResponseWriter)) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := message{Header: r.Header, HTTP: r.Method}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		switch m.Method {
		case "initialize":
			h.mu.Lock()
			h.inits++
			h.mu.Unlock()
			w.Header().Set("Mcp-Session-Id", "s-1")
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"h","version":"1"}}}`, m.ID)
		case "notifications/initialized", "notifications/cancelled":
			w.WriteHeader(http.StatusAccepted)
		case "tools/list":
			h.offer(m, w)
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

// offer lists the tools, to whoever has a session.
func (h *hostile) offer(m message, w http.ResponseWriter) {
	h.mu.Lock()
	h.lists++
	h.mu.Unlock()
	switch {
	case m.Header.Get("Mcp-Session-Id") == "":
		w.WriteHeader(http.StatusNotFound)
	case h.list != nil:
		h.list(m, w)
	default:
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}}`, m.ID)
	}
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
		}, "tool_error", "committed", "*"},
		"many values": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":[%s0]}}`, m.ID, strings.Repeat("0,", 1<<20))
		}, "tool_error", "committed", "*"},
		"too large in a stream": {func(m message, w http.ResponseWriter) {
			writeStream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]}}\n\n", m.ID, strings.Repeat("x", 9<<20))
		}, "tool_error", "committed", "*"},
		"too large for somebody else": {func(_ message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":77,"result":{"content":[{"type":"text","text":"%s"}]}}`, strings.Repeat("x", 9<<20))
		}, "unknown", "unknown", ""},
		"too large an error": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"%s"}}`, m.ID, strings.Repeat("x", 9<<20))
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
				if string(out.Value) != tc.value && (tc.value != "*" || !out.Truncated || len(out.Value) > 500) {
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
		"no tools": {func(m message, w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID) }, "not a valid MCP message"},
		"bad cursor": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"nextCursor":5}}`, m.ID)
		}, "nextCursor"},
		"odd type": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","tools":[]}}`, m.ID)
		}, "not complete"},
		"error": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"s3cr3t"}}`, m.ID)
		}, "JSON-RPC error -32601"},
		"too much to keep": {func(m message, w http.ResponseWriter) {
			var list []string
			for i := range 100 {
				list = append(list, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","description":"%s"}}`, i, strings.Repeat("x", 30_000)))
			}
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, m.ID, strings.Join(list, ","))
		}, "more than 2097152 bytes together"},
		"garbage": {func(_ message, w http.ResponseWriter) { writeJSON(w, `s3cr3t`) }, "not a valid MCP message"},
		"too large": {func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"x":"%s"}}`, m.ID, strings.Repeat("x", 9<<20))
		}, "too large"},
		"redirect": {func(_ message, w http.ResponseWriter) { w.Header().Set("Location", "/s3cr3t"); w.WriteHeader(302) }, "redirect"},
		"broken":   {func(_ message, w http.ResponseWriter) { http.Error(w, "s3cr3t", http.StatusServiceUnavailable) }, "HTTP 503"},
		"cut":      {func(_ message, w http.ResponseWriter) { cut(w, "") }, "connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, nil)
			h.list = tc.answer
			got, err := newServer(t, h.URL).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("List = %v, %v; want an error with %q", got, err, tc.want)
			}
		})
	}
}

func TestListBounds(t *testing.T) {
	h := newHostile(t, nil)
	h.list = func(m message, w http.ResponseWriter) {
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","description":"%s","inputSchema":{"type":"object","maximum":9007199254740993}}],"nextCursor":""}}`, m.ID, strings.Repeat("é", 3000))
	}
	listing, err := newServer(t, h.URL).List(t.Context())
	got := listing.Tools
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

// The server says that it doesn't know the session: one repair, and one more request where
// the first is proven to have done nothing or may be repeated, and no more, whatever it
// says then.
func TestSessionRepair(t *testing.T) {
	good := func(m message, w http.ResponseWriter) {
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
	}
	bare := func(status int) func(message, http.ResponseWriter) {
		return func(_ message, w http.ResponseWriter) { w.WriteHeader(status) }
	}
	for name, tc := range map[string]struct {
		refuse func(message, http.ResponseWriter)
		// proven is true where the refusal proves that nothing was done.
		proven bool
		// then is how the call ends when it is refused again.
		then tool.Class
	}{
		"by the book": {bare(404), true, tool.ClassTransport},
		"in the wild": {func(_ message, w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		}, true, tool.ClassRejected},
		"without a word": {bare(400), false, tool.ClassRejected},
		"as an error of the call": {func(m message, w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"amount"},"id":%s}`, m.ID)
		}, false, tool.ClassRejected},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, repeatable %v", name, again), func(t *testing.T) {
				h := newHostile(t, func(n int, m message, w http.ResponseWriter) {
					if n == 2 {
						tc.refuse(m, w)
						return
					}
					good(m, w)
				})
				s := newServer(t, h.URL)
				call := aCall("x", func(c *tool.Call) { c.Repeatable = again })
				s.Call(t.Context(), call)
				out := s.Call(t.Context(), call)
				calls, inits, class := 3, 2, tool.ClassOK
				if !tc.proven && !again {
					calls, inits, class = 2, 1, tool.ClassRejected
				}
				if out.Class != class || h.calls != calls || h.inits != inits {
					t.Errorf("outcome %+v after %d calls in %d sessions, want %s after %d in %d", out, h.calls, h.inits, class, calls, inits)
				}

				h = newHostile(t, func(_ int, m message, w http.ResponseWriter) { tc.refuse(m, w) })
				out = newServer(t, h.URL).Call(t.Context(), call)
				if out.Class != tc.then || out.Effect != tool.EffectRejected || h.calls != calls-1 {
					t.Errorf("outcome %+v after %d calls, want %s after %d", out, h.calls, tc.then, calls-1)
				}
			})
		}
	}
}

func TestSessionLostAtOnce(t *testing.T) {
	h := newHostile(t, func(n int, m message, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
	})
	out := newServer(t, h.URL).Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassOK || h.calls != 2 || h.inits != 2 {
		t.Errorf("outcome %+v after %d calls in %d sessions, want ok after 2 in 2", out, h.calls, h.inits)
	}
	h = newHostile(t, func(_ int, _ message, w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) })
	out = newServer(t, h.URL).Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassTransport || out.Effect != tool.EffectRejected || h.calls != 2 {
		t.Errorf("outcome %+v after %d calls, want transport after 2", out, h.calls)
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

// An event that broke off before its end does not count, nor does its id.
func TestResumeAfterHalfAnEvent(t *testing.T) {
	var last string
	h := newHostile(t, func(n int, m message, w http.ResponseWriter) {
		switch {
		case n == 1:
			last = string(m.ID)
			cut(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: e-1\nretry: 20\ndata:\n\nid: e-2\ndata: {}\nid: e-")
		case m.Header.Get("Last-Event-ID") != "e-1":
			w.WriteHeader(http.StatusBadRequest)
		default:
			writeStream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", last)
		}
	})
	out := newServer(t, h.URL).Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassOK {
		t.Errorf("outcome %+v", out)
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
