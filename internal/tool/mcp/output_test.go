package mcptool_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// Binary content is described, and kept only where the policy wants it.
func TestBinaryContent(t *testing.T) {
	m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"image","mimeType":"image/png","data":"cG5n"}]}}`, r.ID)
	})
	described := `[{"bytes":3,"digest":"` + strictjson.Digest([]byte("png")) + `","mimeType":"image/png","type":"image"}]`
	for want, include := range map[string]bool{
		described: false,
		strings.Replace(described, `"digest"`, `"data":"cG5n","digest"`, 1): true,
	} {
		out := newServer(t, m.URL).Call(t.Context(), aCall("x", func(c *tool.Call) { c.IncludeBinary = include }))
		if out.Class != tool.ClassOK || string(out.Value) != want {
			t.Errorf("include %v: %s, want %s", include, out.Value, want)
		}
	}
	out := newServer(t, m.URL).Call(t.Context(), aCall("x", func(c *tool.Call) { c.IncludeBinary, c.MaxResultBytes = true, 64 }))
	if out.Class != tool.ClassOK || !out.Truncated || len(out.Value) > 200 {
		t.Errorf("outcome %+v", out)
	}
}

// A result that is not what the tool's output schema promises is an error, of a call that
// took effect.
func TestOutputSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"t":{"type":"number","maximum":50}},"required":["t"]}`
	for name, tc := range map[string]struct {
		schema, result string
		class          tool.Class
		value, message string
	}{
		"fits":      {schema, `"content":[],"structuredContent":{"t":21.5}`, tool.ClassOK, `{"t":21.5}`, ""},
		"more":      {schema, `"content":[],"structuredContent":{"t":1,"u":2}`, tool.ClassOK, `{"t":1,"u":2}`, ""},
		"misses":    {schema, `"content":[],"structuredContent":{"u":1}`, tool.ClassToolError, `{"u":1}`, "required but missing"},
		"too large": {schema, `"content":[],"structuredContent":{"t":51}`, tool.ClassToolError, `{"t":51}`, "$.t"},
		"none":      {schema, `"content":[{"type":"text","text":"hot"}]`, tool.ClassToolError, `"hot"`, "no structured content"},
		"an error":  {schema, `"content":[{"type":"text","text":"hot"}],"isError":true`, tool.ClassToolError, `"hot"`, "reports an error"},
		"array":     {`{"type":"array","items":{"type":"integer"}}`, `"content":[],"structuredContent":[1,2]`, tool.ClassOK, `[1,2]`, ""},
		"null":      {`{"type":"null"}`, `"content":[],"structuredContent":null`, tool.ClassOK, `null`, ""},
		"a value":   {`{"type":"integer"}`, `"content":[],"structuredContent":9007199254740993`, tool.ClassOK, `9007199254740993`, ""},
	} {
		m := newModern(t, `{"name":"x","inputSchema":{"type":"object"},"outputSchema":`+tc.schema+`}`, func(_ int, r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, r.ID, tc.result)
		})
		out := newServer(t, m.URL).Call(t.Context(), aCall("x"))
		if out.Class != tc.class || out.Effect != tool.EffectCommitted || string(out.Value) != tc.value || !strings.Contains(out.Message, tc.message) || (tc.message == "") != (out.Message == "") {
			t.Errorf("%s: outcome %+v with value %s", name, out, out.Value)
		}
	}
}

// Where a form is not the tool's own, the outcome says what in it is.
func TestEmbedded(t *testing.T) {
	const text = `{"type":"text","text":"{\"a\":1}"}`
	for name, tc := range map[string]struct {
		status int
		answer string
		want   []string
	}{
		"one text":       {200, `"result":{"content":[` + text + `]}`, nil},
		"structured":     {200, `"result":{"content":[` + text + `],"structuredContent":{"a":1}}`, nil},
		"several texts":  {200, `"result":{"content":[` + text + `,` + text + `]}`, []string{"text", "data"}},
		"an image":       {200, `"result":{"content":[{"type":"image","data":"cG5n"}]}`, []string{"text", "data"}},
		"protocol error": {200, `"error":{"code":-32602,"message":"no"}`, []string{"message", "data"}},
		"refused":        {400, `"error":{"code":-32602,"message":"no"}`, []string{"error.message", "error.data"}},
	} {
		m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tc.status)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, r.ID, tc.answer)
		})
		out := newServer(t, m.URL).Call(t.Context(), aCall("x"))
		if !slices.Equal(out.Embedded, tc.want) || len(out.Value) == 0 {
			t.Errorf("%s: outcome %+v with value %s", name, out, out.Value)
		}
	}
}
