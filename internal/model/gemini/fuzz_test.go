package gemini_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func seeds(f *testing.F) {
	for _, body := range fakemodel.Garbage(fakemodel.Gemini) {
		f.Add(body)
	}
	for _, content := range []string{
		said(answer), said(thinking, answer), said(callA, callB), said(callA, callA), rawCalls,
		said(`{"text":""}`, plainCall, `{"functionCall":{"name":"a/b","args":"{\"x\":[1,2]}"},"thoughtSignature":"c2ln"}`),
		said(`{"functionCall":{"name":"lookup","args":[1],"id":7,"willContinue":null}}`),
		said(`{"functionCall":{"name":"lookup","Args":"0"},"Text":1}`),
		`{"parts":null}`, `null`,
	} {
		for _, stop := range []string{"", `"STOP"`, `"FUNCTION_CALL"`, `"MAX_TOKENS"`, `"SAFETY"`, `"MALFORMED_FUNCTION_CALL"`, `"TIRED"`} {
			f.Add([]byte(reply(content, stop)))
		}
	}
	f.Add([]byte(`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}`))
	f.Add([]byte(fault("RESOURCE_EXHAUSTED", "The input token count exceeds", perDay, retrySoon, badKey)))
	f.Add([]byte(`[` + fault("UNAVAILABLE", "", `{"@type":"google.rpc.RetryInfo","retryDelay":{"seconds":3}}`) + `]`))
}

// FuzzDecode checks that no body makes the decoder panic, and what holds for every
// reply: closed kinds, calls only from a valid reply, an echo that is always valid and
// that can be continued with a result for each call.
func FuzzDecode(f *testing.F) {
	seeds(f)
	client, err := gemini.New(wire.Config{Model: "m"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := gemini.Decode(body)
		checkReply(t, got)
		if diff := cmp.Diff(got, gemini.Decode(body)); diff != "" {
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
			reply, failure := gemini.Interpret(wire.Response{
				Status: status, Body: body, ReceivedAt: time.Unix(1790000000, 0),
				Header: http.Header{"Retry-After": {string(body)}},
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
