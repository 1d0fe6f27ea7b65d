package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func without(item, member string) string { return strings.Replace(item, member, "", 1) }

func TestEcho(t *testing.T) {
	long := strings.Repeat("n", 80)
	call := func(from, to string) string { return strings.Replace(callA, from, to, 1) }
	tests := map[string]struct {
		items []string
		// want is nil for the items unchanged.
		want []string
	}{
		"byte for byte": {
			items: []string{thought, `{ "id":"msg_z", "type" : "message", "role":"assistant",  "content":[{"type":"output_text","text":"a < b é"}], "phase":null, "x_new": {"b": 1, "a": 1.50} }`, callA},
		},
		"thoughts that are there":    {items: []string{thought, plain, answer}},
		"ids where nothing is bare":  {items: []string{callA, answer, callB}},
		"a tool of the provider's":   {items: []string{`{"type":"web_search_call","id":"ws_1","status":"completed","action":{}}`, answer}},
		"a thought of an id alone":   {[]string{bare, callA}, []string{without(callA, `"id":"fc_a",`)}},
		"a thought of null":          {[]string{strings.Replace(bare, `"summary"`, `"encrypted_content":null,"summary"`, 1), callA}, []string{without(callA, `"id":"fc_a",`)}},
		"a summary is no thought":    {[]string{strings.Replace(bare, `"summary":[]`, `"summary":[{"type":"summary_text","text":"Hm."}]`, 1), answer}, []string{without(answer, `"id":"msg_a",`)}},
		"one thought of two is bare": {[]string{thought, answer, bare, callA}, []string{thought, without(answer, `"id":"msg_a",`), without(callA, `"id":"fc_a",`)}},
		"a thought at the end":       {[]string{callA, thought}, []string{callA}},
		"thoughts at the end":        {[]string{answer, thought, plain}, []string{answer}},
		"a bare thought at the end":  {[]string{callA, bare}, []string{callA}},
		"an item id twice":           {[]string{answer, answer, callA}, []string{answer, without(answer, `"id":"msg_a",`), callA}},
		"no call_id": {
			[]string{without(callA, `"call_id":"call_a",`), callB},
			[]string{strings.TrimSuffix(without(callA, `"call_id":"call_a",`), "}") + `,"call_id":"ASSIGNED"}`, callB},
		},
		"arguments as an object":     {[]string{call(`"{\"key\":\"a\"}"`, `{"key": "<a>"}`)}, []string{call(`"{\"key\":\"a\"}"`, `"{\"key\": \"<a>\"}"`)}},
		"empty arguments":            {[]string{call(`"{\"key\":\"a\"}"`, `""`)}, []string{call(`"{\"key\":\"a\"}"`, `"{}"`)}},
		"arguments that are a list":  {[]string{call(`"{\"key\":\"a\"}"`, `"[1]"`)}, []string{call(`"{\"key\":\"a\"}"`, `"{\"unreadable_arguments\":\"[1]\"}"`)}},
		"arguments that are no JSON": {[]string{call(`"{\"key\":\"a\"}"`, `"{"`)}, []string{call(`"{\"key\":\"a\"}"`, `"{\"unreadable_arguments\":\"{\"}"`)}},
		"a name that is not legal":   {[]string{call(`"lookup"`, `"crm.get"`)}, []string{call(`"lookup"`, `"crm_get"`)}},
		"a name that is too long":    {[]string{call(`"lookup"`, `"`+long+`"`)}, []string{call(`"lookup"`, `"`+long[:64]+`"`)}},
		"a message without a role":   {[]string{without(answer, `,"role":"assistant"`)}, []string{answer}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := responses.Decode([]byte(reply("completed", test.items...)))
			checkReply(t, got)
			want := test.want
			if want == nil {
				want = test.items
			}
			var items []json.RawMessage
			if err := json.Unmarshal(got.Raw, &items); err != nil {
				t.Fatal(err)
			}
			var echoed []string
			for _, i := range items {
				echoed = append(echoed, string(i))
			}
			if len(got.Decision.Calls) > 0 {
				want[0] = strings.Replace(want[0], "ASSIGNED", got.Decision.Calls[0].ID, 1)
			}
			if diff := cmp.Diff(want, echoed); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEchoInAConversation checks that nothing comes twice in a conversation whose server
// gives every reply the same ids.
func TestEchoInAConversation(t *testing.T) {
	request := model.Request{Messages: []model.Message{
		{Role: model.RoleUser, Text: "Go."},
		{Role: model.RoleAssistant, Calls: []model.Call{{ID: "call_a", Alias: "lookup"}}, Raw: json.RawMessage("[" + answer + "," + callA + "]")},
		{Role: model.RoleTool, CallID: "call_a", Text: "1"},
	}}
	response := wire.Response{Status: 200, Body: []byte(reply("completed", answer, callA, callB))}
	got, failure := responses.Interpret(response, request)
	if failure != nil {
		t.Fatal(failure)
	}
	checkReply(t, got)
	first, second := got.Decision.Calls[0].ID, got.Decision.Calls[1].ID
	if first == "call_a" || len(first) != 9 || second != "call_b" {
		t.Errorf("got ids %q and %q, want a new one and call_b", first, second)
	}
	want := "[" + without(answer, `"id":"msg_a",`) + "," + strings.Replace(without(callA, `"id":"fc_a",`), "call_a", first, 1) + "," + callB + "]"
	if diff := cmp.Diff(want, string(got.Raw)); diff != "" {
		t.Errorf("raw (-want +got):\n%s", diff)
	}
	again, _ := responses.Interpret(response, request)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same reply was given other ids:\n%s", diff)
	}
}

func TestAssignIDs(t *testing.T) {
	for name, id := range map[string]string{
		"missing": ``, "null": `"call_id":null,`, "empty": `"call_id":"",`, "blank": `"call_id":" ",`, "a number": `"call_id":7,`, "control characters": `"call_id":"a\nb",`,
	} {
		t.Run(name, func(t *testing.T) {
			call := `{"type":"function_call",` + id + `"name":"lookup","arguments":"{}"}`
			body := []byte(reply("completed", call, callA, call))
			got := responses.Decode(body)
			checkReply(t, got)
			if got.Decision.Kind != model.KindCalls || got.Decision.Calls[1].ID != "call_a" {
				t.Fatalf("got %+v", got.Decision)
			}
			if diff := cmp.Diff(got, responses.Decode(body)); diff != "" {
				t.Errorf("ids are not the same when the reply is read again:\n%s", diff)
			}
		})
	}
}
