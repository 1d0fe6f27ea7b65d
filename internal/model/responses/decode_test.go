package responses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// Items of replies.
const (
	callA    = `{"id":"fc_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"}`
	callB    = `{"id":"fc_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"}`
	thought  = `{"id":"rs_a","type":"reasoning","content":[],"encrypted_content":"gAAA","summary":[{"type":"summary_text","text":"Hm."}]}`
	bare     = `{"id":"rs_b","type":"reasoning","content":[],"summary":[]}`
	plain    = `{"id":"rs_c","type":"reasoning","content":[{"type":"reasoning_text","text":"Hm."}],"summary":[]}`
	answer   = `{"id":"msg_a","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"42"}],"role":"assistant"}`
	refusing = `{"id":"msg_b","type":"message","status":"completed","content":[{"type":"refusal","refusal":"No."}],"role":"assistant"}`
)

// reply is a response body with these items. status "" is left out; one with a reason
// after a slash is incomplete for it.
func reply(status string, items ...string) string {
	members := ""
	word, reason, found := strings.Cut(status, "/")
	if word != "" {
		members = `"status":"` + word + `",`
	}
	if found {
		members += `"incomplete_details":{"reason":"` + reason + `"},`
	} else {
		members += `"incomplete_details":null,`
	}
	return `{"id":"resp_7","object":"response","error":null,` + members + `"output":[` + strings.Join(items, ",") + `],` +
		`"usage":{"input_tokens":20,"output_tokens":5,"total_tokens":25}}`
}

func final(text string) model.Decision { return model.Decision{Kind: model.KindFinal, Text: text} }

func refused(text string) model.Decision { return model.Decision{Kind: model.KindRefused, Text: text} }

func invalid(code, text string) model.Decision {
	return model.Decision{Kind: model.KindInvalid, Code: code, Text: text}
}

func proposed(text string, calls ...model.Call) model.Decision {
	return model.Decision{Kind: model.KindCalls, Text: text, Calls: calls}
}

var (
	wantA = model.Call{ID: "call_a", Alias: "lookup", Arguments: `{"key":"a"}`}
	wantB = model.Call{ID: "call_b", Alias: "lookup", Arguments: `{"key":"b"}`}
)

