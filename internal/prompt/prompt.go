// Package prompt projects a run's journal into the request that the model sees. The
// projection is pure and versioned: the exact request of any turn can be rebuilt from
// the journal alone.
package prompt

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// Version of the projection. It changes whenever the same journal would give another
// request, and is recorded with each decision.
//
// 2 names the conversation to the provider, tells older turns in the first message once
// the conversation was shortened, and says how to read what was cut. 3 leaves summaries the
// room of any other reply.
const Version = 3

// Project returns the request for the next decision. Messages are only ever appended
// as a run goes on, since providers check or cache the prefix. Where the journal says
// that the conversation was shortened, it begins anew: one message tells what came
// before, and no part that the provider bound to an earlier prefix is sent again.
func Project(state *journal.State) model.Request {
	run := state.Run
	request := model.Request{
		Decision:        int(state.Turns) + 1,
		System:          run.SystemPrompt,
		Messages:        []model.Message{{Role: model.RoleUser, Text: run.Prompt + told(state)}},
		MaxOutputTokens: run.Model.MaxOutputTokens,
	}
	if run.Projection >= 2 {
		request.Conversation = conversation(state.UID)
	}
	for _, tool := range run.Tools {
		request.Tools = append(request.Tools, model.Tool{
			Name: tool.Name, Alias: tool.Alias, Description: tool.Description, InputSchema: tool.InputSchema,
		})
	}
	for i := range state.Transcript {
		if int32(i) >= state.Context.Through {
			request.Messages = appendTurn(request.Messages, &state.Transcript[i], showing(state))
		}
	}
	return request
}

// Rebuild returns the request that an event is the answer to: a decision or a summary.
// The state is that before the event. ok is false for any other event.
func Rebuild(state *journal.State, answer journal.Payload) (request model.Request, ok bool) {
	lowered := int32(0)
	switch a := answer.(type) {
	case journal.DecisionMade:
		request, lowered = Project(state), a.MaxOutputTokens
	case journal.ContextSummarised:
		request, lowered = Summarise(state, a.Through), a.MaxOutputTokens
	default:
		return model.Request{}, false
	}
	if lowered > 0 {
		request.MaxOutputTokens = lowered
	}
	return request, true
}

// conversation names a run to its provider without saying which run it is.
func conversation(uid string) string {
	digest := strictjson.Digest([]byte("pawl.run/conversation\n" + uid))
	return "pawl-" + digest[len("sha256:"):][:32]
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

// What the wires wrap around each message, call and tool, in bytes, roughly.
const (
	messageBytes = 16
	callBytes    = 48
	toolBytes    = 32
)

// EstimateTokens is a rough count for budgets, where the provider has not counted yet:
// four bytes to a token, as is usual for English text and JSON.
func EstimateTokens(request model.Request) int64 {
	bytes := len(request.System)
	for _, message := range request.Messages {
		bytes += messageBytes + len(message.Text)
		for _, call := range message.Calls {
			bytes += callBytes + len(call.Alias) + len(call.Arguments)
		}
	}
	for _, tool := range request.Tools {
		bytes += toolBytes + len(tool.Alias) + len(tool.Description) + len(tool.InputSchema)
	}
	return int64(bytes+3) / 4
}

func appendTurn(messages []model.Message, turn *journal.Turn, limits show) []model.Message {
	decision := turn.Decision
	if len(decision.Calls) == 0 {
		if decision.Text != "" || decision.Kind == journal.DecisionPaused {
			messages = append(messages, model.Message{Role: model.RoleAssistant, Text: decision.Text, Raw: turn.Part})
		}
		if decision.Kind == journal.DecisionInvalid {
			messages = append(messages, model.Message{Role: model.RoleUser, Text: decision.Problem})
		}
		if len(turn.Reported) > 0 {
			messages = append(messages, model.Message{Role: model.RoleUser, Text: reportText(turn, limits)})
		}
		return messages
	}
	assistant := model.Message{Role: model.RoleAssistant, Text: decision.Text, Raw: turn.Part}
	for _, call := range decision.Calls {
		assistant.Calls = append(assistant.Calls, model.Call{ID: wireID(call), Alias: call.Alias, Arguments: call.Arguments})
	}
	messages = append(messages, assistant)
	for i := range turn.Calls {
		messages = append(messages, resultMessage(&turn.Calls[i], limits))
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
