package mcptool_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
)

var everything = mcptool.Capabilities{Elicitation: true, Tasks: true}

const confirm = `{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{"sure":{"type":"boolean"}},"required":["sure"]}}}`

func ptr[T any](v T) *T { return &v }

// continued is a call that needs input: what it asks for, and what the server then gets.
type continued struct {
	reply     string
	input     tool.Input
	answers   []tool.Answer
	responses string
	state     *string
}

// A call asks, is sent again with the answers and the state exactly as it was, from another
// process, and completes.
func TestContinue(t *testing.T) {
	for name, tc := range map[string]continued{
		"questions and state": {
			`"inputRequests":{"b":` + confirm + `,"a":` + confirm + `},"requestState":"{\"x\": 1}\u0000é"`,
			tool.Input{State: ptr("{\"x\": 1}\x00é"), Questions: []tool.Question{
				{Key: "a", Message: "Sure?", Schema: json.RawMessage(`{"properties":{"sure":{"type":"boolean"}},"required":["sure"],"type":"object"}`)},
				{Key: "b", Message: "Sure?", Schema: json.RawMessage(`{"properties":{"sure":{"type":"boolean"}},"required":["sure"],"type":"object"}`)},
			}},
			[]tool.Answer{{Key: "b", Action: tool.ActionAccept, Content: json.RawMessage(`{"sure":true}`)}, {Key: "a", Action: tool.ActionDecline}},
			`{"a":{"action":"decline"},"b":{"action":"accept","content":{"sure":true}}}`, ptr("{\"x\": 1}\x00é"),
		},
		"a question alone": {
			`"inputRequests":{"a":` + confirm + `}`,
			tool.Input{Questions: []tool.Question{{Key: "a", Message: "Sure?", Schema: json.RawMessage(`{"properties":{"sure":{"type":"boolean"}},"required":["sure"],"type":"object"}`)}}},
			[]tool.Answer{{Key: "a", Action: tool.ActionCancel}},
			`{"a":{"action":"cancel"}}`, nil,
		},
		"only later": {`"requestState":""`, tool.Input{State: ptr("")}, nil, ``, ptr("")},
	} {
		t.Run(name, tc.check)
	}
}

func (tc continued) check(t *testing.T) {
	m := newModern(t, plainTool, func(n int, r modernRequest, w http.ResponseWriter) {
		if n == 1 {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required",%s}}`, r.ID, tc.reply)
			return
		}
		fine(n, r, w)
	})
	first := serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything})
	out := first.Call(t.Context(), aCall("x"))
	if out.Class != tool.ClassInputRequired || out.Effect != tool.EffectRejected || out.Input == nil {
		t.Fatalf("outcome %+v", out)
	}
	if diff := cmp.Diff(tc.input, *out.Input); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
	var kept tool.Input
	text, err := json.Marshal(out.Input)
	if err != nil || json.Unmarshal(text, &kept) != nil {
		t.Fatal(err)
	}
	out = serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything}).Continue(t.Context(), aCall("x"), kept, tc.answers)
	if out.Class != tool.ClassOK || m.calls != 2 {
		t.Fatalf("outcome %+v after %d calls", out, m.calls)
	}
	tc.checkSecond(t, m.seen[1], m.seen[len(m.seen)-1])
}

// checkSecond compares the second request with the first.
func (tc continued) checkSecond(t *testing.T, before, last modernRequest) {
	t.Helper()
	if string(last.Params.InputResponses) != tc.responses || !cmp.Equal(last.Params.RequestState, tc.state) {
		t.Errorf("responses %s, state %v", last.Params.InputResponses, last.Params.RequestState)
	}
	if string(last.Params.Arguments) != string(before.Params.Arguments) || last.Params.Meta["pawl.run/idempotency-key"] != "key-1" {
		t.Errorf("another call: %+v", last.Params)
	}
	if declared := fmt.Sprint(last.Params.Meta["io.modelcontextprotocol/clientCapabilities"]); declared != "map[elicitation:map[form:map[]] extensions:map[io.modelcontextprotocol/tasks:map[]]]" {
		t.Errorf("declared %s", declared)
	}
}

