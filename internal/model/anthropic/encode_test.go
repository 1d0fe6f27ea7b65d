package anthropic_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func newClient(t *testing.T, config wire.Config) *anthropic.Client {
	t.Helper()
	client, err := anthropic.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func encoded(t *testing.T, config wire.Config, request model.Request) string {
	t.Helper()
	body, err := newClient(t, config).Encode(request)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

var (
	onBedrock = wire.Platform{Bedrock: &wire.Bedrock{Region: "eu-central-1"}}
	onVertex  = wire.Platform{Vertex: &wire.Vertex{Project: "pawl-test", Location: "europe-west1"}}
)

// conversation is a request with everything in it.
func conversation() model.Request {
	return model.Request{
		Decision: 2,
		System:   "Be <brief> & kind.",
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Calls: []model.Call{wantA, wantB}, Raw: json.RawMessage(`[` + thought + `, ` + callA + `,` + callB + `]`)},
			{Role: model.RoleTool, CallID: "toolu_a", Text: `{"value":"<1>"}`},
			{Role: model.RoleTool, CallID: "toolu_b", Text: "denied", Failed: true},
		},
		Tools: []model.Tool{{
			Name: "crm.lookup", Alias: "lookup", Description: "Looks up.",
			InputSchema: json.RawMessage(`{"type": "object", "properties": {"key": {"type": "string"}}}`),
		}},
		MaxOutputTokens: 64,
	}
}

func TestEncode(t *testing.T) {
	parameters := json.RawMessage(`{"top_k": 1.50, "metadata": {"user_id": "u"}}`)
	got := encoded(t, wire.Config{Model: "m", Parameters: parameters}, conversation())
	want := `{"model":"m","max_tokens":64,` +
		`"system":[{"type":"text","text":"Be <brief> & kind."}],` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"Which?"}]},` +
		`{"role":"assistant","content":[` + thought + `,` + callA + `,` + callB + `]},` +
		`{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"toolu_a","content":[{"type":"text","text":"{\"value\":\"<1>\"}"}]},` +
		`{"type":"tool_result","tool_use_id":"toolu_b","content":[{"type":"text","text":"denied"}],"is_error":true}]}],` +
		`"tools":[{"name":"lookup","description":"Looks up.","input_schema":{"type":"object","properties":{"key":{"type":"string"}}}}],` +
		`"tool_choice":{"type":"auto"},"cache_control":{"type":"ephemeral"},"metadata":{"user_id": "u"},"top_k":1.50}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// TestEncodeOnPlatforms checks what differs there: the version in place of the model, and
