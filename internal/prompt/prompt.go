// Package prompt projects a run's journal into the request that the model sees. The
// projection is pure and versioned: the exact request of any turn can be rebuilt from
// the journal alone.
package prompt

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// Version of the projection. It changes whenever the same journal would give another
// request, and is recorded with each decision.
const Version = 1

// Project returns the request for the next decision. Messages are only ever appended
// as a run goes on, since providers check or cache the prefix.
func Project(state *journal.State) model.Request {
	run := state.Run
	request := model.Request{
		Decision:        int(state.Turns) + 1,
		System:          run.SystemPrompt,
		Messages:        []model.Message{{Role: model.RoleUser, Text: run.Prompt}},
		MaxOutputTokens: run.Model.MaxOutputTokens,
	}
	for _, tool := range run.Tools {
		request.Tools = append(request.Tools, model.Tool{
			Name: tool.Name, Alias: tool.Alias, Description: tool.Description, InputSchema: tool.InputSchema,
		})
	}
	for i := range state.Transcript {
		request.Messages = appendTurn(request.Messages, &state.Transcript[i], run.MaxToolResultBytes)
	}
	return request
}

// Digest names a request. It covers everything the model sees and nothing of the wire.
func Digest(request model.Request) string {
	data, err := json.Marshal(request)
	if err != nil {
		// Only a schema or reply that is not JSON can bring this about, and both were
		// parsed before they were journalled.
		return ""
	}
	return strictjson.Digest(data)
}

// EstimateTokens is a rough count for budgets, where the provider has not counted yet:
// four bytes to a token, as is usual for English text and JSON.
func EstimateTokens(request model.Request) int64 {
	bytes := len(request.System)
	for _, message := range request.Messages {
		bytes += len(message.Text)
		for _, call := range message.Calls {
			bytes += len(call.Alias) + len(call.Arguments)
		}
	}
	for _, tool := range request.Tools {
		bytes += len(tool.Alias) + len(tool.Description) + len(tool.InputSchema)
	}
	return int64(bytes+3) / 4
}

func appendTurn(messages []model.Message, turn *journal.Turn, limit int32) []model.Message {
	decision := turn.Decision
	if len(decision.Calls) == 0 {
		if decision.Text != "" {
			messages = append(messages, model.Message{Role: model.RoleAssistant, Text: decision.Text, Raw: turn.Part})
		}
		if decision.Kind == journal.DecisionInvalid {
			messages = append(messages, model.Message{Role: model.RoleUser, Text: decision.Problem})
		}
		return messages
	}
	assistant := model.Message{Role: model.RoleAssistant, Text: decision.Text, Raw: turn.Part}
	for _, call := range decision.Calls {
		assistant.Calls = append(assistant.Calls, model.Call{ID: wireID(call), Alias: call.Alias, Arguments: call.Arguments})
	}
	messages = append(messages, assistant)
	for i := range turn.Calls {
		messages = append(messages, resultMessage(&turn.Calls[i], limit))
	}
	return messages
}

// wireID is the id that the provider knows the call by: echoed replies name it.
func wireID(call journal.Call) string {
	if call.ProviderID != "" {
		return call.ProviderID
	}
	return call.ID
}

func resultMessage(call *journal.CallState, limit int32) model.Message {
	message := model.Message{Role: model.RoleTool, CallID: wireID(call.Call), Value: json.RawMessage("null")}
	result := call.Last
	switch {
	case result == nil || !result.Final:
		// A request is only ever made of complete turns; this keeps the projection
		// total and the transcript valid all the same.
		message.Failed, message.Text = true, `{"error":{"class":"not_run"}}`
	case result.Class == classOK:
		message.Value = result.Value
		message.Text = cut(plain(result.Value), limit)
	default:
		message.Failed = true
		message.Text = failure(call, limit)
	}
	if result != nil && result.Repeats > 1 {
		message.Text += fmt.Sprintf("\n[note: the same call has now given the same result %d times; repeating it will end the run]", result.Repeats)
	}
	return message
}

const classOK = "ok"

// plain shows a JSON string as its text and everything else as JSON.
func plain(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err == nil && len(value) > 0 && value[0] == '"' {
		return text
	}
	return string(value)
}

// failure is what the model reads of a call that did not succeed: structured, since
// not every wire has a flag for errors.
func failure(call *journal.CallState, limit int32) string {
	type report struct {
		Class     string          `json:"class"`
		Message   string          `json:"message,omitempty"`
		Retryable bool            `json:"retryable"`
		Attempts  int32           `json:"attempts,omitempty"`
		Effect    string          `json:"effect,omitempty"`
		Detail    json.RawMessage `json:"detail,omitempty"`
	}
	result := call.Last
	detail := result.Value
	if len(detail) > int(limit) {
		detail, _ = json.Marshal(cut(string(detail), limit))
	}
	text, err := json.Marshal(map[string]report{"error": {
		Class: result.Class, Message: result.Message, Retryable: result.Retryable,
		Attempts: call.Attempt, Effect: result.Effect, Detail: detail,
	}})
	if err != nil {
		return `{"error":{"class":"` + result.Class + `"}}`
	}
	return string(text)
}

// cut bounds a text at a rune boundary and says in it what is missing.
func cut(text string, limit int32) string {
	if len(text) <= int(limit) {
		return text
	}
	end := int(limit)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s\n[cut: the first %d of %d bytes]", text[:end], end, len(text))
}
