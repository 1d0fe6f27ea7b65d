package fakemodel_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// said posts a Messages request to a path and returns the status and the response body.
func said(t *testing.T, server *fakemodel.Server, path, version, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, server.Root()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if version != "" {
		request.Header.Set("Anthropic-Version", version)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// dialogue is a request of these messages, each as JSON text.
func dialogue(messages ...string) string {
	return `{"model":"m","max_tokens":2000,"system":[{"type":"text","text":"Be brief."}],"tools":[` + mTool +
		`],"tool_choice":{"type":"auto"},"messages":[` + strings.Join(messages, ",") + `]}`
}

func says(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

const (
	mTool   = `{"name":"lookup","description":"x","input_schema":{"type":"object"}}`
	mText   = `{"type":"text","text":"Go."}`
	mThink  = `{"type":"thinking","thinking":"Hm.","signature":"sig"}`
	mSealed = `{"type":"redacted_thinking","data":"abc"}`
	mOne    = `{"type":"tool_use","id":"t1","name":"lookup","input":{}}`
	mTwo    = `{"type":"tool_use","id":"t2","name":"lookup","input":{"a":1}}`
	mFirst  = `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"}]}`
	mSecond = `{"type":"tool_result","tool_use_id":"t2","is_error":true}`
	mSearch = `{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}`
)

func TestMessagesRefusals(t *testing.T) {
	user, calls, results := says("user", mText), says("assistant", mOne, mTwo), says("user", mFirst, mSecond)
	with := func(body, member string) string { return strings.Replace(body, `"model"`, member+`,"model"`, 1) }
	tests := map[string]struct {
		body string
		// want is part of the reason; "" for an accepted request.
		want string
	}{
		"a first request":               {dialogue(user), ""},
		"a text for a block":            {dialogue(`{"role":"user","content":"Go."}`), ""},
		"calls and results":             {dialogue(user, calls, results), ""},
		"results before a text":         {dialogue(user, calls, says("user", mFirst, mSecond, mText)), ""},
		"a pause":                       {dialogue(user, says("assistant", mText, mSearch)), ""},
		"a block of an unknown type":    {dialogue(user, says("assistant", `{"type":"dream"}`, mText), user), ""},
		"thinking":                      {with(dialogue(user), `"thinking":{"type":"enabled","budget_tokens":1024}`), ""},
		"a name of 128 characters":      {strings.Replace(dialogue(user), "lookup", strings.Repeat("x", 128), 1), ""},
		"four marks":                    {strings.ReplaceAll(with(dialogue(user, says("assistant", mText), user), `"cache_control":{"type":"ephemeral"}`), `"text":"Go."`, `"text":"Go.","cache_control":{"type":"ephemeral","ttl":"1h"}`), ""},
		"no JSON":                       {`{`, "not a JSON object"},
		"no messages":                   {dialogue(), "at least one message"},
		"no model":                      {strings.Replace(dialogue(user), `"model":"m",`, "", 1), "model"},
		"no limit":                      {strings.Replace(dialogue(user), `"max_tokens":2000,`, "", 1), "max_tokens"},
		"a limit of 0":                  {strings.Replace(dialogue(user), `2000`, `0`, 1), "max_tokens"},
		"an unknown member":             {with(dialogue(user), `"seed":1`), "seed: Extra inputs"},
		"temperature":                   {with(dialogue(user), `"temperature":1`), "temperature is not supported"},
		"top_p":                         {with(dialogue(user), `"top_p":1`), "top_p is not supported"},
		"a stream":                      {with(dialogue(user), `"stream":true`), "stream"},
		"too little to think":           {with(dialogue(user), `"thinking":{"type":"enabled","budget_tokens":1023}`), "1024"},
		"more to think than to say":     {with(dialogue(user), `"thinking":{"type":"enabled","budget_tokens":2000}`), "max_tokens"},
		"another kind of thinking":      {with(dialogue(user), `"thinking":{"type":"deep"}`), "thinking"},
		"thinking and a forced call":    {strings.Replace(with(dialogue(user), `"thinking":{"type":"adaptive"}`), "auto", "any", 1), "forces"},
		"a choice without tools":        {strings.Replace(dialogue(user), `"tools":[`+mTool+`],`, "", 1), "tool_choice"},
		"a choice of nothing known":     {strings.Replace(dialogue(user), `"auto"`, `"maybe"`, 1), "tool_choice"},
		"a tool twice":                  {strings.Replace(dialogue(user), mTool, mTool+","+mTool, 1), "unique"},
		"an illegal tool name":          {strings.Replace(dialogue(user), "lookup", "crm.lookup", 1), "pattern"},
		"a tool name of 129 characters": {strings.Replace(dialogue(user), "lookup", strings.Repeat("x", 129), 1), "pattern"},
		"a tool of the provider":        {strings.Replace(dialogue(user), `{"name"`, `{"type":"bash_20250124","name"`, 1), "provider's own"},
		"a tool without a type":         {strings.Replace(dialogue(user), `{"type":"object"}`, `{}`, 1), "input_schema"},
		"a choice in a schema":          {strings.Replace(dialogue(user), `"object"}`, `"object","oneOf":[]}`, 1), "top level"},
		"an empty system prompt":        {strings.Replace(dialogue(user), "Be brief.", " ", 1), "system"},
		"the assistant first":           {dialogue(says("assistant", mText), user), "first must be user"},
		"two turns of the user":         {dialogue(user, user), "alternate"},
		"two turns of the assistant":    {dialogue(user, says("assistant", mText), says("assistant", mText), user), "alternate"},
		"a system turn":                 {dialogue(user, says("system", mText)), "unknown role"},
		"no content":                    {dialogue(says("user")), "non-empty"},
		"an empty text":                 {dialogue(strings.Replace(user, "Go.", "", 1)), "non-whitespace"},
		"a blank text":                  {dialogue(user, says("assistant", strings.Replace(mText, "Go.", `\n`, 1)), user), "non-whitespace"},
		"a result of a blank text":      {dialogue(user, calls, strings.Replace(results, `"a"`, `" "`, 1)), "non-whitespace"},
		"a block without a type":        {dialogue(says("user", `{"text":"Go."}`)), "no type"},
		"words for the assistant":       {dialogue(user, says("assistant", mText)), "prefill"},
		"a thought at the end":          {dialogue(user, says("assistant", mText, mThink), user), "final block"},
		"a thought without a signature": {dialogue(user, says("assistant", strings.Replace(mThink, `"sig"`, `""`, 1), mText), user), "signature"},
		"a thought without its text":    {dialogue(user, says("assistant", strings.Replace(mThink, `"thinking":"Hm.",`, "", 1), mText), user), "text"},
		"a thought without its data":    {dialogue(user, says("assistant", strings.Replace(mSealed, `abc`, "", 1), mText), user), "data"},
		"a thought of the user":         {dialogue(says("user", mThink, mText)), "belongs to the assistant"},
		"a call of the user":            {dialogue(says("user", mOne)), "assistant messages"},
		"a result of the assistant":     {dialogue(user, says("assistant", mFirst), user), "user messages"},
		"a call with a strange id":      {dialogue(user, strings.Replace(calls, "t1", "t:1", 1), results), "pattern"},
		"a call without id":             {dialogue(user, strings.Replace(calls, "t1", "", 1), results), "pattern"},
		"a call with an illegal name":   {dialogue(user, strings.Replace(calls, "lookup", "a.b", 1), results), "pattern"},
		"an input that is a text":       {dialogue(user, strings.Replace(calls, `{"a":1}`, `"{}"`, 1), results), "input"},
		"an input that is null":         {dialogue(user, strings.Replace(calls, `{"a":1}`, `null`, 1), results), "input"},
		"two calls with one id":         {dialogue(user, says("assistant", mOne, mOne), says("user", mFirst, mFirst)), "unique"},
		"an id used again":              {dialogue(user, says("assistant", mOne), says("user", mFirst), says("assistant", mOne), says("user", mFirst)), "unique"},
		"no results":                    {dialogue(user, calls), "prefill"},
		"no results before a text":      {dialogue(user, calls, user), "without tool_result"},
		"a result too few":              {dialogue(user, calls, says("user", mFirst)), "without tool_result"},
		"a result too late":             {dialogue(user, calls, says("user", mFirst), says("assistant", mText), says("user", mSecond)), "without tool_result"},
		"a result after a text":         {dialogue(user, calls, says("user", mText, mFirst, mSecond)), "before everything else"},
		"a result twice":                {dialogue(user, calls, says("user", mFirst, mFirst, mSecond)), "single result"},
		"results in another order":      {dialogue(user, calls, says("user", mSecond, mFirst)), "another order"},
		"a result of nothing":           {dialogue(says("user", mFirst)), "unexpected tool_use_id"},
		"five marks":                    {strings.ReplaceAll(with(dialogue(user, says("assistant", mText, mText), says("user", mText)), `"cache_control":{"type":"ephemeral"}`), `"text":"Go."`, `"text":"Go.","cache_control":{"type":"ephemeral"}`), "maximum of 4"},
		"a mark that nobody knows":      {with(dialogue(user), `"cache_control":{"type":"eternal"}`), "cache_control"},
		"a marked thought":              {dialogue(user, says("assistant", strings.Replace(mThink, `"sig"`, `"sig","cache_control":{"type":"ephemeral"}`, 1), mText), user), "thoughts"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{AllowUnknownPrefix: true})
			server.Enqueue(fakemodel.Text("fine"))
			status, answer := said(t, server, "/v1/messages", "2026-10-21", test.body)
			refusal := server.Requests()[0].Refusal
			switch {
			case test.want == "" && (status != 200 || refusal != ""):
				t.Errorf("refused with %d: %s", status, answer)
			case test.want != "" && (status != 400 || !strings.Contains(refusal, test.want)):
				t.Errorf("got %d and reason %q, want 400 and %q", status, refusal, test.want)
			}
		})
	}
}

// TestMessagesPlatforms checks where version and model belong, by the path.
func TestMessagesPlatforms(t *testing.T) {
	const (
		direct  = "/v1/messages"
		mantle  = "/anthropic/v1/messages"
		bedrock = "/model/anthropic.claude-v1:0/invoke"
		vertex  = "/v1/projects/p/locations/eu/publishers/anthropic/models/claude@1:rawPredict"
	)
	user := says("user", mText)
	whole := dialogue(user)
	bare := strings.Replace(whole, `"model":"m"`, `"anthropic_version":"2026-10-21"`, 1)
	cached := `"cache_control":{"type":"ephemeral"},"max_tokens"`
	tests := map[string]struct {
		path, version, body string
		want                string
	}{
		"the vendor":                    {direct, "2026-10-21", whole, ""},
		"an older version":              {direct, "2023-06-01", strings.Replace(whole, `"model"`, `"temperature":0,"model"`, 1), ""},
		"no version":                    {direct, "", whole, "anthropic-version"},
		"another version":               {direct, "2020-01-01", whole, "no such version"},
		"the version in the body":       {direct, "2026-10-21", strings.Replace(whole, `"model"`, `"anthropic_version":"2026-10-21","model"`, 1), "Extra inputs"},
		"Bedrock":                       {bedrock, "", bare, ""},
		"Bedrock with a model":          {bedrock, "", strings.Replace(bare, `"max_tokens"`, `"model":"m","max_tokens"`, 1), "model: Extra inputs"},
		"Bedrock without a version":     {bedrock, "2026-10-21", strings.Replace(bare, `"anthropic_version":"2026-10-21",`, "", 1), "anthropic_version"},
		"Bedrock with all of it cached": {bedrock, "", strings.Replace(bare, `"max_tokens"`, cached, 1), "cache_control: Extra inputs"},
		"Bedrock's own Messages":        {mantle, "2026-10-21", whole, ""},
		"Vertex AI":                     {vertex, "", bare, ""},
		"Vertex AI with all cached":     {vertex, "", strings.Replace(bare, `"max_tokens"`, cached, 1), "cache_control: Extra inputs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Text("fine"))
			status, _ := said(t, server, test.path, test.version, test.body)
			request := server.Requests()[0]
			if (status == 200) != (test.want == "") || !strings.Contains(request.Refusal, test.want) {
				t.Errorf("got %d and reason %q, want %q", status, request.Refusal, test.want)
			}
			if test.want == "" && request.Model == "" {
				t.Error("the model was not found")
			}
		})
	}
}

