package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// doubling is a schema that is small, and large with its references expanded.
func doubling(levels int) string {
	var defs []string
	for i := range levels {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	defs = append(defs, fmt.Sprintf(`"d%d":{"type":"object"}`, levels))
	return `{"type":"object","$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `}}`
}

// A tool with a fault is left out by name, with what to change, and the others stay.
func TestQuarantine(t *testing.T) {
	const good = `{"name":"good","inputSchema":{"type":"object"}}`
	long := strings.Repeat("n", 10_000)
	for name, tc := range map[string]struct {
		tools string
		want  map[string]string
	}{
		"cyclic schema":      {`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"$ref":"#"}}}}`, map[string]string{"a": "leads back to itself"}},
		"exponential schema": {`{"name":"a","inputSchema":` + doubling(30) + `}`, map[string]string{"a": "more than 2000 sub-schemas"}},
		"deep schema": {`{"name":"a","inputSchema":` + strings.Repeat(`{"type":"object","properties":{"x":`, 40) + `{}` + strings.Repeat(`}}`, 40) + `}`,
			map[string]string{"a": "nested deeper than"}},
		"large schema":    {`{"name":"a","inputSchema":{"type":"object","description":"` + strings.Repeat("x", 65<<10) + `"}}`, map[string]string{"a": "more than the 65536 allowed"}},
		"remote schema":   {`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"$ref":"http://169.254.169.254/x"}}}}`, map[string]string{"a": "only references inside this schema"}},
		"no schema":       {`{"name":"a"}`, map[string]string{"a": "input schema unusable"}},
		"schema of text":  {`{"name":"a","inputSchema":{"type":"string"}}`, map[string]string{"a": `must be "object"`}},
		"look-ahead":      {`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"pattern":"(?!x)"}}}}`, map[string]string{"a": "not supported"}},
		"cyclic output":   {`{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$ref":"#"}}`, map[string]string{"a": "output schema unusable"}},
		"large output":    {`{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"description":"` + strings.Repeat("x", 65<<10) + `"}}`, map[string]string{"a": "its output schema has"}},
		"annotations":     {`{"name":"a","inputSchema":{"type":"object"},"annotations":{"x":"` + strings.Repeat("x", 5000) + `"}}`, map[string]string{"a": "annotations"}},
		"two of a name":   {`{"name":"a","inputSchema":{"type":"object"}},{"name":"a","inputSchema":{"type":"object"}}`, map[string]string{"a": "another tool of the same name"}},
		"three of a name": {strings.Repeat(`{"name":"a","inputSchema":{"type":"object"}},`, 2) + `{"name":"a"}`, map[string]string{"a": "another tool of the same name"}},
		"bad and good of a name": {`{"name":"a"},{"name":"a","inputSchema":{"type":"object"}}`,
			map[string]string{"a": "another tool of the same name"}},
		"name with a space": {`{"name":"a b","inputSchema":{"type":"object"}}`, map[string]string{"a b": "rename it"}},
		"long names": {`{"name":"` + long + `"},{"name":"` + long + `m"}`, map[string]string{
			strings.Repeat("n", 77) + "… (c776bc0d)": "rename it", strings.Repeat("n", 77) + "… (f2ac4367)": "rename it",
		}},
		"no name":         {`{}`, map[string]string{"(entry 2)": "rename it"}},
		"name no text":    {`{"name":5}`, map[string]string{"(entry 2)": "rename it"}},
		"nothing":         {`null`, map[string]string{"(entry 2)": "rename it"}},
		"a list":          {`[]`, map[string]string{"(entry 2)": "rename it"}},
		"control in name": {`{"name":"a\u0000\u001b[2J"}`, map[string]string{`a\u0000\u001b[2J`: "rename it"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModern(t, good+","+tc.tools, fine)
			listing, err := newServer(t, m.URL).List(t.Context())
			if err != nil || len(listing.Tools) != 1 || listing.Tools[0].Name != "good" || len(listing.Quarantined) != len(tc.want) {
				t.Fatalf("List = %.2000v, %v", listing, err)
			}
			for _, q := range listing.Quarantined {
				if want := tc.want[q.Name]; want == "" || !strings.Contains(q.Reason, want) || len(q.Reason) > 512 || len(q.Name) > 100 {
					t.Errorf("quarantined %q: %q", q.Name, q.Reason)
				}
				if out := newServer(t, m.URL).Call(t.Context(), aCall(q.Name)); out.Class != tool.ClassValidation || out.Effect != tool.EffectRejected {
					t.Errorf("outcome %+v", out)
				}
			}
			if m.calls != 0 {
				t.Errorf("%d calls", m.calls)
			}
		})
	}
}

