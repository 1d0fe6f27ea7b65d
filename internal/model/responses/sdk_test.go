package responses_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/packages/param"
	sdk "github.com/openai/openai-go/v3/responses"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// readJSON reads a value with its numbers as they were written.
func readJSON(t *testing.T, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// throughSDK reads a value into one of the vendor's types, and writes it again.
func throughSDK(t *testing.T, body []byte, into any) []byte {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("the SDK can't read %s: %v", body, err)
	}
	written, err := json.Marshal(into)
	if err != nil {
		t.Fatalf("the SDK can't write %s: %v", body, err)
	}
	return written
}

// checkRequest checks that the vendor's types read a request whole, and write it again
// with the same meaning. Three of them are called message, and a list is read into the one
// that has neither id nor status; what the assistant said is therefore read by itself.
func checkRequest(t *testing.T, body []byte) {
	t.Helper()
	ours, _ := readJSON(t, body).(map[string]any)
	input, _ := ours["input"].([]any)
	for i, value := range input {
		item, _ := value.(map[string]any)
		if item["type"] != "message" || item["id"] == nil {
			continue
		}
		message, err := json.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(value, readJSON(t, throughSDK(t, message, &sdk.ResponseOutputMessageParam{}))); diff != "" {
			t.Errorf("item %d (-ours +the SDK's):\n%s", i, diff)
		}
		delete(item, "id")
		delete(item, "status")
	}
	if diff := cmp.Diff(any(ours), readJSON(t, throughSDK(t, body, &sdk.ResponseNewParams{}))); diff != "" {
		t.Errorf("request (-ours +the SDK's):\n%s", diff)
	}
}

// checkSDKReply checks that the vendor's types read the same from a reply as we do.
func checkSDKReply(t *testing.T, body []byte) {
	t.Helper()
	got := responses.Decode(body)
	var response sdk.Response
	if err := json.Unmarshal(body, &response); err != nil {
		t.Fatalf("the SDK can't read %s: %v", body, err)
	}
	if text := response.OutputText(); got.Decision.Kind != model.KindRefused && text != got.Decision.Text {
		t.Errorf("the SDK reads %q, we %q", text, got.Decision.Text)
	}
	var calls []model.Call
	for _, item := range response.Output {
		if call, ok := item.AsAny().(sdk.ResponseFunctionToolCall); ok {
			calls = append(calls, model.Call{ID: call.CallID, Alias: call.Name, Arguments: call.Arguments})
		}
	}
	if got.Decision.Kind == model.KindCalls {
		if diff := cmp.Diff(calls, got.Decision.Calls); diff != "" {
			t.Errorf("calls (-the SDK's +ours):\n%s", diff)
		}
	}
	word := string(response.Status)
	if reason := response.IncompleteDetails.Reason; reason != "" && response.Status == sdk.ResponseStatusIncomplete {
		word = reason
	}
	if got.StopReason != word || got.RequestID != response.ID {
		t.Errorf("the SDK reads %q of %q, we %q of %q", word, response.ID, got.StopReason, got.RequestID)
	}
	u := response.Usage
	want := model.Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.InputTokensDetails.CachedTokens,
		CacheWriteTokens: u.InputTokensDetails.CacheWriteTokens, ReasoningTokens: u.OutputTokensDetails.ReasoningTokens, Reported: true,
	}
	if got.Usage.Reported && got.Usage != want {
		t.Errorf("the SDK reads usage %+v, we %+v", want, got.Usage)
	}
}

