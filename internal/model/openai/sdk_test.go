package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/openai/openai-go/v3"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// dropped is what the vendor's types lose of what compatible servers say.
var dropped = fakemodel.Difference{
	Name: "members of compatible servers",
	Remove: func(request map[string]any) {
		messages, _ := request["messages"].([]any)
		for _, m := range messages {
			message, _ := m.(map[string]any)
			delete(message, "reasoning_content")
			calls, _ := message["tool_calls"].([]any)
			for _, c := range calls {
				call, _ := c.(map[string]any)
				delete(call, "index")
			}
		}
	},
}

// checkRequest checks that the vendor's types read a request whole, and write it again
// with the same meaning. They drop what is null, empty lists and members that they don't
// know.
func checkRequest(t *testing.T, body []byte) {
	t.Helper()
	var params sdk.ChatCompletionNewParams
	if err := json.Unmarshal(body, &params); err != nil {
		t.Fatalf("the SDK can't read %s: %v", body, err)
	}
	written, err := json.Marshal(params)
	if err != nil {
		t.Fatalf("the SDK can't write %s: %v", body, err)
	}
	if diff := fakemodel.DiffRequests(body, written, fakemodel.EchoKeepsEmptyMembers, dropped); diff != "" {
		t.Errorf("request (-the SDK's +ours):\n%s", diff)
	}
}

// checkSDKReply checks that the vendor's types read the same from a reply as we do.
func checkSDKReply(t *testing.T, body []byte) {
	t.Helper()
	got := openai.Decode(body)
	var completion sdk.ChatCompletion
	if err := json.Unmarshal(body, &completion); err != nil {
		t.Fatalf("the SDK can't read %s: %v", body, err)
	}
	message := completion.Choices[0].Message
	text := message.Content
	if got.Decision.Kind == model.KindRefused && message.Refusal != "" {
		text = message.Refusal
	}
	if got.Decision.Text != text || got.StopReason != completion.Choices[0].FinishReason || got.RequestID != completion.ID {
		t.Errorf("the SDK reads %q, %q of %q, we %+v", text, completion.Choices[0].FinishReason, completion.ID, got)
	}
	var calls []model.Call
	for _, c := range message.ToolCalls {
		calls = append(calls, model.Call{ID: c.ID, Alias: c.Function.Name, Arguments: c.Function.Arguments})
	}
	if got.Decision.Kind == model.KindCalls {
		if diff := cmp.Diff(calls, got.Decision.Calls); diff != "" {
			t.Errorf("calls (-the SDK's +ours):\n%s", diff)
		}
	}
	u := completion.Usage
	want := model.Usage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, CacheReadTokens: u.PromptTokensDetails.CachedTokens,
		CacheWriteTokens: u.PromptTokensDetails.CacheWriteTokens, ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens, Reported: true,
	}
	if got.Usage.Reported && got.Usage != want {
		t.Errorf("the SDK reads usage %+v, we %+v", want, got.Usage)
	}
}

// TestSDKReadsRequests sends everything that can be in a conversation through the
// vendor's types.
func TestSDKReadsRequests(t *testing.T) {
	request := conversation()
	request.Conversation = "run-1"
	request.Messages = append(request.Messages,
		model.Message{Role: model.RoleUser, Text: "Go on."},
		model.Message{Role: model.RoleAssistant, Text: "Hm.", Calls: []model.Call{{ID: "c", Alias: "lookup", Arguments: `{"n":9007199254740993}`}, {ID: "d", Alias: "lookup"}}},
		model.Message{Role: model.RoleTool, CallID: "c", Text: ""},
		model.Message{Role: model.RoleTool, CallID: "d", Text: "error: no"},
		model.Message{Role: model.RoleAssistant, Text: "It is 1."},
		model.Message{Role: model.RoleUser, Text: "Sure?"},
	)
	for _, name := range []string{"gpt-4o", "gpt-5"} {
		checkRequest(t, []byte(encoded(t, wire.Config{Model: name}, request)))
		checkRequest(t, []byte(encoded(t, wire.Config{Model: name, Parameters: json.RawMessage(
			`{"temperature":0.5,"seed":7,"reasoning_effort":"low","parallel_tool_calls":false}`)}, question())))
	}
}

// TestSDKReadsReplies gives replies of every kind to the vendor's types.
func TestSDKReadsReplies(t *testing.T) {
	for name, body := range map[string]string{
		"an answer":      reply(`{"role":"assistant","content":"42","refusal":null,"annotations":[]}`, `"stop"`),
		"calls":          reply(withCalls(callA, callB), `"tool_calls"`),
		"a refusal":      reply(`{"role":"assistant","content":null,"refusal":"No."}`, `"stop"`),
		"cut off":        reply(`{"role":"assistant","content":"42"}`, `"length"`),
		"filtered":       reply(`{"role":"assistant","content":"42"}`, `"content_filter"`),
		"the fake's":     string(fakemodel.Body(fakemodel.Chat, fakemodel.Text("42"))),
		"the fake's two": string(fakemodel.Body(fakemodel.Chat, fakemodel.Propose(fakemodel.Call{Name: "lookup"}, fakemodel.Call{Name: "lookup"}))),
	} {
		t.Run(name, func(t *testing.T) { checkSDKReply(t, []byte(body)) })
	}
}

// TestSDKProducesReplies builds replies out of the vendor's types and reads them.
func TestSDKProducesReplies(t *testing.T) {
	var call sdk.ChatCompletionMessageToolCallUnionParam
	call.OfFunction = &sdk.ChatCompletionMessageFunctionToolCallParam{
		ID: "call_a", Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: "lookup", Arguments: `{"key":"a"}`},
	}
	text := sdk.ChatCompletionAssistantMessageParam{}
	text.Content.OfString = sdk.String("42")
	calling := sdk.ChatCompletionAssistantMessageParam{ToolCalls: []sdk.ChatCompletionMessageToolCallUnionParam{call}}
	refusal := sdk.ChatCompletionAssistantMessageParam{Refusal: sdk.String("No.")}
	for name, test := range map[string]struct {
		message sdk.ChatCompletionAssistantMessageParam
		stop    string
		want    model.Decision
	}{
		"an answer":      {text, "stop", model.Decision{Kind: model.KindFinal, Text: "42"}},
		"a call":         {calling, "tool_calls", model.Decision{Kind: model.KindCalls, Calls: []model.Call{{ID: "call_a", Alias: "lookup", Arguments: `{"key":"a"}`}}}},
		"a call cut off": {calling, "length", model.Decision{Kind: model.KindInvalid, Code: model.CodeCutOff}},
		"a refusal":      {refusal, "stop", model.Decision{Kind: model.KindRefused, Text: "No."}},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := json.Marshal(test.message)
			if err != nil {
				t.Fatal(err)
			}
			body := []byte(reply(string(message), `"`+test.stop+`"`))
			got := openai.Decode(body)
			checkReply(t, got)
			got.Decision.Problem = ""
			if diff := cmp.Diff(test.want, got.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			checkSDKReply(t, body)
		})
	}
}