// What the model was shown is what is called, or nothing is.
func TestChangedDefinition(t *testing.T) {
	offered := tool.Definition{Name: "x", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: json.RawMessage(`{"readOnlyHint":true}`)}
	for name, tc := range map[string]struct {
		now   string
		class tool.Class
	}{
		"as it was":           {`{"name":"x","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, tool.ClassOK},
		"another icon":        {`{"name":"x","title":"X","icons":[],"description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, tool.ClassOK},
		"another description": {`{"name":"x","description":"send money","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, tool.ClassDenied},
		"another schema":      {`{"name":"x","description":"d","inputSchema":{"type":"object","required":["a"]},"annotations":{"readOnlyHint":true}}`, tool.ClassDenied},
		"another hint":        {`{"name":"x","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}}`, tool.ClassDenied},
		"no hint":             {`{"name":"x","description":"d","inputSchema":{"type":"object"}}`, tool.ClassDenied},
		"gone":                {`{"name":"y","inputSchema":{"type":"object"}}`, tool.ClassValidation},
		"unusable":            {`{"name":"x","description":"d"}`, tool.ClassValidation},
	} {
		m := newModern(t, tc.now, fine)
		out := newServer(t, m.URL).Call(t.Context(), aCall("x", func(c *tool.Call) {
			c.FullName, c.Digest = "crm.x", offered.Digest("crm.x")
		}))
		want := map[bool]int{true: 1, false: 0}[tc.class == tool.ClassOK]
		if out.Class != tc.class || m.calls != want || tc.class != tool.ClassOK && (out.Effect != tool.EffectRejected || out.Message == "") {
			t.Errorf("%s: outcome %+v after %d calls", name, out, m.calls)
		}
	}
}

// The list is kept as long as the server says, within bounds, and then asked for again.
func TestFreshness(t *testing.T) {
	for members, want := range map[string]time.Duration{
		``: 10 * time.Second, `,"ttlMs":0`: time.Second, `,"ttlMs":-5`: time.Second, `,"ttlMs":30000`: 30 * time.Second,
		`,"ttlMs":99999999999999`: 5 * time.Minute, `,"ttlMs":1e300`: 10 * time.Second, `,"ttlMs":"x"`: 10 * time.Second,
	} {
		m := newModern(t, plainTool, fine)
		m.members = members
		now := time.Now()
		memory := mcptool.NewMemory(func() time.Time { return now })
		list := func() string {
			if _, err := serverWith(t, mcptool.Options{URL: m.URL, Memory: memory}).List(t.Context()); err != nil {
				t.Fatal(err)
			}
			return m.methods()
		}
		first := list()
		now = now.Add(want - time.Millisecond)
		fresh := list()
		now = now.Add(time.Millisecond)
		if stale := list(); first != "tools/list" || fresh != first || stale != "tools/list tools/list" {
			t.Errorf("%q: requests %q, %q, %q", members, first, fresh, stale)
		}
	}
}

// Several that want the list at the same time ask once; others with other credentials ask
// for themselves.
func TestListIsShared(t *testing.T) {
	m := newModern(t, plainTool, fine)
	memory := mcptool.NewMemory(time.Now)
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			s := serverWith(t, mcptool.Options{URL: m.URL, Memory: memory, Connection: transport.Options{Headers: func() (http.Header, error) {
				return http.Header{"Authorization": {fmt.Sprint(i % 2)}}, nil
			}}})
			if out := s.Call(t.Context(), aCall("x")); out.Class != tool.ClassOK {
				t.Errorf("outcome %+v", out)
			}
		})
	}
	wait.Wait()
	if lists := strings.Count(m.methods(), "tools/list"); lists != 2 {
		t.Errorf("%d lists, want one for each credential", lists)
	}
}

// expensive are tools whose schemas take long to judge, and then can't be used.
func expensive(n int) string {
	var properties, tools []string
	for i := range 400 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","pattern":"^[a-z]{1,100}x{1,50}$"}`, i))
	}
	for i := range n {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","properties":{%s}}}`, i, strings.Join(properties, ",")))
	}
	return strings.Join(tools, ",")
}

