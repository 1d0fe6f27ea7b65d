package openai_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func newClient(t *testing.T, config wire.Config) *openai.Client {
	t.Helper()
	client, err := openai.New(config)
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

// conversation is a request with everything in it.
func conversation() model.Request {
	return model.Request{
		Decision: 2,
		System:   "Be <brief> & kind.",
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Raw: json.RawMessage(`{"role": "assistant", "content":null, "refusal" : null, "tool_calls":[` + callA + `]}`)},
			{Role: model.RoleTool, CallID: "call_a", Text: `{"value":"<1>"}`},
		},
		Tools: []model.Tool{{
			Name: "crm.lookup", Alias: "lookup", Description: "Looks up.",
			InputSchema: json.RawMessage(`{"type": "object", "properties": {"key": {"type": "string"}}}`),
		}},
		MaxOutputTokens: 64,
	}
}

func TestEncode(t *testing.T) {
	got := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"top_p": 0.50, "seed": 9007199254740993}`)}, conversation())
	want := `{"model":"m","messages":[` +
		`{"role":"system","content":"Be <brief> & kind."},` +
		`{"role":"user","content":"Which?"},` +
		`{"role": "assistant", "content":null, "refusal" : null, "tool_calls":[` + callA + `]},` +
		`{"role":"tool","tool_call_id":"call_a","content":"{\"value\":\"<1>\"}"}],` +
		`"tools":[{"type":"function","function":{"name":"lookup","description":"Looks up.","strict":false,` +
		`"parameters":{"type":"object","properties":{"key":{"type":"string"}}}}}],"tool_choice":"auto",` +
		`"max_tokens":64,"seed":9007199254740993,"top_p":0.50}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	first := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"seed":1,"top_p":0.5}`)}, conversation())
	second := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{ "top_p":0.5, "seed":1 }`)}, conversation())
	if first != second {
		t.Errorf("equal requests differ:\n%s\n%s", first, second)
	}
}

func TestEncodeRepeatsTheConversation(t *testing.T) {
	request := conversation()
	before := encoded(t, wire.Config{Model: "m"}, request)
	request.Messages = append(request.Messages, model.Message{Role: model.RoleUser, Text: "Go on."})
	after := encoded(t, wire.Config{Model: "m"}, request)
	prefix := before[:strings.Index(before, `],"tools"`)]
	if !strings.HasPrefix(after, prefix) {
		t.Errorf("a longer conversation does not repeat the bytes of the shorter:\n%s\n%s", before, after)
	}
}

func TestEncodeWithoutProviderMessage(t *testing.T) {
	request := model.Request{
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Calls: []model.Call{{ID: "a", Alias: "crm.get", Arguments: "{"}, {ID: "b", Alias: "lookup"}}},
			{Role: model.RoleTool, CallID: "a", Text: "error"},
			{Role: model.RoleTool, CallID: "b", Text: "1"},
			{Role: model.RoleAssistant, Text: "It is 1."},
			{Role: model.RoleUser, Text: "Sure?"},
		},
		MaxOutputTokens: 64,
	}
	got := encoded(t, wire.Config{Model: "m"}, request)
	want := `{"model":"m","messages":[{"role":"user","content":"Which?"},` +
		`{"role":"assistant","content":null,"tool_calls":[` +
		`{"id":"a","type":"function","function":{"name":"crm_get","arguments":"{\"unreadable_arguments\":\"{\"}"}},` +
		`{"id":"b","type":"function","function":{"name":"lookup","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"a","content":"error"},{"role":"tool","tool_call_id":"b","content":"1"},` +
		`{"role":"assistant","content":"It is 1."},{"role":"user","content":"Sure?"}],"max_tokens":64}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestEncodeSchema(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"none":          {``, `{"type":"object","properties":{}}`},
		"empty":         {`{}`, `{"type":"object","properties":{}}`},
		"no properties": {`{"type":"object","additionalProperties":false}`, `{"type":"object","additionalProperties":false,"properties":{}}`},
		"no type":       {`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"type":"object"}`},
		"whole":         {`{"type":"object", "properties":{"a":{"const":1.0}}}`, `{"type":"object","properties":{"a":{"const":1.0}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			request := conversation()
			request.Tools[0].InputSchema = json.RawMessage(test.schema)
			got := encoded(t, wire.Config{Model: "m"}, request)
			if !strings.Contains(got, `"parameters":`+test.want+`}}]`) {
				t.Errorf("want parameters %s in\n%s", test.want, got)
			}
		})
	}
}

func TestEncodeDescriptions(t *testing.T) {
	request := conversation()
	request.Tools[0].Description = strings.Repeat("é", 1025)
	for endpoint, want := range map[string]string{
		"":                                 strings.Repeat("é", 1021) + "...",
		"https://x.openai.azure.com/v1":    strings.Repeat("é", 1021) + "...",
		"https://models.example.com/v1":    strings.Repeat("é", 1025),
		"http://127.0.0.1:8000/openai.com": strings.Repeat("é", 1025),
	} {
		got := encoded(t, wire.Config{Endpoint: endpoint, Model: "m"}, request)
		if !strings.Contains(got, `"description":"`+want+`"`) {
			t.Errorf("endpoint %q: the description is not as long as it should be", endpoint)
		}
	}
}

