package tools_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pawl-run/pawl/test/toolserver/tools"
)

func post(t *testing.T, url, body string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

func TestHTTPTools(t *testing.T) {
	server := httptest.NewServer(tools.New())
	defer server.Close()
	key := func(k string) map[string]string {
		return map[string]string{"Idempotency-Key": k, "Pawl-Run-UID": "u"}
	}
	for _, tc := range []struct {
		tool, body string
		header     map[string]string
		status     int
		want       string
	}{
		{"profiles/lookup", `{"key":"profile"}`, nil, 200, `{"value":"active"}`},
		{"profiles/lookup", `{"key":"policy"}`, nil, 200, `{"value":"refund-under-100"}`},
		{"profiles/lookup", `{"key":"x"}`, nil, 404, `{"error":"key must be profile or policy"}`},
		{"billing/refund", `{"order_id":"o","amount":50.00}`, nil, 400, `{"error":"the header Idempotency-Key is required"}`},
		{"billing/refund", `{"order_id":"o","amount":50.00}`, key("a"), 200, `{"order_id":"o","refunded":50.00}`},
		{"billing/refund", `{"amount":50.00, "order_id":"o"}`, key("a"), 200, `{"order_id":"o","refunded":50.00}`},
		{"billing/refund", `{"order_id":"o","amount":51}`, key("a"), 422, `{"error":"this key was used with other arguments"}`},
		{"status/get", `{}`, nil, 200, `{"status":"pending"}`},
		{"slow/wait", `{"seconds":0.01}`, nil, 200, `{"waited":0.01}`},
		{"counter/next", `{}`, nil, 200, `{"value":1}`},
		{"counter/next", `{}`, nil, 200, `{"value":2}`},
		{"calc/add", `{"a":9007199254740992,"b":1}`, nil, 200, `9007199254740993`},
		{"calc/multiply", `{"a":6,"b":-7}`, nil, 200, `-42`},
		{"calc/add", `{"a":1.5,"b":1}`, nil, 400, `{"error":"a and b must be integers"}`},
		{"calc/weather", `{"location":"Oslo"}`, nil, 200, `"40 C"`},
		{"fail/internal", `{}`, nil, 500, `{"error":"this tool always fails"}`},
		{"fail/not_found", `{}`, nil, 404, `{"error":"this tool never finds anything"}`},
		{"fail/throttled", `{"times":1}`, key("b"), 429, `{"error":"too many requests"}`},
		{"fail/throttled", `{"times":1}`, key("b"), 200, `{"requests":2}`},
		{"fail/cut", `{}`, nil, 0, ``},
		{"fail/garbage", `{}`, nil, 0, ``},
		{"no/tool", `{}`, nil, 404, `{"error":"no such tool: POST /no/tool"}`},
		{"status/get", `[]`, nil, 400, `{"error":"the body must be a JSON object: the JSON value is an array: give an object, such as {\"name\": \"value\"}"}`},
	} {
		status, got := post(t, server.URL+"/"+tc.tool, tc.body, tc.header)
		if status != tc.status || got != tc.want {
			t.Errorf("%s %s: %d %s, want %d %s", tc.tool, tc.body, status, got, tc.status, tc.want)
		}
	}
	if status, got := post(t, server.URL+"/fail/huge", `{}`, nil); status != 200 || len(got) < 8<<20 {
		t.Errorf("huge: %d, %d bytes", status, len(got))
	}
}

func TestLedger(t *testing.T) {
	handler := tools.New()
	server := httptest.NewServer(handler)
	defer server.Close()
	header := map[string]string{
		"Idempotency-Key": "k", "Pawl-Run": "ns/run", "Pawl-Run-UID": "uid", "Pawl-Call-Id": "c1", "Pawl-Attempt": "2", "Pawl-Epoch": "5",
	}
	for range 2 {
		post(t, server.URL+"/billing/refund", `{"order_id":"o","amount":50}`, header)
	}
	resp, err := http.Get(server.URL + "/ledger")
	if err != nil {
		t.Fatal(err)
	}
	var entries []tools.Entry
	if err := json.NewDecoder(resp.Body).Decode(&entries); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for i := range entries {
		if entries[i].Done == nil || entries[i].Time.IsZero() {
			t.Errorf("entry without times: %+v", entries[i])
		}
		entries[i].Done, entries[i].Time = nil, time.Time{}
	}
	want := tools.Entry{
		Tool: "billing.refund", Key: "k", CallID: "c1", Attempt: 2, Epoch: 5, Run: "ns/run", RunUID: "uid",
		Arguments: json.RawMessage(`{"order_id":"o","amount":50}`),
	}
	first := want
	first.Applied = true
	if diff := cmp.Diff([]tools.Entry{first, want}, entries); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, server.URL+"/ledger", nil)
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE /ledger: %v %v", resp, err)
	}
	if len(handler.Ledger()) != 0 {
		t.Error("the ledger is not empty")
	}
}

func TestEffects(t *testing.T) {
	handler := tools.New()
	server := httptest.NewServer(handler)
	defer server.Close()
	for _, tc := range []struct {
		tool   string
		status int
		state  string
	}{
		{"effect/apply", 200, tools.Committed},
		{"effect/later", 200, tools.Committed},
		{"effect/cut", 0, tools.Committed},
		{"effect/fail", 500, tools.Committed},
		{"effect/refuse", 422, tools.Rejected},
		{"billing/refund", 200, tools.Committed},
		{"status/get", 200, tools.NotFound},
	} {
		key := strings.ReplaceAll(tc.tool, "/", "-")
		if status, body := post(t, server.URL+"/"+tc.tool, `{"seconds":0.01}`, map[string]string{"Idempotency-Key": key}); status != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.tool, status, body, tc.status)
		}
		resp, err := http.Get(server.URL + "/effects/" + key)
		if err != nil {
			t.Fatal(err)
		}
		var found struct{ State string }
		if err := json.NewDecoder(resp.Body).Decode(&found); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if found.State != tc.state || handler.Effect(key) != tc.state || handler.Looks(key) != 1 {
			t.Errorf("%s: %s, %s after %d looks, want %s", tc.tool, found.State, handler.Effect(key), handler.Looks(key), tc.state)
		}
	}
}

func TestDisconnectIsRecorded(t *testing.T) {
	handler := tools.New()
	server := httptest.NewServer(handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/slow/wait", strings.NewReader(`{"seconds":60}`))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		t.Fatalf("an answer: %v", resp.Status)
	}
	for range 100 {
		if entries := handler.Requests("slow.wait"); len(entries) == 1 && entries[0].Disconnected {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("the disconnect was not recorded: %+v", handler.Ledger())
}

func TestMCP(t *testing.T) {
	handler := tools.New()
	server := httptest.NewServer(handler)
	defer server.Close()
	for _, path := range []string{"/mcp", "/mcp-sessions"} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL + path, DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 2, "b": 3}, Meta: mcp.Meta{"pawl.run/idempotency-key": path}})
		if err != nil || result.IsError {
			t.Fatalf("%s: %+v, %v", path, result, err)
		}
		if sum, _ := result.StructuredContent.(map[string]any); sum["sum"] != 5.0 {
			t.Errorf("%s: %v", path, result.StructuredContent)
		}
		_ = session.Close()
	}
	entries := handler.Requests("mcp.add")
	if len(entries) != 2 || entries[0].Key != "/mcp" || entries[1].Key != "/mcp-sessions" {
		t.Errorf("ledger %+v", entries)
	}
}