// Judging schemas ends with the time that there is, and is not done twice.
func TestJudgingIsBounded(t *testing.T) {
	m := newModern(t, expensive(400), fine)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	if _, err := newServer(t, m.URL).List(ctx); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("List: %v after %s", err, time.Since(start))
	}

	m = newModern(t, expensive(20), fine)
	now := time.Now()
	memory := mcptool.NewMemory(func() time.Time { return now })
	took := func() time.Duration {
		now = now.Add(time.Hour)
		start := time.Now()
		listing, err := serverWith(t, mcptool.Options{URL: m.URL, Memory: memory}).List(t.Context())
		if err != nil || len(listing.Quarantined) != 20 {
			t.Fatalf("List = %d quarantined, %v", len(listing.Quarantined), err)
		}
		return time.Since(start)
	}
	if first, second := took(), took(); second > first/2 {
		t.Errorf("%s, and again %s", first, second)
	}
}

// Pages have one budget together, and the shortest time of theirs holds.
func TestPages(t *testing.T) {
	h := newHostile(t, nil)
	h.list = func(m message, w http.ResponseWriter) {
		switch m.Params.Cursor {
		case "":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"b","inputSchema":{"type":"object"}}],"nextCursor":"2","ttlMs":60000}}`, m.ID)
		case "2":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b"}],"nextCursor":null,"ttlMs":2000}}`, m.ID)
		}
	}
	now := time.Now()
	memory := mcptool.NewMemory(func() time.Time { return now })
	s := serverWith(t, mcptool.Options{URL: h.URL, Memory: memory})
	listing, err := s.List(t.Context())
	want := tool.Listing{
		Tools:       []tool.Definition{{Name: "a", InputSchema: json.RawMessage(`{"type":"object"}`)}},
		Quarantined: []tool.Quarantined{{Name: "b", Reason: "the server has another tool of the same name: rename one of them"}},
	}
	if diff := cmp.Diff(want, listing); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
	before := h.lists
	now = now.Add(2 * time.Second)
	if _, err := s.List(t.Context()); err != nil || h.lists != before+2 {
		t.Errorf("after the shorter time: %v, %d lists", err, h.lists-before)
	}
}

// Without a list nobody knows what would be called: nothing is.
func TestNoListNoCall(t *testing.T) {
	for name, tc := range map[string]struct {
		list  func(m message, w http.ResponseWriter)
		class tool.Class
		after time.Duration
	}{
		"broken":    {func(_ message, w http.ResponseWriter) { w.WriteHeader(500) }, tool.ClassTransport, 0},
		"refused":   {func(_ message, w http.ResponseWriter) { w.WriteHeader(403) }, tool.ClassRejected, 0},
		"throttled": {func(_ message, w http.ResponseWriter) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, tool.ClassThrottled, 7 * time.Second},
		"cut":       {func(_ message, w http.ResponseWriter) { cut(w, "") }, tool.ClassTransport, 0},
		"garbage":   {func(_ message, w http.ResponseWriter) { writeJSON(w, "s3cr3t") }, tool.ClassTransport, 0},
	} {
		h := newHostile(t, func(_ int, _ message, w http.ResponseWriter) { writeJSON(w, "{}") })
		h.list = tc.list
		out := newServer(t, h.URL).Call(t.Context(), aCall("x", repeatable))
		if out.Class != tc.class || out.Effect != tool.EffectRejected || out.RetryAfter != tc.after || h.calls != 0 || !strings.HasPrefix(out.Message, "not sent: ") || strings.Contains(out.Message, "s3cr3t") {
			t.Errorf("%s: outcome %+v after %d calls", name, out, h.calls)
		}
	}
}

// The right to send is about the call alone, and is asked for right before it.
func TestGateIsForTheCall(t *testing.T) {
	for _, e := range []struct{ url string }{{newModern(t, plainTool, fine).URL}, {newEras(t, func(_ int, _ modernRequest, w http.ResponseWriter) { w.WriteHeader(404) }).URL}} {
		asked := 0
		ctx := transport.WithGate(t.Context(), func() error { asked++; return nil })
		s := newServer(t, e.url)
		if out := s.Call(ctx, aCall("x")); out.Class != tool.ClassOK || asked != 1 {
			t.Errorf("outcome %+v, asked %d times", out, asked)
		}
		ctx = transport.WithGate(t.Context(), func() error { return fmt.Errorf("too late") })
		out := s.Call(ctx, aCall("x"))
		if out.Class != tool.ClassNotRun || out.Effect != tool.EffectRejected || !strings.Contains(out.Message, "the right to send it has lapsed") {
			t.Errorf("outcome %+v", out)
		}
	}
}
