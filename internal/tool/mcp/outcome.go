package mcptool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/strictjson"
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

// outcome says what an answer means for the call.
func outcome(ctx context.Context, call tool.Call, a answer) tool.Outcome {
	var own fault
	switch {
	case a.sending == nil:
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Message: "not sent: the request can't be built; nothing was done"}
	case a.resp == nil:
		return transport.Failed(ctx, call, a.sending, a.err)
	case a.status() < 200 || a.status() > 299:
		return transport.Status(call, a.sending, a.resp, transport.ToValue(a.body, transport.Bound(call)))
	case ctx.Err() == nil && errors.As(a.err, &own):
		return unknown(call, "the server answered, but "+own.Error())
	case a.err != nil:
		return transport.Lost(ctx, call, a.err)
	case a.failure != nil:
		return protocolError(call, a)
	}
	out := result(call, a.result)
	out.Receipt = transport.Receipt(a.resp.Header)
	return out
}

func unknown(call tool.Call, message string) tool.Outcome {
	return tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: call.Repeatable, Message: message + "; nobody knows whether the call took effect"}
}

// protocolError is the outcome of a JSON-RPC error in an answer that is a success
// for HTTP.
func protocolError(call tool.Call, a answer) tool.Outcome {
	value := bounded(a.failure, transport.Bound(call))
	out := tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size}
	switch code := a.code(); code {
	case codeParse, codeInvalidRequest, codeMethodNotFound, codeInvalidParams, codeResourceNotFound,
		codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion:
		out.Class, out.Effect = tool.ClassRejected, tool.EffectRejected
		out.Message = fmt.Sprintf("the server refused the call (JSON-RPC error %d); nothing was done; change the arguments as its answer says, or use another tool", code)
	case codeInternal:
		out.Effect, out.Retryable = tool.EffectUnknown, call.Repeatable
		out.Message = fmt.Sprintf("the server failed (JSON-RPC error %d); nobody knows whether the call took effect", code)
	default:
		out.Message = fmt.Sprintf("the tool failed (JSON-RPC error %d); see its answer", code)
	}
	return out
}

// result is the outcome of a reply to tools/call.
func result(call tool.Call, r map[string]any) tool.Outcome {
	switch kind := r["resultType"]; kind {
	case nil, "complete":
	case "input_required":
		return tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Message: "the tool needs input, which is not supported; give it everything in the arguments, or use another tool"}
	case "task":
		return unknown(call, "the server turned the call into a task, which is not supported")
	default:
		return unknown(call, "the server answered with a type of result that is not supported")
	}
	value, ok := resultValue(r)
	if !ok {
		return unknown(call, "the server answered, but "+errUnreadable.Error())
	}
	bound := transport.Bound(call)
	var kept transport.Value
	if text, ok := value.(string); ok {
		kept = transport.TextValue(text, bound)
	} else {
		kept = bounded(value, bound)
	}
	out := tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: kept.JSON, Truncated: kept.Truncated, Size: kept.Size}
	if r["isError"] == true {
		out.Class = tool.ClassToolError
		out.Message = "the tool ran and reports an error; see its answer"
	}
	return out
}

// bounded is a value that is not a string.
func bounded(value any, bound int) transport.Value {
	text := strictjson.Canonical(value)
	if len(text) > bound {
		return transport.Beginning(text, int64(len(text)), bound)
	}
	return transport.Value{JSON: json.RawMessage(text)}
}

// resultValue is structured content where there is some, the text of a single text,
// null for no content, and otherwise the list of contents.
func resultValue(r map[string]any) (any, bool) {
	if structured, ok := r["structuredContent"]; ok && structured != nil {
		return structured, true
	}
	contents, ok := r["content"].([]any)
	if !ok {
		return nil, false
	}
	items := make([]any, len(contents))
	for i, content := range contents {
		members, ok := content.(map[string]any)
		if !ok {
			return nil, false
		}
		items[i] = reduce(members)
	}
	switch len(items) {
	case 0:
		return nil, true
	case 1:
		item := items[0].(map[string]any)
		if text, ok := item["text"].(string); ok && item["type"] == "text" {
			return text, true
		}
	}
	return items, true
}

// reduce keeps text and replaces everything else by what identifies it.
func reduce(content map[string]any) map[string]any {
	kind, _ := content["type"].(string)
	if kind == "text" {
		text, _ := content["text"].(string)
		return map[string]any{"type": "text", "text": text}
	}
	out := map[string]any{"type": kind}
	from := content
	if resource, ok := content["resource"].(map[string]any); ok && kind == "resource" {
		from = resource
	}
	for _, name := range []string{"mimeType", "uri", "name"} {
		if text, ok := from[name].(string); ok {
			out[name] = text
		}
	}
	if text, ok := from["text"].(string); ok && kind == "resource" {
		out["text"] = text
		return out
	}
	if kind == "resource_link" {
		return out
	}
	data := payload(from)
	out["bytes"], out["digest"] = len(data), strictjson.Digest(data)
	return out
}

// payload is the decoded data of an image, audio or blob, or the content's own text
// where there is none.
func payload(content map[string]any) []byte {
	for _, name := range []string{"data", "blob"} {
		text, ok := content[name].(string)
		if !ok {
			continue
		}
		text = strings.TrimRight(text, "=")
		if data, err := base64.RawStdEncoding.DecodeString(text); err == nil {
			return data
		}
		if data, err := base64.RawURLEncoding.DecodeString(text); err == nil {
			return data
		}
		return []byte(text)
	}
	return strictjson.Canonical(content)
}

// cutText shortens text at a rune boundary.
func cutText(text string, max int) string {
	return strings.ToValidUTF8(text[:max], "")
}
