package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// byteOrderMark stands in front of what some servers write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// NoReply finds what has a status of success and is no reply of any model: the page of a
// proxy, a stream that nobody asked for, a body that is missing or was cut on the way. It
// is trouble of the transport, and the model has nothing to learn from it. Nil for a
// reply, and for a body of which it can't be told.
func NoReply(response Response) *model.Error {
	body := bytes.TrimSpace(response.Body)
	e := &model.Error{Class: model.ClassTransient, Status: response.Status, Sent: true}
	switch {
	case json.Valid(body):
		return nil
	case len(body) == 0:
		e.Code, e.Detail = "no_reply", "the answer had a status of success and no content"
	case cut(body):
		e.Code, e.Detail = "reply_cut", "the answer ended in the middle"
	case body[0] == '<' || isOther(response.Header.Get("Content-Type")):
		e.Code, e.Detail = "no_json", "the answer had a status of success and was no JSON: something between here and the provider may have answered"
	default:
		return nil
	}
	WaitOut(e, response)
	return e
}

// cut reports whether a body begins like JSON and breaks off.
func cut(body []byte) bool {
	if body[0] != '{' && body[0] != '[' {
		return false
	}
	var whole json.RawMessage
	return errors.Is(json.NewDecoder(bytes.NewReader(body)).Decode(&whole), io.ErrUnexpectedEOF)
}

// isOther reports whether a content type is one of something else than JSON.
func isOther(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && !strings.HasSuffix(kind, "json")
}
