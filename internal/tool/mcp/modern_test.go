package mcptool_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
)

// modernRequest is a request of the revision without sessions.
type modernRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name           string          `json:"name"`
		TaskID         string          `json:"taskId"`
		Cursor         string          `json:"cursor"`
		Arguments      json.RawMessage `json:"arguments"`
		InputResponses json.RawMessage `json:"inputResponses"`
		RequestState   *string         `json:"requestState"`
		Meta           map[string]any  `json:"_meta"`
	} `json:"params"`
	Header http.Header `json:"-"`
}

// modernServer is a server of that revision that insists on everything a client has to
// send with every request. What it answers is up to the test.
type modernServer struct {
	*httptest.Server
	t *testing.T
	// tools are the entries of its list, members what else the list has.
	tools, members string
	// call answers tools/call and everything else but tools/list.
	call func(n int, r modernRequest, w http.ResponseWriter)

	mu    sync.Mutex
	seen  []modernRequest
	ids   map[string]bool
	calls int
}

const plainTool = `{"name":"x","inputSchema":{"type":"object"}}`

func newModern(t *testing.T, tools string, call func(n int, r modernRequest, w http.ResponseWriter)) *modernServer {
	t.Helper()
	m := &modernServer{t: t, tools: tools, call: call, ids: map[string]bool{}}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

func (m *modernServer) serve(w http.ResponseWriter, hr *http.Request) {
	body, _ := io.ReadAll(hr.Body)
	r := modernRequest{Header: hr.Header}
	if err := json.Unmarshal(body, &r); err != nil || hr.Method != http.MethodPost {
		m.t.Errorf("%s %.200s: %v", hr.Method, body, err)
	}
	if r.Method == "initialize" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`, r.ID)
		return
	}
	m.check(r)
	m.mu.Lock()
	m.seen = append(m.seen, r)
	if r.Method != "tools/list" {
		m.calls++
	}
	n := m.calls
	m.mu.Unlock()
	if r.Method == "tools/list" {
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[%s]%s}}`, r.ID, m.tools, m.members)
		return
	}
	m.call(n, r, w)
}

// check insists on what the revision demands of a client.
func (m *modernServer) check(r modernRequest) {
	version := r.Params.Meta["io.modelcontextprotocol/protocolVersion"]
	_, capabilities := r.Params.Meta["io.modelcontextprotocol/clientCapabilities"].(map[string]any)
	_, info := r.Params.Meta["io.modelcontextprotocol/clientInfo"].(map[string]any)
	wantName := ""
	switch r.Method {
	case "tools/call":
		wantName = r.Params.Name
	case "tasks/get", "tasks/update", "tasks/cancel":
		wantName = r.Params.TaskID
	}
	name := r.Header.Get("Mcp-Name")
	if text, encoded := strings.CutPrefix(name, "=?base64?"); encoded {
		plain, _ := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?="))
		name = string(plain)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case version != "2026-07-28" || r.Header.Get("Mcp-Protocol-Version") != version:
		m.t.Errorf("%s: version %v in the body, %q in the header", r.Method, version, r.Header.Get("Mcp-Protocol-Version"))
	case !capabilities || !info:
		m.t.Errorf("%s: _meta %v", r.Method, r.Params.Meta)
	case r.Header.Get("Mcp-Method") != r.Method || name != wantName:
		m.t.Errorf("%s: Mcp-Method %q, Mcp-Name %q", r.Method, r.Header.Get("Mcp-Method"), name)
	case r.Header.Get("Accept") != "application/json, text/event-stream" || r.Header.Get("Mcp-Session-Id") != "":
		m.t.Errorf("%s: headers %v", r.Method, r.Header)
	case m.ids[string(r.ID)]:
		m.t.Errorf("%s: the id %s was used before", r.Method, r.ID)
	}
	m.ids[string(r.ID)] = true
}

// methods are those of the requests so far.
func (m *modernServer) methods() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var methods []string
	for _, r := range m.seen {
		methods = append(methods, r.Method)
	}
	return strings.Join(methods, " ")
}

// fine answers a call with the text "fine".
func fine(_ int, r modernRequest, w http.ResponseWriter) {
	writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"fine"}]}}`, r.ID)
}

// refuse answers with an HTTP status and a JSON-RPC error.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, failure string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, id, failure)
}

func serverWith(t *testing.T, o mcptool.Options) *mcptool.Server {
	t.Helper()
	s, err := mcptool.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
