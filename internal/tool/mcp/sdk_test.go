package mcptool_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// sdkService is a server of the SDK with an eye on every request.
type sdkService struct {
	*httptest.Server
	handler atomic.Pointer[http.Handler]
	options mcp.StreamableHTTPOptions
	runs    atomic.Int32
	// cancelled counts the calls of hang that were told to stop; the end of the test
	// releases the others.
	cancelled atomic.Int32
	release   chan struct{}

	mu   sync.Mutex
	meta mcp.Meta
	seen []string
}

func newSDKService(t *testing.T, options mcp.StreamableHTTPOptions) *sdkService {
	t.Helper()
	s := &sdkService{options: options, release: make(chan struct{})}
	s.restart()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Method)
		s.mu.Unlock()
		(*s.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(s.release) })
	return s
}

// restart forgets every session.
func (s *sdkService) restart() {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{PageSize: 3})
	s.addTools(server)
	var handler http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &s.options)
	s.handler.Store(&handler)
}

func (s *sdkService) addTools(server *mcp.Server) {
	add := func(name string, result *mcp.CallToolResult, err error) {
		server.AddTool(&mcp.Tool{Name: name, Description: "about " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"big":{"type":"integer","maximum":9007199254740993}}}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				s.runs.Add(1)
				s.mu.Lock()
				s.meta = r.Params.Meta
				s.mu.Unlock()
				if name == "echo" {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
				}
				if name == "hang" {
					select {
					case <-ctx.Done():
						s.cancelled.Add(1)
					case <-s.release:
					}
				}
				return result, err
			})
	}
	text := func(s string) mcp.Content { return &mcp.TextContent{Text: s} }
	add("text", &mcp.CallToolResult{Content: []mcp.Content{text("hello")}}, nil)
	add("json_text", &mcp.CallToolResult{Content: []mcp.Content{text(`{"a":1}`)}}, nil)
	add("none", &mcp.CallToolResult{Content: []mcp.Content{}}, nil)
	add("two", &mcp.CallToolResult{Content: []mcp.Content{text("a"), &mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"}}}, nil)
	add("resource", &mcp.CallToolResult{Content: []mcp.Content{
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: "inside"}},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///b", Blob: []byte("blob")}},
		&mcp.ResourceLink{URI: "file:///c", Name: "c"},
	}}, nil)
	add("structured", &mcp.CallToolResult{Content: []mcp.Content{text("ignored")}, StructuredContent: json.RawMessage(`{"n":9007199254740993}`)}, nil)
	add("is_error", &mcp.CallToolResult{IsError: true, Content: []mcp.Content{text("no such order")}}, nil)
	add("own_code", nil, &jsonrpc.Error{Code: 4711, Message: "special"})
	add("internal", nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "boom"})
	add("long", &mcp.CallToolResult{Content: []mcp.Content{text(strings.Repeat("x", 1000))}}, nil)
	add("echo", nil, nil)
	add("hang", &mcp.CallToolResult{Content: []mcp.Content{text("late")}}, nil)
}

