package openai_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// quirk is something that a compatible server does and the vendor does not.
type quirk struct {
	// message and stop are what the server says, as JSON text; stop "" is left out.
	message, stop string
	// usage is the report, as JSON text; "" for an ordinary one, "-" for none.
	usage string
	// want is what is made of it. A call with the id "*" has to be given one.
	want model.Decision
	// echo is the message as the next request repeats it, "" for unchanged. "*" stands for
	// the ids given, in their order.
	echo string
	// estimated is true where nothing that was reported can be believed.
	estimated bool
}

// calling is an assistant message with calls of the function "lookup", each given by its
// other members.
func calling(members ...string) string {
	var calls []string
	for _, m := range members {
		calls = append(calls, `{`+m+`}`)
	}
	return withCalls(calls...)
}

const (
	lookupA = `"type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}`
	lookupB = `"type":"function","function":{"name":"lookup","arguments":"{\"key\":\"b\"}"}`
	done    = `"stop"`
	called  = `"tool_calls"`
)

func callsOf(ids ...string) model.Decision {
	d := model.Decision{Kind: model.KindCalls}
	for i, id := range ids {
		d.Calls = append(d.Calls, model.Call{ID: id, Alias: "lookup", Arguments: fmt.Sprintf(`{"key":"%c"}`, 'a'+i)})
	}
	return d
}

// argued is the decision to call with these arguments.
func argued(arguments string) model.Decision {
	return model.Decision{Kind: model.KindCalls, Calls: []model.Call{{ID: "x", Alias: "lookup", Arguments: arguments}}}
}

func lookup(arguments string) string {
	return `"id":"x","type":"function","function":{"name":"lookup"` + arguments + `}`
}

func says(text string) model.Decision { return model.Decision{Kind: model.KindFinal, Text: text} }

func noReply(code, text string) model.Decision {
	return model.Decision{Kind: model.KindInvalid, Code: code, Text: text}
}

// leak is a message of nothing but text, which was meant to be a call.
func leak(text string) quirk {
	return quirk{message: `{"role":"assistant","content":` + string(wire.Quote(text)) + `}`, stop: done, want: noReply(model.CodeMalformed, strings.TrimSpace(text))}
}

// words is a message of text that only looks like a call.
func words(text string) quirk {
	return quirk{message: `{"role":"assistant","content":` + string(wire.Quote(text)) + `}`, stop: done, want: says(text)}
}

