package responses_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const secret = "sk-test-0123456789"

func newClient(t *testing.T, config wire.Config) *responses.Client {
	t.Helper()
	client, err := responses.New(config)
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

func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	var failure *model.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a *model.Error", err)
	}
	checkError(t, failure)
	return failure
}

// conversation is a request with everything in it.
func conversation() model.Request {
	return model.Request{
		Decision: 2,
		System:   "Be <brief> & kind.",
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Raw: json.RawMessage(`[ ` + thought + ` , {"type" : "function_call","call_id":"call_a","name":"lookup","arguments":"{}"}]`)},
			{Role: model.RoleTool, CallID: "call_a", Text: `{"value":"<1>"}`},
		},
		Tools: []model.Tool{{
			Name: "crm.lookup", Alias: "lookup", Description: "Looks up.",
			InputSchema: json.RawMessage(`{"type": "object", "properties": {"key": {"type": "string"}}}`),
		}},
		MaxOutputTokens: 64,
		Conversation:    "run-1",
	}
}

func TestEncode(t *testing.T) {
	got := encoded(t, wire.Config{Model: "gpt-5", Parameters: json.RawMessage(`{"top_p": 0.50, "metadata": {"n": "9007199254740993"}}`)}, conversation())
	want := `{"model":"gpt-5","store":false,"include":["reasoning.encrypted_content"],"instructions":"Be <brief> & kind.","input":[` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"Which?"}]},` + thought +
		`,{"type" : "function_call","call_id":"call_a","name":"lookup","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"call_a","output":"{\"value\":\"<1>\"}"}],` +
		`"tools":[{"type":"function","name":"lookup","description":"Looks up.","strict":false,` +
		`"parameters":{"type":"object","properties":{"key":{"type":"string"}}}}],"tool_choice":"auto",` +
		`"max_output_tokens":64,"prompt_cache_key":"run-1","metadata":{"n": "9007199254740993"},"top_p":0.50}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	first := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"user":"u","top_p":0.5}`)}, conversation())
	second := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{ "top_p":0.5, "user":"u" }`)}, conversation())
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

