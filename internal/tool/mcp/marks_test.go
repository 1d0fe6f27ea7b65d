package mcptool_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
)

// Arguments that a schema marks go into headers too, encoded where they must be, and no
// others do.
func TestMirroredArguments(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"type":"integer","x-mcp-header":"N"},
		"flag":{"type":"boolean","x-mcp-header":"Flag"},
		"inner":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"Inner-X"}}},
		"x-mcp-header":{"type":"string"},
		"secret":{"type":"string"}}}`
	for arguments, want := range map[string]map[string]string{
		`{"region":"us-west1","secret":"s","x-mcp-header":"no"}`: {"Region": "us-west1"},
		`{"n":42,"flag":false}`:                                  {"N": "42", "Flag": "false"},
		`{"n":-9007199254740991}`:                                {"N": "-9007199254740991"},
		`{"n":4.2e1}`:                                            {"N": "42"},
		`{"region":null}`:                                        {},
		`{}`:                                                     {},
		`{"region":""}`:                                          {"Region": ""},
		`{"region":"us west 1"}`:                                 {"Region": "us west 1"},
		`{"region":" padded "}`:                                  {"Region": "=?base64?IHBhZGRlZCA=?="},
		`{"region":"Hello, 世界"}`:                                 {"Region": "=?base64?SGVsbG8sIOS4lueVjA==?="},
		`{"region":"line1\nline2"}`:                              {"Region": "=?base64?bGluZTEKbGluZTI=?="},
		`{"region":"a\r\nX-Evil: 1"}`:                            {"Region": "=?base64?YQ0KWC1FdmlsOiAx?="},
		`{"region":"=?base64?literal?="}`:                        {"Region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		`{"inner":{"x":"deep"}}`:                                 {"Inner-X": "deep"},
		`{"inner":"none"}`:                                       {},
		`{"region":["a"]}`:                                       {},
	} {
		m := newModern(t, `{"name":"x","inputSchema":`+schema+`}`, fine)
		out := newServer(t, m.URL).Call(t.Context(), aCall("x", func(c *tool.Call) { c.Arguments = json.RawMessage(arguments) }))
		if out.Class != tool.ClassOK {
			t.Errorf("%s: outcome %+v", arguments, out)
			continue
		}
		got := map[string]string{}
		last := m.seen[len(m.seen)-1]
		for name := range last.Header {
			if short, ok := strings.CutPrefix(name, "Mcp-Param-"); ok {
				got[short] = last.Header.Get(name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", arguments, diff)
		}
		if string(last.Params.Arguments) != arguments {
			t.Errorf("arguments %s, want %s", last.Params.Arguments, arguments)
		}
	}
}

// An integer that readers of headers disagree on is not sent at all.
func TestUnsafeIntegerIsNotSent(t *testing.T) {
	for _, number := range []string{"9007199254740992", "-9007199254740993", "1.5", "1e300"} {
		m := newModern(t, `{"name":"x","inputSchema":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}`, fine)
		out := newServer(t, m.URL).Call(t.Context(), aCall("x", func(c *tool.Call) { c.Arguments = json.RawMessage(`{"n":` + number + `}`) }))
		if out.Class != tool.ClassValidation || out.Effect != tool.EffectRejected || m.calls != 0 || !strings.Contains(out.Message, "argument n") {
			t.Errorf("%s: outcome %+v after %d calls", number, out, m.calls)
		}
	}
}

// A tool with a mark that must not be is left out by name; an older revision knows no
// marks.
func TestInvalidMarks(t *testing.T) {
	property := func(schema string) string {
		return `{"name":"bad","inputSchema":{"type":"object","properties":{"v":` + schema + `}}}`
	}
	for name, bad := range map[string]string{
		"empty":         property(`{"type":"string","x-mcp-header":""}`),
		"no text":       property(`{"type":"string","x-mcp-header":5}`),
		"null":          property(`{"type":"string","x-mcp-header":null}`),
		"space":         property(`{"type":"string","x-mcp-header":"My Region"}`),
		"colon":         property(`{"type":"string","x-mcp-header":"Region:Primary"}`),
		"not ASCII":     property(`{"type":"string","x-mcp-header":"Région"}`),
		"tab":           property(`{"type":"string","x-mcp-header":"Region\t1"}`),
		"line break":    property(`{"type":"string","x-mcp-header":"A\r\nB"}`),
		"object":        property(`{"type":"object","x-mcp-header":"V"}`),
		"array":         property(`{"type":"array","x-mcp-header":"V"}`),
		"number":        property(`{"type":"number","x-mcp-header":"V"}`),
		"no type":       property(`{"x-mcp-header":"V"}`),
		"several types": property(`{"type":["string","null"],"x-mcp-header":"V"}`),
		"in an array":   property(`{"type":"array","items":{"type":"string","x-mcp-header":"V"}}`),
		"in an anyOf":   property(`{"anyOf":[{"type":"string","x-mcp-header":"V"}]}`),
		"at the root":   `{"name":"bad","inputSchema":{"type":"object","x-mcp-header":"V"}}`,
		"behind a $ref": `{"name":"bad","inputSchema":{"type":"object","properties":{"v":{"$ref":"#/$defs/v"}},"$defs":{"v":{"type":"string","x-mcp-header":"V"}}}}`,
		"twice":         `{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"V"},"b":{"type":"string","x-mcp-header":"v"}}}}`,
	} {
		m := newModern(t, plainTool+","+bad, fine)
		listing, err := newServer(t, m.URL).List(t.Context())
		if err != nil || len(listing.Tools) != 1 || len(listing.Quarantined) != 1 || !strings.Contains(listing.Quarantined[0].Reason, "x-mcp-header") {
			t.Errorf("%s: List = %+v, %v", name, listing, err)
		}
		h := newHostile(t, nil)
		h.list = func(m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, m.ID, bad)
		}
		if listing, err := newServer(t, h.URL).List(t.Context()); err != nil || len(listing.Tools) != 1 {
			t.Errorf("%s, with sessions: List = %+v, %v", name, listing, err)
		}
	}
	literal := `{"name":"x","inputSchema":{"type":"object","properties":{"v":{"const":{"x-mcp-header":1}}},"default":{"x-mcp-header":2}}}`
	if listing, err := newServer(t, newModern(t, literal, fine).URL).List(t.Context()); err != nil || len(listing.Tools) != 1 {
		t.Errorf("as a value: List = %+v, %v", listing, err)
	}
}

// A server that wants other headers than its list said is asked for its list again, and
// the call sent again with what that says: the refusal proves that it did nothing.
func TestHeaderMismatch(t *testing.T) {
	const before, after = `{"name":"x","inputSchema":{"type":"object","properties":{"v":{"type":"string"}}}}`, `{"name":"x","inputSchema":{"type":"object","properties":{"v":{"type":"string","x-mcp-header":"V"}}}}`
	offered := tool.Definition{Name: "x", InputSchema: json.RawMessage(`{"type":"object","properties":{"v":{"type":"string"}}}`)}
	for name, tc := range map[string]struct {
		digest string
		class  tool.Class
		calls  int
	}{
		"nothing was shown": {"", tool.ClassOK, 2},
		"shown as it was":   {offered.Digest("crm.x"), tool.ClassDenied, 1},
	} {
		m := newModern(t, before, nil)
		m.call = func(n int, r modernRequest, w http.ResponseWriter) {
			if r.Header.Get("Mcp-Param-V") == "" {
				m.mu.Lock()
				m.tools = after
				m.mu.Unlock()
				refuse(w, 400, r.ID, `{"code":-32020,"message":"Mcp-Param-V is missing"}`)
				return
			}
			fine(n, r, w)
		}
		out := newServer(t, m.URL).Call(t.Context(), aCall("x", func(c *tool.Call) {
			c.FullName, c.Digest, c.Arguments = "crm.x", tc.digest, json.RawMessage(`{"v":"a"}`)
		}))
		if out.Class != tc.class || m.calls != tc.calls {
			t.Errorf("%s: outcome %+v after %d calls", name, out, m.calls)
		}
	}
	m := newModern(t, before, func(_ int, r modernRequest, w http.ResponseWriter) {
		refuse(w, 400, r.ID, `{"code":-32020,"message":"never content"}`)
	})
	out := newServer(t, m.URL).Call(t.Context(), aCall("x", repeatable))
	if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || m.calls != 2 {
		t.Errorf("never content: outcome %+v after %d calls", out, m.calls)
	}
}