// What nobody declared, and what can't be put before a person, is not followed.
func TestInputThatIsNotFollowed(t *testing.T) {
	ask := func(params string) string {
		return `"inputRequests":{"a":{"method":"elicitation/create","params":` + params + `}}`
	}
	for name, reply := range map[string]string{
		"nothing":       `"x":1`,
		"a model":       `"inputRequests":{"a":{"method":"sampling/createMessage","params":{"message":"x","requestedSchema":{"type":"object"}}}}`,
		"folders":       `"inputRequests":{"a":{"method":"roots/list"}}`,
		"a web page":    ask(`{"mode":"url","message":"x","url":"http://169.254.169.254/","elicitationId":"1"}`),
		"no message":    ask(`{"requestedSchema":{"type":"object"}}`),
		"no schema":     ask(`{"message":"x"}`),
		"cyclic schema": ask(`{"message":"x","requestedSchema":{"type":"object","$ref":"#"}}`),
		"a tree":        ask(`{"message":"x","requestedSchema":{"type":"object","properties":{"t":{"type":"object"}}}}`),
		"large schema":  ask(`{"message":"x","requestedSchema":{"type":"object","description":"` + strings.Repeat("x", 20_000) + `"}}`),
		"large state":   `"requestState":"` + strings.Repeat("x", 70_000) + `"`,
		"state no text": `"requestState":{}`,
		"no object":     `"inputRequests":[]`,
		"many":          `"inputRequests":{` + strings.Repeat(`"a":1,`, 0) + manyQuestions(17) + `}`,
	} {
		m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required",%s}}`, r.ID, reply)
		})
		out := serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything}).Call(t.Context(), aCall("x"))
		if out.Class != tool.ClassToolError || out.Effect != tool.EffectRejected || out.Input != nil {
			t.Errorf("%s: outcome %+v", name, out)
		}
		out = newServer(t, m.URL).Call(t.Context(), aCall("x"))
		if out.Class != tool.ClassToolError || !strings.Contains(out.Message, "not supported") {
			t.Errorf("%s, undeclared: outcome %+v", name, out)
		}
	}
}

func manyQuestions(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"q%d":%s`, i, confirm))
	}
	return strings.Join(list, ",")
}

// Answers that don't answer what was asked are not sent.
func TestUnfittingAnswers(t *testing.T) {
	m := newModern(t, plainTool, fine)
	s := serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything})
	asked := tool.Input{Questions: []tool.Question{{Key: "a", Message: "?", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}}}
	yes := tool.Answer{Key: "a", Action: tool.ActionAccept, Content: json.RawMessage(`{"n":1}`)}
	for name, answers := range map[string][]tool.Answer{
		"none":            nil,
		"another":         {{Key: "b", Action: tool.ActionDecline}},
		"one too many":    {yes, {Key: "b", Action: tool.ActionDecline}},
		"no action":       {{Key: "a"}},
		"no content":      {{Key: "a", Action: tool.ActionAccept}},
		"wrong type":      {{Key: "a", Action: tool.ActionAccept, Content: json.RawMessage(`{"n":"1"}`)}},
		"unknown member":  {{Key: "a", Action: tool.ActionAccept, Content: json.RawMessage(`{"n":1,"m":2}`)}},
		"no JSON":         {{Key: "a", Action: tool.ActionAccept, Content: json.RawMessage(`{`)}},
		"member twice":    {{Key: "a", Action: tool.ActionAccept, Content: json.RawMessage(`{"n":1,"n":2}`)}},
		"not of the call": {{Key: "a", Action: "approve"}},
	} {
		out := s.Continue(t.Context(), aCall("x"), asked, answers)
		if out.Class != tool.ClassValidation || out.Effect != tool.EffectRejected || !strings.HasPrefix(out.Message, "not sent: ") {
			t.Errorf("%s: outcome %+v", name, out)
		}
		if err := s.Answer(t.Context(), aCall("x"), "t", asked, answers); err == nil {
			t.Errorf("%s: sent to a task", name)
		}
	}
	if m.calls != 0 {
		t.Errorf("%d calls", m.calls)
	}
	if out := s.Continue(t.Context(), aCall("x"), asked, []tool.Answer{yes}); out.Class != tool.ClassOK {
		t.Errorf("a good one: %+v", out)
	}
}

const taskHandle = "tâsk/1 "

// taskServer turns each call into a task that works, asks, and completes.
func taskServer(t *testing.T) *modernServer {
	task := func(status, more string) string {
		return `"taskId":"` + taskHandle + `","status":"` + status + `","createdAt":"2026-12-01T10:00:00Z","lastUpdatedAt":"2026-12-01T10:00:00Z","ttlMs":3600000,"pollIntervalMs":2000` + more
	}
	polls := []string{
		`"resultType":"complete",` + task("working", ""),
		`"resultType":"complete",` + task("input_required", `,"inputRequests":{"a":`+confirm+`}`),
		`"resultType":"task",` + task("completed", `,"result":{"content":[{"type":"text","text":"done"}]}`),
	}
	asked := 0
	return newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
		switch r.Method {
		case "tools/call":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task",%s}}`, r.ID, task("working", ""))
		case "tasks/get":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, r.ID, polls[asked])
			asked++
		case "tasks/update", "tasks/cancel":
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, r.ID)
		}
	})
}

