package mcptool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Codes of JSON-RPC and MCP errors that say that nothing ran.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeResourceNotFound   = -32002
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// nothingRan are the codes by which a server refuses a call before the tool runs.
var nothingRan = []int64{codeParse, codeInvalidRequest, codeMethodNotFound, codeInvalidParams, codeResourceNotFound,
	codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion}

// JSON-RPC 2.0 section 5.1 leaves these to implementations for errors of the server: a gateway
// before a tool uses them as well as the one that ran it.
const (
	minServerError = -32099
	maxServerError = -32000
)

// outcome says what an answer means for the call.
func (v *visit) outcome(ctx context.Context, call tool.Call, o *offer, a answer, current *session) tool.Outcome {
	var own fault
	var large *largeError
	switch {
	case a.sending == nil:
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Message: "not sent: the request can't be built; nothing was done"}
	case a.resp == nil:
		return transport.Failed(ctx, call, a.sending, a.err)
	case a.status() == http.StatusNotFound && current.id != "":
		v.forget(current)
		return forgetful(call)
	case a.status() < 200 || a.status() > 299:
		return refusedOutcome(call, a)
	case ctx.Err() == nil && errors.As(a.err, &large):
		return largeOutcome(call, large)
	case ctx.Err() == nil && errors.As(a.err, &own):
		return unknown(call, "the server answered, but "+own.Error())
	case a.err != nil:
		return transport.Lost(ctx, call, a.err)
	case a.failure != nil:
		return protocolError(call, a)
	}
	out := v.result(call, o, a.result)
	out.Receipt = transport.Receipt(a.resp.Header)
	return out
}

func unknown(call tool.Call, message string) tool.Outcome {
	return tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: call.Repeatable, Message: message + "; nobody knows whether the call took effect"}
}

// forgetful is the outcome of a call to a server that keeps losing its sessions.
func forgetful(call tool.Call) tool.Outcome {
	return tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: call.Repeatable,
		Message: "the server does not know the session that it has just opened (HTTP 404); nothing was done"}
}

// refusedOutcome is the outcome of a status that is no success.
func refusedOutcome(call tool.Call, a answer) tool.Outcome {
	out := transport.Status(call, a.sending, a.resp, transport.ToValue(a.body, transport.Bound(call)))
	out.Embedded = []string{"error.message", "error.data"}
	if a.code() == codeMissingCapability && out.Class == tool.ClassRejected {
		out.Message = "the server refused the call, since it may ask for more than this operator can give, such as input on the way; nothing was done; use another tool, or do without"
	}
	return out
}

// largeOutcome is the outcome of an answer that is larger than is read. Where it begins as
// a result the tool ran.
func largeOutcome(call tool.Call, large *largeError) tool.Outcome {
	if !large.result {
		return unknown(call, "the server answered, but "+large.Error())
	}
	value := transport.Beginning(large.beginning, int64(maxAnswerBytes), transport.Bound(call))
	return tool.Outcome{
		Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: true, Size: value.Size,
		Message: "the tool ran, but its answer is too large to be read, so that nobody knows whether it succeeded; the beginning of it follows; ask for less",
	}
}

// protocolError is the outcome of a JSON-RPC error in an answer that is a success
// for HTTP.
func protocolError(call tool.Call, a answer) tool.Outcome {
	value := bounded(a.failure, transport.Bound(call))
	out := tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size,
		Embedded: []string{"message", "data"}}
	switch code := a.code(); {
	case slices.Contains(nothingRan, code):
		out.Class, out.Effect = tool.ClassRejected, tool.EffectRejected
		out.Message = fmt.Sprintf("the server refused the call (JSON-RPC error %d); nothing was done; change the arguments as its answer says, or use another tool", code)
	case code == codeInternal || code >= minServerError && code <= maxServerError:
		out.Effect, out.Retryable = tool.EffectUnknown, call.Repeatable
		out.Message = fmt.Sprintf("the server failed (JSON-RPC error %d); nobody knows whether the call took effect", code)
	default:
		out.Message = fmt.Sprintf("the tool failed (JSON-RPC error %d); see its answer", code)
	}
	return out
}