// TestMessagesPrefix checks what may not change once the assistant has spoken.
func TestMessagesPrefix(t *testing.T) {
	server := start(t, fakemodel.Options{})
	server.Enqueue(
		fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), "Hm."),
		fakemodel.Answer{Reply: &fakemodel.Reply{Thoughts: []fakemodel.Thought{{Text: "x", Redacted: true}}, Text: "Wait.", Stop: fakemodel.StopPaused}},
	)
	user := says("user", mText)
	reply := func(body string) string {
		t.Helper()
		var read struct{ Content json.RawMessage }
		status, answer := said(t, server, "/v1/messages", "2026-10-21", body)
		if status != 200 || json.Unmarshal([]byte(answer), &read) != nil {
			t.Fatalf("got %d: %s", status, answer)
		}
		return strings.Trim(string(read.Content), "[]")
	}
	first := reply(dialogue(user))
	id := first[strings.Index(first, "toolu_"):][:len("toolu_")+24]
	result := strings.Replace(mFirst, "t1", id, 1)
	second := reply(dialogue(user, says("assistant", first), says("user", result)))
	paused := dialogue(user, says("assistant", first), says("user", result), says("assistant", second))
	redacted := second[:strings.Index(second, "},")+2]
	for name, test := range map[string]struct {
		body string
		want string
	}{
		"as it was said":        {paused, ""},
		"marked elsewhere":      {strings.Replace(paused, `"text":"Go."`, `"text":"Go.","cache_control":{"type":"ephemeral"}`, 1), ""},
		"a text for its block":  {strings.Replace(paused, `[`+mText+`]`, `"Go."`, 1), ""},
		"another system prompt": {strings.Replace(paused, "Be brief.", "Be long.", 1), "unchanged"},
		"another tool":          {strings.Replace(paused, `"description":"x"`, `"description":"y"`, 1), "unchanged"},
		"other words":           {strings.Replace(paused, "Go.", "Stop.", 1), "unchanged"},
		"another result":        {strings.Replace(paused, `"text":"a"`, `"text":"b"`, 1), "unchanged"},
		"another thought":       {strings.Replace(paused, "Hm.", "Aha.", 1), "altered"},
		"no thought":            {strings.Replace(paused, redacted, "", 1), "bring back"},
		"another seal":          {strings.Replace(paused, `"data":"`, `"data":"A`, 1), "never given"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Enqueue(fakemodel.Text("fine"))
			before := len(server.Requests())
			status, _ := said(t, server, "/v1/messages", "2026-10-21", test.body)
			if refusal := server.Requests()[before].Refusal; (status == 200) != (test.want == "") || !strings.Contains(refusal, test.want) {
				t.Errorf("got %d and reason %q, want %q", status, refusal, test.want)
			}
		})
	}
}

