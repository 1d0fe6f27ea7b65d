package responses_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func seeds(f *testing.F) {
	for _, body := range fakemodel.Garbage(fakemodel.Responses) {
		f.Add(body)
	}
	for _, items := range [][]string{
		{answer}, {thought, answer}, {refusing}, {thought, callA, callB}, {bare, callA}, {plain, callA, thought}, {callA, callA},
		{`{"type":"function_call","call_id":"","name":"a.b","arguments":{"x":[1,2]}}`},
		{`{"type":"function_call","call_id":7,"status":null,"name":"lookup","arguments":"{"}`},
		{`{"type":"custom_tool_call","call_id":"x","name":"y","input":"z"}`, answer},
		{`{"type":"web_search_call","id":"ws_1"}`, answer},
	} {
		for _, status := range []string{"", "completed", "incomplete/max_output_tokens", "incomplete/content_filter", "failed", "queued", "tired"} {
			f.Add([]byte(reply(status, items...)))
		}
	}
	f.Add([]byte(failed("rate_limit_exceeded")))
	f.Add([]byte(`{"error":{"code":"BadRequest","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`))
}

// FuzzDecode checks that no body makes the decoder panic, and what holds for every reply:
// closed kinds, calls only from a valid reply, an echo that is always valid.
func FuzzDecode(f *testing.F) {
	seeds(f)
	client, err := responses.New(wire.Config{Model: "gpt-5"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := responses.Decode(body)
		checkReply(t, got)
		if diff := cmp.Diff(got, responses.Decode(body)); diff != "" {
			t.Errorf("the same body was read in two ways:\n%s", diff)
		}
		request := next(got)
		sent, err := client.Encode(request)
		if err != nil || !json.Valid(sent) {
			t.Errorf("the reply can't be continued: %v", err)
		}
		// The same reply again is the worst that can follow: every id in it is used.
		again, failure := responses.Interpret(wire.Response{Status: 200, Body: body}, request)
		if failure != nil {
			return
		}
		checkReply(t, again)
		for _, c := range again.Decision.Calls {
			for _, earlier := range got.Decision.Calls {
				if c.ID == earlier.ID {
					t.Errorf("the id %q comes twice", c.ID)
				}
			}
		}
	})
}

// FuzzInterpret checks that no body makes the classification panic, that the provider's
// words stay inside, and that nothing runs that did not come from a completed reply.
func FuzzInterpret(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, status := range []int{200, 302, 400, 403, 429, 503} {
			got, failure := responses.Interpret(wire.Response{
				Status: status, Body: body, ReceivedAt: time.Unix(1790000000, 0),
				Header: http.Header{"Retry-After": {string(body)}, "X-Ratelimit-Reset-Tokens": {string(body)}},
			}, model.Request{})
			if failure != nil {
				checkError(t, failure)
				continue
			}
			checkReply(t, got)
			if got.Decision.Kind == model.KindCalls && (status != 200 || (got.StopReason != "completed" && got.StopReason != "")) {
				t.Errorf("calls of a reply with status %d that is %q", status, got.StopReason)
			}
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
