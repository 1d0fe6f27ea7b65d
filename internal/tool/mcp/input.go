package mcptool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

const (
	maxQuestions     = 16
	maxKeyBytes      = 256
	maxMessageBytes  = 4 << 10
	maxQuestionBytes = 16 << 10
	maxStateBytes    = 64 << 10
)

var _ tool.Continuer = (*Server)(nil)

// Continue implements tool.Continuer.
func (s *Server) Continue(ctx context.Context, call tool.Call, asked tool.Input, answers []tool.Answer) tool.Outcome {
	more, err := responses(asked, answers)
	if err != nil {
		return tool.Outcome{Class: tool.ClassValidation, Effect: tool.EffectRejected, Message: "not sent: " + err.Error()}
	}
	if asked.State != nil {
		more["requestState"] = *asked.State
	}
	return s.call(ctx, call, more)
}

// responses builds the answers as a server wants them: one for each question, and each
// fitting its schema.
func responses(asked tool.Input, answers []tool.Answer) (map[string]any, error) {
	given := map[string]any{}
	for _, question := range asked.Questions {
		at := slices.IndexFunc(answers, func(a tool.Answer) bool { return a.Key == question.Key })
		if at < 0 {
			return nil, fmt.Errorf("the question %q has no answer", strictjson.Preview([]byte(question.Key), 40))
		}
		one, err := response(question, answers[at])
		if err != nil {
			return nil, fmt.Errorf("the answer to the question %q can't be sent: %w", strictjson.Preview([]byte(question.Key), 40), err)
		}
		given[question.Key] = one
	}
	if len(given) != len(answers) {
		return nil, fmt.Errorf("there are %d answers to %d questions", len(answers), len(given))
	}
	if len(given) == 0 {
		return map[string]any{}, nil
	}
	return map[string]any{"inputResponses": given}, nil
}

func response(question tool.Question, answer tool.Answer) (map[string]any, error) {
	switch answer.Action {
	case tool.ActionDecline, tool.ActionCancel:
		return map[string]any{"action": answer.Action}, nil
	case tool.ActionAccept:
	default:
		return nil, fmt.Errorf("its action is none of accept, decline and cancel")
	}
	schema, err := jsonschema.CompileObject(question.Schema)
	if err != nil {
		return nil, err
	}
	if err := schema.ValidateJSON(answer.Content); err != nil {
		return nil, err
	}
	return map[string]any{"action": answer.Action, "content": answer.Content}, nil
}

// inputRequired is the outcome of a result that asks for input: by the server's own word
// the call is not done before it is sent again with that.
func (v *visit) inputRequired(r map[string]any) tool.Outcome {
	if !v.capabilities().Elicitation {
		return tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Message: "the tool needs input, which is not supported; give it everything in the arguments, or use another tool"}
	}
	input, err := readInput(r)
	if err != nil {
		return tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectRejected,
			Message: "the tool asks for input before it goes on, but " + err.Error() + "; nothing was done; give it everything in the arguments, or use another tool"}
	}
	return tool.Outcome{Class: tool.ClassInputRequired, Effect: tool.EffectRejected, Input: input, Message: "the tool waits for input"}
}

// readInput reads what a server wants to know.
func readInput(r map[string]any) (*tool.Input, error) {
	input := &tool.Input{}
	if given, has := r["requestState"]; has {
		state, ok := given.(string)
		if !ok || len(state) > maxStateBytes {
			return nil, faultf("its state is not a text of at most %d bytes", maxStateBytes)
		}
		input.State = &state
	}
	requests, isObject := r["inputRequests"].(map[string]any)
	switch {
	case r["inputRequests"] != nil && !isObject:
		return nil, errUnreadable
	case len(requests) > maxQuestions:
		return nil, faultf("it has more than %d questions", maxQuestions)
	case len(requests) == 0 && input.State == nil:
		return nil, fault("it asks nothing")
	}
	for _, key := range slices.Sorted(maps.Keys(requests)) {
		question, err := readQuestion(key, requests[key])
		if err != nil {
			return nil, err
		}
		input.Questions = append(input.Questions, question)
	}
	return input, nil
}

// readQuestion takes questions to people in the form of a few plain values, which is all
// that was declared. Neither models nor folders nor web pages are asked.
func readQuestion(key string, request any) (tool.Question, error) {
	members, _ := request.(map[string]any)
	params, _ := members["params"].(map[string]any)
	mode, hasMode := params["mode"]
	message, _ := params["message"].(string)
	if members["method"] != "elicitation/create" || hasMode && mode != "form" || len(key) > maxKeyBytes || message == "" {
		return tool.Question{}, fault("not of people, or not in a form that is supported")
	}
	schema := json.RawMessage(strictjson.Canonical(params["requestedSchema"]))
	if len(schema) > maxQuestionBytes {
		return tool.Question{}, faultf("the schema of an answer has more than %d bytes", maxQuestionBytes)
	}
	if _, err := jsonschema.CompileObject(schema); err != nil {
		return tool.Question{}, fault("the schema of an answer can't be used")
	}
	if !plainMembers(params["requestedSchema"]) {
		return tool.Question{}, fault("an answer is to have members that are not plain values")
	}
	return tool.Question{Key: key, Message: cutText(message, maxMessageBytes), Schema: schema}, nil
}

// plainMembers says whether every member of an object is a text, a number, a truth value
// or a list of texts, so that a person can give it in one line.
func plainMembers(schema any) bool {
	members, _ := schema.(map[string]any)
	properties, _ := members["properties"].(map[string]any)
	for _, property := range properties {
		one, _ := property.(map[string]any)
		switch one["type"] {
		case "string", "number", "integer", "boolean":
		case "array":
			items, _ := one["items"].(map[string]any)
			if items["type"] != "string" && items["enum"] == nil && items["anyOf"] == nil && items["oneOf"] == nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}
