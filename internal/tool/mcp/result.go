package mcptool

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// result is the outcome of a reply to tools/call.
func (v *visit) result(call tool.Call, o *offer, r map[string]any) tool.Outcome {
	switch kind := r["resultType"]; kind {
	case nil, "complete":
		return completed(call, o, r)
	case "input_required":
		return v.inputRequired(r)
	case "task":
		return v.created(call, r)
	default:
		return unknown(call, "the server answered with a type of result that is not supported")
	}
}

// completed is the outcome of a complete result.
func completed(call tool.Call, o *offer, r map[string]any) tool.Outcome {
	value, listed, ok := resultValue(r, call.IncludeBinary)
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
	if listed {
		out.Embedded = []string{"text", "data"}
	}
	if r["isError"] == true {
		out.Class = tool.ClassToolError
		out.Message = "the tool ran and reports an error; see its answer"
	} else if problem := misfit(o, r); problem != "" {
		out.Class = tool.ClassToolError
		out.Message = "the tool ran, but its result does not fit its own output schema (" + problem + "); see its answer, and don't rely on it"
	}
	return out
}

// misfit says what of a result is not as the tool's output schema promises.
func misfit(o *offer, r map[string]any) string {
	if o.output == nil {
		return ""
	}
	structured, has := r["structuredContent"]
	if !has {
		return "it has no structured content"
	}
	schema, err := jsonschema.Compile(o.output)
	if err == nil {
		err = schema.Validate(structured)
	}
	if err != nil {
		return cutText(err.Error(), maxReasonBytes)
	}
	return ""
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
// null for no content, and otherwise the list of contents, which listed says.
func resultValue(r map[string]any, binary bool) (value any, listed, ok bool) {
	if structured, has := r["structuredContent"]; has && structured != nil {
		return structured, false, true
	}
	contents, ok := r["content"].([]any)
	if !ok {
		return nil, false, false
	}
	items := make([]any, len(contents))
	for i, content := range contents {
		members, ok := content.(map[string]any)
		if !ok {
			return nil, false, false
		}
		items[i] = reduce(members, binary)
	}
	switch len(items) {
	case 0:
		return nil, false, true
	case 1:
		item := items[0].(map[string]any)
		if text, ok := item["text"].(string); ok && item["type"] == "text" {
			return text, false, true
		}
	}
	return items, true, true
}

// reduce keeps text and replaces everything else by what identifies it, or adds that where
// binary content is wanted.
func reduce(content map[string]any, binary bool) map[string]any {
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
	if binary {
		out["data"] = base64.StdEncoding.EncodeToString(data)
	}
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
