package openai_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func seeds(f *testing.F) {
	for _, body := range fakemodel.Garbage(fakemodel.Chat) {
		f.Add(body)
	}
	for _, message := range []string{
		`{"role":"assistant","content":"42"}`,
		`{"role":"assistant","content":[{"type":"text","text":"42"}],"refusal":null}`,
		`{"role":"assistant","content":null,"refusal":"No."}`,
		withCalls(callA, callB),
		withCalls(callA, callA),
		withCalls(`{"id":"","function":{"name":"a.b","arguments":{"x":[1,2]}}}`),
		withCalls(`{"id":7,"type":null,"function":{"name":"lookup","arguments":"{"}}`),
	} {
		for _, stop := range []string{"", `"stop"`, `"tool_calls"`, `"length"`, `"content_filter"`, `"tired"`} {
			f.Add([]byte(reply(message, stop)))
		}
	}
	f.Add([]byte(`{"error":{"code":429,"message":"busy","metadata":{"raw":"{\"error\":{\"code\":\"slow_down\"}}"}}}`))
	f.Add([]byte(`{"detail":"This model's maximum context length is 10"}`))
}

// FuzzDecode checks that no body makes the decoder panic, and what holds for every
// reply: closed kinds, calls only from a valid reply, an echo that is always valid.
func FuzzDecode(f *testing.F) {
	seeds(f)
	client, err := openai.New(wire.Config{Model: "m"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := openai.Decode(body)
		checkReply(t, got)
		if diff := cmp.Diff(got, openai.Decode(body)); diff != "" {
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
		for _, status := range []int{200, 302, 400, 403, 429, 503} {
			reply, failure := openai.Interpret(wire.Response{
				Status: status, Body: body, ReceivedAt: time.Unix(1790000000, 0),
				Header: http.Header{"Retry-After": {string(body)}, "X-Ratelimit-Reset-Tokens": {string(body)}},
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
