package openai

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Interpret turns a response to a request into a reply, or into an error that has
// already reached the provider. The request supplies the call ids and the limit that
// the reply is read against.
func Interpret(response wire.Response, request model.Request) (model.Reply, *model.Error) {
	switch {
	case response.TooLarge:
		return wire.TooLarge(), nil
	case !response.Success():
		return openaiapi.Failed(response)
	}
	if failure := wire.NoReply(response); failure != nil {
		return model.Reply{}, failure
	}
	if embedded := embeddedError(response.Body); embedded != nil {
		return openaiapi.FailedWithin(response, embedded)
	}
	return interpretReply(response, request), nil
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
	if decision, leaked := openaiapi.Leaked(reply.Decision, request.Tools); leaked {
		reply.Decision, reply.Raw = decision, nil
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
	if value := top.Get("error"); openaiapi.IsError(value) {
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
	if value := first.Get("error"); openaiapi.IsError(value) {
		return value
	}
	return nil
}
