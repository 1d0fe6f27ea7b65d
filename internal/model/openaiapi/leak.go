package openaiapi

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// callMarks are how prompt templates begin a call. A server that does not know the
// template of its model leaves them in the text.
var callMarks = []string{
	"<tool_call>", "<tool_calls>", "<function_call>", "<function=", "<|tool_call|>", "<|tool_call>", "<|python_tag|>",
	"[TOOL_CALLS]", "<｜tool▁calls▁begin｜>", "<minimax:tool_call>", "functools[",
}

// Leaked makes an answer that is nothing but a call of an offered tool, left in the text by
// a server, a decision that is invalid. It never makes a call of it: whether a text is one
// would be a guess, and a tool's result that the model quotes could be made to look like
// it. But it is no answer either, and the model can say it in another way.
func Leaked(decision model.Decision, tools []model.Tool) (model.Decision, bool) {
	if decision.Kind != model.KindFinal || !isCall(strings.TrimSpace(decision.Text), tools) {
		return decision, false
	}
	d := wire.Invalid(model.CodeMalformed, "its text is a tool call: propose it as a tool call, or give the answer in words")
	d.Text = decision.Text
	return d, true
}

func isCall(text string, tools []model.Tool) bool {
	named := func(where string) bool {
		return slices.ContainsFunc(tools, func(t model.Tool) bool { return strings.Contains(where, t.Alias) })
	}
	for _, mark := range callMarks {
		if rest, found := strings.CutPrefix(text, mark); found && named(rest) {
			return true
		}
	}
	return isWritten(withoutFence(text), tools)
}

// withoutFence takes the text out of a block of code.
func withoutFence(text string) string {
	const fence = "```"
	inner, begun := strings.CutPrefix(text, fence)
	inner, ended := strings.CutSuffix(inner, fence)
	if !begun || !ended {
		return text
	}
	return strings.TrimPrefix(inner, "json")
}

// isWritten reports whether a text is the JSON of one call, or of a list of them.
func isWritten(text string, tools []model.Tool) bool {
	written := json.RawMessage(text)
	if !json.Valid(written) {
		return false
	}
	calls, isList := wire.List(written)
	if !isList {
		calls = []json.RawMessage{written}
	}
	for _, raw := range calls {
		call, err := wire.ParseObject(raw)
		if err != nil {
			return false
		}
		if function, err := wire.ParseObject(call.Get("function")); err == nil {
			call = function
		}
		name, _ := call.Text("name")
		offered := slices.ContainsFunc(tools, func(t model.Tool) bool { return t.Alias == name })
		argued := call.Has("arguments") || call.Has("parameters")
		if !offered || !argued {
			return false
		}
	}
	return len(calls) > 0
}
