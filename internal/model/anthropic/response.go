package anthropic

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Interpret turns a response to a request into a reply, or into an error that has already
// reached the provider. The request supplies the call ids and the limit that the reply is
// read against.
func Interpret(response wire.Response, request model.Request) (model.Reply, *model.Error) {
	if response.TooLarge {
		return wire.TooLarge(), nil
	}
	if response.Success() {
		if failure := wire.NoReply(response); failure != nil {
			return model.Reply{}, failure
		}
		if !isError(response.Body) {
			return interpretReply(response, request), nil
		}
	}
	f := readFault(response)
	id := requestID(response)
	if id == "" {
		id = f.requestID
	}
	status := response.Status
	detail := answeredWithError
	if response.Success() {
		status, detail = f.effectiveStatus(), "the provider reported an error in place of a reply"
	}
	if f.refuses(status) {
		return model.Reply{Decision: model.Decision{Kind: model.KindRefused}, StopReason: f.cleanCode(), RequestID: id}, nil
	}
	if id != "" {
		detail += ", request " + id
	}
	e := &model.Error{Class: f.classify(status), Status: response.Status, Code: f.cleanCode(), Sent: true, Detail: detail}
	waitOut(e, response)
	return model.Reply{}, e
}

const answeredWithError = "the provider answered with an error"

// requestID prefers the provider's own header to those that proxies add.
func requestID(response wire.Response) string {
	if id := wire.SupportID(response.Header.Get("Request-Id")); id != "" {
		return id
	}
	return response.RequestID()
}

func interpretReply(response wire.Response, request model.Request) model.Reply {
	reply := decode(response.Body, wire.UsedIDs(request.Messages))
	if id := requestID(response); id != "" {
		reply.RequestID = id
	}
	// Without a stop reason, a reply as long as was allowed is one that was cut.
	if reply.StopReason == "" && reply.Decision.Kind == model.KindFinal &&
		reply.Usage.Reported && reply.Usage.OutputTokens >= int64(request.MaxOutputTokens) && request.MaxOutputTokens > 0 {
		reply.Decision, reply.Raw = wire.CutOff(reply.Decision.Text), nil
	}
	return reply
}

// isError tells an error that came with a success status, as some routers send it.
func isError(body []byte) bool {
	if !json.Valid(body) {
		return false
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return false
	}
	kind, _ := top.Text("type")
	return kind == "error" || (top.Get("error") != nil && !top.Has("content"))
}
