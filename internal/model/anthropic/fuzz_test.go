package anthropic_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func seeds(f *testing.F) {
	for _, body := range fakemodel.Garbage(fakemodel.Messages) {
		f.Add(body)
	}
	for _, blocks := range [][]string{
		{}, {textBlock}, {thought, sealed, dream, textBlock}, {thought, callA, callB}, {callA, callA},
		{`{"type":"tool_use","id":"","name":"a.b","input":"{\"x\":[1,2]}"}`, `{"type":"text","text":" "}`},
		{`{"type":"tool_use","id":7,"name":"lookup","input":null}`},
	} {
		for _, stop := range []string{"", "end_turn", "stop_sequence", "tool_use", "max_tokens", "model_context_window_exceeded", "pause_turn", "refusal", "compaction", "tired"} {
			f.Add([]byte(reply(stop, blocks...)))
		}
	}
	f.Add([]byte(said("rate_limit_error", "enforced_spend_limit_reached", "busy")))
	f.Add([]byte(`[{"error":{"code":429,"message":"busy","status":"RESOURCE_EXHAUSTED"}}]`))
	f.Add([]byte(`{"message":"Input is too long for requested model."}`))
}

// FuzzDecode checks that no body makes the decoder panic, and what holds for every
// reply: closed kinds, calls only from a valid reply, an echo that is always valid.
func FuzzDecode(f *testing.F) {
	seeds(f)
	client, err := anthropic.New(wire.Config{Model: "m"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := anthropic.Decode(body)
		checkReply(t, got)
		if diff := cmp.Diff(got, anthropic.Decode(body)); diff != "" {
			t.Errorf("the same body was read in two ways:\n%s", diff)
		}
		if sent, err := client.Encode(next(got)); err != nil || !json.Valid(sent) {
			t.Errorf("the reply can't be continued: %v", err)
		}
	})
}

// FuzzInterpret checks that no error body makes the classification panic, and that
// the provider's words stay inside.
func FuzzInterpret(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, status := range []int{200, 302, 400, 403, 429, 529} {
			reply, failure := anthropic.Interpret(wire.Response{
				Status: status, Body: body, ReceivedAt: time.Unix(1790000000, 0),
				Header: http.Header{"Retry-After": {string(body)}, "Anthropic-Ratelimit-Tokens-Reset": {string(body)}, "X-Amzn-Errortype": {string(body)}},
			}, model.Request{})
			if failure == nil {
				checkReply(t, reply)
				continue
			}
			checkError(t, failure)
		}
	})
}

// next continues a conversation as a run does: with the result of each call, by going on
// after a pause, or with words of the user, whatever the reply was.
func next(reply model.Reply) model.Request {
	messages := []model.Message{{Role: model.RoleUser, Text: "Go."}}
	d := reply.Decision
	if d.Text != "" || len(d.Calls) > 0 || d.Kind == model.KindPaused {
		messages = append(messages, model.Message{Role: model.RoleAssistant, Text: d.Text, Calls: d.Calls, Raw: reply.Raw})
	}
	for _, c := range d.Calls {
		messages = append(messages, model.Message{Role: model.RoleTool, CallID: c.ID, Text: "ok"})
	}
	if len(d.Calls) == 0 && d.Kind != model.KindPaused {
		messages = append(messages, model.Message{Role: model.RoleUser, Text: "Again."})
	}
	return model.Request{Decision: 2, Messages: messages, MaxOutputTokens: 100}
}
