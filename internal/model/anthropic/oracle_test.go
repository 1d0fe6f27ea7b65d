package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// meaning is JSON for comparing: members in any order, and numbers by their value, since
// the SDK writes 1.0 as 1 where it has read a request.
func meaning(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// requests are those of TestPlatformConversations and more: everything that is sent.
func requests() map[string]model.Request {
	long := conversation()
	long.Messages = append(long.Messages,
		model.Message{Role: model.RoleAssistant, Raw: json.RawMessage("[" + sealed + `,{"type":"text","text":"42"}]`)},
		model.Message{Role: model.RoleUser, Text: "Sure?"},
		model.Message{Role: model.RoleAssistant, Text: "Yes.", Calls: []model.Call{{ID: "x:1", Alias: "a.b", Arguments: "["}}},
		model.Message{Role: model.RoleTool, CallID: "x:1", Text: ""},
	)
	return map[string]model.Request{"a question": question(), "calls and results": conversation(), "a long conversation": long}
}

// TestSDKReadsRequests checks that the SDK's types know all that is in a request: what
// they write after reading it means the same.
func TestSDKReadsRequests(t *testing.T) {
	parameters := json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":2048},"metadata":{"user_id":"u"},"stop_sequences":["x"],"service_tier":"auto","tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`)
	for name, request := range requests() {
		for _, config := range []wire.Config{
			{Model: "m"},
			{Model: "m", Parameters: parameters},
			{Model: "m", Platform: onBedrock, Endpoint: "https://bedrock-mantle.eu-central-1.api.aws/anthropic"},
		} {
			t.Run(name, func(t *testing.T) {
				body := encoded(t, config, request)
				var read sdk.MessageNewParams
				if err := json.Unmarshal([]byte(body), &read); err != nil {
					t.Fatal(err)
				}
				written, err := json.Marshal(read)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(meaning(t, []byte(body)), meaning(t, written)); diff != "" {
					t.Errorf("the request (-ours +the SDK's):\n%s", diff)
				}
			})
		}
	}
}

// TestSDKRewrites is why blocks are not sent by way of the SDK's types: they lose members
// that they don't know, and write the rest in their own way.
func TestSDKRewrites(t *testing.T) {
	blocks := strings.Replace(callA, `"name"`, `"novelty":1,"name"`, 1)
	var read sdk.Message
	if err := json.Unmarshal([]byte(reply("tool_use", blocks)), &read); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(read.ToParam())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(back), "novelty") || strings.Contains(string(back), `"key": "a"`) {
		t.Errorf("the SDK keeps more than it did: see whether its types can be used: %s", back)
	}
	if got := anthropic.Decode([]byte(reply("tool_use", blocks))); string(got.Raw) != "["+blocks+"]" {
		t.Errorf("we lose something too: %s", got.Raw)
	}
}

// TestSDKReadsReplies checks that the SDK's types read each reply that we accept as we do,
// and that they would send it back as we do.
func TestSDKReadsReplies(t *testing.T) {
	search := `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"},"caller":{"type":"direct"}}`
	for _, stop := range []string{"end_turn", "stop_sequence", "tool_use", "pause_turn"} {
		for name, blocks := range map[string][]string{
			"text": {textBlock}, "thoughts": {thought, sealed, textBlock}, "calls": {thought, textBlock, callA, callB}, "a search": {textBlock, search},
		} {
			got := anthropic.Decode([]byte(reply(stop, blocks...)))
			if len(got.Raw) == 0 {
				continue
			}
			t.Run(stop+" "+name, func(t *testing.T) {
				var read sdk.Message
				if err := json.Unmarshal([]byte(reply(stop, blocks...)), &read); err != nil {
					t.Fatal(err)
				}
				if string(read.StopReason) != got.StopReason || read.ID != got.RequestID || read.Usage.InputTokens != got.Usage.InputTokens || read.Usage.OutputTokens != got.Usage.OutputTokens {
					t.Errorf("the SDK reads %+v", read)
				}
				var text strings.Builder
				var calls []model.Call
				for _, b := range read.Content {
					switch b := b.AsAny().(type) {
					case sdk.TextBlock:
						text.WriteString(b.Text)
					case sdk.ToolUseBlock:
						calls = append(calls, model.Call{ID: b.ID, Alias: b.Name, Arguments: string(b.Input)})
					}
				}
				if diff := cmp.Diff(model.Decision{Kind: got.Decision.Kind, Text: text.String(), Calls: calls, Code: got.Decision.Code, Problem: got.Decision.Problem}, got.Decision); diff != "" {
					t.Errorf("decision (-the SDK's +ours):\n%s", diff)
				}
				checkSentBack(t, read, got.Raw)
			})
		}
	}
}

// checkSentBack compares the SDK's echo of a reply with ours. The SDK leaves out members
// that are null.
func checkSentBack(t *testing.T, read sdk.Message, echo json.RawMessage) {
	t.Helper()
	back, err := json.Marshal(read.ToParam())
	if err != nil {
		t.Fatal(err)
	}
	var message struct{ Content json.RawMessage }
	if err := json.Unmarshal(back, &message); err != nil {
		t.Fatal(err)
	}
	ours, _ := meaning(t, echo).([]any)
	for _, b := range ours {
		block, _ := b.(map[string]any)
		for name, value := range block {
			if value == nil {
				delete(block, name)
			}
		}
	}
	if diff := cmp.Diff(meaning(t, message.Content), any(ours)); diff != "" {
		t.Errorf("echo (-the SDK's +ours):\n%s", diff)
	}
}

// TestSDKWritesReplies checks that we read what the SDK's types write, for each stop
// reason that they know.
func TestSDKWritesReplies(t *testing.T) {
	for stop, want := range map[sdk.StopReason]model.Kind{
		sdk.StopReasonEndTurn: model.KindFinal, sdk.StopReasonStopSequence: model.KindFinal, sdk.StopReasonToolUse: model.KindInvalid,
		sdk.StopReasonMaxTokens: model.KindInvalid, sdk.StopReasonRefusal: model.KindRefused, sdk.StopReasonPauseTurn: model.KindPaused,
		sdk.StopReasonModelContextWindowExceeded:           model.KindOverflow,
		sdk.StopReason(sdk.BetaStopReasonCompaction):       model.KindPaused,
		sdk.StopReason("a reason that nobody knows today"): model.KindInvalid,
	} {
		var message sdk.Message
		if err := json.Unmarshal([]byte(reply(string(stop), textBlock)), &message); err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		got := anthropic.Decode(written)
		checkReply(t, got)
		if got.Decision.Kind != want || got.StopReason != string(stop) {
			t.Errorf("%s: got %+v", stop, got.Decision)
		}
	}
}

// TestSDKErrors checks that errors are named as the SDK names them.
func TestSDKErrors(t *testing.T) {
	for _, body := range []string{
		said("rate_limit_error", "enforced_spend_limit_reached", "x"), said("overloaded_error", "", "x"), said("invalid_request_error", "", "x"),
	} {
		var read sdk.ErrorResponse
		if err := json.Unmarshal([]byte(body), &read); err != nil {
			t.Fatal(err)
		}
		var code struct {
			Details struct {
				ErrorCode string `json:"error_code"`
			} `json:"details"`
		}
		if err := json.Unmarshal([]byte(read.Error.RawJSON()), &code); err != nil {
			t.Fatal(err)
		}
		want := code.Details.ErrorCode
		if want == "" {
			want = read.Error.Type
		}
		_, failure := anthropic.Interpret(wire.Response{Status: 400, Body: []byte(body)}, model.Request{})
		if failure.Code != want || !strings.Contains(failure.Detail, read.RequestID) {
			t.Errorf("got %+v, the SDK reads %s of %s", failure, want, read.RequestID)
		}
	}
}
