package gemini_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/genai"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// vendorModel is the model that the vendor's client is asked for in these tests.
const vendorModel = "gemini-3-pro"

// vendorServer answers the vendor's client with bodies, one after the other, and keeps
// what it was sent.
type vendorServer struct {
	bodies   []string
	requests []*http.Request
	sent     [][]byte
}

func (s *vendorServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.requests, s.sent = append(s.requests, r), append(s.sent, body)
	answer := httptest.NewRecorder()
	_, _ = answer.WriteString(s.bodies[min(len(s.sent), len(s.bodies))-1])
	return answer.Result(), nil
}

// vendorClient is the vendor's own client, connected to a server.
func vendorClient(t *testing.T, server *vendorServer) *genai.Client {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey: secret, Backend: genai.BackendGeminiAPI, HTTPClient: &http.Client{Transport: server},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// typed are the vendor's types for the members of a request.
type typed struct {
	contents []*genai.Content
	config   *genai.GenerateContentConfig
}

// readTyped reads a body of ours into the vendor's types. A member that they don't have
// fails the test.
func readTyped(t *testing.T, body []byte) typed {
	t.Helper()
	var members struct {
		Contents []*genai.Content  `json:"contents"`
		System   *genai.Content    `json:"systemInstruction"`
		Tools    []*genai.Tool     `json:"tools"`
		Choice   *genai.ToolConfig `json:"toolConfig"`
		Settings json.RawMessage   `json:"generationConfig"`
	}
	strictly(t, body, &members)
	// The vendor's client has the settings of a reply beside everything else.
	config := &genai.GenerateContentConfig{}
	strictly(t, members.Settings, config)
	config.SystemInstruction, config.Tools, config.ToolConfig = members.System, members.Tools, members.Choice
	return typed{contents: members.Contents, config: config}
}

func strictly(t *testing.T, data []byte, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("the vendor's types don't read it: %v\n%s", err, data)
	}
}

// checkOracleRequest checks that the vendor's client, told the same in its own types,
// sends what we send: the path, the key and the body, modulo the order of members.
func checkOracleRequest(t *testing.T, body []byte) {
	t.Helper()
	server := &vendorServer{bodies: []string{reply(said(answer), `"STOP"`)}}
	request := readTyped(t, body)
	if _, err := vendorClient(t, server).Models.GenerateContent(context.Background(), vendorModel, request.contents, request.config); err != nil {
		t.Fatal(err)
	}
	sent := server.requests[0]
	if sent.URL.String() != gemini.DefaultEndpoint+"/models/"+vendorModel+":generateContent" || sent.Header.Get("X-Goog-Api-Key") != secret {
		t.Errorf("the vendor's client asks %s with headers %v", sent.URL, sent.Header)
	}
	if diff := cmp.Diff(asJSON(t, server.sent[0]), asJSON(t, body)); diff != "" {
		t.Errorf("request (-the vendor's +ours):\n%s", diff)
	}
}

// asJSON reads JSON for comparing. Arguments of nothing are the one difference between
// the vendor's client and ours: it leaves them out.
func asJSON(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return withoutEmptyArguments(v)
}

func withoutEmptyArguments(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if args, ok := v["args"].(map[string]any); ok && len(args) == 0 {
			delete(v, "args")
		}
		for _, member := range v {
			withoutEmptyArguments(member)
		}
	case []any:
		for _, item := range v {
			withoutEmptyArguments(item)
		}
	}
	return v
}

// argumentsOf are a call's arguments, read plainly.
func argumentsOf(t *testing.T, call model.Call) map[string]any {
	t.Helper()
	arguments := map[string]any{}
	if call.Arguments == "" {
		return arguments
	}
	if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil {
		t.Fatal(err)
	}
	return arguments
}

