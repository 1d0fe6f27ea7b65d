package responses

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Interpret turns a response to a request into a reply, or into an error that has already
// reached the provider. The request supplies the ids and the limit that the reply is read
// against.
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
	status, fault := failure(response.Body)
	switch {
	case fault != nil:
		return failedWithin(response, fault)
	case status == statusFailed:
		return failedWithin(response, json.RawMessage(`{}`))
	case status == statusCancelled, status == statusQueued, status == statusInProgress:
		e := unfinished(response, status)
		e.Usage = usageOf(response.Body)
		return model.Reply{}, e
	}
	return interpretReply(response, request), nil
}

// failedWithin reads the error inside a response, and what the reply that failed has cost.
func failedWithin(response wire.Response, fault json.RawMessage) (model.Reply, *model.Error) {
	reply, e := openaiapi.FailedWithin(response, fault)
	if e != nil {
		e.Usage = usageOf(response.Body)
		return reply, e
	}
	reply.Usage = usageOf(response.Body)
	return reply, nil
}

// usageOf reads the token counts of a body that holds no reply.
func usageOf(body []byte) model.Usage {
	top, err := wire.ParseObject(body)
	if err != nil {
		return model.Usage{}
	}
	return readUsage(top.Get("usage"))
}

// unfinished is a reply that the provider did not finish, and that nobody will fetch. The
// model has done nothing wrong, so it may be asked again.
func unfinished(response wire.Response, status string) *model.Error {
	e := &model.Error{
		Class: model.ClassTransient, Status: response.Status, Code: status, Sent: true,
		Detail: "the provider did not finish the reply",
	}
	wire.WaitOut(e, response)
	return e
}

func interpretReply(response wire.Response, request model.Request) model.Reply {
	reply := decode(response.Body, pastOf(request.Messages))
	if id := response.RequestID(); id != "" {
		reply.RequestID = id
	}
	// Without a status, a reply as long as was allowed is one that was cut.
	if reply.StopReason == "" && reply.Decision.Kind == model.KindFinal &&
		reply.Usage.Reported && reply.Usage.OutputTokens >= int64(request.MaxOutputTokens) && request.MaxOutputTokens > 0 {
		reply.Decision, reply.Raw = wire.CutOff(reply.Decision.Text), nil
	}
	if decision, leaked := openaiapi.Leaked(reply.Decision, request.Tools); leaked {
		reply.Decision, reply.Raw = decision, nil
	}
	return reply
}

// failure finds the status of a reply, and the error in its place: the vendor's, for a
// reply that failed on the way, or that of a router. Nil for none.
func failure(body []byte) (status string, fault json.RawMessage) {
	if !json.Valid(body) {
		return "", nil
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return "", nil
	}
	status, _ = top.Text("status")
	if value := top.Get("error"); openaiapi.IsError(value) {
		return status, value
	}
	return status, nil
}