func newServer(t *testing.T, url string) *mcptool.Server {
	t.Helper()
	s, err := mcptool.New(mcptool.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func aCall(name string, mods ...func(*tool.Call)) tool.Call {
	call := tool.Call{
		Tool: name, Arguments: json.RawMessage(`{"big":9007199254740993,"s":"<&>"}`), ID: "call-1", EffectKey: "key-1",
		Attempt: 2, Epoch: 7, RunNamespace: "shop", RunName: "order", RunUID: "uid-1", MaxResultBytes: 300,
	}
	for _, mod := range mods {
		mod(&call)
	}
	return call
}

func repeatable(call *tool.Call) { call.Repeatable = true }

// flavours are the ways in which the SDK's server can speak.
var flavours = map[string]mcp.StreamableHTTPOptions{
	"stateless":      {Stateless: true, PropagateRequestCancellation: true},
	"stateless JSON": {Stateless: true, JSONResponse: true, PropagateRequestCancellation: true},
	"sessions":       {},
	"sessions JSON":  {JSONResponse: true},
	"resumable":      {EventStore: mcp.NewMemoryEventStore(nil)},
}

func TestAgainstSDK(t *testing.T) {
	ok := func(value string) tool.Outcome {
		return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(value)}
	}
	listed := func(value string) tool.Outcome {
		out := ok(value)
		out.Embedded = []string{"text", "data"}
		return out
	}
	for flavour, options := range flavours {
		t.Run(flavour, func(t *testing.T) {
			service := newSDKService(t, options)
			s := newServer(t, service.URL)
			for name, want := range map[string]tool.Outcome{
				"text":       ok(`"hello"`),
				"json_text":  ok(`"{\"a\":1}"`),
				"none":       ok(`null`),
				"two":        listed(`[{"text":"a","type":"text"},{"bytes":3,"digest":"` + strictjson.Digest([]byte("png")) + `","mimeType":"image/png","type":"image"}]`),
				"resource":   listed(`[{"mimeType":"text/plain","text":"inside","type":"resource","uri":"file:///a"},{"bytes":4,"digest":"` + strictjson.Digest([]byte("blob")) + `","type":"resource","uri":"file:///b"},{"name":"c","type":"resource_link","uri":"file:///c"}]`),
				"structured": ok(`{"n":9007199254740993}`),
				"echo":       ok(`"{\"big\":9007199254740993,\"s\":\"<&>\"}"`),
				"is_error":   {Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: json.RawMessage(`"no such order"`), Message: "the tool ran and reports an error; see its answer"},
				"own_code":   {Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: json.RawMessage(`{"code":4711,"message":"special"}`), Message: "the tool failed (JSON-RPC error 4711); see its answer", Embedded: []string{"message", "data"}},
				"long": {Class: tool.ClassOK, Effect: tool.EffectCommitted, Truncated: true, Size: 1000,
					Value: json.RawMessage(`"` + strings.Repeat("x", 300) + `\n[cut here: the first 300 of at least 1000 bytes; ask for less]"`)},
			} {
				out := s.Call(t.Context(), aCall(name))
				if diff := cmp.Diff(want, out); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			out := s.Call(t.Context(), aCall("internal"))
			if out.Effect != tool.EffectUnknown || out.Class != tool.ClassToolError && out.Class != tool.ClassUnknown {
				t.Errorf("internal: %+v", out)
			}
			out = s.Call(t.Context(), aCall("no_such_tool"))
			if out.Class != tool.ClassValidation || out.Effect != tool.EffectRejected || out.Message == "" {
				t.Errorf("unknown tool: %+v", out)
			}
		})
	}
}

func TestMetaAndList(t *testing.T) {
	for flavour, options := range flavours {
		t.Run(flavour, func(t *testing.T) {
			service := newSDKService(t, options)
			s := newServer(t, service.URL)
			listing, err := s.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tools := listing.Tools
			if len(tools) != 12 || tools[0].Name != "echo" || tools[11].Name != "two" || tools[0].Description != "about echo" || !strings.Contains(string(tools[0].InputSchema), "9007199254740993") {
				t.Errorf("tools %v", tools)
			}
			s.Call(t.Context(), aCall("text"))
			for key, want := range map[string]any{
				"pawl.run/idempotency-key": "key-1", "pawl.run/run": "shop/order", "pawl.run/run-uid": "uid-1",
				"pawl.run/call-id": "call-1", "pawl.run/attempt": 2.0, "pawl.run/epoch": 7.0,
			} {
				if got := service.meta[key]; got != want {
					t.Errorf("_meta[%q] = %v, want %v", key, got, want)
				}
			}
		})
	}
}

// The server forgets the session between two calls: the call is made in a new one,
// and runs once.
func TestSessionLost(t *testing.T) {
	service := newSDKService(t, flavours["sessions"])
	s := newServer(t, service.URL)
	for i := range 3 {
		out := s.Call(t.Context(), aCall("text"))
		if out.Class != tool.ClassOK {
			t.Fatalf("call %d: %+v", i, out)
		}
		if n := service.runs.Load(); n != int32(i+1) {
			t.Errorf("%d runs after %d calls", n, i+1)
		}
		service.restart()
	}
	if _, err := s.List(t.Context()); err != nil {
		t.Errorf("List in a session that is gone: %v", err)
	}
}

// Another server answers at the same address, of the other era.
func TestEraChanges(t *testing.T) {
	service := newSDKService(t, flavours["sessions"])
	s := newServer(t, service.URL)
	for i := range 6 {
		if out := s.Call(t.Context(), aCall("text", repeatable)); out.Class != tool.ClassOK {
			t.Fatalf("call %d: %+v", i, out)
		}
		service.options.Stateless = !service.options.Stateless
		service.restart()
	}
}

func TestSessionIsSharedAndEnds(t *testing.T) {
	service := newSDKService(t, flavours["sessions"])
	s := newServer(t, service.URL)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if out := s.Call(t.Context(), aCall("text", repeatable)); out.Class != tool.ClassOK {
				t.Errorf("outcome %+v", out)
			}
		})
	}
	wait.Wait()
	s.Close()
	service.mu.Lock()
	defer service.mu.Unlock()
	counts := map[string]int{}
	for _, method := range service.seen {
		counts[method]++
	}
	// One look whether it goes without a session, initialize and initialized, four pages of
	// tools, then the calls; no stream for what the server would like to say.
	if want := map[string]int{"POST": 27, "DELETE": 1}; !cmp.Equal(counts, want) {
		t.Errorf("requests %v, want %v", counts, want)
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	for flavour, options := range flavours {
		t.Run(flavour, func(t *testing.T) {
			service := newSDKService(t, options)
			s := newServer(t, service.URL)
			s.Call(t.Context(), aCall("text"))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			out := s.Call(ctx, aCall("hang"))
			if out.Class != tool.ClassTimeout || out.Effect != tool.EffectUnknown || out.Retryable {
				t.Errorf("timeout: %+v", out)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("took %v", took)
			}
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(200*time.Millisecond, cancel)
			out = s.Call(ctx, aCall("hang", repeatable))
			if out.Class != tool.ClassUnknown || out.Effect != tool.EffectUnknown {
				t.Errorf("cancel: %+v", out)
			}
			if out := s.Call(t.Context(), aCall("text")); out.Class != tool.ClassOK {
				t.Errorf("the session did not survive: %+v", out)
			}
			for range 100 {
				if service.cancelled.Load() == 2 {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("the server was told of %d cancelled calls, want 2", service.cancelled.Load())
		})
	}
}

func TestCredentials(t *testing.T) {
	service := newSDKService(t, flavours["sessions"])
	inner := service.Config.Handler
	want := atomic.Value{}
	want.Store("Bearer 1")
	service.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want.Load() {
			http.Error(w, "who are you, Bearer 2?", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	token := atomic.Value{}
	token.Store("Bearer 1")
	s, err := mcptool.New(mcptool.Options{URL: service.URL, Connection: transport.Options{Headers: func() (http.Header, error) {
		return http.Header{"Authorization": {token.Load().(string)}, "Mcp-Session-Id": {"forged"}}, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out := s.Call(t.Context(), aCall("text")); out.Class != tool.ClassOK {
		t.Fatalf("outcome %+v", out)
	}
	token.Store("Bearer 2")
	out := s.Call(t.Context(), aCall("text"))
	if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || strings.Contains(out.Message, "Bearer") {
		t.Errorf("refused: %+v", out)
	}
	s.Close()
	out = s.Call(t.Context(), aCall("text"))
	if out.Class != tool.ClassRejected || !strings.Contains(out.Message, "credentials") {
		t.Errorf("refused at the handshake: %+v", out)
	}
	if _, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), "credentials") || strings.Contains(err.Error(), "Bearer") {
		t.Errorf("List: %v", err)
	}
	want.Store("Bearer 2")
	if out := s.Call(t.Context(), aCall("text")); out.Class != tool.ClassOK {
		t.Errorf("with the new token: %+v", out)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "h/p", "ftp://h", "http://u:p@h", "http://h/#f"} {
		if _, err := mcptool.New(mcptool.Options{URL: url}); err == nil {
			t.Errorf("New(%q) succeeded", url)
		}
	}
	s := newServer(t, "http://127.0.0.1:1/mcp?x=1")
	out := s.Call(t.Context(), aCall("text"))
	if out.Class != tool.ClassTransport || out.Effect != tool.EffectRejected || !strings.Contains(out.Message, "refused") {
		t.Errorf("nobody listens: %+v", out)
	}
	if _, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
}
