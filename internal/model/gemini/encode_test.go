package gemini_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func newClient(t *testing.T, config wire.Config) *gemini.Client {
	t.Helper()
	client, err := gemini.New(config)
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

// rawCalls is a reply with two calls, the second without an id, in bytes that no library
// would write.
const rawCalls = `{ "parts": [` + thinking + `, ` + callA + `,  {"functionCall":{"name":"lookup","args":{"n":9007199254740993}}} ],"role":"model", "x_new":{"b":1,"a":1.50} }`

// conversation is a request with everything in it.
func conversation() model.Request {
	return model.Request{
		Decision: 2,
		System:   "Be <brief> & kind.",
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Raw: json.RawMessage(rawCalls), Calls: []model.Call{
				{ID: "id_a", Alias: "lookup", Arguments: `{"key":"a"}`},
				{ID: "c01assign", Alias: "lookup", Arguments: `{"n":9007199254740993}`},
			}},
			{Role: model.RoleTool, CallID: "id_a", Text: `{"value":"<1>"}`, Value: json.RawMessage(`{"value":"<1>"}`)},
			{Role: model.RoleTool, CallID: "c01assign", Text: `{"error":{"class":"timeout"}}`, Failed: true, Value: json.RawMessage(`null`)},
		},
		Tools: []model.Tool{{
			Name: "crm.lookup", Alias: "lookup", Description: "Looks up.",
			InputSchema: json.RawMessage(`{"type": "object", "properties": {"key": {"type": "string"}}}`),
		}},
		MaxOutputTokens: 64,
	}
}