// quirks by what the server does; who was seen doing it is in front.
var quirks = map[string]quirk{
	"llama.cpp: empty ids":          {message: calling(`"id":"",`+lookupA, `"id":"",`+lookupB), stop: called, want: callsOf("*", "*"), echo: calling(`"id":"*",`+lookupA, `"id":"*",`+lookupB)},
	"Ollama: no ids":                {message: calling(lookupA, lookupB), stop: called, want: callsOf("*", "*"), echo: calling(lookupA+`,"id":"*"`, lookupB+`,"id":"*"`)},
	"null ids":                      {message: calling(`"id":null,` + lookupA), stop: called, want: callsOf("*"), echo: calling(`"id":"*",` + lookupA)},
	"blank ids":                     {message: calling(`"id":" ",` + lookupA), stop: called, want: callsOf("*"), echo: calling(`"id":"*",` + lookupA)},
	"ids that are numbers":          {message: calling(`"id":0,`+lookupA, `"id":1,`+lookupB), stop: called, want: callsOf("*", "*"), echo: calling(`"id":"*",`+lookupA, `"id":"*",`+lookupB)},
	"one id of two is missing":      {message: calling(`"id":"x",`+lookupA, lookupB), stop: called, want: callsOf("x", "*"), echo: calling(`"id":"x",`+lookupA, lookupB+`,"id":"*"`)},
	"one id for two calls":          {message: calling(`"id":"x",`+lookupA, `"id":"x",`+lookupB), stop: called, want: noReply(model.CodeDuplicateIDs, "")},
	"Mistral: ids of nine letters":  {message: calling(`"id":"D681PevKs",` + lookupA), stop: called, want: callsOf("D681PevKs")},
	"the same id in every turn":     {message: calling(`"id":"used",` + lookupA), stop: called, want: callsOf("*"), echo: calling(`"id":"*",` + lookupA)},
	"Ollama: index always 0":        {message: calling(`"index":0,"id":"x",`+lookupA, `"index":0,"id":"y",`+lookupB), stop: called, want: callsOf("x", "y")},
	"index in another order":        {message: calling(`"index":1,"id":"x",`+lookupA, `"index":0,"id":"y",`+lookupB), stop: called, want: callsOf("x", "y")},
	"index null":                    {message: calling(`"index":null,"id":"x",` + lookupA), stop: called, want: callsOf("x")},
	"a call without type":           {message: calling(strings.Replace(`"id":"x",`+lookupA, `"type":"function",`, "", 1)), stop: called, want: callsOf("x"), echo: calling(strings.Replace(`"id":"x",`+lookupA, `"type":"function",`, "", 1) + `,"type":"function"`)},
	"LM Studio: a call of no name":  {message: calling(`"id":"","type":"function","function":{"name":"","arguments":"{}"}`), stop: called, want: noReply(model.CodeMalformed, "")},
	"llama.cpp: arguments, object":  {message: calling(lookup(`,"arguments":{"key": "<a>"}`)), stop: called, want: argued(`{"key": "<a>"}`), echo: calling(lookup(`,"arguments":"{\"key\": \"<a>\"}"`))},
	"arguments that are empty":      {message: calling(lookup(`,"arguments":""`)), stop: called, want: argued(""), echo: calling(lookup(`,"arguments":"{}"`))},
	"arguments of white space":      {message: calling(lookup(`,"arguments":" \n"`)), stop: called, want: argued(" \n"), echo: calling(lookup(`,"arguments":"{}"`))},
	"arguments null":                {message: calling(lookup(`,"arguments":null`)), stop: called, want: argued(""), echo: calling(lookup(`,"arguments":"{}"`))},
	"no arguments":                  {message: calling(lookup(``)), stop: called, want: argued(""), echo: calling(lookup(`,"arguments":"{}"`))},
	"llama.cpp: arguments, broken":  {message: calling(lookup(`,"arguments":"{\"key\""`)), stop: called, want: argued(`{"key"`), echo: calling(lookup(`,"arguments":"{\"unreadable_arguments\":\"{\\\"key\\\"\"}"`))},
	"arguments that are a list":     {message: calling(lookup(`,"arguments":["a"]`)), stop: called, want: argued(`["a"]`), echo: calling(lookup(`,"arguments":"{\"unreadable_arguments\":\"[\\\"a\\\"]\"}"`))},
	"a name with a prefix":          {message: calling(`"id":"x","type":"function","function":{"name":"functions.lookup","arguments":"{}"}`), stop: called, want: model.Decision{Kind: model.KindCalls, Calls: []model.Call{{ID: "x", Alias: "functions.lookup", Arguments: "{}"}}}, echo: calling(`"id":"x","type":"function","function":{"name":"functions_lookup","arguments":"{}"}`)},
	"vLLM: stop with calls":         {message: calling(`"id":"x",` + lookupA), stop: done, want: callsOf("x")},
	"calls and no stop reason":      {message: calling(`"id":"x",` + lookupA), stop: "", want: callsOf("x")},
	"calls and the old stop reason": {message: calling(`"id":"x",` + lookupA), stop: `"function_call"`, want: callsOf("x")},
	"vLLM: calls announced, none":   {message: `{"role":"assistant","content":"","tool_calls":[]}`, stop: called, want: noReply(model.CodeEmpty, "")},
	"vLLM: an empty list of calls":  {message: `{"role":"assistant","content":"42","tool_calls":[]}`, stop: done, want: says("42"), echo: `{"role":"assistant","content":"42"}`},
	"null calls":                    {message: `{"role":"assistant","content":"42","tool_calls":null}`, stop: done, want: says("42"), echo: `{"role":"assistant","content":"42"}`},
	"a refusal of white space":      {message: `{"role":"assistant","content":"42","refusal":" "}`, stop: done, want: says("42")},
	"null beside an answer":         {message: `{"role":"assistant","content":"42","refusal":null,"function_call":null,"audio":null}`, stop: done, want: says("42")},
	"null content":                  {message: `{"role":"assistant","content":null}`, stop: done, want: noReply(model.CodeEmpty, "")},
	"empty content":                 {message: `{"role":"assistant","content":""}`, stop: done, want: noReply(model.CodeEmpty, "")},
	"no content":                    {message: `{"role":"assistant"}`, stop: done, want: noReply(model.CodeEmpty, "")},
	"empty content beside calls":    {message: strings.Replace(calling(`"id":"x",`+lookupA), "null", `""`, 1), stop: called, want: callsOf("x")},
	"content in parts":              {message: `{"role":"assistant","content":[{"type":"text","text":"4"},{"type":"text","text":"2"}]}`, stop: done, want: says("42")},
	"content in texts":              {message: `{"role":"assistant","content":["4","2"]}`, stop: done, want: says("42")},
	"Mistral: thoughts in parts":    {message: `{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"42"}]}`, stop: done, want: says("42")},
	"parts of nothing":              {message: `{"role":"assistant","content":[]}`, stop: done, want: noReply(model.CodeEmpty, "")},
	"no role":                       {message: `{"content":"42"}`, stop: done, want: says("42"), echo: `{"content":"42","role":"assistant"}`},
	"no stop reason":                {message: `{"role":"assistant","content":"42"}`, stop: "", want: says("42")},
	"a null stop reason":            {message: `{"role":"assistant","content":"42"}`, stop: "null", want: says("42")},
	"a stop reason of its own":      {message: `{"role":"assistant","content":"42"}`, stop: `"tired"`, want: noReply(model.CodeUnknownStop, "42")},
	"Together AI: eos":              {message: `{"role":"assistant","content":"42"}`, stop: `"eos"`, want: says("42")},
	"Together AI: eos with calls":   {message: calling(`"id":"x",` + lookupA), stop: `"eos"`, want: callsOf("x")},
	"TGI: a token for the end":      {message: `{"role":"assistant","content":"42"}`, stop: `"eos_token"`, want: says("42")},
	"TGI: a stop sequence":          {message: `{"role":"assistant","content":"42"}`, stop: `"stop_sequence"`, want: says("42")},
	"Z.AI: a full context":          {message: `{"role":"assistant","content":"4"}`, stop: `"model_context_window_exceeded"`, want: model.Decision{Kind: model.KindOverflow, Text: "4"}},
	"Z.AI: a full context, a call":  {message: calling(`"id":"x",` + lookupA), stop: `"model_context_window_exceeded"`, want: model.Decision{Kind: model.KindOverflow}},
	"reasoning":                     {message: `{"role":"assistant","content":"42","reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text"}]}`, stop: done, want: says("42")},
	"reasoning_content alone":       {message: `{"role":"assistant","content":"","reasoning_content":"Hm."}`, stop: done, want: noReply(model.CodeEmpty, "")},
	"members of its own":            {message: `{"role":"assistant","content":"42","tool_responses":null,"stop_token":7}`, stop: done, want: says("42")},

	"no usage":               {message: `{"role":"assistant","content":"42"}`, stop: done, usage: "-", want: says("42"), estimated: true},
	"null usage":             {message: `{"role":"assistant","content":"42"}`, stop: done, usage: "null", want: says("42"), estimated: true},
	"usage of zeros":         {message: `{"role":"assistant","content":"42"}`, stop: done, usage: `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, want: says("42"), estimated: true},
	"usage of the reply":     {message: `{"role":"assistant","content":"42"}`, stop: done, usage: `{"completion_tokens":3}`, want: says("42"), estimated: true},
	"usage without details":  {message: `{"role":"assistant","content":"42"}`, stop: done, usage: `{"prompt_tokens":9,"completion_tokens":3}`, want: says("42")},
	"xAI: thoughts in total": {message: `{"role":"assistant","content":"42"}`, stop: done, usage: `{"prompt_tokens":9,"completion_tokens":3,"total_tokens":20,"completion_tokens_details":{"reasoning_tokens":8}}`, want: says("42")},

	"vLLM: a call of Hermes in the text":  leak("<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"key\": \"a\"}}\n</tool_call>"),
	"a call of Qwen's coder in the text":  leak("<tool_call>\n<function=lookup>\n<parameter=key>\na\n</parameter>\n</function>\n</tool_call>"),
	"a call of Llama in the text":         leak(`<|python_tag|>{"type":"function","name":"lookup","parameters":{"key":"a"}}`),
	"a call of Groq's Llama in the text":  leak(`<function=lookup>{"key":"a"}</function>`),
	"a call of Mistral in the text":       leak(`[TOOL_CALLS] [{"name": "lookup", "arguments": {"key": "a"}}]`),
	"a call of DeepSeek in the text":      leak("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n```json\n{}\n```"),
	"a call as JSON in the text":          leak("\n{\"name\": \"lookup\", \"parameters\": {\"key\": \"a\"}}\n"),
	"a call as the wire has it, as text":  leak(`{"id":"x","type":"function","function":{"name":"lookup","arguments":"{}"}}`),
	"two calls as JSON in the text":       leak(`[{"name":"lookup","arguments":{}},{"name":"lookup","arguments":{"key":"a"}}]`),
	"a call in a block of code":           leak("```json\n{\"name\": \"lookup\", \"arguments\": {}}\n```"),
	"words before what looks like a call": words(`I would call <tool_call>{"name": "lookup", "arguments": {}}</tool_call>.`),
	"JSON that names no tool":             words(`{"name":"Ann","arguments":{"for":"peace"}}`),
	"JSON that names a tool":              words(`{"name":"lookup","version":2}`),
	"JSON of nothing":                     words(`[]`),
	"JSON of something else beside calls": words(`[{"name":"lookup","arguments":{}},{"name":"Ann","arguments":{}}]`),
	"a call of nobody's tool":             words(`<tool_call>{"name": "rm", "arguments": {}}</tool_call>`),
	"a mark alone":                        words(`<tool_call>`),
}

// TestCompatibleServers plays each quirk: what the reply is taken for, what is charged, and
// that a server which refuses what the vendor refuses accepts the conversation that goes
// on from it.
func TestCompatibleServers(t *testing.T) {
	for name, q := range quirks {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{AllowUnknownPrefix: true})
			server.Enqueue(fakemodel.Raw([]byte(q.body())), fakemodel.Text("done"))
			client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m"})
			request := begunConversation()
			got, err := client.Decide(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			checkReply(t, got)
			if got.Usage.Reported == q.estimated {
				t.Errorf("got usage %+v", got.Usage)
			}
			given := q.check(t, got)
			if got.Raw == nil {
				return
			}
			echo := q.echo
			if echo == "" {
				echo = q.message
			}
			for _, id := range given {
				echo = strings.Replace(echo, `"*"`, `"`+id+`"`, 1)
			}
			if diff := cmp.Diff(echo, string(got.Raw)); diff != "" {
				t.Errorf("echo (-want +got):\n%s", diff)
			}
			request.Messages = append(request.Messages, next(got).Messages[1:]...)
			request.Messages = append(request.Messages, model.Message{Role: model.RoleUser, Text: "Go on."})
			if _, err := client.Decide(t.Context(), request); err != nil {
				t.Errorf("%v: %v", err, server.Refusals())
			}
		})
	}
}