func TestEncodeWithoutProviderItems(t *testing.T) {
	request := model.Request{
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Text: "Hm.", Calls: []model.Call{{ID: "a", Alias: "crm.get", Arguments: "{"}, {ID: "b", Alias: "lookup"}}},
			{Role: model.RoleTool, CallID: "a", Text: "error"},
			{Role: model.RoleTool, CallID: "b", Text: "1"},
			{Role: model.RoleAssistant, Text: "It is 1."},
			{Role: model.RoleUser, Text: "Sure?"},
		},
		MaxOutputTokens: 64,
	}
	got := encoded(t, wire.Config{Model: "m"}, request)
	want := `{"model":"m","store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Which?"}]},` +
		`{"type":"message","role":"assistant","content":"Hm."},` +
		`{"type":"function_call","call_id":"a","name":"crm_get","arguments":"{\"unreadable_arguments\":\"{\"}"},` +
		`{"type":"function_call","call_id":"b","name":"lookup","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"a","output":"error"},{"type":"function_call_output","call_id":"b","output":"1"},` +
		`{"type":"message","role":"assistant","content":"It is 1."},{"type":"message","role":"user","content":[{"type":"input_text","text":"Sure?"}]}],"max_output_tokens":64}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// TestEncodeInclude checks who is asked for what it has thought.
func TestEncodeInclude(t *testing.T) {
	const ours = `"include":["reasoning.encrypted_content"]`
	tests := map[string]struct {
		model, parameters string
		want              string
	}{
		"o3":                     {"o3", ``, ours},
		"o4-mini":                {"o4-mini", ``, ours},
		"gpt-5":                  {"gpt-5", ``, ours},
		"gpt-5.1-codex":          {"openai/gpt-5.1-codex", ``, ours},
		"gpt-6":                  {"gpt-6-astra", ``, ours},
		"a fine-tuned one":       {"ft:o4-mini:acme::1", ``, ours},
		"gpt-5-chat":             {"GPT-5-chat-latest", ``, ""},
		"gpt-4o":                 {"gpt-4o", ``, ""},
		"gpt-4.1-mini":           {"gpt-4.1-mini", ``, ""},
		"gpt-oss":                {"openai/gpt-oss-120b", ``, ""},
		"a deployment":           {"production", ``, ""},
		"a deployment that does": {"production", `{"reasoning":{"effort":"low"}}`, ours},
		"no reasoning settings":  {"production", `{"reasoning":null}`, ""},
		"none wanted":            {"gpt-5", `{"include":[]}`, `"include":[]`},
		"others wanted":          {"gpt-5", `{"include":["message.output_text.logprobs"]}`, `"include":["message.output_text.logprobs"]`},
		"wanted by hand":         {"production", `{` + ours + `}`, ours},
	}
	for name, test := range tests {
		got := encoded(t, wire.Config{Model: test.model, Parameters: json.RawMessage(test.parameters)}, conversation())
		if n := strings.Count(got, `"include"`); (test.want != "") != (n == 1) || !strings.Contains(got, test.want) {
			t.Errorf("%s: want %q once in %s", name, test.want, got)
		}
	}
}

func TestEncodeCacheKey(t *testing.T) {
	azure := wire.Platform{Azure: &wire.Azure{}}
	dated := wire.Platform{Azure: &wire.Azure{APIVersion: "2025-03-01-preview"}}
	long := strings.Repeat("x", 65)
	for name, test := range map[string]struct {
		config       wire.Config
		conversation string
		want         string
	}{
		"the vendor":                      {wire.Config{}, "run-1", `"run-1"`},
		"the vendor in Europe":            {wire.Config{Endpoint: "https://eu.api.openai.com/v1"}, "run-1", `"run-1"`},
		"the platform":                    {wire.Config{Endpoint: "https://x.openai.azure.com", Platform: azure}, "run-1", `"run-1"`},
		"the platform's address":          {wire.Config{Endpoint: "https://x.openai.azure.com/openai/v1"}, "run-1", `"run-1"`},
		"a dated version of the platform": {wire.Config{Endpoint: "https://x.openai.azure.com", Platform: dated}, "run-1", ""},
		"a compatible server":             {wire.Config{Endpoint: "https://models.example.com/v1"}, "run-1", ""},
		"no name":                         {wire.Config{}, "", ""},
		"a long name":                     {wire.Config{}, long, `"9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9"`},
		"a name in the parameters":        {wire.Config{Parameters: json.RawMessage(`{"prompt_cache_key":"mine"}`)}, "run-1", `"mine"`},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Model = "m"
			request := conversation()
			request.Conversation = test.conversation
			got := encoded(t, test.config, request)
			if test.want == "" && strings.Contains(got, "prompt_cache_key") || test.want != "" && !strings.Contains(got, `"prompt_cache_key":`+test.want) {
				t.Errorf("want %s in %s", test.want, got)
			}
			if n := strings.Count(got, "prompt_cache_key"); n > 1 {
				t.Errorf("it is there %d times", n)
			}
		})
	}
}

// TestEncodeOutputLimit checks that the vendor's least is asked for where less is left.
func TestEncodeOutputLimit(t *testing.T) {
	for limit, want := range map[int32]string{1: "16", 15: "16", 16: "16", 17: "17", 1_000_000: "1000000"} {
		request := conversation()
		request.MaxOutputTokens = limit
		if got := encoded(t, wire.Config{Model: "m"}, request); !strings.Contains(got, `"max_output_tokens":`+want+`,`) {
			t.Errorf("limit %d: want %s in %s", limit, want, got)
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
		"raw items that are cut":    func(r *model.Request) { r.Messages[1].Raw = r.Messages[1].Raw[:9] },
		"raw items of nothing":      func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`[]`) },
		"a message of another wire": func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`{"role":"assistant"}`) },
		"an illegal alias":          func(r *model.Request) { r.Tools[0].Alias = "crm.lookup" },
		"a long alias":              func(r *model.Request) { r.Tools[0].Alias = strings.Repeat("a", 65) },
		"a schema that is not JSON": func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`{`) },
		"a schema that is true":     func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`true`) },
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
		"a query":                  {Model: "m", Endpoint: "https://example.com?key=secret"},
		"parameters of a list":     {Model: "m", Parameters: json.RawMessage(`["secret"]`)},
		"a reserved parameter":     {Model: "m", Parameters: json.RawMessage(`{"stream":"secret"}`)},
		"a bundle without content": {Model: "m", CABundle: []byte("secret")},
		"a platform of others":     {Model: "m", Platform: wire.Platform{Vertex: &wire.Vertex{Project: "secret"}}},
		"azure without endpoint":   {Model: "secret", Platform: wire.Platform{Azure: &wire.Azure{}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := responses.New(config)
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
	reserved := responses.ReservedParameters()
	if !slices.IsSorted(reserved) {
		t.Errorf("%v is not sorted", reserved)
	}
	for _, name := range reserved {
		err := responses.CheckParameters(json.RawMessage(`{"temperature":0,"` + name + `":1}`))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("reserved parameter %s: got error %v", name, err)
		}
	}
	for _, parameters := range []string{"", "null", "{}", `{"temperature":0}`, `{"reasoning":{"effort":"low"},"parallel_tool_calls":false,"include":[]}`} {
		if err := responses.CheckParameters(json.RawMessage(parameters)); err != nil {
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
	for _, name := range []string{"agent", "agent_reference", "mcp_servers", "plugins", "prompt", "search_parameters", "Tools"} {
		if err := responses.CheckParameters(json.RawMessage(`{"` + name + `":{}}`)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
