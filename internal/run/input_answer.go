package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// continuation is what a call was given, or is about to be: an attempt that is repeated is
// repeated with it. nil for nothing.
func continuation(call *journal.CallState) *Continuation {
	in := call.Input()
	if in == nil {
		return nil
	}
	c := &Continuation{Asked: tool.Input{State: in.Asked.State}, Answers: given(call)}
	for _, q := range in.Asked.Questions {
		c.Asked.Questions = append(c.Asked.Questions, tool.Question{Key: q.Key, Message: q.Message, Schema: q.Schema})
	}
	return c
}

// given are the answers to what a call asked last.
func given(call *journal.CallState) []tool.Answer {
	in := call.Input()
	action := tool.ActionDecline
	if in.Answer == nil || in.Answer.Expired {
		action = tool.ActionCancel
	}
	if in.Answer != nil && !in.Refused && !in.Answer.Expired {
		if answers, err := readAnswers(in.Asked.Questions, in.Answer.Text); err == nil {
			return answers
		}
	}
	var answers []tool.Answer
	for _, q := range in.Asked.Questions {
		answers = append(answers, tool.Answer{Key: q.Key, Action: action})
	}
	return answers
}

// answersOf are the members that were given, by question, for rules.
func answersOf(answers []tool.Answer) map[string]any {
	members := map[string]any{}
	for _, answer := range answers {
		if answer.Action != tool.ActionAccept {
			continue
		}
		if content, err := strictjson.Object(answer.Content, strictjson.Limits{}); err == nil {
			members[answer.Key] = content
		}
	}
	return members
}

// readAnswers reads what a person said: for one question the members of its answer, or the
// value of its only member; for several an object of such answers by key, null for none.
func readAnswers(questions []journal.InputQuestion, text string) ([]tool.Answer, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == decline {
		answers := make([]tool.Answer, 0, len(questions))
		for _, q := range questions {
			answers = append(answers, tool.Answer{Key: q.Key, Action: tool.ActionDecline})
		}
		return answers, nil
	}
	if len(questions) == 1 {
		answer, err := readAnswer(questions[0], trimmed)
		return []tool.Answer{answer}, err
	}
	if _, err := strictjson.Object([]byte(trimmed), strictjson.Limits{}); err != nil {
		return nil, err
	}
	var byKey map[string]json.RawMessage
	if err := json.Unmarshal([]byte(trimmed), &byKey); err != nil {
		return nil, err
	}
	if len(byKey) != len(questions) {
		return nil, fmt.Errorf("there are %d answers to %d questions", len(byKey), len(questions))
	}
	var answers []tool.Answer
	for _, q := range questions {
		answer, err := readAnswer(q, string(byKey[q.Key]))
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func readAnswer(q journal.InputQuestion, text string) (tool.Answer, error) {
	if text == "null" {
		return tool.Answer{Key: q.Key, Action: tool.ActionDecline}, nil
	}
	content := []byte(text)
	if _, err := strictjson.Object(content, strictjson.Limits{}); err != nil {
		content = onlyMember(q.Schema, text)
	}
	schema, err := jsonschema.CompileObject(q.Schema)
	if err == nil {
		err = schema.ValidateJSON(content)
	}
	if err != nil {
		return tool.Answer{}, fmt.Errorf("the answer does not fit: %w", err)
	}
	return tool.Answer{Key: q.Key, Action: tool.ActionAccept, Content: content}, nil
}

// onlyMember makes an answer of a bare value, where the schema has one member.
func onlyMember(schema json.RawMessage, text string) []byte {
	fields := fieldsOf(schema)
	if len(fields) != 1 {
		return []byte(text)
	}
	value := []byte(text)
	if fields[0].Type == "string" {
		value = jsonString(text)
	}
	return fmt.Appendf(nil, "{%s:%s}", jsonString(fields[0].name), value)
}
