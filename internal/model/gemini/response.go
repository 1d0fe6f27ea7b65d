package gemini

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Interpret turns a response to a request into a reply, or into an error that has
// already reached the provider. The request supplies the call ids that the reply is read
// against.
func Interpret(response wire.Response, request model.Request) (model.Reply, *model.Error) {
	if response.TooLarge {
		return wire.TooLarge(), nil
	}
	status, detail := response.Status, "the provider answered with an error"
	var f fault
	if response.Success() {
		if failure := wire.NoReply(response); failure != nil {
			return model.Reply{}, failure
		}
		embedded := embeddedError(response.Body)
		if embedded == nil {
			return interpretReply(response, request), nil
		}
		f = faultOf(embedded)
		status, detail = f.effectiveStatus(), "the provider reported an error in place of a reply"
	} else {
		f = readFault(response.Body)
	}
	e := &model.Error{
		Class:  f.classify(status),
		Status: response.Status,
		Code:   f.cleanCode(),
		Sent:   true,
		Detail: detail,
	}
	wire.WaitOut(e, response)
	if e.Class == model.ClassThrottled || e.Class == model.ClassTransient {
		e.RetryAfter = max(e.RetryAfter, f.wait)
	}
	return model.Reply{}, e
}

func interpretReply(response wire.Response, request model.Request) model.Reply {
	reply := decode(response.Body, wire.UsedIDs(request.Messages))
	if id := response.RequestID(); id != "" {
		reply.RequestID = id
	}
	return reply
}

// embeddedError finds the error that some gateways send with a success status. Nil for
// none.
func embeddedError(body []byte) json.RawMessage {
	if !json.Valid(body) {
		return nil
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return nil
	}
	value := top.Get("error")
	if members, err := wire.ParseObject(value); err == nil && len(members) > 0 {
		return value
	}
	var text string
	if json.Unmarshal(value, &text) == nil && text != "" {
		return value
	}
	return nil
}