// breakpoints in place of the member that asks to cache everything.
func TestEncodeOnPlatforms(t *testing.T) {
	mark := `,"cache_control":{"type":"ephemeral"}`
	want := `{"anthropic_version":"2026-10-21","max_tokens":64,` +
		`"system":[{"type":"text","text":"Be <brief> & kind."` + mark + `}],` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"Which?"` + mark + `}]},` +
		`{"role":"assistant","content":[` + thought + `,` + callA + `,` + callB + `]},` +
		`{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"toolu_a","content":[{"type":"text","text":"{\"value\":\"<1>\"}"}]},` +
		`{"type":"tool_result","tool_use_id":"toolu_b","content":[{"type":"text","text":"denied"}],"is_error":true` + mark + `}]}],` +
		`"tools":[{"name":"lookup","description":"Looks up.","input_schema":{"type":"object","properties":{"key":{"type":"string"}}}}],` +
		`"tool_choice":{"type":"auto"}}`
	for name, platform := range map[string]wire.Platform{"bedrock": onBedrock, "vertex": onVertex} {
		if diff := cmp.Diff(want, encoded(t, wire.Config{Model: "m", Platform: platform}, conversation())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	mantle := encoded(t, wire.Config{Model: "m", Endpoint: "https://bedrock-mantle.eu-central-1.api.aws/anthropic/v1", Platform: onBedrock}, conversation())
	if diff := cmp.Diff(strings.Replace(want, `"anthropic_version":"2026-10-21"`, `"model":"m"`, 1), mantle); diff != "" {
		t.Errorf("Bedrock's own Messages (-want +got):\n%s", diff)
	}
}

// TestEncodeMarks checks where breakpoints are: behind what never changes, and behind the
// last two turns of the user.
func TestEncodeMarks(t *testing.T) {
	request := conversation()
	request.System = ""
	request.Messages = append(request.Messages,
		model.Message{Role: model.RoleAssistant, Text: "1"}, model.Message{Role: model.RoleUser, Text: "Sure?"},
		model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + textBlock + "]")})
	got := encoded(t, wire.Config{Model: "m", Platform: onBedrock}, request)
	var body struct {
		Messages []struct{ Content []map[string]json.RawMessage }
		Tools    []map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(got), &body); err != nil {
		t.Fatal(err)
	}
	var marked []int
	for i, m := range body.Messages {
		for j, block := range m.Content {
			if block["cache_control"] != nil {
				if j != len(m.Content)-1 {
					t.Errorf("block %d of message %d is marked, and it is not its last", j, i)
				}
				marked = append(marked, i)
			}
		}
	}
	if diff := cmp.Diff([]int{2, 4}, marked); diff != "" || body.Tools[0]["cache_control"] == nil {
		t.Errorf("marked messages (-want +got):\n%s\n%s", diff, got)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	first := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"speed":"fast","top_p":0.5}`)}, conversation())
	second := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{ "top_p":0.5, "speed":"fast" }`)}, conversation())
	if first != second {
		t.Errorf("equal requests differ:\n%s\n%s", first, second)
	}
}

// TestEncodeRepeatsTheConversation checks that each request has the blocks of the one
// before, byte for byte, but for breakpoints that moved on.
func TestEncodeRepeatsTheConversation(t *testing.T) {
	request := conversation()
	request.Messages = append(request.Messages,
		model.Message{Role: model.RoleUser, Text: "Go on."},
		model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + thought + "," + textBlock + "]")},
		model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + textBlock + "]")},
		model.Message{Role: model.RoleUser, Text: "And?"},
	)
	for name, platform := range map[string]wire.Platform{"the vendor": {}, "bedrock": onBedrock, "vertex": onVertex} {
		var before string
		for n := 1; n <= len(request.Messages); n++ {
			shorter := request
			shorter.Messages = request.Messages[:n]
			body := encoded(t, wire.Config{Model: "m", Platform: platform}, shorter)
			if platform.Name() != "" {
				body = strings.ReplaceAll(body, `,"cache_control":{"type":"ephemeral"}`, "")
			}
			prefix := body[:strings.Index(body, `]}],"tools"`)]
			if !strings.HasPrefix(prefix, before) {
				t.Errorf("%s: %d messages do not repeat the bytes of %d:\n%s\n%s", name, n, n-1, before, prefix)
			}
			before = prefix
		}
	}
}

func TestEncodeMerges(t *testing.T) {
	request := model.Request{
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleUser, Text: "Answer again."},
			{Role: model.RoleAssistant, Raw: json.RawMessage("[" + dream + "]")},
			{Role: model.RoleAssistant, Calls: []model.Call{wantB}, Raw: json.RawMessage("[" + callB + "]")},
			{Role: model.RoleTool, CallID: "toolu_b", Text: ""},
			{Role: model.RoleUser, Text: " "},
			{Role: model.RoleUser, Text: "Sure?"},
		},
		MaxOutputTokens: 64,
	}
	got := encoded(t, wire.Config{Model: "m"}, request)
	want := `{"model":"m","max_tokens":64,"messages":[` +
		`{"role":"user","content":[{"type":"text","text":"Which?"},{"type":"text","text":"Answer again."}]},` +
		`{"role":"assistant","content":[` + dream + `,` + callB + `]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_b"},{"type":"text","text":"Sure?"}]}],` +
		`"cache_control":{"type":"ephemeral"}}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// TestEncodePaused checks that a reply to go on with is the end of the conversation.
func TestEncodePaused(t *testing.T) {
	request := conversation()
	request.Messages = append(request.Messages[:1:1], model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + dream + "]")})
	got := encoded(t, wire.Config{Model: "m"}, request)
	if !strings.Contains(got, `{"role":"assistant","content":[`+dream+`]}],"tools"`) {
		t.Errorf("got %s", got)
	}
}

func TestEncodeWithoutProviderMessage(t *testing.T) {
	request := model.Request{
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Text: "Hm.", Calls: []model.Call{{ID: "a", Alias: "crm.get", Arguments: "{"}, {ID: "functions.b:1", Alias: "lookup"}}},
			{Role: model.RoleTool, CallID: "a", Text: "error"},
			{Role: model.RoleTool, CallID: "functions.b:1", Text: "1"},
			{Role: model.RoleAssistant, Calls: []model.Call{{ID: "functions.b:1"}}, Raw: json.RawMessage(`[{"type":"tool_use","id":"functions.b:1"}]`)},
			{Role: model.RoleTool, CallID: "functions.b:1", Text: "2"},
		},
		MaxOutputTokens: 64,
	}
	got := encoded(t, wire.Config{Model: "m"}, request)
	const id = "toolu_c05442bd43f4f485b77f1cc7"
	want := `{"model":"m","max_tokens":64,"messages":[{"role":"user","content":[{"type":"text","text":"Which?"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"Hm."},` +
		`{"type":"tool_use","id":"a","name":"crm_get","input":{"unreadable_arguments":"{"}},` +
		`{"type":"tool_use","id":"` + id + `","name":"lookup","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"error"}]},` +
		`{"type":"tool_result","tool_use_id":"` + id + `","content":[{"type":"text","text":"1"}]}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"functions.b:1"}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"functions.b:1","content":[{"type":"text","text":"2"}]}]}],` +
		`"cache_control":{"type":"ephemeral"}}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestEncodeSchema(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"none":    {``, `{"type":"object"}`},
		"empty":   {`{}`, `{"type":"object"}`},
		"no type": {`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"type":"object"}`},
		"whole":   {`{"type":"object", "properties":{"a":{"const":1.0}}}`, `{"type":"object","properties":{"a":{"const":1.0}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			request := conversation()
			request.Tools[0].InputSchema = json.RawMessage(test.schema)
			request.Tools[0].Description = ""
			got := encoded(t, wire.Config{Model: "m"}, request)
			if !strings.Contains(got, `"tools":[{"name":"lookup","input_schema":`+test.want+`}]`) {
				t.Errorf("want schema %s in\n%s", test.want, got)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*model.Request){
		"no messages":               func(r *model.Request) { r.Messages = nil },
		"no output limit":           func(r *model.Request) { r.MaxOutputTokens = 0 },
		"an unknown role":           func(r *model.Request) { r.Messages[0].Role = "system" },
		"nothing from the user":     func(r *model.Request) { r.Messages[0].Text = " " },
		"the assistant first":       func(r *model.Request) { r.Messages = r.Messages[1:] },
		"a tool message without id": func(r *model.Request) { r.Messages[2].CallID = "" },
		"a prompt of white space":   func(r *model.Request) { r.Messages[0].Text = " \n" },
		"nothing but white space": func(r *model.Request) {
			r.Messages = []model.Message{{Role: model.RoleUser, Text: "\t"}, {Role: model.RoleAssistant, Text: "\n"}}
		},
		"a call without id": func(r *model.Request) {
			r.Messages[1] = model.Message{Role: model.RoleAssistant, Calls: []model.Call{{Alias: "x"}}}
		},
		"a raw message that is cut":       func(r *model.Request) { r.Messages[1].Raw = r.Messages[1].Raw[:9] },
		"a raw message that is an object": func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`{}`) },
		"a raw message of nothing":        func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`[]`) },
		"a raw message of text":           func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`["hello"]`) },
		"an illegal alias":                func(r *model.Request) { r.Tools[0].Alias = "crm.lookup" },
		"a schema that is not JSON":       func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`{`) },
		"a schema that is true":           func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`true`) },
	} {
		t.Run(name, func(t *testing.T) {
			request := conversation()
			change(&request)
			client := newClient(t, wire.Config{Model: "m"})
			if body, err := client.Encode(request); err == nil {
				t.Errorf("encoded %s", body)
			}
			_, err := client.Decide(t.Context(), request)
			failure := asError(t, err)
			if failure.Class != model.ClassRequest || failure.Sent {
				t.Errorf("got class %s, sent %v", failure.Class, failure.Sent)
			}
		})
	}
}

// TestEncodeLeavesOut checks that a message in which nothing is said makes no difference,
// wherever it stands: providers refuse some of them.
func TestEncodeLeavesOut(t *testing.T) {
	request := model.Request{System: "Be brief.", MaxOutputTokens: 64, Messages: []model.Message{
		{Role: model.RoleUser, Text: "Which?"}, {Role: model.RoleUser, Text: "It was cut off."}, {Role: model.RoleAssistant, Text: "42"}, {Role: model.RoleUser, Text: "Sure?"},
	}}
	want := encoded(t, wire.Config{Model: "m"}, request)
	for _, text := range []string{"", " \n\n", "\u2003"} {
		for _, role := range []model.Role{model.RoleAssistant, model.RoleUser} {
			for at := range len(request.Messages) + 1 {
				longer := request
				longer.Messages = slices.Insert(slices.Clone(request.Messages), at, model.Message{Role: role, Text: text})
				if diff := cmp.Diff(want, encoded(t, wire.Config{Model: "m"}, longer)); diff != "" {
					t.Errorf("%q of the %s at %d (-want +got):\n%s", text, role, at, diff)
				}
			}
		}
	}
}