func (q quirk) body() string {
	body := reply(q.message, q.stop)
	const ordinary = `,"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}`
	switch q.usage {
	case "":
		return body
	case "-":
		return strings.Replace(body, ordinary, "", 1)
	default:
		return strings.Replace(body, ordinary, `,"usage":`+q.usage, 1)
	}
}

// check compares the decision, and returns the ids that were given.
func (q quirk) check(t *testing.T, got model.Reply) (given []string) {
	t.Helper()
	d := got.Decision
	d.Problem = ""
	d.Calls = slices.Clone(d.Calls)
	for i := range d.Calls {
		if i < len(q.want.Calls) && q.want.Calls[i].ID == "*" {
			given = append(given, d.Calls[i].ID)
			if len(d.Calls[i].ID) != 9 {
				t.Errorf("id %q does not have the nine characters that every template accepts", d.Calls[i].ID)
			}
			d.Calls[i].ID = "*"
		}
	}
	want := q.want
	if want.Code == model.CodeMalformed && want.Text != "" {
		d.Text = strings.TrimSpace(d.Text)
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	return given
}

// begunConversation has a turn behind it, and a tool to offer.
func begunConversation() model.Request {
	return model.Request{
		Decision: 2,
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "Go."},
			{Role: model.RoleAssistant, Calls: []model.Call{{ID: "used", Alias: "lookup"}}},
			{Role: model.RoleTool, CallID: "used", Text: "1"},
		},
		Tools:           []model.Tool{{Name: "crm.lookup", Alias: "lookup"}},
		MaxOutputTokens: 100,
	}
}
