package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// reply wraps an assistant message and a stop reason, both as JSON text; stop "" is
// left out.
func reply(message, stop string) string {
	finish := ""
	if stop != "" {
		finish = `,"finish_reason":` + stop
	}
	return `{"id":"chatcmpl-7","choices":[{"index":0,"message":` + message + finish + `}],` +
		`"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}}`
}

// withCalls is an assistant message with these calls.
func withCalls(calls ...string) string {
	return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(calls, ",") + `]}`
}

const (
	callA = `{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}`
	callB = `{"id":"call_b","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"b\"}"}}`
)

func TestDecodeKinds(t *testing.T) {
	a := model.Call{ID: "call_a", Alias: "lookup", Arguments: `{"key":"a"}`}
	b := model.Call{ID: "call_b", Alias: "lookup", Arguments: `{"key":"b"}`}
	text := `{"role":"assistant","content":"42"}`
	final := model.Decision{Kind: model.KindFinal, Text: "42"}
	invalid := func(code, text string) model.Decision {
		return model.Decision{Kind: model.KindInvalid, Code: code, Text: text}
	}
	tests := map[string]struct {
		body string
		want model.Decision
	}{
		"a final answer":                   {reply(text, `"stop"`), final},
		"an empty list of calls":           {reply(`{"role":"assistant","content":"42","tool_calls":[]}`, `"stop"`), final},
		"null calls":                       {reply(`{"role":"assistant","content":"42","tool_calls":null}`, `"stop"`), final},
		"no stop reason":                   {reply(text, ""), final},
		"a null stop reason":               {reply(text, "null"), final},
		"no role":                          {reply(`{"content":"42"}`, `"stop"`), final},
		"text in parts":                    {reply(`{"role":"assistant","content":[{"type":"text","text":"4"},{"type":"thinking","thinking":[]},"2"]}`, `"stop"`), final},
		"reasoning beside the answer":      {reply(`{"role":"assistant","content":"42","reasoning":"hm","reasoning_content":"hm"}`, `"stop"`), final},
		"several choices":                  {`{"choices":[{"message":` + text + `,"finish_reason":"stop"},{"message":{"content":"43"},"finish_reason":"stop"}]}`, final},
		"two calls":                        {reply(withCalls(callA, callB), `"tool_calls"`), model.Decision{Kind: model.KindCalls, Calls: []model.Call{a, b}}},
		"calls in the order of the list":   {reply(withCalls(strings.Replace(callB, `{`, `{"index":1,`, 1), strings.Replace(callA, `{`, `{"index":0,`, 1)), `"tool_calls"`), model.Decision{Kind: model.KindCalls, Calls: []model.Call{b, a}}},
		"calls that ended with stop":       {reply(withCalls(callA), `"stop"`), model.Decision{Kind: model.KindCalls, Calls: []model.Call{a}}},
		"calls that ended with the old":    {reply(withCalls(callA), `"function_call"`), model.Decision{Kind: model.KindCalls, Calls: []model.Call{a}}},
		"whole calls, no stop reason":      {reply(withCalls(callA), ""), model.Decision{Kind: model.KindCalls, Calls: []model.Call{a}}},
		"text beside calls":                {reply(strings.Replace(withCalls(callA), "null", `"I will look."`, 1), `"tool_calls"`), model.Decision{Kind: model.KindCalls, Text: "I will look.", Calls: []model.Call{a}}},
		"half a call, no stop reason":      {reply(withCalls(strings.Replace(callA, `\"a\"}`, `\"a`, 1)), ""), invalid(model.CodeCutOff, "")},
		"text cut off":                     {reply(text, `"length"`), invalid(model.CodeCutOff, "42")},
		"calls cut off":                    {reply(withCalls(callA), `"length"`), invalid(model.CodeCutOff, "")},
		"broken calls cut off":             {reply(withCalls(`{"id":"x","function":{}}`), `"length"`), invalid(model.CodeCutOff, "")},
		"a content filter":                 {reply(text, `"content_filter"`), model.Decision{Kind: model.KindRefused, Text: "42"}},
		"a content filter with calls":      {reply(withCalls(callA), `"content_filter"`), model.Decision{Kind: model.KindRefused}},
		"a refusal":                        {reply(`{"role":"assistant","content":null,"refusal":"No."}`, `"stop"`), model.Decision{Kind: model.KindRefused, Text: "No."}},
		"a refusal in parts":               {reply(`{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`, `"stop"`), model.Decision{Kind: model.KindRefused, Text: "No."}},
		"a refusal beside calls":           {reply(strings.Replace(withCalls(callA), `"role"`, `"refusal":"No.","role"`, 1), `"tool_calls"`), model.Decision{Kind: model.KindRefused, Text: "No."}},
		"an unknown stop reason":           {reply(text, `"tired"`), invalid(model.CodeUnknownStop, "42")},
		"calls with an unknown reason":     {reply(withCalls(callA), `"tired"`), invalid(model.CodeUnknownStop, "")},
		"calls announced, none there":      {reply(text, `"tool_calls"`), invalid(model.CodeEmpty, "42")},
		"calls announced, an empty list":   {reply(`{"role":"assistant","content":"","tool_calls":[]}`, `"tool_calls"`), invalid(model.CodeEmpty, "")},
		"null content":                     {reply(`{"role":"assistant","content":null}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"empty content":                    {reply(`{"role":"assistant","content":""}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"no content":                       {reply(`{"role":"assistant"}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"an empty list of parts":           {reply(`{"role":"assistant","content":[]}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"white space":                      {reply(`{"role":"assistant","content":" \n"}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"reasoning and no answer":          {reply(`{"role":"assistant","content":"","reasoning_content":"hm"}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"an id twice":                      {reply(withCalls(callA, callA), `"tool_calls"`), invalid(model.CodeDuplicateIDs, "")},
		"a call without a name":            {reply(withCalls(`{"id":"call_a","type":"function","function":{"name":"","arguments":"{}"}}`), `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"a call without a function":        {reply(withCalls(`{"id":"call_a","type":"function"}`), `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"a call of another type":           {reply(withCalls(`{"id":"call_a","type":"custom","custom":{"name":"x","input":"y"}}`), `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"a call that is null":              {reply(withCalls(callA, "null"), `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"one good and one nameless call":   {reply(withCalls(callA, `{"id":"call_b","function":{"arguments":"{}"}}`), `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"calls that are an object":         {reply(`{"role":"assistant","content":"42","tool_calls":{"0":`+callA+`}}`, `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"content that is a number":         {reply(`{"role":"assistant","content":42}`, `"stop"`), invalid(model.CodeMalformed, "")},
		"a refusal that is true":           {reply(`{"role":"assistant","content":"42","refusal":true}`, `"stop"`), invalid(model.CodeMalformed, "")},
		"a message from the user":          {reply(`{"role":"user","content":"42"}`, `"stop"`), invalid(model.CodeMalformed, "")},
		"the old way of calling":           {reply(`{"role":"assistant","content":null,"function_call":{"name":"lookup","arguments":"{}"}}`, `"function_call"`), invalid(model.CodeMalformed, "")},
		"both ways of calling":             {reply(strings.Replace(withCalls(callA), `"role"`, `"function_call":{"name":"lookup","arguments":"{}"},"role"`, 1), `"tool_calls"`), invalid(model.CodeMalformed, "")},
		"a member twice":                   {reply(`{"role":"assistant","content":"42","content":"43"}`, `"stop"`), invalid(model.CodeMalformed, "")},
		"members in other letters":         {reply(`{"role":"assistant","content":"","Tool_Calls":[`+callA+`]}`, `"stop"`), invalid(model.CodeEmpty, "")},
		"more calls than anybody may make": {reply(withCalls(manyCalls(65)...), `"tool_calls"`), invalid(model.CodeMalformed, "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := openai.Decode([]byte(test.body))
			checkReply(t, got)
			if test.want.Kind == model.KindInvalid && got.Decision.Problem == "" {
				t.Error("an invalid decision must say what to change")
			}
			got.Decision.Problem = ""
			if diff := cmp.Diff(test.want, got.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func manyCalls(n int) []string {
	var calls []string
	for range n {
		calls = append(calls, `{"type":"function","function":{"name":"lookup","arguments":"{}"}}`)
	}
	return calls
}

func TestDecodeAcceptsTheMostCalls(t *testing.T) {
	got := openai.Decode([]byte(reply(withCalls(manyCalls(64)...), `"tool_calls"`)))
	checkReply(t, got)
	if len(got.Decision.Calls) != 64 {
		t.Errorf("got %d calls of kind %s, want 64", len(got.Decision.Calls), got.Decision.Kind)
	}
}

func TestDecodeGarbage(t *testing.T) {
	garbage := fakemodel.Garbage(fakemodel.Chat)
	if len(garbage) < 12 {
		t.Errorf("only %d kinds of garbage", len(garbage))
	}
	for name, body := range garbage {
		t.Run(name, func(t *testing.T) {
			got := openai.Decode(body)
			checkReply(t, got)
			if got.Decision.Kind != model.KindInvalid || got.Decision.Code != model.CodeMalformed {
				t.Errorf("got %s %s, want an invalid, malformed decision", got.Decision.Kind, got.Decision.Code)
			}
			if got.Usage.Reported {
				t.Error("garbage reported a usage")
			}
		})
	}
}

func TestDecodeKeepsWordsOfTheWire(t *testing.T) {
	got := openai.Decode([]byte(reply(`{"role":"assistant","content":"42"}`, `"tired"`)))
	if got.StopReason != "tired" || got.RequestID != "chatcmpl-7" {
		t.Errorf("got stop reason %q and request id %q", got.StopReason, got.RequestID)
	}
	long := openai.Decode([]byte(reply(`{"role":"assistant","content":"42"}`, `"`+strings.Repeat("é", 100)+`"`)))
	if len(long.StopReason) != 64 {
		t.Errorf("a stop reason of %d bytes was kept", len(long.StopReason))
	}
}

func TestDecodeRaw(t *testing.T) {
	long := strings.Repeat("n", 80)
	tests := map[string]struct {
		message string
		// want is the echoed message; "" for the message unchanged.
		want string
	}{
		"nothing to repair": {
			message: `{"role": "assistant",  "content": null, "refusal": null, "annotations": [], "x_new": {"b": 1, "a": 1.50},` + "\n" + `"tool_calls": [` + callA + `]}`,
		},
		"a final answer": {
			message: `{ "role": "assistant", "content": "a < b", "refusal": null }`,
		},
		"an empty list of calls": {
			message: `{"role":"assistant","tool_calls":[],"content":"42"}`,
			want:    `{"role":"assistant","content":"42"}`,
		},
		"null calls": {
			message: `{"role":"assistant","content":"42","tool_calls":null,"refusal":null}`,
			want:    `{"role":"assistant","content":"42","refusal":null}`,
		},
		"no role": {
			message: `{"content":"42"}`,
			want:    `{"content":"42","role":"assistant"}`,
		},
		"arguments as an object": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":{"key": "<a>"}}}`, callB),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\": \"<a>\"}"}}`, callB),
		},
		"no arguments": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup"}}`),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{}"}}`),
		},
		"empty arguments": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":""}}`),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{}"}}`),
		},
		"arguments that are not JSON": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":"}}`),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"unreadable_arguments\":\"{\\\"key\\\":\"}"}}`),
		},
		"arguments that are a list": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"[1]"}}`),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"unreadable_arguments\":\"[1]\"}"}}`),
		},
		"no type": {
			message: withCalls(`{"id":"call_a","function":{"name":"lookup","arguments":"{}"}}`),
			want:    withCalls(`{"id":"call_a","function":{"name":"lookup","arguments":"{}"},"type":"function"}`),
		},
		"a name that is not legal": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"crm.get","arguments":"{}"}}`),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"crm_get","arguments":"{}"}}`),
		},
		"a name that is too long": {
			message: withCalls(`{"id":"call_a","type":"function","function":{"name":"` + long + `","arguments":"{}"}}`),
			want:    withCalls(`{"id":"call_a","type":"function","function":{"name":"` + long[:64] + `","arguments":"{}"}}`),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := openai.Decode([]byte(reply(test.message, `"stop"`)))
			checkReply(t, got)
			want := test.want
			if want == "" {
				want = test.message
			}
			if diff := cmp.Diff(want, string(got.Raw)); diff != "" {
				t.Errorf("raw (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeAssignsIDs(t *testing.T) {
	for name, call := range map[string]string{
		"missing":            `{"type":"function","function":{"name":"lookup","arguments":"{}"}}`,
		"null":               `{"id":null,"type":"function","function":{"name":"lookup","arguments":"{}"}}`,
		"empty":              `{"id":"","type":"function","function":{"name":"lookup","arguments":"{}"}}`,
		"blank":              `{"id":" ","type":"function","function":{"name":"lookup","arguments":"{}"}}`,
		"a number":           `{"id":7,"type":"function","function":{"name":"lookup","arguments":"{}"}}`,
		"control characters": `{"id":"a\nb","type":"function","function":{"name":"lookup","arguments":"{}"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(reply(withCalls(call, callA, call), `"tool_calls"`))
			got := openai.Decode(body)
			checkReply(t, got)
			if got.Decision.Kind != model.KindCalls {
				t.Fatalf("got %+v, want calls", got.Decision)
			}
			if id := got.Decision.Calls[1].ID; id != "call_a" {
				t.Errorf("the id that was there became %q", id)
			}
			if first := got.Decision.Calls[0].ID; len(first) != 9 {
				t.Errorf("id %q does not have the nine characters that every template accepts", first)
			}
			if diff := cmp.Diff(got, openai.Decode(body)); diff != "" {
				t.Errorf("ids are not the same when the reply is read again:\n%s", diff)
			}
		})
	}
}

// checkReply checks what holds for every reply.
func checkReply(t *testing.T, got model.Reply) {
	t.Helper()
	d := got.Decision
	switch d.Kind {
	case model.KindFinal:
		if d.Text == "" {
			t.Error("a final answer without text")
		}
	case model.KindCalls:
		if len(d.Calls) == 0 {
			t.Error("calls without a call")
		}
	case model.KindRefused, model.KindInvalid, model.KindOverflow:
		if len(got.Raw) > 0 {
			t.Errorf("kind %s has a raw message, so its calls could come back", d.Kind)
		}
	default:
		t.Errorf("unknown kind %q", d.Kind)
	}
	if d.Kind != model.KindCalls && len(d.Calls) > 0 {
		t.Errorf("kind %s has calls", d.Kind)
	}
	if (d.Kind == model.KindInvalid) != (d.Code != "" && d.Problem != "") {
		t.Errorf("kind %s has code %q and problem %q", d.Kind, d.Code, d.Problem)
	}
	if u := got.Usage; !u.Reported && u != (model.Usage{}) {
		t.Errorf("a usage that is not reported has counts: %+v", u)
	}
	checkRaw(t, got)
}

// checkRaw checks that the echo is valid and speaks of the same calls.
func checkRaw(t *testing.T, got model.Reply) {
	t.Helper()
	if len(got.Raw) == 0 {
		if k := got.Decision.Kind; k == model.KindFinal || k == model.KindCalls {
			t.Errorf("kind %s has no raw message", k)
		}
		return
	}
	message := exactly(t, got.Raw)
	if string(message["role"]) != `"assistant"` {
		t.Errorf("the raw message has role %s", message["role"])
	}
	var calls []json.RawMessage
	if listed := message["tool_calls"]; listed != nil && json.Unmarshal(listed, &calls) != nil {
		t.Fatalf("the raw message has calls that are no list: %s", got.Raw)
	}
	if len(calls) != len(got.Decision.Calls) {
		t.Fatalf("%d calls, %d in the raw message", len(got.Decision.Calls), len(calls))
	}
	ids := map[string]bool{}
	for i, raw := range calls {
		call := exactly(t, raw)
		id, arguments := text(t, call["id"]), text(t, exactly(t, call["function"])["arguments"])
		if want := got.Decision.Calls[i].ID; id != want || id == "" {
			t.Errorf("call %d has id %q, in the raw message %q", i, want, id)
		}
		if ids[id] {
			t.Errorf("two calls have the id %q", id)
		}
		ids[id] = true
		exactly(t, json.RawMessage(arguments))
	}
}

// exactly reads a JSON object by the exact names of its members, unlike structs.
func exactly(t *testing.T, raw json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatalf("can't be echoed: %v\n%s", err, raw)
	}
	return members
}

func text(t *testing.T, raw json.RawMessage) (value string) {
	t.Helper()
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatalf("not a string: %s", raw)
	}
	return value
}