// checkOracleReply checks that the vendor's types read the same from a reply as we do,
// and that we read the same from the reply as the vendor's types write it.
func checkOracleReply(t *testing.T, body []byte, got model.Reply) {
	t.Helper()
	var response genai.GenerateContentResponse
	if err := json.Unmarshal(body, &response); err != nil {
		t.Fatal(err)
	}
	if response.Text() != got.Decision.Text || string(response.Candidates[0].FinishReason) != got.StopReason {
		t.Errorf("got text %q and stop reason %q, the vendor reads %q and %q", got.Decision.Text, got.StopReason, response.Text(), response.Candidates[0].FinishReason)
	}
	calls := response.FunctionCalls()
	if len(calls) != len(got.Decision.Calls) {
		t.Fatalf("got %d calls, the vendor reads %d", len(got.Decision.Calls), len(calls))
	}
	for i, call := range calls {
		ours := got.Decision.Calls[i]
		if call.Name != ours.Alias || (call.ID != "" && call.ID != ours.ID) {
			t.Errorf("got call %+v, the vendor reads %+v", ours, call)
		}
		if diff := cmp.Diff(call.Args, argumentsOf(t, ours), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("arguments (-the vendor's +ours):\n%s", diff)
		}
	}
	written, err := json.Marshal(&response)
	if err != nil {
		t.Fatal(err)
	}
	again := gemini.Decode(written)
	checkReply(t, again)
	if diff := cmp.Diff(meaning(t, got), meaning(t, again)); diff != "" {
		t.Errorf("reply (-as it came +as the vendor's types write it):\n%s", diff)
	}
}

// meaning is a reply without what depends on its bytes.
func meaning(t *testing.T, reply model.Reply) model.Reply {
	t.Helper()
	calls := append([]model.Call(nil), reply.Decision.Calls...)
	for i := range calls {
		canonical, err := json.Marshal(argumentsOf(t, calls[i]))
		if err != nil {
			t.Fatal(err)
		}
		// An id that we made up depends on the bytes of the arguments.
		calls[i].Arguments, calls[i].ID = string(canonical), ""
	}
	reply.Decision.Calls, reply.Raw = calls, nil
	return reply
}

// TestOracleRequests sends every kind of message through the vendor's client, too.
func TestOracleRequests(t *testing.T) {
	result := func(id, text string, failed bool) model.Message {
		return model.Message{Role: model.RoleTool, CallID: id, Text: text, Failed: failed}
	}
	raw := model.Message{Role: model.RoleAssistant, Raw: json.RawMessage(said(thinking, answer, callA, plainCall)), Calls: []model.Call{wantA, {ID: "c", Alias: "lookup"}}}
	written := model.Message{Role: model.RoleAssistant, Text: "So:", Calls: []model.Call{{ID: "x", Alias: "lookup", Arguments: `{"a":[1,"<&>",null]}`}, {ID: "y", Alias: "search"}}}
	user := model.Message{Role: model.RoleUser, Text: "Go <on> & \u2028 on."}
	for name, messages := range map[string][]model.Message{
		"a question":         {user},
		"results":            {user, raw, result("id_a", "1", false), result("c", `{"error":{"class":"timeout"}}`, true)},
		"feedback":           {user, {Role: model.RoleAssistant, Text: "Half"}, user},
		"another's calls":    {user, written, result("x", "", false), result("y", `{"a":9007199254740993}`, false), user},
		"a reply of one's":   {user, {Role: model.RoleAssistant, Raw: json.RawMessage(said(`{"text":"42","thoughtSignature":"c2ln"}`))}, user},
		"results, then text": {user, raw, result("c", "2", false), result("id_a", "1", false), user, user},
	} {
		t.Run(name, func(t *testing.T) {
			request := conversation()
			request.Messages = messages
			parameters := json.RawMessage(`{"generationConfig":{"temperature":0.5,"seed":7,"stopSequences":["END"],"thinkingConfig":{"includeThoughts":true,"thinkingBudget":128}}}`)
			checkOracleRequest(t, []byte(encoded(t, wire.Config{Model: "gemini-2.5-pro", Parameters: parameters}, request)))
			request.System, request.Tools = "", nil
			checkOracleRequest(t, []byte(encoded(t, wire.Config{Model: "gemini-2.5-pro"}, request)))
		})
	}
}