// TestMessagesAnswers checks what the wire says for each kind of answer.
func TestMessagesAnswers(t *testing.T) {
	usage := &model.Usage{InputTokens: 60, CacheReadTokens: 20, CacheWriteTokens: 30, OutputTokens: 7, ReasoningTokens: 3, Reported: true}
	for name, test := range map[string]struct {
		answer fakemodel.Answer
		status int
		want   []string
	}{
		"a text":    {fakemodel.Text("fine"), 200, []string{`"end_turn"`, `"type":"text"`}},
		"calls":     {fakemodel.Propose(fakemodel.Call{Name: "a"}, fakemodel.Call{Name: "b", Arguments: `{"x":1.0}`}), 200, []string{`"tool_use"`, `"input":{"x":1.0}`, `"direct"`}},
		"a refusal": {fakemodel.Refusal("no"), 200, []string{`"refusal"`, `"explanation":"no"`, `"content":[]`}},
		"a cut":     {fakemodel.CutOff("f"), 200, []string{`"max_tokens"`}},
		"a pause":   {fakemodel.Paused("f"), 200, []string{`"pause_turn"`, `"server_tool_use"`}},
		"full":      {fakemodel.Answer{Reply: &fakemodel.Reply{Text: "f", Stop: fakemodel.StopFull}}, 200, []string{`"model_context_window_exceeded"`}},
		"own words": {fakemodel.Answer{Reply: &fakemodel.Reply{Text: "f", StopReason: "compaction"}}, 200, []string{`"compaction"`}},
		"usage": {fakemodel.Answer{Reply: &fakemodel.Reply{Text: "f", Usage: usage}}, 200,
			[]string{`"input_tokens":10`, `"cache_read_input_tokens":20`, `"cache_creation_input_tokens":30`, `"output_tokens":7`, `"thinking_tokens":3`}},
		"throttled":    {fakemodel.Throttled(2 * time.Second), 429, []string{"rate_limit_error", "req_test"}},
		"overloaded":   {fakemodel.Overloaded(), 529, []string{"overloaded_error"}},
		"out of quota": {fakemodel.OutOfQuota(), 429, []string{"enforced_spend_limit_reached"}},
		"too long":     {fakemodel.TooLong(), 400, []string{"prompt is too long"}},
		"a teapot":     {fakemodel.Refuse(418, "teapot", "short and stout"), 418, []string{"teapot"}},
		"filtered":     {fakemodel.Answer{Reply: &fakemodel.Reply{Stop: fakemodel.StopFiltered}}, 501, []string{"filtered"}},
		"no arguments": {fakemodel.Propose(fakemodel.Call{Name: "a", Arguments: "{"}), 501, []string{"no JSON object"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{})
			server.Enqueue(test.answer)
			status, answer := said(t, server, "/v1/messages", "2026-10-21", dialogue(says("user", mText)))
			if status != test.status {
				t.Errorf("got %d, want %d", status, test.status)
			}
			for _, want := range test.want {
				if !strings.Contains(answer, want) {
					t.Errorf("%s is not in %s", want, answer)
				}
			}
		})
	}
}

// TestMessagesRequest checks what a request is about in the words that wires share.
func TestMessagesRequest(t *testing.T) {
	server := start(t, fakemodel.Options{AllowUnknownPrefix: true, RequireOfferedCalls: true})
	server.Enqueue(fakemodel.Text("fine"))
	body := dialogue(says("user", mText), says("assistant", mText, mOne, mTwo), says("user", mFirst, mSecond))
	if status, answer := said(t, server, "/v1/messages", "2026-10-21", body); status != 200 {
		t.Fatalf("got %d: %s", status, answer)
	}
	r := server.Requests()[0]
	if r.System != "Be brief." || len(r.Tools) != 1 || len(r.Messages) != 4 || len(r.Messages[1].Calls) != 2 {
		t.Errorf("got %+v", r)
	}
	if last := r.Last(); last.CallID != "t2" || !last.Failed || r.Messages[2].Text != "a" {
		t.Errorf("got %+v", last)
	}
	if status, _ := said(t, server, "/v1/messages", "2026-10-21", strings.ReplaceAll(body, `"name":"lookup","input"`, `"name":"other","input"`)); status != 400 {
		t.Errorf("a call of another tool: got %d", status)
	}
}
