package openai

import (
	"encoding/json"
	"net/http"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Interpret turns a response to a request into a reply, or into an error that has
// already reached the provider. The request supplies the call ids and the limit that
// the reply is read against.
func Interpret(response wire.Response, request model.Request) (model.Reply, *model.Error) {
	var f fault
	status := response.Status
	success := response.Success()
	if response.TooLarge {
		return wire.TooLarge(), nil
	}
	if success {
		embedded := embeddedError(response.Body)
		if embedded == nil {
			return interpretReply(response, request), nil
		}
		f = faultOf(embedded)
		status = f.effectiveStatus()
	} else {
		f = readFault(response.Body)
	}
	if decision, ok := f.decision(status); ok {
		return model.Reply{Decision: decision, StopReason: f.cleanCode(), RequestID: response.RequestID()}, nil
	}
	e := &model.Error{
		Class:  f.classify(status),
		Status: response.Status,
		Code:   f.cleanCode(),
		Sent:   true,
		Detail: "the provider answered with an error",
	}
	if success {
		e.Detail = "the provider reported an error in place of a reply"
	}
	wire.WaitOut(e, response)
	return model.Reply{}, e
}

func interpretReply(response wire.Response, request model.Request) model.Reply {
	reply := decode(response.Body, wire.UsedIDs(request.Messages))
	if id := response.RequestID(); id != "" {
		reply.RequestID = id
	}
	// Without a stop reason, a reply as long as was allowed is one that was cut.
	if reply.StopReason == "" && reply.Decision.Kind == model.KindFinal &&
		reply.Usage.Reported && reply.Usage.OutputTokens >= int64(request.MaxOutputTokens) && request.MaxOutputTokens > 0 {
		reply.Decision, reply.Raw = wire.CutOff(reply.Decision.Text), nil
	}
	return reply
}

// embeddedError finds the error that some routers send with a success status, at the
// top or in the choice it interrupted. Nil for none.
func embeddedError(body []byte) json.RawMessage {
	if !json.Valid(body) {
		return nil
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return nil
	}
	if value := top.Get("error"); isError(value) {
		return value
	}
	var list []json.RawMessage
	if json.Unmarshal(top.Get("choices"), &list) != nil || len(list) == 0 {
		return nil
	}
	first, err := wire.ParseObject(list[0])
	if err != nil {
		return nil
	}
	if value := first.Get("error"); isError(value) {
		return value
	}
	return nil
}

// isError tells an error from the empty values that stand for none.
func isError(value json.RawMessage) bool {
	if members, err := wire.ParseObject(value); err == nil {
		return len(members) > 0
	}
	var text string
	return json.Unmarshal(value, &text) == nil && text != ""
}

// decision is what an error body says about the model rather than about the request:
// a call that the server could not parse, or input that a filter refused. Both are
// the run's own story and no reason to ask again.
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
