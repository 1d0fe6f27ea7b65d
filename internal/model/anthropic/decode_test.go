package anthropic_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// reply wraps content blocks and a stop reason; stop "" is left out.
func reply(stop string, blocks ...string) string {
	reason := ""
	if stop != "" {
		reason = `"stop_reason":"` + stop + `",`
	}
	return `{"id":"msg_7","type":"message","role":"assistant","model":"m","content":[` + strings.Join(blocks, ",") + `],` + reason +
		`"stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":5}}`
}

const (
	textBlock = `{"type":"text","text":"42","citations":null}`
	thought   = `{"type":"thinking","thinking":"Hm, <42>?","signature":"c2ln"}`
	sealed    = `{"type":"redacted_thinking","data":"ZGF0YQ=="}`
	dream     = `{"type" : "dream","depth":[1.0, 2]}`
	callA     = `{"type":"tool_use","id":"toolu_a","name":"lookup","input":{"key": "a", "n": 1.0},"caller":{"type":"direct"}}`
	callB     = `{"type":"tool_use","id":"toolu_b","name":"lookup","input":{"key":"b"}}`
)

var (
	wantA = model.Call{ID: "toolu_a", Alias: "lookup", Arguments: `{"key": "a", "n": 1.0}`}
	wantB = model.Call{ID: "toolu_b", Alias: "lookup", Arguments: `{"key":"b"}`}
)

