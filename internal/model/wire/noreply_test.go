package wire_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// TestNoReply checks that what something on the way answers with a status of success is
// trouble that passes, and no mistake of the model.
func TestNoReply(t *testing.T) {
	page := "<!doctype html><html>log in</html>"
	for name, test := range map[string]struct {
		status      int
		contentType string
		// body of the answer, made of a reply.
		body func(reply []byte) []byte
		want string
	}{
		"no content":             {204, "", func([]byte) []byte { return nil }, "no_reply"},
		"nothing":                {200, "application/json", func([]byte) []byte { return nil }, "no_reply"},
		"white space":            {200, "application/json", func([]byte) []byte { return []byte("\n \n") }, "no_reply"},
		"a page":                 {200, "text/html; charset=utf-8", func([]byte) []byte { return []byte(page) }, "no_json"},
		"a page that says JSON":  {200, "application/json", func([]byte) []byte { return []byte(page) }, "no_json"},
		"words":                  {200, "text/plain", func([]byte) []byte { return []byte("upstream connect error") }, "no_json"},
		"a stream":               {200, "text/event-stream", func(r []byte) []byte { return append([]byte("data: "), r...) }, "no_json"},
		"a reply cut at once":    {200, "application/json", func(r []byte) []byte { return r[:1] }, "reply_cut"},
		"a reply cut in half":    {200, "application/json", func(r []byte) []byte { return r[:len(r)/2] }, "reply_cut"},
		"a reply without an end": {200, "", func(r []byte) []byte { return r[:len(r)-1] }, "reply_cut"},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, a adapter) {
				header := http.Header{"Retry-After": {"3"}}
				if test.contentType != "" {
					header.Set("Content-Type", test.contentType)
				}
				body := test.body(fakemodel.Body(a.wire, fakemodel.Text("42")))
				client := a.client(t, wire.Config{Endpoint: "https://models.example.com", Transport: answers(test.status, header, body)})
				_, err := client.Decide(t.Context(), question())
				failure := asError(t, err)
				if failure.Class != model.ClassTransient || failure.Code != test.want || failure.Status != test.status || !failure.Sent || failure.RetryAfter != 3*time.Second {
					t.Errorf("got %+v, want code %s", failure, test.want)
				}
			})
		})
	}
}

// TestReplyAllTheSame checks replies that only look like no reply.
func TestReplyAllTheSame(t *testing.T) {
	for name, test := range map[string]struct{ contentType, before, after string }{
		"a byte order mark":     {"application/json", "\xef\xbb\xbf", ""},
		"blank lines before it": {"application/json", "\n\n  \n", "\n"},
		"called a text":         {"text/plain", "", ""},
		"called a page":         {"text/html", "", ""},
		"called nothing":        {"", "", ""},
		"called by nonsense":    {";;", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, a adapter) {
				body := append(append([]byte(test.before), fakemodel.Body(a.wire, fakemodel.Text("42"))...), test.after...)
				client := a.client(t, wire.Config{Endpoint: "https://models.example.com", Transport: answers(200, http.Header{"Content-Type": {test.contentType}}, body)})
				got, err := client.Decide(t.Context(), question())
				if err != nil || got.Decision.Kind != model.KindFinal || got.Decision.Text != "42" {
					t.Errorf("got %+v, %v", got.Decision, err)
				}
			})
		})
	}
}

// TestMarkedErrors checks that an error is read behind a byte order mark.
func TestMarkedErrors(t *testing.T) {
	onEach(t, func(t *testing.T, a adapter) {
		body := "\xef\xbb\xbf" + `{"error":{"message":"prompt is too long"}}`
		if failure := failing(t, a, http.StatusBadRequest, body); failure.Class != model.ClassOverflow {
			t.Errorf("got %+v", failure)
		}
	})
}

// TestStillMalformed checks that JSON which is no reply stays a mistake that the model is
// told of, and so do words that a server calls JSON.
func TestStillMalformed(t *testing.T) {
	for _, body := range []string{"{}", "null", "[1]", `"text"`, "not JSON", `{"a":1}}`, `{"a":}`} {
		onEach(t, func(t *testing.T, a adapter) {
			client := a.client(t, wire.Config{Endpoint: "https://models.example.com", Transport: answers(200, http.Header{"Content-Type": {"application/json"}}, []byte(body))})
			got, err := client.Decide(t.Context(), question())
			if err != nil || got.Decision.Code != model.CodeMalformed {
				t.Errorf("%s: got %+v, %v", body, got.Decision, err)
			}
		})
	}
}
