package gemini_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/gemini"
)

// Parts of replies.
const (
	callA     = `{"functionCall":{"name":"lookup","args":{"key":"a"},"id":"id_a"},"thoughtSignature":"c2lnbmF0dXJl"}`
	callB     = `{"functionCall":{"name":"lookup","args":{"key":"b"},"id":"id_b"}}`
	nameless  = `{"functionCall":{"args":{}}}`
	plainCall = `{"functionCall":{"name":"lookup","args":{"key":"a"}}}`
	answer    = `{"text":"42"}`
	thinking  = `{"text":"Hm.","thought":true}`
)

// said is a content of the model.
func said(parts ...string) string {
	return `{"parts":[` + strings.Join(parts, ",") + `],"role":"model"}`
}

// reply is a response body.
func reply(content, stop string) string {
	body := `{"candidates":[{"content":` + content + `,"index":0`
	if stop != "" {
		body += `,"finishReason":` + stop
	}
	return body + `}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":20,"totalTokenCount":120},"modelVersion":"m","responseId":"resp-7"}`
}

func invalid(code, text string) model.Decision {
	return model.Decision{Kind: model.KindInvalid, Code: code, Text: text}
}

func proposed(text string, calls ...model.Call) model.Decision {
	return model.Decision{Kind: model.KindCalls, Text: text, Calls: calls}
}

var (
	wantA = model.Call{ID: "id_a", Alias: "lookup", Arguments: `{"key":"a"}`}
	wantB = model.Call{ID: "id_b", Alias: "lookup", Arguments: `{"key":"b"}`}
)