func TestEncode(t *testing.T) {
	parameters := json.RawMessage(`{"safetySettings":[], "generationConfig":{"topP": 0.50, "seed": 9007199254740993}, "labels":{"a":"b"}}`)
	got := encoded(t, wire.Config{Model: "m", Parameters: parameters}, conversation())
	want := `{"systemInstruction":{"role":"user","parts":[{"text":"Be <brief> & kind."}]},` +
		`"tools":[{"functionDeclarations":[{"name":"lookup","description":"Looks up.",` +
		`"parametersJsonSchema":{"type":"object","properties":{"key":{"type":"string"}}}}]}],` +
		`"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},` +
		`"contents":[{"role":"user","parts":[{"text":"Which?"}]},` + rawCalls + `,` +
		`{"role":"user","parts":[` +
		`{"functionResponse":{"id":"id_a","name":"lookup","response":{"output":"{\"value\":\"<1>\"}"}}},` +
		`{"functionResponse":{"name":"lookup","response":{"error":"{\"error\":{\"class\":\"timeout\"}}"}}}]}],` +
		`"generationConfig":{"maxOutputTokens":64,"seed":9007199254740993,"topP":0.50},` +
		`"labels":{"a":"b"},"safetySettings":[]}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	first := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"labels":{},"generationConfig":{"seed":1,"topP":0.5}}`)}, conversation())
	second := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{ "generationConfig": {"topP":0.5, "seed":1 }, "labels":{} }`)}, conversation())
	if first != second {
		t.Errorf("equal requests differ:\n%s\n%s", first, second)
	}
}

func TestEncodeRepeatsTheConversation(t *testing.T) {
	request := conversation()
	before := encoded(t, wire.Config{Model: "m"}, request)
	request.Messages = append(request.Messages, model.Message{Role: model.RoleUser, Text: "Go on."})
	after := encoded(t, wire.Config{Model: "m"}, request)
	prefix := before[:strings.Index(before, `],"generationConfig"`)]
	if !strings.HasPrefix(after, prefix) {
		t.Errorf("a longer conversation does not repeat the bytes of the shorter:\n%s\n%s", before, after)
	}
}

// TestEncodeWithoutProviderMessage checks what other models said, and that only models
// which ask for a signature get the one that the vendor documents for it.
func TestEncodeWithoutProviderMessage(t *testing.T) {
	request := model.Request{
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Which?"},
			{Role: model.RoleAssistant, Text: "Let me see.", Calls: []model.Call{{ID: "a", Alias: "crm/get", Arguments: "{"}, {ID: "b", Alias: "lookup"}}},
			{Role: model.RoleTool, CallID: "b", Text: "1"},
			{Role: model.RoleTool, CallID: "a", Text: "no", Failed: true},
			{Role: model.RoleUser, Text: "Go on."},
			{Role: model.RoleAssistant, Text: "It is 1."},
			{Role: model.RoleUser, Text: "Sure?"},
		},
		MaxOutputTokens: 64,
	}
	for name, signature := range map[string]string{
		"gemini-2.5-flash": "", "gemini-pro": "", "gemma-3-27b-it": "", "my-gemini-3": "", "gemini-25": `,"thoughtSignature":"skip_thought_signature_validator"`,
		"gemini-3-pro-preview": `,"thoughtSignature":"skip_thought_signature_validator"`, "models/gemini-3.1-pro": `,"thoughtSignature":"skip_thought_signature_validator"`,
		"gemini-10-flash": `,"thoughtSignature":"skip_thought_signature_validator"`,
	} {
		got := encoded(t, wire.Config{Model: name}, request)
		want := `{"contents":[{"role":"user","parts":[{"text":"Which?"}]},` +
			`{"role":"model","parts":[{"text":"Let me see."},` +
			`{"functionCall":{"name":"crm_get","args":{"unreadable_arguments":"{"}}` + signature + `},` +
			`{"functionCall":{"name":"lookup","args":{}}}]},` +
			`{"role":"user","parts":[{"functionResponse":{"name":"crm_get","response":{"error":"no"}}},` +
			`{"functionResponse":{"name":"lookup","response":{"output":"1"}}}]},` +
			`{"role":"user","parts":[{"text":"Go on."}]},` +
			`{"role":"model","parts":[{"text":"It is 1."}]},{"role":"user","parts":[{"text":"Sure?"}]}],` +
			`"generationConfig":{"maxOutputTokens":64}}`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("model %s (-want +got):\n%s", name, diff)
		}
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
			got := encoded(t, wire.Config{Model: "m"}, request)
			if !strings.Contains(got, `"parametersJsonSchema":`+test.want+`}]}]`) {
				t.Errorf("want a schema %s in\n%s", test.want, got)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*model.Request){
		"no messages":             func(r *model.Request) { r.Messages = nil },
		"no output limit":         func(r *model.Request) { r.MaxOutputTokens = 0 },
		"an unknown role":         func(r *model.Request) { r.Messages[0].Role = "system" },
		"an empty user message":   func(r *model.Request) { r.Messages[0].Text = "" },
		"a prompt of white space": func(r *model.Request) { r.Messages[0].Text = " \n" },
		"nothing but white space": func(r *model.Request) {
			r.Messages = []model.Message{{Role: model.RoleUser, Text: "\t"}, {Role: model.RoleAssistant, Text: "\n"}}
		},
		"a result without a call":      func(r *model.Request) { r.Messages = r.Messages[2:] },
		"a result too few":             func(r *model.Request) { r.Messages = r.Messages[:3] },
		"no results at the end":        func(r *model.Request) { r.Messages = r.Messages[:2] },
		"a user before the results":    func(r *model.Request) { r.Messages[2] = model.Message{Role: model.RoleUser, Text: "Go."} },
		"a result of another call":     func(r *model.Request) { r.Messages[2].CallID = "other" },
		"a result twice":               func(r *model.Request) { r.Messages[2].CallID = "c01assign" },
		"a raw message with more":      func(r *model.Request) { r.Messages[1].Calls = r.Messages[1].Calls[:1] },
		"a raw message of the user":    func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`{"role":"user","parts":[]}`) },
		"a raw message that is cut":    func(r *model.Request) { r.Messages[1].Raw = r.Messages[1].Raw[:9] },
		"a raw message that is a list": func(r *model.Request) { r.Messages[1].Raw = json.RawMessage(`[]`) },
		"another wire's raw message": func(r *model.Request) {
			r.Messages[1].Raw = json.RawMessage(`{"role":"assistant","content":null,"tool_calls":[]}`)
		},
		"a call without id":         func(r *model.Request) { r.Messages[1].Raw, r.Messages[1].Calls[0].ID = nil, "" },
		"an illegal alias":          func(r *model.Request) { r.Tools[0].Alias = "crm.lookup" },
		"an alias with a digit":     func(r *model.Request) { r.Tools[0].Alias = "1up" },
		"a schema that is not JSON": func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`{`) },
		"a schema that is true":     func(r *model.Request) { r.Tools[0].InputSchema = json.RawMessage(`true`) },
	} {
		t.Run(name, func(t *testing.T) {
			request := conversation()
			change(&request)
			client := newClient(t, wire.Config{Model: "m", Transport: broken{}})
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
		"a reserved parameter":     {Model: "m", Parameters: json.RawMessage(`{"contents":"secret"}`)},
		"a bundle without content": {Model: "m", CABundle: []byte("secret")},
		"another cloud":            {Model: "m", Platform: wire.Platform{Bedrock: &wire.Bedrock{Region: "secret"}}},
		"a cloud without project":  {Model: "m", Platform: wire.Platform{Vertex: &wire.Vertex{Location: "secret"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gemini.New(config)
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
	for _, name := range gemini.ReservedParameters() {
		err := gemini.CheckParameters(json.RawMessage(`{"labels":{},"` + name + `":1}`))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("reserved parameter %s: got error %v", name, err)
		}
	}
	for _, name := range []string{"maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"} {
		err := gemini.CheckParameters(json.RawMessage(`{"generationConfig":{"temperature":0,"` + name + `":1}}`))
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "generationConfig") {
			t.Errorf("reserved setting %s: got error %v", name, err)
		}
	}
	if err := gemini.CheckParameters(json.RawMessage(`{"generationConfig":[0]}`)); err == nil {
		t.Error("settings that are a list were accepted")
	}
	for _, parameters := range []string{"", "null", "{}", `{"generationConfig":null}`, `{"generationConfig":{"temperature":0,"thinkingConfig":{"includeThoughts":true}}}`, `{"safetySettings":[]}`} {
		if err := gemini.CheckParameters(json.RawMessage(parameters)); err != nil {
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
	for _, name := range []string{"cachedContent", "cached_content", "Tools"} {
		if err := gemini.CheckParameters(json.RawMessage(`{"` + name + `":{}}`)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