func TestEncodeOutputLimit(t *testing.T) {
	for name, want := range map[string]string{
		"gpt-4o": "max_tokens", "gpt-4o-mini": "max_tokens", "gpt-4.1": "max_tokens", "gpt-35-turbo": "max_tokens",
		"gpt-oss-120b": "max_tokens", "llama3": "max_tokens", "o-model": "max_tokens", "olmo-2": "max_tokens", "o365": "max_tokens",
		"ft:gpt-4o:acme::1": "max_tokens",
		"o1":                "max_completion_tokens", "o1-mini": "max_completion_tokens", "o3": "max_completion_tokens", "o4-mini": "max_completion_tokens",
		"gpt-5": "max_completion_tokens", "gpt-5-mini": "max_completion_tokens", "gpt-5.2-pro": "max_completion_tokens", "gpt-6": "max_completion_tokens",
		"gpt-10": "max_completion_tokens", "openai/gpt-5": "max_completion_tokens", "GPT-5": "max_completion_tokens", "ft:o4-mini:acme::1": "max_completion_tokens",
	} {
		got := encoded(t, wire.Config{Model: name}, conversation())
		if !strings.HasSuffix(got, `"`+want+`":64}`) {
			t.Errorf("model %s: want %s in %s", name, want, got[len(got)-60:])
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*model.Request){
		"no messages":               func(r *model.Request) { r.Messages = nil },
		"no output limit":           func(r *model.Request) { r.MaxOutputTokens = 0 },
		"an unknown role":           func(r *model.Request) { r.Messages[0].Role = "system" },
		"a tool message without id": func(r *model.Request) { r.Messages[2].CallID = "" },
		"a prompt of white space":   func(r *model.Request) { r.Messages[0].Text = " \n" },
		"nothing but white space": func(r *model.Request) {
			r.Messages = []model.Message{{Role: model.RoleUser, Text: "\t"}, {Role: model.RoleAssistant, Text: "\n"}}
		},
		"a call without id": func(r *model.Request) {
			r.Messages[1] = model.Message{Role: model.RoleAssistant, Calls: []model.Call{{Alias: "x"}}}
		},
		"a raw message that is cut":    func(r *model.Request) { r.Messages[1].Raw = r.Messages[1].Raw[:9] },
		"a raw message that is a list": func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`[]`) },
		"an illegal alias":             func(r *model.Request) { r.Tools[0].Alias = "crm.lookup" },
		"a schema that is not JSON":    func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`{`) },
		"a schema that is true":        func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`true`) },
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

func TestNewRefuses(t *testing.T) {
	for name, config := range map[string]wire.Config{
		"no model":                 {},
		"a relative endpoint":      {Model: "m", Endpoint: "/v1"},
		"another scheme":           {Model: "m", Endpoint: "ftp://example.com"},
		"a user":                   {Model: "m", Endpoint: "https://me:secret@example.com"},
		"a query":                  {Model: "m", Endpoint: "https://example.com?key=secret"},
		"a fragment":               {Model: "m", Endpoint: "https://example.com#secret"},
		"no URL":                   {Model: "m", Endpoint: "https://secret\x7f"},
		"parameters of a list":     {Model: "m", Parameters: json.RawMessage(`["secret"]`)},
		"parameters that are cut":  {Model: "m", Parameters: json.RawMessage(`{"a":"secret"`)},
		"a parameter twice":        {Model: "m", Parameters: json.RawMessage(`{"secret":1,"secret":2}`)},
		"a reserved parameter":     {Model: "m", Parameters: json.RawMessage(`{"stream":"secret"}`)},
		"a bundle without content": {Model: "m", CABundle: []byte("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openai.New(config)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats a value: %v", err)
			}
		})
	}
}

func TestParameters(t *testing.T) {
	for _, name := range openai.ReservedParameters() {
		err := openai.CheckParameters(json.RawMessage(`{"temperature":0,"` + name + `":1}`))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("reserved parameter %s: got error %v", name, err)
		}
	}
	for _, parameters := range []string{"", "null", "{}", `{"temperature":0}`, `{"reasoning_effort":"low","parallel_tool_calls":false}`} {
		if err := openai.CheckParameters(json.RawMessage(parameters)); err != nil {
			t.Errorf("parameters %s: %v", parameters, err)
		}
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

// TestNothingActsByItself checks that parameters bring in nothing that the provider would
// call or search by itself, past policy and journal.
func TestNothingActsByItself(t *testing.T) {
	for _, name := range []string{"compound_custom", "data_sources", "enable_search", "mcp_servers", "plugins", "search_parameters", "web_search", "web_search_options", "Tools"} {
		if err := openai.CheckParameters(json.RawMessage(`{"` + name + `":{}}`)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