// A task is created, polled, asks, is answered, and completes; its handle may be anything.
func TestTask(t *testing.T) {
	m := taskServer(t)
	s := serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything})
	want := &tool.Deferred{Handle: taskHandle, PollAfter: 2 * time.Second, Lifetime: time.Hour}
	created, working, asking := s.Call(t.Context(), aCall("x")), s.Poll(t.Context(), aCall("x"), taskHandle), s.Poll(t.Context(), aCall("x"), taskHandle)
	for name, out := range map[string]tool.Outcome{"created": created, "working": working, "asking": asking} {
		if out.Class != tool.ClassDeferred || out.Effect != tool.EffectUnknown || !cmp.Equal(out.Deferred, want) || (out.Input != nil) != (name == "asking") {
			t.Fatalf("%s: %+v", name, out)
		}
	}
	answers := []tool.Answer{{Key: "a", Action: tool.ActionAccept, Content: json.RawMessage(`{"sure":true}`)}}
	if err := s.Answer(t.Context(), aCall("x"), taskHandle, *asking.Input, answers); err != nil {
		t.Fatal(err)
	}
	if got := string(m.seen[len(m.seen)-1].Params.InputResponses); got != `{"a":{"action":"accept","content":{"sure":true}}}` {
		t.Errorf("responses %s", got)
	}
	if out := s.Poll(t.Context(), aCall("x"), taskHandle); out.Class != tool.ClassOK || out.Effect != tool.EffectCommitted || string(out.Value) != `"done"` {
		t.Errorf("completed: %+v", out)
	}
	if err := s.CancelDeferred(t.Context(), aCall("x"), taskHandle); err != nil {
		t.Error(err)
	}
}