// TestSDKReadsRequests sends everything that can be in a conversation through the
// vendor's types.
func TestSDKReadsRequests(t *testing.T) {
	request := conversation()
	request.Messages = append(request.Messages,
		model.Message{Role: model.RoleUser, Text: "Go on."},
		model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + thought + "," + answer + "," + callB + "]")},
		model.Message{Role: model.RoleTool, CallID: "call_b", Text: "error: no"},
		model.Message{Role: model.RoleAssistant, Text: "Hm.", Calls: []model.Call{{ID: "c", Alias: "lookup", Arguments: `{"n":9007199254740993}`}}},
		model.Message{Role: model.RoleTool, CallID: "c", Text: ""},
	)
	for _, name := range []string{"gpt-4o", "gpt-5"} {
		checkRequest(t, []byte(encoded(t, wire.Config{Model: name}, request)))
		checkRequest(t, []byte(encoded(t, wire.Config{Model: name, Parameters: json.RawMessage(
			`{"reasoning":{"effort":"high","summary":"auto"},"temperature":0.5,"parallel_tool_calls":false,"truncation":"auto","metadata":{"a":"b"}}`)}, question())))
	}
}

// TestSDKReadsReplies gives replies of every kind to the vendor's types.
func TestSDKReadsReplies(t *testing.T) {
	for name, body := range map[string]string{
		"an answer":       reply("completed", thought, answer),
		"calls":           reply("completed", thought, answer, callA, callB),
		"a refusal":       reply("completed", refusing),
		"cut off":         reply("incomplete/max_output_tokens", answer),
		"filtered":        reply("incomplete/content_filter"),
		"the fake's":      string(fakemodel.Body(fakemodel.Responses, fakemodel.Thinking(fakemodel.Text("42"), "Hm."))),
		"the fake's call": string(fakemodel.Body(fakemodel.Responses, fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), "Hm."))),
	} {
		t.Run(name, func(t *testing.T) { checkSDKReply(t, []byte(body)) })
	}
}

// TestSDKProducesReplies builds replies out of the vendor's types and reads them.
func TestSDKProducesReplies(t *testing.T) {
	reasoning := sdk.ResponseReasoningItemParam{ID: "rs_1", EncryptedContent: param.NewOpt("gAAA"), Summary: []sdk.ResponseReasoningItemSummaryParam{{Text: "Hm."}}}
	call := sdk.ResponseFunctionToolCallParam{CallID: "call_a", Name: "lookup", Arguments: `{"key":"a"}`, Status: sdk.ResponseFunctionToolCallStatusCompleted}
	half := call
	half.Status = sdk.ResponseFunctionToolCallStatusIncomplete
	message := func(part sdk.ResponseOutputMessageContentUnionParam) sdk.ResponseOutputMessageParam {
		return sdk.ResponseOutputMessageParam{
			ID: "msg_1", Status: sdk.ResponseOutputMessageStatusCompleted, Content: []sdk.ResponseOutputMessageContentUnionParam{part},
		}
	}
	text := message(sdk.ResponseOutputMessageContentUnionParam{OfOutputText: &sdk.ResponseOutputTextParam{Text: "42"}})
	refusal := message(sdk.ResponseOutputMessageContentUnionParam{OfRefusal: &sdk.ResponseOutputRefusalParam{Refusal: "No."}})
	for name, test := range map[string]struct {
		status string
		output []any
		want   model.Decision
	}{
		"an answer":     {"completed", []any{reasoning, text}, final("42")},
		"a refusal":     {"completed", []any{refusal}, refused("No.")},
		"a call":        {"completed", []any{reasoning, call}, proposed("", wantA)},
		"half a call":   {"completed", []any{half}, invalid(model.CodeCutOff, "")},
		"cut off":       {"incomplete/max_output_tokens", []any{text, call}, invalid(model.CodeCutOff, "42")},
		"a custom tool": {"completed", []any{sdk.ResponseCustomToolCallParam{CallID: "c", Name: "x", Input: "y"}}, invalid(model.CodeMalformed, "")},
		"a web search":  {"completed", []any{sdk.ResponseFunctionWebSearchParam{ID: "ws_1", Status: "completed"}, text}, final("42")},
	} {
		t.Run(name, func(t *testing.T) {
			var items []string
			for _, i := range test.output {
				item, err := json.Marshal(i)
				if err != nil {
					t.Fatal(err)
				}
				items = append(items, string(item))
			}
			body := []byte(reply(test.status, items...))
			checkDecision(t, test.want, responses.Decode(body))
			checkSDKReply(t, body)
		})
	}
}