func checkDecision(t *testing.T, want model.Decision, got model.Reply) {
	t.Helper()
	checkReply(t, got)
	if want.Kind == model.KindInvalid && got.Decision.Problem == "" {
		t.Error("an invalid decision must say what to change")
	}
	got.Decision.Problem = ""
	if diff := cmp.Diff(want, got.Decision); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestDecodeStatus has every status of the wire, and every reason for being incomplete,
// for a reply with calls, one with text and one with nothing. Calls run for a completed
// reply only.
func TestDecodeStatus(t *testing.T) {
	cut := [3]model.Decision{invalid(model.CodeCutOff, "42"), invalid(model.CodeCutOff, "42"), invalid(model.CodeCutOff, "")}
	unknown := [3]model.Decision{invalid(model.CodeUnknownStop, "42"), invalid(model.CodeUnknownStop, "42"), invalid(model.CodeUnknownStop, "")}
	complete := [3]model.Decision{proposed("42", wantA, wantB), final("42"), invalid(model.CodeEmpty, "")}
	tests := map[string]struct {
		want [3]model.Decision
		word string
	}{
		"completed":                    {complete, "completed"},
		"":                             {complete, ""},
		"completed/max_output_tokens":  {complete, "completed"},
		"incomplete/max_output_tokens": {cut, "max_output_tokens"},
		"incomplete/max_messages":      {cut, "max_messages"},
		"incomplete/content_filter":    {[3]model.Decision{refused("42"), refused("42"), refused("")}, "content_filter"},
		"incomplete/steered":           {cut, "steered"},
		"incomplete/tired":             {unknown, "tired"},
		"incomplete/":                  {unknown, "incomplete"},
		"incomplete":                   {unknown, "incomplete"},
		"failed":                       {unknown, "failed"},
		"cancelled":                    {unknown, "cancelled"},
		"queued":                       {unknown, "queued"},
		"in_progress":                  {unknown, "in_progress"},
		"tired":                        {unknown, "tired"},
		"COMPLETED":                    {unknown, "COMPLETED"},
	}
	outputs := [3][]string{{thought, answer, callA, callB}, {thought, answer}, {thought}}
	for status, test := range tests {
		for i, output := range outputs {
			t.Run(fmt.Sprintf("%s %d", status, i), func(t *testing.T) {
				got := responses.Decode([]byte(reply(status, output...)))
				checkDecision(t, test.want[i], got)
				if got.StopReason != test.word || got.RequestID != "resp_7" {
					t.Errorf("got stop reason %q of %q, want %q", got.StopReason, got.RequestID, test.word)
				}
			})
		}
	}
}

func TestDecodeItems(t *testing.T) {
	malformed := invalid(model.CodeMalformed, "")
	call := func(from, to string) string { return strings.Replace(callA, from, to, 1) }
	message := func(from, to string) string { return strings.Replace(answer, from, to, 1) }
	// Not a constant, so that the length of its id is plain.
	nameless := `{"type":"function_call","call_id":"c","arguments":"{}"}`
	tests := map[string]struct {
		items []string
		want  model.Decision
	}{
		"an answer":                           {[]string{answer}, final("42")},
		"an answer in parts":                  {[]string{message(`[{`, `[{"type":"output_text","text":"4"},{"type":"summary","text":"x"},{`)}, final("442")},
		"an answer as text":                   {[]string{`{"type":"message","role":"assistant","content":"42"}`}, final("42")},
		"an answer in messages":               {[]string{answer, strings.Replace(answer, "msg_a", "msg_c", 1)}, final("4242")},
		"a call":                              {[]string{callA}, proposed("", wantA)},
		"calls in their order":                {[]string{callB, thought, callA}, proposed("", wantB, wantA)},
		"an asynchronous call":                {[]string{call(`"type"`, `"async":true,"type"`)}, proposed("", wantA)},
		"a call by the model itself":          {[]string{call(`"type"`, `"caller":{"type":"direct"},"namespace":"","type"`)}, proposed("", wantA)},
		"a call without a status":             {[]string{call(`"status":"completed",`, ``)}, proposed("", wantA)},
		"words before a call":                 {[]string{answer, callA}, proposed("42", wantA)},
		"commentary before a call":            {[]string{message(`"type":"message"`, `"phase":"commentary","type":"message"`), callA}, proposed("42", wantA)},
		"commentary before an answer":         {[]string{message(`"type":"message"`, `"phase":"commentary","type":"message"`), strings.Replace(strings.Replace(answer, "42", "43", 1), `"type":"message"`, `"phase":"final_answer","type":"message"`, 1)}, final("43")},
		"commentary alone":                    {[]string{message(`"type":"message"`, `"phase":"commentary","type":"message"`)}, invalid(model.CodeEmpty, "42")},
		"a refusal":                           {[]string{thought, refusing}, refused("No.")},
		"a refusal beside calls":              {[]string{refusing, callA}, refused("No.")},
		"a refusal beside an answer":          {[]string{message(`[{`, `[{"type":"refusal","refusal":"No."},{`)}, refused("No.")},
		"a tool of the provider's":            {[]string{`{"type":"web_search_call","id":"ws_1","status":"failed","action":{}}`, answer}, final("42")},
		"a compaction":                        {[]string{`{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`, callA}, proposed("", wantA)},
		"an unknown item":                     {[]string{`{"type":"telepathy","id":"tp_1"}`, answer}, final("42")},
		"an unknown item alone":               {[]string{`{"type":"telepathy","id":"tp_1"}`}, invalid(model.CodeEmpty, "")},
		"a call and its output":               {[]string{`{"type":"shell_call","call_id":"s"}`, `{"type":"shell_call_output","call_id":"s"}`, answer}, final("42")},
		"nothing":                             {nil, invalid(model.CodeEmpty, "")},
		"a thought alone":                     {[]string{thought}, invalid(model.CodeEmpty, "")},
		"white space":                         {[]string{message("42", ` \n`)}, invalid(model.CodeEmpty, "")},
		"a message without content":           {[]string{`{"type":"message","role":"assistant"}`}, invalid(model.CodeEmpty, "")},
		"a message of nothing":                {[]string{`{"type":"message","role":"assistant","content":[]}`}, invalid(model.CodeEmpty, "")},
		"half a call":                         {[]string{call("completed", "incomplete")}, invalid(model.CodeCutOff, "")},
		"a call in the making":                {[]string{call("completed", "in_progress")}, invalid(model.CodeCutOff, "")},
		"half a message":                      {[]string{message("completed", "incomplete")}, invalid(model.CodeCutOff, "42")},
		"half a message beside a call":        {[]string{message("completed", "incomplete"), callA}, invalid(model.CodeCutOff, "42")},
		"a call in an unknown state":          {[]string{call("completed", "doubtful")}, invalid(model.CodeUnknownStop, "")},
		"a message in an unknown state":       {[]string{message("completed", "doubtful")}, invalid(model.CodeUnknownStop, "42")},
		"half a thought":                      {[]string{strings.Replace(thought, `"type"`, `"status":"incomplete","type"`, 1), answer}, final("42")},
		"a call without a name":               {[]string{nameless}, malformed},
		"a good and a nameless call":          {[]string{callA, nameless}, malformed},
		"a call in a namespace":               {[]string{call(`"type"`, `"namespace":"admin","type"`)}, malformed},
		"a call in a namespace of numbers":    {[]string{call(`"type"`, `"namespace":7,"type"`)}, malformed},
		"a call of a custom tool":             {[]string{callA, `{"type":"custom_tool_call","call_id":"x","name":"y","input":"z"}`}, malformed},
		"a call of a computer":                {[]string{`{"type":"computer_call","call_id":"x","action":{}}`}, malformed},
		"a call of a shell":                   {[]string{`{"type":"local_shell_call","call_id":"x","action":{}}`}, malformed},
		"a call of a kind to come":            {[]string{`{"type":"telepathy_call","call_id":"x"}`, answer}, malformed},
		"a call whose output is another's":    {[]string{`{"type":"shell_call","call_id":"x"}`, `{"type":"shell_call_output","call_id":"y"}`, answer}, malformed},
		"a question for approval":             {[]string{`{"type":"mcp_approval_request","id":"x","name":"y"}`}, malformed},
		"an id twice":                         {[]string{callA, callA}, invalid(model.CodeDuplicateIDs, "")},
		"an item without a type":              {[]string{`{"role":"assistant","content":"42"}`}, malformed},
		"an item of a type of numbers":        {[]string{`{"type":7}`}, malformed},
		"an item that is null":                {[]string{"null", answer}, malformed},
		"a member twice":                      {[]string{message(`"type":"message"`, `"type":"message","type":"message"`)}, malformed},
		"a message from the user":             {[]string{message(`"assistant"`, `"user"`)}, malformed},
		"content that is a number":            {[]string{`{"type":"message","role":"assistant","content":42}`}, malformed},
		"text that is a number":               {[]string{message(`"text":"42"`, `"text":42`)}, malformed},
		"a status that is a number":           {[]string{call(`"completed"`, `1`)}, malformed},
		"more calls than anybody may make":    {manyCalls(65), malformed},
		"a type in other letters":             {[]string{call("function_call", "Function_Call")}, malformed},
		"members in other letters":            {[]string{strings.Replace(answer, `"content"`, `"Content"`, 1)}, invalid(model.CodeEmpty, "")},
		"a refusal in a reply that is broken": {[]string{refusing, nameless}, refused("No.")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkDecision(t, test.want, responses.Decode([]byte(reply("completed", test.items...))))
		})
	}
}