// TestDecodeStopReasons has every reason of the wire, for a reply with calls, one with
// text and one with nothing. Calls run for STOP only, and for the FUNCTION_CALL of
// servers that imitate the wire.
func TestDecodeStopReasons(t *testing.T) {
	refused := [3]model.Decision{{Kind: model.KindRefused, Text: "42"}, {Kind: model.KindRefused, Text: "42"}, {Kind: model.KindRefused}}
	cut := [3]model.Decision{invalid(model.CodeCutOff, "42"), invalid(model.CodeCutOff, "42"), invalid(model.CodeCutOff, "")}
	unknown := [3]model.Decision{invalid(model.CodeUnknownStop, "42"), invalid(model.CodeUnknownStop, "42"), invalid(model.CodeUnknownStop, "")}
	broken := [3]model.Decision{invalid(model.CodeMalformed, ""), invalid(model.CodeMalformed, ""), invalid(model.CodeMalformed, "")}
	final := model.Decision{Kind: model.KindFinal, Text: "42"}
	tests := map[string][3]model.Decision{
		"STOP":                      {proposed("42", wantA, wantB), final, invalid(model.CodeEmpty, "")},
		"FUNCTION_CALL":             {proposed("42", wantA, wantB), invalid(model.CodeEmpty, "42"), invalid(model.CodeEmpty, "")},
		"MAX_TOKENS":                cut,
		"CONTINUATION":              cut,
		"SAFETY":                    refused,
		"RECITATION":                refused,
		"BLOCKLIST":                 refused,
		"PROHIBITED_CONTENT":        refused,
		"SPII":                      refused,
		"MODEL_ARMOR":               refused,
		"IMAGE_SAFETY":              refused,
		"IMAGE_PROHIBITED_CONTENT":  refused,
		"IMAGE_RECITATION":          refused,
		"MALFORMED_FUNCTION_CALL":   broken,
		"MALFORMED_RESPONSE":        broken,
		"UNEXPECTED_TOOL_CALL":      broken,
		"TOO_MANY_TOOL_CALLS":       broken,
		"LANGUAGE":                  unknown,
		"OTHER":                     unknown,
		"NO_IMAGE":                  unknown,
		"IMAGE_OTHER":               unknown,
		"MISSING_THOUGHT_SIGNATURE": unknown,
		"FINISH_REASON_UNSPECIFIED": unknown,
		"TIRED":                     unknown,
		"stop":                      unknown,
		"":                          unknown,
		"null":                      unknown,
		"missing":                   unknown,
	}
	contents := [3]string{said(thinking, answer, callA, callB), said(thinking, answer), said(thinking)}
	for stop, want := range tests {
		for i, content := range contents {
			t.Run(fmt.Sprintf("%s %d", stop, i), func(t *testing.T) {
				written := `"` + stop + `"`
				switch stop {
				case "null":
					written = stop
				case "missing":
					written = ""
				}
				got := gemini.Decode([]byte(reply(content, written)))
				checkReply(t, got)
				if word := strings.Trim(written, `"`); word != "null" && got.StopReason != word {
					t.Errorf("the stop reason became %q", got.StopReason)
				}
				got.Decision.Problem = ""
				if diff := cmp.Diff(want[i], got.Decision); diff != "" {
					t.Errorf("decision (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestDecodeBlockedPrompt has the reasons for which a prompt is refused.
func TestDecodeBlockedPrompt(t *testing.T) {
	for _, reason := range []string{"SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK", "BLOCKED_REASON_UNSPECIFIED", "ANEW"} {
		for name, rest := range map[string]string{
			"no candidates":    ``,
			"empty candidates": `,"candidates":[]`,
			"calls all the same": `,"candidates":[{"finishReason":"STOP","content":` +
				said(callA) + `}]`,
		} {
			body := `{"promptFeedback":{"blockReason":"` + reason + `","blockReasonMessage":"no"}` + rest +
				`,"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12},"responseId":"resp-7"}`
			got := gemini.Decode([]byte(body))
			checkReply(t, got)
			want := model.Reply{
				Decision: model.Decision{Kind: model.KindRefused}, StopReason: reason, RequestID: "resp-7",
				Usage: model.Usage{InputTokens: 12, Reported: true},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", reason, name, diff)
			}
		}
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		body string
		want model.Decision
	}{
		"an answer":                    {reply(said(answer), `"STOP"`), model.Decision{Kind: model.KindFinal, Text: "42"}},
		"an answer in pieces":          {reply(said(`{"text":"4"}`, thinking, `{"text":"2","thought":false}`), `"STOP"`), model.Decision{Kind: model.KindFinal, Text: "42"}},
		"an answer that is signed":     {reply(said(`{"text":"42","thoughtSignature":"c2ln"}`), `"STOP"`), model.Decision{Kind: model.KindFinal, Text: "42"}},
		"a feedback without a block":   {strings.Replace(reply(said(answer), `"STOP"`), `{"candidates"`, `{"promptFeedback":{"safetyRatings":[]},"candidates"`, 1), model.Decision{Kind: model.KindFinal, Text: "42"}},
		"a second candidate":           {`{"candidates":[{"content":` + said(answer) + `,"finishReason":"STOP"},{"content":` + said(callA) + `,"finishReason":"STOP"}]}`, model.Decision{Kind: model.KindFinal, Text: "42"}},
		"a call":                       {reply(said(callA), `"STOP"`), proposed("", wantA)},
		"calls between words":          {reply(said(callA, answer, callB), `"STOP"`), proposed("42", wantA, wantB)},
		"a call without arguments":     {reply(said(`{"functionCall":{"name":"lookup","id":"id_a"}}`), `"STOP"`), proposed("", model.Call{ID: "id_a", Alias: "lookup"})},
		"arguments that are null":      {reply(said(`{"functionCall":{"name":"lookup","args":null,"id":"id_a"}}`), `"STOP"`), proposed("", model.Call{ID: "id_a", Alias: "lookup"})},
		"arguments as a string":        {reply(said(`{"functionCall":{"name":"lookup","args":"{\"key\":1}","id":"id_a"}}`), `"STOP"`), proposed("", model.Call{ID: "id_a", Alias: "lookup", Arguments: `{"key":1}`})},
		"arguments as they were":       {reply(said(`{"functionCall":{"name":"lookup","args":{ "n": 9007199254740993, "m":1.50, "n":2 },"id":"id_a"}}`), `"STOP"`), proposed("", model.Call{ID: "id_a", Alias: "lookup", Arguments: `{ "n": 9007199254740993, "m":1.50, "n":2 }`})},
		"a call that is whole":         {reply(said(`{"functionCall":{"name":"lookup","id":"id_a","willContinue":false}}`), `"STOP"`), proposed("", model.Call{ID: "id_a", Alias: "lookup"})},
		"parts that are no answer":     {reply(said(`{"executableCode":{"language":"PYTHON","code":"1"}}`, `{"inlineData":{"mimeType":"image/png","data":"AA=="}}`), `"STOP"`), invalid(model.CodeEmpty, "")},
		"blank text":                   {reply(said(`{"text":" \n"}`), `"STOP"`), invalid(model.CodeEmpty, "")},
		"no content":                   {`{"candidates":[{"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":5,"totalTokenCount":5}}`, invalid(model.CodeEmpty, "")},
		"no parts":                     {reply(`{"role":"model"}`, `"STOP"`), invalid(model.CodeEmpty, "")},
		"null parts":                   {reply(`{"role":"model","parts":null}`, `"STOP"`), invalid(model.CodeEmpty, "")},
		"an id twice":                  {reply(said(callA, callA), `"STOP"`), invalid(model.CodeDuplicateIDs, "")},
		"a call without a name":        {reply(said(callA, nameless), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a call with a blank name":     {reply(said(`{"functionCall":{"name":" "}}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a call that is a list":        {reply(said(`{"functionCall":["lookup"]}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a call that goes on":          {reply(said(`{"functionCall":{"name":"lookup","willContinue":true}}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a call in pieces":             {reply(said(`{"functionCall":{"name":"lookup","partialArgs":[{"jsonPath":"$.key"}]}}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a call in a thought":          {reply(said(`{"thought":true,"functionCall":{"name":"lookup"}}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a call that is text, too":     {reply(said(`{"text":"42","functionCall":{"name":"lookup"}}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a thought that is a word":     {reply(said(`{"text":"42","thought":"yes"}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"text that is a number":        {reply(said(`{"text":42}`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a part that is text":          {reply(said(`"42"`), `"STOP"`), invalid(model.CodeMalformed, "")},
		"parts that are an object":     {reply(`{"role":"model","parts":`+answer+`}`, `"STOP"`), invalid(model.CodeMalformed, "")},
		"content that is a list":       {reply(`[`+answer+`]`, `"STOP"`), invalid(model.CodeMalformed, "")},
		"content of the user":          {reply(`{"role":"user","parts":[`+answer+`]}`, `"STOP"`), invalid(model.CodeMalformed, "")},
		"a member twice":               {reply(`{"role":"model","parts":[`+answer+`],"parts":[`+callA+`]}`, `"STOP"`), invalid(model.CodeMalformed, "")},
		"members in other letters":     {reply(said(`{"FunctionCall":{"name":"lookup"}}`), `"STOP"`), invalid(model.CodeEmpty, "")},
		"a stop reason that is 1":      {reply(said(answer), `1`), invalid(model.CodeMalformed, "")},
		"a block that is 1":            {`{"promptFeedback":{"blockReason":1}}`, invalid(model.CodeMalformed, "")},
		"a feedback that is text":      {`{"promptFeedback":"no"}`, invalid(model.CodeMalformed, "")},
		"more calls than anybody may":  {reply(said(many(65)...), `"STOP"`), invalid(model.CodeMalformed, "")},
		"a broken part of a refusal":   {reply(said(`"42"`), `"SAFETY"`), model.Decision{Kind: model.KindRefused}},
		"a broken part of a cut reply": {reply(said(answer, nameless), `"MAX_TOKENS"`), invalid(model.CodeCutOff, "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := gemini.Decode([]byte(test.body))
			checkReply(t, got)
			got.Decision.Problem = ""
			if diff := cmp.Diff(test.want, got.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func many(n int) []string {
	var calls []string
	for range n {
		calls = append(calls, plainCall)
	}
	return calls
}

func TestDecodeAcceptsTheMostCalls(t *testing.T) {
	got := gemini.Decode([]byte(reply(said(many(64)...), `"STOP"`)))
	checkReply(t, got)
	if len(got.Decision.Calls) != 64 {
		t.Errorf("got %d calls of kind %s, want 64", len(got.Decision.Calls), got.Decision.Kind)
	}
}

// garbage holds bodies that may not be taken for a decision.
func garbage() map[string]string {
	whole := reply(said(callA), `"STOP"`)
	return map[string]string{
		"no body at all":              "",
		"an HTML page":                "<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>",
		"plain words":                 "upstream connect error or disconnect/reset before headers",
		"JSON null":                   "null",
		"a stream's list":             "[" + whole + "]",
		"an event stream":             "data: " + whole + "\n\n",
		"cut in the middle":           whole[:len(whole)/2],
		"NUL bytes":                   strings.Replace(whole, "lookup", "look\x00up", 1),
		"bytes that are not UTF-8":    strings.Replace(whole, "lookup", "look\xffup", 1),
		"nesting without end":         `{"candidates":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
		"members of the wrong type":   `{"candidates":{"0":{"content":"hello"}},"usageMetadata":"none"}`,
		"two documents":               whole + whole,
		"nothing":                     `{}`,
		"no candidates":               `{"candidates":[],"modelVersion":"m"}`,
		"a candidate that is text":    `{"candidates":["hello"]}`,
		"a content that is text":      `{"candidates":[{"content":"hello","finishReason":"STOP"}]}`,
		"another wire's reply":        `{"id":"chatcmpl-1","choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`,
		"a name that is given twice":  strings.Replace(whole, `"candidates"`, `"candidates":[],"candidates"`, 1),
		"a thought that is an object": reply(said(`{"thought":{},"text":"hi"}`), `"STOP"`),
	}
}

func TestDecodeGarbage(t *testing.T) {
	for name, body := range garbage() {
		t.Run(name, func(t *testing.T) {
			got := gemini.Decode([]byte(body))
			checkReply(t, got)
			if got.Decision.Kind != model.KindInvalid || got.Decision.Code != model.CodeMalformed {
				t.Errorf("got %s %s, want an invalid, malformed decision", got.Decision.Kind, got.Decision.Code)
			}
		})
	}
}

func TestDecodeKeepsWordsOfTheWire(t *testing.T) {
	got := gemini.Decode([]byte(reply(said(answer), `"TIRED"`)))
	if got.StopReason != "TIRED" || got.RequestID != "resp-7" {
		t.Errorf("got stop reason %q and request id %q", got.StopReason, got.RequestID)
	}
	long := gemini.Decode([]byte(reply(said(answer), `"`+strings.Repeat("é", 100)+`"`)))
	if len(long.StopReason) != 64 {
		t.Errorf("a stop reason of %d bytes was kept", len(long.StopReason))
	}
}

func TestDecodeRaw(t *testing.T) {
	long := strings.Repeat("n", 130)
	tests := map[string]struct {
		content string
		// want is the echoed content; "" for the content unchanged.
		want string
	}{
		"nothing to repair": {
			content: "{ \"parts\" : [ {\"text\":\"a < b\",\n\"thought\": true} , {\"x_new\":{\"b\":1,\"a\":1.50},  \"functionCall\":{\"args\":{\"n\":9007199254740993},\"name\":\"lookup\"},\"thoughtSignature\":\"-_8\\u003d\"} ], \"x\":null, \"role\":\"model\"}",
		},
		"a final answer": {content: said(thinking, `{"text": "a < b", "thoughtSignature": "c2ln"}`)},
		"a signature alone": {
			content: said(answer, `{"text":"","thoughtSignature":"c2ln"}`),
		},
		"parts of unknown kinds": {content: said(`{"x_new":{"a":1}}`, answer)},
		"parts that say nothing": {
			content: said(`{"text":""}`, answer, `{}`, `{"text":null,"thought":true}`),
			want:    said(answer),
		},
		"no role": {
			content: `{"parts":[` + answer + `]}`,
			want:    `{"parts":[` + answer + `],"role":"model"}`,
		},
		"a null role": {
			content: `{"role":null,"parts":[` + answer + `]}`,
			want:    `{"role":"model","parts":[` + answer + `]}`,
		},
		"a name of the wire's own": {content: said(`{"functionCall":{"name":"default_api:crm.get"}}`)},
		"a name that is not legal": {
			content: said(callA, `{"thoughtSignature":"c2ln","functionCall":{"id":"x","name":"crm/get","args":{"a":1.0}},"x":1}`),
			want:    said(callA, `{"thoughtSignature":"c2ln","functionCall":{"id":"x","name":"crm_get","args":{"a":1.0}},"x":1}`),
		},
		"a name that starts with a digit": {
			content: said(`{"functionCall":{"name":"1up"}}`),
			want:    said(`{"functionCall":{"name":"_1up"}}`),
		},
		"a name that is too long": {
			content: said(`{"functionCall":{"name":"` + long + `"}}`),
			want:    said(`{"functionCall":{"name":"` + long[:64] + `"}}`),
		},
		"a call beside empty text": {
			content: said(`{"text":"","functionCall":{"name":"lookup",  "args":{}},"thoughtSignature":"c2ln"}`),
			want:    said(`{"functionCall":{"name":"lookup","args":{}},"thoughtSignature":"c2ln"}`),
		},
		"a call beside null text": {content: said(`{"text":null,"functionCall":{"name":"lookup",  "args":{}}}`)},
		"arguments as a string": {
			content: said(`{"functionCall":{"name":"lookup","args":"{\"a\":1.0}"}}`),
			want:    said(`{"functionCall":{"name":"lookup","args":{"a":1.0}}}`),
		},
		"arguments that are no object": {
			content: said(`{"functionCall":{"name":"lookup","args":[1]}}`),
			want:    said(`{"functionCall":{"name":"lookup","args":{"unreadable_arguments":"[1]"}}}`),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := gemini.Decode([]byte(reply(test.content, `"STOP"`)))
			checkReply(t, got)
			want := test.want
			if want == "" {
				want = test.content
			}
			if diff := cmp.Diff(want, string(got.Raw)); diff != "" {
				t.Errorf("raw (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeAssignsIDs(t *testing.T) {
	for name, call := range map[string]string{
		"missing":            plainCall,
		"null":               `{"functionCall":{"name":"lookup","args":{"key":"a"},"id":null}}`,
		"empty":              `{"functionCall":{"name":"lookup","args":{"key":"a"},"id":""}}`,
		"a number":           `{"functionCall":{"name":"lookup","args":{"key":"a"},"id":7}}`,
		"control characters": `{"functionCall":{"name":"lookup","args":{"key":"a"},"id":"a\nb"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(reply(said(call, callA, call), `"STOP"`))
			got := gemini.Decode(body)
			checkReply(t, got)
			if got.Decision.Kind != model.KindCalls {
				t.Fatalf("got %+v, want calls", got.Decision)
			}
			if id := got.Decision.Calls[1].ID; id != "id_a" {
				t.Errorf("the id that was there became %q", id)
			}
			if diff := cmp.Diff(got, gemini.Decode(body)); diff != "" {
				t.Errorf("ids are not the same when the reply is read again:\n%s", diff)
			}
			if string(got.Raw) != said(call, callA, call) {
				t.Errorf("the ids went into the echo: %s", got.Raw)
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
	case model.KindRefused, model.KindInvalid:
		if len(got.Raw) > 0 {
			t.Errorf("kind %s has a raw content, so its calls could come back", d.Kind)
		}
	default:
		t.Errorf("unexpected kind %q", d.Kind)
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

// exactly reads a JSON object by the exact names of its members, unlike structs.
func exactly(t *testing.T, raw json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatalf("can't be echoed: %v\n%s", err, raw)
	}
	return members
}

// checkRaw checks that the echo is valid, says something in each part, and speaks of the
// same calls.
func checkRaw(t *testing.T, got model.Reply) {
	t.Helper()
	if len(got.Raw) == 0 {
		if k := got.Decision.Kind; k == model.KindFinal || k == model.KindCalls {
			t.Errorf("kind %s has no raw content", k)
		}
		return
	}
	content := exactly(t, got.Raw)
	var parts []json.RawMessage
	if err := json.Unmarshal(content["parts"], &parts); err != nil || len(parts) == 0 || string(content["role"]) != `"model"` {
		t.Fatalf("the raw content can't be echoed: %s", got.Raw)
	}
	var echoed []model.Call
	for i, raw := range parts {
		part := exactly(t, raw)
		if len(part) == 0 {
			t.Errorf("part %d is empty", i)
		}
		if call := part["functionCall"]; call != nil && string(call) != "null" {
			echoed = append(echoed, echoedCall(t, call))
		}
	}
	if len(echoed) != len(got.Decision.Calls) {
		t.Fatalf("%d calls, %d in the raw content", len(got.Decision.Calls), len(echoed))
	}
	checkIDs(t, got.Decision.Calls, echoed)
}

func checkIDs(t *testing.T, calls, echoed []model.Call) {
	t.Helper()
	ids := map[string]bool{}
	for i, proposed := range calls {
		if echoed[i].Alias == "" || proposed.ID == "" || ids[proposed.ID] {
			t.Errorf("call %d has id %q and name %q", i, proposed.ID, echoed[i].Alias)
		}
		ids[proposed.ID] = true
	}
}

func echoedCall(t *testing.T, raw json.RawMessage) (call model.Call) {
	t.Helper()
	members := exactly(t, raw)
	if err := json.Unmarshal(members["name"], &call.Alias); err != nil {
		t.Errorf("a call is echoed without a name: %s", raw)
	}
	if args := members["args"]; args != nil {
		exactly(t, args)
	}
	return call
}
