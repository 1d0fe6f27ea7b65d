package openaiapi

import (
	"encoding/json"
	"net/http"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Failed reads a response whose status is no success: an error that has already reached
// the provider, or what it says about the model rather than about the request.
func Failed(response wire.Response) (model.Reply, *model.Error) {
	return readFault(response.Body).judge(response, response.Status, "the provider answered with an error")
}

// FailedWithin reads the error inside a response whose status is one of success, as
// routers send it, and the vendor for a reply that failed on the way.
func FailedWithin(response wire.Response, value json.RawMessage) (model.Reply, *model.Error) {
	f := faultOf(value)
	return f.judge(response, f.effectiveStatus(), "the provider reported an error in place of a reply")
}

func (f fault) judge(response wire.Response, status int, detail string) (model.Reply, *model.Error) {
	if decision, ok := f.decision(status); ok {
		return model.Reply{Decision: decision, StopReason: f.cleanCode(), RequestID: response.RequestID()}, nil
	}
	e := &model.Error{
		Class:  f.classify(status),
		Status: response.Status,
		Code:   f.cleanCode(),
		Sent:   true,
		Detail: detail,
	}
	wire.WaitOut(e, response)
	return model.Reply{}, e
}

// decision is what an error body says about the model rather than about the request: a
// call that the server could not parse, or input that a filter refused. Both are the
// run's own story and no reason to ask again.
func (f fault) decision(status int) (model.Decision, bool) {
	if status < 400 || status >= 500 {
		return model.Decision{}, false
	}
	switch {
	case f.says(modelFaultCodes):
		d := wire.Invalid(model.CodeMalformed, "its tool call did not have the form that the server parses")
		d.Text = f.failed
		return d, true
	case f.says(refusalCodes), f.moderated && status == http.StatusForbidden:
		return model.Decision{Kind: model.KindRefused}, true
	default:
		return model.Decision{}, false
	}
}

// IsError tells an error from the empty values that stand for none.
func IsError(value json.RawMessage) bool {
	if members, err := wire.ParseObject(value); err == nil {
		return len(members) > 0
	}
	var text string
	return json.Unmarshal(value, &text) == nil && text != ""
}