func manyCalls(n int) []string {
	var calls []string
	for range n {
		calls = append(calls, `{"type":"function_call","name":"lookup","arguments":"{}"}`)
	}
	return calls
}

func TestDecodeAcceptsTheMostCalls(t *testing.T) {
	got := responses.Decode([]byte(reply("completed", manyCalls(64)...)))
	checkReply(t, got)
	if len(got.Decision.Calls) != 64 {
		t.Errorf("got %d calls of kind %s, want 64", len(got.Decision.Calls), got.Decision.Kind)
	}
}

// TestDecodeWithoutStatus checks that a reply that does not say whether it is complete
// runs whole calls only.
func TestDecodeWithoutStatus(t *testing.T) {
	half := strings.Replace(callB, `\"b\"}`, `\"b`, 1)
	checkDecision(t, invalid(model.CodeCutOff, ""), responses.Decode([]byte(reply("", callA, half))))
	checkDecision(t, proposed("", wantA, model.Call{ID: "call_b", Alias: "lookup", Arguments: `{"key":"b`}), responses.Decode([]byte(reply("completed", callA, half))))
}

func TestDecodeGarbage(t *testing.T) {
	for name, body := range fakemodel.Garbage(fakemodel.Responses) {
		t.Run(name, func(t *testing.T) {
			got := responses.Decode(body)
			checkReply(t, got)
			if got.Decision.Kind != model.KindInvalid || got.Decision.Code != model.CodeMalformed {
				t.Errorf("got %s %s, want an invalid, malformed decision", got.Decision.Kind, got.Decision.Code)
			}
		})
	}
}