func TestDecodeKinds(t *testing.T) {
	final := model.Decision{Kind: model.KindFinal, Text: "42"}
	calls := func(text string, calls ...model.Call) model.Decision {
		return model.Decision{Kind: model.KindCalls, Text: text, Calls: calls}
	}
	invalid := func(code, text string) model.Decision {
		return model.Decision{Kind: model.KindInvalid, Code: code, Text: text}
	}
	explained := func(body string) string {
		return strings.Replace(body, `"stop_sequence"`, `"stop_details":{"type":"refusal","category":"bio","explanation":"Not this."},"stop_sequence"`, 1)
	}
	tests := map[string]struct {
		body string
		want model.Decision
	}{
		"end_turn with text":            {reply("end_turn", textBlock), final},
		"end_turn with two texts":       {reply("end_turn", textBlock, `{"type":"text","text":"!"}`), model.Decision{Kind: model.KindFinal, Text: "42!"}},
		"end_turn after thoughts":       {reply("end_turn", thought, sealed, textBlock), final},
		"end_turn with unknown blocks":  {reply("end_turn", dream, textBlock), final},
		"end_turn with calls":           {reply("end_turn", callA), calls("", wantA)},
		"end_turn with nothing":         {reply("end_turn"), invalid(model.CodeEmpty, "")},
		"end_turn with blank text":      {reply("end_turn", `{"type":"text","text":" \n"}`), invalid(model.CodeEmpty, "")},
		"end_turn with thoughts alone":  {reply("end_turn", thought), invalid(model.CodeEmpty, "")},
		"end_turn with a short form":    {strings.Replace(reply("end_turn"), `[]`, `"42"`, 1), final},
		"end_turn with null content":    {strings.Replace(reply("end_turn"), `[]`, `null`, 1), invalid(model.CodeEmpty, "")},
		"stop_sequence with text":       {reply("stop_sequence", textBlock), final},
		"stop_sequence with calls":      {reply("stop_sequence", callA), calls("", wantA)},
		"stop_sequence with nothing":    {reply("stop_sequence"), invalid(model.CodeEmpty, "")},
		"tool_use with two calls":       {reply("tool_use", thought, textBlock, callA, callB), calls("42", wantA, wantB)},
		"tool_use with a broken input":  {reply("tool_use", strings.Replace(callB, `{"key":"b"}`, `"{\"key"`, 1)), calls("", model.Call{ID: "toolu_b", Alias: "lookup", Arguments: `{"key`})},
		"tool_use with no call":         {reply("tool_use", textBlock), invalid(model.CodeEmpty, "42")},
		"tool_use with nothing":         {reply("tool_use"), invalid(model.CodeEmpty, "")},
		"max_tokens with text":          {reply("max_tokens", textBlock), invalid(model.CodeCutOff, "42")},
		"max_tokens with calls":         {reply("max_tokens", textBlock, callA), invalid(model.CodeCutOff, "42")},
		"max_tokens with broken calls":  {reply("max_tokens", `{"type":"tool_use"}`), invalid(model.CodeCutOff, "")},
		"max_tokens with nothing":       {reply("max_tokens"), invalid(model.CodeCutOff, "")},
		"a full context with text":      {reply("model_context_window_exceeded", textBlock), model.Decision{Kind: model.KindOverflow, Text: "42"}},
		"a full context with calls":     {reply("model_context_window_exceeded", callA), model.Decision{Kind: model.KindOverflow}},
		"refusal with text":             {reply("refusal", textBlock), model.Decision{Kind: model.KindRefused, Text: "42"}},
		"refusal with calls":            {reply("refusal", callA), model.Decision{Kind: model.KindRefused}},
		"refusal with an explanation":   {explained(reply("refusal")), model.Decision{Kind: model.KindRefused, Text: "Not this."}},
		"refusal with text and both":    {explained(reply("refusal", textBlock, callA)), model.Decision{Kind: model.KindRefused, Text: "42"}},
		"pause_turn":                    {reply("pause_turn", textBlock, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), model.Decision{Kind: model.KindPaused, Text: "42"}},
		"pause_turn with thoughts":      {reply("pause_turn", thought), model.Decision{Kind: model.KindPaused}},
		"pause_turn with calls":         {reply("pause_turn", callA), calls("", wantA)},
		"pause_turn with nothing":       {reply("pause_turn"), invalid(model.CodeEmpty, "")},
		"pause_turn with blank text":    {reply("pause_turn", `{"type":"text","text":""}`), invalid(model.CodeEmpty, "")},
		"compaction":                    {reply("compaction", `{"type":"compaction","content":"So far."}`), model.Decision{Kind: model.KindPaused}},
		"compaction with calls":         {reply("compaction", callA), calls("", wantA)},
		"an unknown reason with text":   {reply("tired", textBlock), invalid(model.CodeUnknownStop, "42")},
		"an unknown reason with calls":  {reply("tired", callA), invalid(model.CodeUnknownStop, "")},
		"no reason, text":               {reply("", textBlock), final},
		"no reason, null":               {strings.Replace(reply("", textBlock), `"stop_sequence"`, `"stop_reason":null,"stop_sequence"`, 1), final},
		"no reason, calls":              {reply("", callA), calls("", wantA)},
		"no reason, half a call":        {reply("", strings.Replace(callB, `{"key":"b"}`, `"{\"key"`, 1)), invalid(model.CodeCutOff, "")},
		"no reason, nothing":            {reply(""), invalid(model.CodeEmpty, "")},
		"an id twice":                   {reply("tool_use", callA, callA), invalid(model.CodeDuplicateIDs, "")},
		"a call without a name":         {reply("tool_use", callA, `{"type":"tool_use","id":"x","name":" ","input":{}}`), invalid(model.CodeMalformed, "")},
		"a call of a toolset":           {reply("tool_use", strings.Replace(callB, `"input"`, `"toolset_name":"computer","input"`, 1)), invalid(model.CodeMalformed, "")},
		"a block that is null":          {reply("end_turn", textBlock, "null"), invalid(model.CodeMalformed, "")},
		"a block with a member twice":   {reply("tool_use", `{"type":"tool_use","id":"x","name":"a","name":"b","input":{}}`), invalid(model.CodeMalformed, "")},
		"a text that is null":           {reply("end_turn", `{"type":"text","text":null}`), invalid(model.CodeEmpty, "")},
		"content that is an object":     {strings.Replace(reply("end_turn"), `[]`, `{}`, 1), invalid(model.CodeMalformed, "")},
		"another type":                  {strings.Replace(reply("end_turn", textBlock), `"message"`, `"completion"`, 1), invalid(model.CodeMalformed, "")},
		"no type and no role":           {strings.Replace(reply("end_turn", textBlock), `"type":"message","role":"assistant",`, "", 1), final},
		"members in other letters":      {strings.Replace(reply("end_turn", textBlock), `"stop_reason"`, `"Stop_Reason"`, 1), final},
		"calls in other letters":        {reply("end_turn", strings.Replace(callA, "tool_use", "Tool_Use", 1)), invalid(model.CodeEmpty, "")},
		"more calls than anybody makes": {reply("tool_use", manyCalls(65)...), invalid(model.CodeMalformed, "")},
		"as many calls as may be made":  {reply("max_tokens", manyCalls(64)...), invalid(model.CodeCutOff, "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := anthropic.Decode([]byte(test.body))
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
		calls = append(calls, `{"type":"tool_use","name":"lookup","input":{}}`)
	}
	return calls
}

func TestDecodeGarbage(t *testing.T) {
	for name, body := range fakemodel.Garbage(fakemodel.Messages) {
		got := anthropic.Decode(body)
		checkReply(t, got)
		if got.Decision.Kind != model.KindInvalid {
			t.Errorf("%s is %+v", name, got.Decision)
		}
	}
}

// TestDecodeEcho checks what later requests repeat: blocks byte for byte, unless a
// provider would refuse them.
func TestDecodeEcho(t *testing.T) {
	const spaced = `{ "type" : "text" , "text" : "4\u0032" , "citations":null}`
	tests := map[string]struct {
		blocks []string
		want   string
	}{
		"as they are":                {[]string{thought, sealed, dream, spaced, callA, callB}, "[" + strings.Join([]string{thought, sealed, dream, spaced, callA, callB}, ",") + "]"},
		"an empty text":              {[]string{thought, `{"type":"text","text":""}`, callA}, "[" + thought + "," + callA + "]"},
		"a blank text":               {[]string{`{"type":"text","text":"\n\n"}`, callA}, "[" + callA + "]"},
		"a name with a dot":          {[]string{strings.Replace(callB, "lookup", "crm.lookup", 1)}, `[{"type":"tool_use","id":"toolu_b","name":"crm_lookup","input":{"key":"b"}}]`},
		"an input that is missing":   {[]string{strings.Replace(callB, `,"input":{"key":"b"}`, "", 1)}, `[{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}]`},
		"an input that is null":      {[]string{strings.Replace(callB, `{"key":"b"}`, "null", 1)}, `[{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}]`},
		"an input that is text":      {[]string{strings.Replace(callB, `{"key":"b"}`, `"{\"key\":\"b\"}"`, 1)}, `[{"type":"tool_use","id":"toolu_b","name":"lookup","input":{"key":"b"}}]`},
		"an input that is a list":    {[]string{strings.Replace(callB, `{"key":"b"}`, `[1]`, 1)}, `[{"type":"tool_use","id":"toolu_b","name":"lookup","input":{"unreadable_arguments":"[1]"}}]`},
		"an input that is cut":       {[]string{strings.Replace(callB, `{"key":"b"}`, `"{\"key"`, 1)}, `[{"type":"tool_use","id":"toolu_b","name":"lookup","input":{"unreadable_arguments":"{\"key"}}]`},
		"an id that is missing":      {[]string{strings.Replace(callB, `"id":"toolu_b",`, "", 1)}, `[{"type":"tool_use","name":"lookup","input":{"key":"b"},"id":"ID"}]`},
		"an id that is a number":     {[]string{strings.Replace(callB, `"toolu_b"`, "7", 1)}, `[{"type":"tool_use","id":"ID","name":"lookup","input":{"key":"b"}}]`},
		"an id of white space":       {[]string{strings.Replace(callB, `toolu_b`, " ", 1)}, `[{"type":"tool_use","id":"ID","name":"lookup","input":{"key":"b"}}]`},
		"the ids of another account": {[]string{strings.Replace(callB, `toolu_b`, "functions.lookup:0", 1)}, `[{"type":"tool_use","id":"functions.lookup:0","name":"lookup","input":{"key":"b"}}]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := anthropic.Decode([]byte(reply("end_turn", test.blocks...)))
			checkReply(t, got)
			want := strings.Replace(test.want, "ID", got.Decision.Calls[0].ID, 1)
			if diff := cmp.Diff(want, string(got.Raw)); diff != "" {
				t.Errorf("echo (-want +got):\n%s", diff)
			}
		})
	}
}

// checkReply checks what holds for every reply, whatever the bytes.
func checkReply(t *testing.T, got model.Reply) {
	t.Helper()
	d := got.Decision
	echoes := d.Kind == model.KindFinal || d.Kind == model.KindCalls || d.Kind == model.KindPaused
	if echoes != (len(got.Raw) > 0) {
		t.Errorf("a reply of kind %s has %d bytes to echo", d.Kind, len(got.Raw))
	}
	if (d.Kind == model.KindCalls) != (len(d.Calls) > 0) {
		t.Errorf("a reply of kind %s has %d calls", d.Kind, len(d.Calls))
	}
	if (d.Kind == model.KindInvalid) != (d.Code != "" && d.Problem != "") {
		t.Errorf("a reply of kind %s has code %q and problem %q", d.Kind, d.Code, d.Problem)
	}
	if d.Kind == model.KindFinal && strings.TrimSpace(d.Text) == "" {
		t.Error("an answer without a text")
	}
	if u := got.Usage; !u.Reported && u != (model.Usage{}) {
		t.Errorf("a usage that is not reported: %+v", u)
	}
	if len(got.StopReason) > 64 || len(got.RequestID) > 128 {
		t.Errorf("stop reason %q, request id %q", got.StopReason, got.RequestID)
	}
	checkEcho(t, got)
}

var legalName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// checkEcho checks that the echo has the calls of the decision, and nothing that the
// provider refuses.
func checkEcho(t *testing.T, got model.Reply) {
	t.Helper()
	if len(got.Raw) == 0 {
		return
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(got.Raw, &blocks); err != nil || len(blocks) == 0 {
		t.Fatalf("the echo is no list of blocks: %s", got.Raw)
	}
	seen := map[string]bool{}
	var ids []string
	for _, raw := range blocks {
		if id := checkBlock(t, raw); id != "" {
			if seen[id] {
				t.Errorf("the echo has two calls with id %q", id)
			}
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for i, c := range got.Decision.Calls {
		if i >= len(ids) || ids[i] != c.ID {
			t.Errorf("call %d has id %q, the echo has %v", i, c.ID, ids)
		}
	}
}

// checkBlock checks one block of an echo, and gives the id of a call.
func checkBlock(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	// By the exact names of its members: structs would take "Name" for name.
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		t.Errorf("the echo has a block that is no object: %s", raw)
	}
	member := func(name string) (value string) {
		_ = json.Unmarshal(members[name], &value)
		return value
	}
	switch member("type") {
	case "text":
		if strings.TrimSpace(member("text")) == "" {
			t.Errorf("the echo has a text that is refused: %s", raw)
		}
	case "tool_use":
		var input map[string]json.RawMessage
		if json.Unmarshal(members["input"], &input) != nil || input == nil || member("id") == "" || !legalName.MatchString(member("name")) {
			t.Errorf("the echo has a call that is refused: %s", raw)
		}
		return member("id")
	default:
		// Of other blocks the members may be anything.
	}
	return ""
}

func TestDecodeIDs(t *testing.T) {
	body := strings.Replace(reply("end_turn", textBlock), "msg_7", "msg 7", 1)
	if got := anthropic.Decode([]byte(body)); got.RequestID != "" {
		t.Errorf("an id with a space became %q", got.RequestID)
	}
	if got := anthropic.Decode([]byte(reply("end_turn", textBlock))); got.RequestID != "msg_7" || got.StopReason != "end_turn" {
		t.Errorf("got %q of %q", got.StopReason, got.RequestID)
	}
}
