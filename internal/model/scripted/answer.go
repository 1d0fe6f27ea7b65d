package scripted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// answer turns a step into what a provider would have answered.
func (s step) answer(request model.Request) (model.Reply, *model.Error) {
	switch {
	case s.Status != 0:
		return openai.Interpret(wire.Response{Status: s.Status}, request)
	case len(s.Raw) > 0:
		return openai.Interpret(wire.Response{Status: http.StatusOK, Body: s.Raw}, request)
	case s.final != nil:
		return finalExpression(s, request)
	case s.Final != "":
		return final(s.Final, request), nil
	case s.Question != "":
		return calls([]ToolCall{builtIn(askTool, "question", s.Question)}, request), nil
	case s.CannotContinue != "":
		return calls([]ToolCall{builtIn(cannotContinueTool, "reason", s.CannotContinue)}, request), nil
	default:
		return calls(s.ToolCalls, request), nil
	}
}

func final(text string, request model.Request) model.Reply {
	return model.Reply{
		Decision:   model.Decision{Kind: model.KindFinal, Text: text},
		StopReason: "stop",
		Usage:      usage(request, len(text)),
	}
}

func builtIn(tool, member, text string) ToolCall {
	return ToolCall{Tool: tool, Arguments: compactJSON(map[string]string{member: text})}
}

// calls proposes calls under the names that the model was offered.
func calls(proposed []ToolCall, request model.Request) model.Reply {
	aliases := make(map[string]string, len(request.Tools))
	for _, t := range request.Tools {
		aliases[t.Name] = t.Alias
	}
	decision := model.Decision{Kind: model.KindCalls}
	written := 0
	for i, p := range proposed {
		call := model.Call{ID: fmt.Sprintf("call_%d_%d", request.Decision, i), Alias: p.Tool, Arguments: "{}"}
		if alias := aliases[p.Tool]; alias != "" {
			call.Alias = alias
		}
		if len(p.Arguments) > 0 {
			call.Arguments = string(p.Arguments)
		}
		written += len(call.Alias) + len(call.Arguments)
		decision.Calls = append(decision.Calls, call)
	}
	return model.Reply{Decision: decision, StopReason: "tool_calls", Usage: usage(request, written)}
}

// finalExpression evaluates the step over the results of the last batch. A text is
// the answer itself, any other value is written as JSON.
func finalExpression(s step, request model.Request) (model.Reply, *model.Error) {
	value, err := s.final.Eval(map[string]any{"results": results(request.Messages)})
	if err != nil {
		return model.Reply{}, &model.Error{
			Class: model.ClassRequest, Code: "script_expression_failed",
			Detail: fmt.Sprintf("finalExpression of step %d: %v", request.Decision, err),
		}
	}
	text, ok := value.(string)
	if !ok {
		text = string(compactJSON(value))
	}
	if text == "" {
		return model.Reply{
			Decision: model.Decision{
				Kind: model.KindInvalid, Code: model.CodeEmpty,
				Problem: "the reply was empty: give an answer, or propose a tool call",
			},
			StopReason: "stop",
			Usage:      usage(request, 0),
		}, nil
	}
	return final(text, request), nil
}

// results are the values of the last batch, in call order; null for a failed call.
// They stand after the last assistant message that was answered by a tool.
func results(messages []model.Message) []any {
	values := []any{}
	start := 0
	for i := 1; i < len(messages); i++ {
		if messages[i-1].Role == model.RoleAssistant && messages[i].Role == model.RoleTool {
			start = i
		}
	}
	for _, m := range messages[start:] {
		if m.Role == model.RoleTool {
			values = append(values, value(m))
		}
	}
	return values
}

func value(m model.Message) any {
	if m.Failed || len(m.Value) == 0 {
		return nil
	}
	// Numbers keep their text, so that a large integer stays what it is.
	decoder := json.NewDecoder(bytes.NewReader(m.Value))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return nil
	}
	return v
}

// compactJSON renders a JSON value as people would write it, with < and > as they are.
func compactJSON(v any) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		// What expressions give, and maps of strings, always encode.
		return json.RawMessage("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// usage counts tokens as a quarter of the text, so that budgets move in scripted runs
// and always in the same way.
func usage(request model.Request, written int) model.Usage {
	read := len(request.System)
	for _, m := range request.Messages {
		read += len(m.Text)
		for _, c := range m.Calls {
			read += len(c.Alias) + len(c.Arguments)
		}
	}
	for _, t := range request.Tools {
		read += len(t.Alias) + len(t.Description) + len(t.InputSchema)
	}
	return model.Usage{InputTokens: tokens(read), OutputTokens: tokens(written), Reported: true}
}

// tokens is never 0, since no request and no reply is free.
func tokens(written int) int64 { return int64(written/4 + 1) }