func TestDecodeKeepsAWordShort(t *testing.T) {
	long := responses.Decode([]byte(reply(strings.Repeat("é", 100), answer)))
	if len(long.StopReason) != 64 {
		t.Errorf("a stop reason of %d bytes was kept", len(long.StopReason))
	}
}

// checkReply checks what holds for every reply.
func checkReply(t *testing.T, got model.Reply) {
	t.Helper()
	d := got.Decision
	echoed := d.Kind == model.KindFinal || d.Kind == model.KindCalls
	if echoed != (got.Raw != nil) {
		t.Errorf("a reply of kind %s with raw %q", d.Kind, got.Raw)
	}
	if (d.Kind == model.KindCalls) != (len(d.Calls) > 0) {
		t.Errorf("a reply of kind %s with %d calls", d.Kind, len(d.Calls))
	}
	if (d.Kind == model.KindInvalid) != (d.Code != "" && d.Problem != "") {
		t.Errorf("a reply of kind %s with code %q and problem %q", d.Kind, d.Code, d.Problem)
	}
	if d.Kind == model.KindFinal && strings.TrimSpace(d.Text) == "" {
		t.Error("an answer of nothing")
	}
	ids := map[string]bool{}
	for _, c := range d.Calls {
		if c.ID == "" || ids[c.ID] || c.Alias == "" {
			t.Errorf("a call %+v without an id of its own, or without a name", c)
		}
		ids[c.ID] = true
	}
	if echoed {
		checkEcho(t, got)
	}
}

// checkEcho checks what holds for what goes back of every reply.
func checkEcho(t *testing.T, got model.Reply) {
	t.Helper()
	// By the exact names of their members: structs would take "Type" for type.
	var items []map[string]json.RawMessage
	if err := json.Unmarshal(got.Raw, &items); err != nil || len(items) == 0 {
		t.Fatalf("raw is no list of items: %s (%v)", got.Raw, err)
	}
	var echoes []string
	for _, i := range items {
		if string(i["type"]) != `"function_call"` {
			continue
		}
		var id string
		if err := json.Unmarshal(i["call_id"], &id); err != nil {
			t.Errorf("a call is echoed without an id: %s", got.Raw)
		}
		echoes = append(echoes, id)
	}
	var want []string
	for _, c := range got.Decision.Calls {
		want = append(want, c.ID)
	}
	if diff := cmp.Diff(want, echoes); diff != "" {
		t.Errorf("ids in the echo (-decision +raw):\n%s", diff)
	}
	if string(items[len(items)-1]["type"]) == `"reasoning"` {
		t.Errorf("a thought at the end of %s", got.Raw)
	}
}

// TestDecodeRefusalOfNothing checks that white space refuses nothing.
func TestDecodeRefusalOfNothing(t *testing.T) {
	got := responses.Decode([]byte(reply("completed", strings.Replace(refusing, "No.", " ", 1), answer)))
	checkReply(t, got)
	if got.Decision.Kind != model.KindFinal {
		t.Errorf("got %+v", got.Decision)
	}
}