// Whatever a poll gets for an answer, it ends as one of: nothing yet, nothing learned, or
// an outcome.
func TestPollAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		answer    func(r modernRequest, w http.ResponseWriter)
		class     tool.Class
		effect    tool.EffectState
		retryable bool
	}{
		"an error of the tool": {result(`"taskId":"t","status":"completed","result":{"content":[],"isError":true}`), "tool_error", "committed", false},
		"failed":               {result(`"taskId":"t","status":"failed","error":{"code":4711,"message":"x"}`), "tool_error", "committed", false},
		"failed inside":        {result(`"taskId":"t","status":"failed","error":{"code":-32603,"message":"x"}`), "tool_error", "unknown", false},
		"failed silently":      {result(`"taskId":"t","status":"failed"`), "unknown", "unknown", false},
		"cancelled":            {result(`"taskId":"t","status":"cancelled"`), "unknown", "unknown", false},
		"no result":            {result(`"taskId":"t","status":"completed"`), "unknown", "unknown", false},
		"a task of a task":     {result(`"taskId":"t","status":"completed","result":{"resultType":"task","taskId":"u"}`), "unknown", "unknown", false},
		"another task":         {result(`"taskId":"u","status":"completed","result":{"content":[]}`), "transport", "unknown", true},
		"no task":              {result(`"status":"completed","result":{"content":[]}`), "transport", "unknown", true},
		"odd state":            {result(`"taskId":"t","status":"melted"`), "transport", "unknown", true},
		"odd type":             {result(`"resultType":"odd","taskId":"t","status":"working"`), "transport", "unknown", true},
		"no interval":          {result(`"taskId":"t","status":"working"`), "deferred", "unknown", false},
		"gone": {func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such task"}}`, r.ID)
		}, "unknown", "unknown", false},
		"another error": {func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"s3cr3t"}}`, r.ID)
		}, "transport", "unknown", true},
		"broken":  {func(_ modernRequest, w http.ResponseWriter) { w.WriteHeader(503) }, "transport", "unknown", true},
		"garbage": {func(_ modernRequest, w http.ResponseWriter) { writeJSON(w, "s3cr3t") }, "transport", "unknown", true},
		"cut":     {func(_ modernRequest, w http.ResponseWriter) { cut(w, "") }, "transport", "unknown", true},
	} {
		m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) { tc.answer(r, w) })
		s := serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything})
		// That a call may be sent again is no reason to ask again about a task that has ended.
		for _, call := range []tool.Call{aCall("x"), aCall("x", repeatable)} {
			out := s.Poll(t.Context(), call, "t")
			if out.Class != tc.class || out.Effect != tc.effect || out.Retryable != tc.retryable || strings.Contains(out.Message, "s3cr3t") {
				t.Errorf("%s, repeatable %v: outcome %+v", name, call.Repeatable, out)
			}
			if out.Deferred != nil && (out.Deferred.PollAfter != 5*time.Second || out.Deferred.Lifetime != 0) {
				t.Errorf("%s: %+v", name, out.Deferred)
			}
		}
	}
}

func result(members string) func(r modernRequest, w http.ResponseWriter) {
	return func(r modernRequest, w http.ResponseWriter) {
		writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, r.ID, members)
	}
}

// Times that a server names are kept within bounds, and a task nobody declared is none.
func TestTaskBounds(t *testing.T) {
	for members, want := range map[string]*tool.Deferred{
		`"taskId":"t","ttlMs":null,"pollIntervalMs":0`:                 {Handle: "t", PollAfter: time.Second},
		`"taskId":"t","ttlMs":-1,"pollIntervalMs":-1`:                  {Handle: "t", PollAfter: 5 * time.Second},
		`"taskId":"t","ttlMs":1e300,"pollIntervalMs":9999999999999999`: {Handle: "t", PollAfter: 5 * time.Minute},
		`"taskId":"t","ttlMs":9223372036854775807`:                     {Handle: "t", PollAfter: 5 * time.Second, Lifetime: 366 * 24 * time.Hour},
		`"taskId":""`: nil, `"x":1`: nil, `"taskId":5`: nil, `"taskId":"` + strings.Repeat("t", 1025) + `"`: nil,
	} {
		m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","status":"working",%s}}`, r.ID, members)
		})
		out := serverWith(t, mcptool.Options{URL: m.URL, Capabilities: everything}).Call(t.Context(), aCall("x"))
		if diff := cmp.Diff(want, out.Deferred); diff != "" || (out.Class == tool.ClassDeferred) != (want != nil) {
			t.Errorf("%.60s: outcome %+v (-want +got):\n%s", members, out, diff)
		}
		out = newServer(t, m.URL).Call(t.Context(), aCall("x", repeatable))
		if out.Class != tool.ClassUnknown || out.Effect != tool.EffectUnknown || out.Deferred != nil {
			t.Errorf("%.60s, undeclared: outcome %+v", members, out)
		}
	}
}

// In the older revisions nothing is declared, and so nothing of it is followed.
func TestNothingLaterInSessions(t *testing.T) {
	for _, kind := range []string{`"resultType":"task","taskId":"t"`, `"resultType":"input_required","requestState":"s"`} {
		h := newHostile(t, func(_ int, m message, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, kind)
		})
		out := serverWith(t, mcptool.Options{URL: h.URL, Capabilities: everything}).Call(t.Context(), aCall("x"))
		if out.Deferred != nil || out.Input != nil || out.Class != tool.ClassUnknown && out.Class != tool.ClassToolError {
			t.Errorf("%s: outcome %+v", kind, out)
		}
	}
}
