package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/scripted"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func newClient(t *testing.T, steps ...scripted.Step) *scripted.Client {
	t.Helper()
	client, err := scripted.New(steps)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// offered are the tools of every request here.
var offered = []model.Tool{
	{Name: "profiles.lookup", Alias: "profiles_lookup"},
	{Name: "ask", Alias: "ask"},
	{Name: "cannot_continue", Alias: "cannot_continue"},
}

func request(decision int, messages ...model.Message) model.Request {
	all := append([]model.Message{{Role: model.RoleUser, Text: "Go."}}, messages...)
	return model.Request{Decision: decision, Messages: all, Tools: offered, MaxOutputTokens: 100}
}

func decide(t *testing.T, client *scripted.Client, r model.Request) model.Reply {
	t.Helper()
	reply, err := client.Decide(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !reply.Usage.Reported || reply.Usage.InputTokens < 1 || reply.Usage.OutputTokens < 1 {
		t.Errorf("usage %+v", reply.Usage)
	}
	again, err := client.Decide(t.Context(), r)
	if diff := cmp.Diff(reply, again); diff != "" || err != nil {
		t.Errorf("the same request was answered in two ways (%v):\n%s", err, diff)
	}
	return reply
}

func TestDecide(t *testing.T) {
	tests := map[string]struct {
		step scripted.Step
		want model.Decision
	}{
		"a final answer": {scripted.Step{Final: "42"}, model.Decision{Kind: model.KindFinal, Text: "42"}},
		"calls": {
			scripted.Step{ToolCalls: []scripted.ToolCall{
				{Tool: "profiles.lookup", Arguments: json.RawMessage(`{"key": "<a>"}`)},
				{Tool: "profiles.lookup"},
				{Tool: "profiles.unknown", Arguments: json.RawMessage(`[]`)},
			}},
			model.Decision{Kind: model.KindCalls, Calls: []model.Call{
				{ID: "call_1_0", Alias: "profiles_lookup", Arguments: `{"key": "<a>"}`},
				{ID: "call_1_1", Alias: "profiles_lookup", Arguments: `{}`},
				{ID: "call_1_2", Alias: "profiles.unknown", Arguments: `[]`},
			}},
		},
		"a question": {
			scripted.Step{Question: `Which "one"?`},
			model.Decision{Kind: model.KindCalls, Calls: []model.Call{{ID: "call_1_0", Alias: "ask", Arguments: `{"question":"Which \"one\"?"}`}}},
		},
		"giving up": {
			scripted.Step{CannotContinue: "No access."},
			model.Decision{Kind: model.KindCalls, Calls: []model.Call{{ID: "call_1_0", Alias: "cannot_continue", Arguments: `{"reason":"No access."}`}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(t, newClient(t, test.step), request(1))
			if diff := cmp.Diff(test.want, got.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideAnswersByDecision(t *testing.T) {
	client := newClient(t, scripted.Step{Final: "one"}, scripted.Step{Final: "two"})
	for decision, want := range map[int]string{2: "two", 1: "one"} {
		if got := decide(t, client, request(decision)); got.Decision.Text != want {
			t.Errorf("decision %d: got %q, want %q", decision, got.Decision.Text, want)
		}
	}
	for _, decision := range []int{-1, 0, 3} {
		_, err := client.Decide(t.Context(), request(decision))
		var failure *model.Error
		if !errors.As(err, &failure) || failure.Class != model.ClassRequest || failure.Code != "script_exhausted" || failure.Sent {
			t.Errorf("decision %d: got %v", decision, err)
		}
	}
}

// batch is an assistant message with calls and its results.
func batch(values ...model.Message) []model.Message {
	messages := []model.Message{{Role: model.RoleAssistant, Calls: []model.Call{{ID: "x"}}}}
	for _, v := range values {
		v.Role = model.RoleTool
		messages = append(messages, v)
	}
	return messages
}

func TestFinalExpression(t *testing.T) {
	older := batch(model.Message{Value: json.RawMessage(`"old"`)})
	last := batch(
		model.Message{Value: json.RawMessage(`{"value":"gold","n":9007199254740993}`)},
		model.Message{Value: json.RawMessage(`"error"`), Failed: true},
		model.Message{Value: json.RawMessage(`[1,2.5,"<x>"]`)},
	)
	conversation := append(older, last...)
	feedback := append(conversation, model.Message{Role: model.RoleAssistant, Text: "No."}, model.Message{Role: model.RoleUser, Text: "Try again."})
	tests := map[string]struct {
		expression string
		messages   []model.Message
		want       string
	}{
		"a text":              {`"profile=" + results[0].value`, conversation, "profile=gold"},
		"a large integer":     {`results[0].n`, conversation, "9007199254740993"},
		"null for a failure":  {`results[1] == null`, conversation, "true"},
		"a list":              {`results[2]`, conversation, `[1,2.5,"<x>"]`},
		"an object":           {`{"b": results[2][0], "a": 1}`, conversation, `{"a":1,"b":1}`},
		"the number of them":  {`size(results)`, conversation, "3"},
		"after feedback":      {`results[0].value`, feedback, "gold"},
		"no results":          {`size(results)`, nil, "0"},
		"a result left empty": {`results[0] == null`, batch(model.Message{}), "true"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(t, newClient(t, scripted.Step{FinalExpression: test.expression}), request(1, test.messages...))
			if got.Decision.Kind != model.KindFinal || got.Decision.Text != test.want {
				t.Errorf("got %+v, want %q", got.Decision, test.want)
			}
		})
	}
}

func TestFinalExpressionFails(t *testing.T) {
	client := newClient(t, scripted.Step{FinalExpression: `results[0].secret`})
	_, err := client.Decide(t.Context(), request(1, batch(model.Message{Value: json.RawMessage(`{"value":"hidden"}`)})...))
	var failure *model.Error
	if !errors.As(err, &failure) || failure.Class != model.ClassRequest || failure.Code != "script_expression_failed" {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(failure.Error(), "hidden") {
		t.Errorf("the error holds a result: %v", failure)
	}
	empty := decide(t, newClient(t, scripted.Step{FinalExpression: `""`}), request(1))
	if empty.Decision.Kind != model.KindInvalid || empty.Decision.Code != model.CodeEmpty {
		t.Errorf("an empty answer is %+v", empty.Decision)
	}
}

func TestRaw(t *testing.T) {
	body := `{"choices":[{"message":{"role":"assistant","content":"42"},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	got := decide(t, newClient(t, scripted.Step{Raw: json.RawMessage(body)}), request(1))
	if diff := cmp.Diff(openai.Decode([]byte(body)), got); diff != "" {
		t.Errorf("raw is read in another way than a provider's reply:\n%s", diff)
	}
	client := newClient(t, scripted.Step{Raw: json.RawMessage(`{"error":{"code":429}}`)})
	_, err := client.Decide(t.Context(), request(1))
	var failure *model.Error
	if !errors.As(err, &failure) || failure.Class != model.ClassThrottled {
		t.Errorf("a raw error: got %v", err)
	}
}

func TestStatus(t *testing.T) {
	for status := 400; status < 600; status++ {
		client := newClient(t, scripted.Step{Status: status})
		for range 2 {
			_, err := client.Decide(t.Context(), request(1))
			var got *model.Error
			if !errors.As(err, &got) {
				t.Fatalf("status %d: got %v", status, err)
			}
			_, want := openai.Interpret(wire.Response{Status: status}, request(1))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status %d is classified in another way than a provider's:\n%s", status, diff)
			}
		}
	}
}

func TestDelay(t *testing.T) {
	var asked time.Duration
	stopped := false
	never := make(chan time.Time)
	fired := make(chan time.Time, 1)
	fired <- time.Time{}
	timer := func(channel chan time.Time) scripted.Option {
		return scripted.WithAfter(func(d time.Duration) (<-chan time.Time, func()) {
			asked = d
			return channel, func() { stopped = true }
		})
	}
	steps := []scripted.Step{{Final: "late", Delay: time.Hour}}

	client, err := scripted.New(steps, timer(fired))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := client.Decide(t.Context(), request(1)); err != nil || got.Decision.Text != "late" || asked != time.Hour || !stopped {
		t.Errorf("got %+v, %v after asking for %s (stopped %v)", got, err, asked, stopped)
	}

	ctx, cancel := context.WithCancel(t.Context())
	client, err = scripted.New(steps, scripted.WithAfter(func(time.Duration) (<-chan time.Time, func()) {
		cancel()
		return never, func() {}
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Decide(ctx, request(1))
	var failure *model.Error
	if !errors.As(err, &failure) || failure.Class != model.ClassCanceled || !failure.Sent {
		t.Errorf("ended while waiting: got %v", err)
	}
	_, err = newClient(t, scripted.Step{Final: "42"}).Decide(ctx, request(1))
	if !errors.As(err, &failure) || failure.Class != model.ClassCanceled || failure.Sent {
		t.Errorf("ended before: got %v", err)
	}
}

func TestRealDelay(t *testing.T) {
	client := newClient(t, scripted.Step{Final: "42", Delay: time.Millisecond})
	if _, err := client.Decide(t.Context(), request(1)); err != nil {
		t.Fatal(err)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, step := range map[string]scripted.Step{
		"nothing":                    {},
		"a delay alone":              {Delay: time.Second},
		"two things":                 {Final: "42", Question: "Which?"},
		"a status that is no error":  {Status: 200},
		"a negative delay":           {Final: "42", Delay: -1},
		"a call of nothing":          {ToolCalls: []scripted.ToolCall{{}}},
		"arguments that are cut":     {ToolCalls: []scripted.ToolCall{{Tool: "a.b", Arguments: json.RawMessage(`{`)}}},
		"an expression with a typo":  {FinalExpression: `resluts[0]`},
		"an expression without end":  {FinalExpression: `results[`},
		"an expression with nothing": {FinalExpression: ` `},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scripted.New([]scripted.Step{{Final: "fine"}, step})
			if err == nil || !strings.Contains(err.Error(), "step 2") {
				t.Errorf("got error %v", err)
			}
		})
	}
}