// TestOracleReplies lets the vendor's types write every reply that we accept.
func TestOracleReplies(t *testing.T) {
	usage := &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount: 100, CachedContentTokenCount: 64, ToolUsePromptTokenCount: 8, CandidatesTokenCount: 20, ThoughtsTokenCount: 5, TotalTokenCount: 133,
	}
	wantUsage := model.Usage{InputTokens: 108, OutputTokens: 25, CacheReadTokens: 64, ReasoningTokens: 5, Reported: true}
	content := func(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: genai.RoleModel, Parts: parts} }
	call := func(id, name string, args map[string]any) *genai.Part {
		return &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: name, Args: args}, ThoughtSignature: []byte("signature \xff")}
	}
	thought := &genai.Part{Text: "Hm.", Thought: true}
	for name, test := range map[string]struct {
		candidate *genai.Candidate
		want      model.Decision
	}{
		"an answer":       {&genai.Candidate{Content: content(thought, genai.NewPartFromText("42")), FinishReason: genai.FinishReasonStop}, model.Decision{Kind: model.KindFinal, Text: "42"}},
		"calls":           {&genai.Candidate{Content: content(thought, call("id_a", "lookup", map[string]any{"key": "a"}), call("id_b", "lookup", map[string]any{"key": "b"})), FinishReason: genai.FinishReasonStop}, proposed("", wantA, wantB)},
		"a bare call":     {&genai.Candidate{Content: content(call("id_a", "lookup", nil)), FinishReason: genai.FinishReasonStop}, proposed("", model.Call{ID: "id_a", Alias: "lookup"})},
		"cut off":         {&genai.Candidate{Content: content(genai.NewPartFromText("4"), call("id_a", "lookup", nil)), FinishReason: genai.FinishReasonMaxTokens}, invalid(model.CodeCutOff, "4")},
		"to be continued": {&genai.Candidate{Content: content(genai.NewPartFromText("4")), FinishReason: genai.FinishReasonContinuation, ContinuationToken: []byte("t")}, invalid(model.CodeCutOff, "4")},
		"refused":         {&genai.Candidate{FinishReason: genai.FinishReasonSafety}, model.Decision{Kind: model.KindRefused}},
		"a bad call":      {&genai.Candidate{FinishReason: genai.FinishReasonMalformedFunctionCall, FinishMessage: "Malformed function call: print()"}, invalid(model.CodeMalformed, "")},
		"nothing":         {&genai.Candidate{FinishReason: genai.FinishReasonStop}, invalid(model.CodeEmpty, "")},
		"not finished":    {&genai.Candidate{Content: content(genai.NewPartFromText("4"))}, invalid(model.CodeUnknownStop, "4")},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(&genai.GenerateContentResponse{Candidates: []*genai.Candidate{test.candidate}, UsageMetadata: usage, ResponseID: "r"})
			if err != nil {
				t.Fatal(err)
			}
			got := gemini.Decode(body)
			checkReply(t, got)
			got.Decision.Problem = ""
			if diff := cmp.Diff(test.want, got.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if got.Usage != wantUsage || got.RequestID != "r" || got.StopReason != string(test.candidate.FinishReason) {
				t.Errorf("got %+v", got)
			}
		})
	}
	body, err := json.Marshal(&genai.GenerateContentResponse{PromptFeedback: &genai.GenerateContentResponsePromptFeedback{BlockReason: genai.BlockedReasonModelArmor}})
	if err != nil {
		t.Fatal(err)
	}
	if got := gemini.Decode(body); got.Decision.Kind != model.KindRefused || got.StopReason != "MODEL_ARMOR" {
		t.Errorf("a blocked prompt: got %+v", got)
	}
}

// TestOracleKnowsOurReplies checks that what the strict fake says is what the vendor's
// types read.
func TestOracleKnowsOurReplies(t *testing.T) {
	for _, answer := range []fakemodel.Answer{
		fakemodel.Text("42"), fakemodel.Thinking(fakemodel.Text("42"), "Hm."),
		fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"a":1}`}, fakemodel.Call{Name: "search", Arguments: `{}`}), "Hm."),
	} {
		body := fakemodel.Body(fakemodel.Gemini, answer)
		var response genai.GenerateContentResponse
		strictly(t, body, &response)
		checkOracleReply(t, body, gemini.Decode(body))
	}
}

// TestOracleVertexAddress checks where the vendor's client finds models on the platform.
func TestOracleVertexAddress(t *testing.T) {
	for _, location := range []string{"europe-west1", "us-central1", "global", "eu", "us"} {
		theirs := &vendorServer{bodies: []string{reply(said(answer), `"STOP"`)}}
		client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
			Backend: genai.BackendVertexAI, Project: "my-project", Location: location, HTTPClient: &http.Client{Transport: theirs},
			HTTPOptions: genai.HTTPOptions{APIVersion: "v1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Models.GenerateContent(t.Context(), vendorModel, genai.Text("Go."), nil); err != nil {
			t.Fatal(err)
		}
		ours := &watched{t: t}
		config := wire.Config{Model: vendorModel, APIKey: key, Transport: ours, Platform: wire.Platform{Vertex: &wire.Vertex{Project: "my-project", Location: location}}}
		if _, err := newClient(t, config).Decide(t.Context(), question()); err != nil {
			t.Fatal(err)
		}
		if want := theirs.requests[0].URL.String(); ours.url != want {
			t.Errorf("location %s: asked %s, the vendor's client asks %s", location, ours.url, want)
		}
	}
}
