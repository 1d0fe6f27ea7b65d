package fakemodel_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// postTo sends a body to a path and returns the status and the response body.
func postTo(t *testing.T, server *fakemodel.Server, path, body string) (int, string) {
	t.Helper()
	response, err := http.Post(server.Root()+path, "application/json", strings.NewReader(body))
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

const (
	rPath    = "/v1/responses"
	rUser    = `{"role":"user","content":[{"type":"input_text","text":"Go."}]}`
	rOne     = `{"type":"function_call","call_id":"1","name":"lookup","arguments":"{}"}`
	rTwo     = `{"type":"function_call","call_id":"2","name":"lookup","arguments":"{}","id":"fc_2","status":"completed"}`
	rFirst   = `{"type":"function_call_output","call_id":"1","output":"a"}`
	rSecond  = `{"type":"function_call_output","call_id":"2","output":""}`
	rThought = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}`
	rSpoken  = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hm.","annotations":[],"logprobs":[]}]}`
	rTool    = `{"type":"function","name":"lookup","description":"x","strict":false,"parameters":{"type":"object","properties":{}}}`
)

// respond is a request of these items, each as JSON text.
func respond(items ...string) string {
	return `{"model":"gpt-5","store":false,"include":["reasoning.encrypted_content"],"instructions":"Be brief.","input":[` +
		strings.Join(items, ",") + `],"tools":[` + rTool + `],"tool_choice":"auto","max_output_tokens":16,"prompt_cache_key":"k"}`
}

func TestResponsesRefusals(t *testing.T) {
	long := strings.Repeat("x", 65)
	with := func(from, to string, items ...string) string { return strings.Replace(respond(items...), from, to, 1) }
	tests := map[string]struct {
		path, body string
		// want is part of the reason; "" for an accepted request.
		want string
	}{
		"a first request":                 {rPath, respond(rUser), ""},
		"words as text":                   {rPath, respond(`{"type":"message","role":"user","content":"Go."}`), ""},
		"instructions from a developer":   {rPath, respond(`{"role":"developer","content":"x"}`, rUser), ""},
		"an answer between questions":     {rPath, respond(rUser, rSpoken, rUser), ""},
		"results of calls":                {rPath, respond(rUser, rSpoken, rOne, rTwo, rFirst, rSecond), ""},
		"the next turn":                   {rPath, respond(rUser, rOne, rTwo, rFirst, rSecond, rSpoken, rUser), ""},
		"the platform":                    {"/openai/v1/responses", respond(rUser), ""},
		"a dated version of the platform": {"/openai/responses?api-version=2025-03-01-preview", with(`,"prompt_cache_key":"k"`, "", rUser), ""},
		"a cache key in a dated version":  {"/openai/responses?api-version=2025-03-01-preview", respond(rUser), "prompt_cache_key"},
		"no version":                      {"/openai/responses", respond(rUser), "api-version"},
		"a version that has no place":     {rPath + "?api-version=1", respond(rUser), "no query"},
		"no JSON":                         {rPath, `{`, "not a JSON object"},
		"an unknown member":               {rPath, with(`"store"`, `"messages":[],"store"`, rUser), "messages"},
		"no model":                        {rPath, with(`"gpt-5"`, `""`, rUser), "model"},
		"empty instructions":              {rPath, with(`"Be brief."`, `""`, rUser), "instructions"},
		"no input":                        {rPath, respond(), "at least one item"},
		"an item that is text":            {rPath, respond(`"Go."`), "wrong type"},
		"a limit that is too low":         {rPath, with(`:16`, `:15`, rUser), "minimum of 16"},
		"a long cache key":                {rPath, with(`"k"`, `"`+long+`"`, rUser), "64"},
		"a choice without tools":          {rPath, with(`"tools":[`+rTool+`],`, ``, rUser), "tool_choice"},
		"state by default":                {rPath, with(`"store":false,`, ``, rUser), "store"},
		"state on purpose":                {rPath, with(`"store":false`, `"store":true`, rUser), "store"},
		"a reply before":                  {rPath, with(`"store"`, `"previous_response_id":"resp_1","store"`, rUser), "state"},
		"a stream":                        {rPath, with(`"store"`, `"stream":true,"store"`, rUser), "stream"},
		"thoughts of a model without":     {rPath, with(`gpt-5`, `gpt-4o`, rUser), "not supported with this model"},
		"thoughts of a model for chats":   {rPath, with(`gpt-5`, `gpt-5-chat-latest`, rUser), "not supported with this model"},
		"an unknown include":              {rPath, with(`reasoning.encrypted_content`, `everything`, rUser), "include"},
		"no tools in the list":            {rPath, with(rTool, ``, rUser), "tool"},
		"a tool twice":                    {rPath, with(rTool, rTool+","+rTool, rUser), "earlier tool"},
		"a tool of another wire":          {rPath, with(rTool, `{"type":"function","function":{"name":"lookup"}}`, rUser), "unknown parameter"},
		"an illegal tool name":            {rPath, with(`"lookup"`, `"crm.lookup"`, rUser), "illegal name"},
		"a long tool name":                {rPath, with(`"lookup"`, `"`+long+`"`, rUser), "illegal name"},
		"a strict tool":                   {rPath, with(`"strict":false`, `"strict":true`, rUser), "strict"},
		"a tool without properties":       {rPath, with(`,"properties":{}`, ``, rUser), "schema"},
		"the assistant first":             {rPath, respond(rSpoken, rUser), "first item"},
		"instructions alone":              {rPath, respond(`{"role":"system","content":"x"}`), "no message from the user"},
		"an unknown role":                 {rPath, respond(rUser, `{"role":"tool","content":"x"}`), "role"},
		"an unknown type":                 {rPath, respond(rUser, `{"type":"thinking"}`), "can't be read"},
		"a reference":                     {rPath, respond(rUser, `{"type":"item_reference","id":"rs_1"}`), "can't be read"},
		"an unknown member of an item":    {rPath, respond(rUser, strings.Replace(rOne, `"name"`, `"index":0,"name"`, 1), rFirst), "index"},
		"an unknown status":               {rPath, respond(rUser, strings.Replace(rTwo, "completed", "done", 1), rSecond), "status"},
		"no content":                      {rPath, respond(`{"role":"user"}`), "content"},
		"an empty content":                {rPath, respond(rUser, strings.Replace(rSpoken, `[{"type":"output_text","text":"Hm.","annotations":[],"logprobs":[]}]`, `[]`, 1)), "content"},
		"words in the wrong mouth":        {rPath, respond(rUser, strings.Replace(rUser, `"user"`, `"assistant"`, 1)), "does not belong"},
		"an output in the wrong form":     {rPath, respond(rUser, rOne, strings.Replace(rFirst, `"a"`, `{"a":1}`, 1)), "output"},
		"a call without id":               {rPath, respond(rUser, strings.Replace(rOne, `"1"`, `""`, 1), rFirst), "call_id"},
		"a call with a long id":           {rPath, respond(rUser, strings.Replace(rOne, `"1"`, `"`+long+`"`, 1), rFirst), "64"},
		"a call with an illegal name":     {rPath, respond(rUser, strings.Replace(rOne, "lookup", "a.b", 1), rFirst), "illegal name"},
		"arguments as an object":          {rPath, respond(rUser, strings.Replace(rOne, `"{}"`, `{}`, 1), rFirst), "not a string"},
		"arguments that are not JSON":     {rPath, respond(rUser, strings.Replace(rOne, `"{}"`, `"{"`, 1), rFirst), "not a JSON object"},
		"a thought with nothing in it":    {rPath, respond(rUser, strings.Replace(rThought, `,"encrypted_content":"x"`, ``, 1), rOne, rFirst), "not found"},
		"a thought without id":            {rPath, respond(rUser, strings.Replace(rThought, `"id":"rs_1",`, ``, 1), rOne, rFirst), "no id"},
		"a thought without summary":       {rPath, respond(rUser, strings.Replace(rThought, `"summary":[],`, ``, 1), rOne, rFirst), "summary"},
		"a thought without consequences":  {rPath, respond(rUser, rOne, rThought, rFirst), "required following item"},
		"an id of another kind":           {rPath, respond(rUser, strings.Replace(rTwo, "fc_2", "call_2", 1), rSecond), "begins with fc"},
		"an id twice":                     {rPath, respond(rUser, rSpoken, rUser, rSpoken), "duplicate item"},
		"a call twice":                    {rPath, respond(rUser, rOne, rOne, rFirst, rFirst), "again"},
		"a call of an earlier turn again": {rPath, respond(rUser, rOne, rFirst, rOne, rFirst), "again"},
		"no results":                      {rPath, respond(rUser, rOne), "no output was found"},
		"a result too few":                {rPath, respond(rUser, rOne, rTwo, rFirst), "no output was found"},
		"a result too late":               {rPath, respond(rUser, rOne, rTwo, rFirst, rUser, rSecond), "before an output was found"},
		"a result in the next turn":       {rPath, respond(rUser, rOne, rTwo, rFirst, rSpoken, rSecond), "before an output was found"},
		"a result twice":                  {rPath, respond(rUser, rOne, rFirst, rFirst), "no function call is open"},
		"a result of nothing":             {rPath, respond(rUser, rFirst), "no function call is open"},
		"a result before its call":        {rPath, respond(rUser, rFirst, rOne), "no function call is open"},
		"results in another order":        {rPath, respond(rUser, rOne, rTwo, rSecond, rFirst), "made first"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{AllowUnknownPrefix: true})
			server.Enqueue(fakemodel.Text("fine"))
			status, answer := postTo(t, server, test.path, test.body)
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

func TestResponsesOfferedCalls(t *testing.T) {
	server := start(t, fakemodel.Options{AllowUnknownPrefix: true, RequireOfferedCalls: true})
	server.Enqueue(fakemodel.Text("fine"))
	if status, _ := postTo(t, server, rPath, respond(rUser, rOne, rFirst)); status != 200 {
		t.Errorf("a call of an offered tool: got %d", status)
	}
	if status, _ := postTo(t, server, rPath, respond(rUser, strings.Replace(rOne, "lookup", "other", 1), rFirst)); status != 400 {
		t.Errorf("a call of another tool: got %d", status)
	}
}

// TestResponsesThoughts checks what may become of what the model has thought.
func TestResponsesThoughts(t *testing.T) {
	tests := map[string]struct {
		change func(items []string) []string
		want   string
	}{
		"as it came":          {func(items []string) []string { return items }, ""},
		"left out":            {func(items []string) []string { return items[1:] }, "missing"},
		"both left out":       {func(items []string) []string { return items[2:] }, "missing"},
		"in another order":    {func(items []string) []string { return []string{items[1], items[0], items[2]} }, "altered"},
		"after the call":      {func(items []string) []string { return []string{items[0], items[2], items[1]} }, "following item"},
		"words of somebody":   {replaced(`Let me see`, `Let me lie`), "altered"},
		"another id":          {replaced(`"id":"rs_`, `"id":"rs_9`), "altered"},
		"of nobody":           {replaced(`"encrypted_content":"`, `"encrypted_content":"AAAA`), "never given"},
		"without what it was": {func(items []string) []string { return []string{items[0], items[1], rSpoken, items[2]} }, "altered"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), "Let me see.", "Well."), fakemodel.Text("done"))
			_, answer := postTo(t, server, rPath, respond(rUser))
			var reply struct {
				Output []json.RawMessage `json:"output"`
			}
			if err := json.Unmarshal([]byte(answer), &reply); err != nil || len(reply.Output) != 3 {
				t.Fatalf("got %s (%v)", answer, err)
			}
			var call fakemodel.ResponsesItem
			if err := json.Unmarshal(reply.Output[2], &call); err != nil {
				t.Fatal(err)
			}
			items := []string{rUser}
			items = append(items, test.change([]string{string(reply.Output[0]), string(reply.Output[1]), string(reply.Output[2])})...)
			items = append(items, `{"type":"function_call_output","call_id":"`+call.CallID+`","output":"1"}`)
			_, answer = postTo(t, server, rPath, respond(items...))
			refusal := server.Requests()[1].Refusal
			if (test.want == "") != (refusal == "") || !strings.Contains(refusal, test.want) {
				t.Errorf("got reason %q and %s, want %q", refusal, answer, test.want)
			}
		})
	}
}

func replaced(from, to string) func([]string) []string {
	return func(items []string) []string {
		items[0] = strings.Replace(items[0], from, to, 1)
		return items
	}
}

func TestResponsesPrefix(t *testing.T) {
	begun := []string{respond(rUser), respond(rUser, rOne, rFirst)}
	continued := respond(rUser, rOne, rFirst, rTwo, rSecond)
	tests := map[string]struct {
		body string
		want bool
	}{
		"the next turn":             {continued, true},
		"the same request again":    {begun[1], true},
		"feedback appended":         {respond(rUser, rOne, rFirst, rUser), true},
		"another limit":             {strings.Replace(continued, `:16`, `:17`, 1), true},
		"other instructions":        {strings.Replace(continued, "Be brief.", "Be long.", 1), false},
		"other words of the user":   {strings.Replace(continued, "Go.", "Go!", 1), false},
		"another result":            {strings.Replace(continued, `"a"`, `"b"`, 1), false},
		"other tools":               {strings.Replace(continued, `"x"`, `"y"`, 1), false},
		"two turns at once":         {respond(rUser, rOne, rFirst, rTwo, rSecond, rSpoken, rUser), false},
		"a turn cut out":            {respond(rUser, rTwo, rSecond, rSpoken, rUser), false},
		"an item of a turn altered": {strings.Replace(continued, `"call_id":"1","name"`, `"call_id":"1","id":"fc_1","name"`, 1), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer { return fakemodel.Text("fine") }})
			for _, body := range begun {
				if status, answer := postTo(t, server, rPath, body); status != 200 {
					t.Fatalf("got %d: %s", status, answer)
				}
			}
			if status, answer := postTo(t, server, rPath, test.body); (status == 200) != test.want {
				t.Errorf("got %d: %s", status, answer)
			}
		})
	}
}

// TestResponsesReplies checks how replies are said.
func TestResponsesReplies(t *testing.T) {
	usage := &model.Usage{InputTokens: 50, CacheReadTokens: 20, OutputTokens: 7, ReasoningTokens: 3, Reported: true}
	tests := map[string]struct {
		reply fakemodel.Reply
		want  []string
	}{
		"an answer":      {fakemodel.Reply{Text: "42", Usage: usage}, []string{`"status":"completed"`, `"output_text"`, `"input_tokens":50`, `"cached_tokens":20`, `"reasoning_tokens":3`, `"total_tokens":57`}},
		"a refusal":      {fakemodel.Reply{Text: "No.", Stop: fakemodel.StopRefused}, []string{`"refusal":"No."`, `"status":"completed"`}},
		"cut off":        {fakemodel.Reply{Text: "4", Stop: fakemodel.StopCutOff}, []string{`"reason":"max_output_tokens"`, `"status":"incomplete","type":"message"`}},
		"filtered":       {fakemodel.Reply{Stop: fakemodel.StopFiltered}, []string{`"reason":"content_filter"`, `"output":[]`}},
		"another reason": {fakemodel.Reply{Text: "4", StopReason: "steered"}, []string{`"reason":"steered"`, `"status":"incomplete"`}},
		"another status": {fakemodel.Reply{Text: "4", StopReason: "queued"}, []string{`"status":"queued"`, `"incomplete_details":null`}},
		"a failure":      {fakemodel.Reply{StopReason: "failed"}, []string{`"status":"failed"`, `"code":"server_error"`}},
		"thoughts":       {fakemodel.Reply{Thoughts: []fakemodel.Thought{{Text: "Hm."}, {Redacted: true}}, Text: "42"}, []string{`"summary_text"`, `"summary":[]`, `"encrypted_content"`}},
		"no report":      {fakemodel.Reply{Text: "42", Usage: &model.Usage{}}, nil},
	}
	for name, test := range tests {
		body := string(fakemodel.Body(fakemodel.Responses, fakemodel.Answer{Reply: &test.reply}))
		for _, want := range test.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s is not in %s", name, want, body)
			}
		}
		if reported := strings.Contains(body, `"usage"`); reported != (name != "no report") {
			t.Errorf("%s: a report is there: %v", name, reported)
		}
	}
}

// TestPlatformKeys checks that both of the vendor's wires take the platform's keys, on the
// platform's paths alone.
func TestPlatformKeys(t *testing.T) {
	// A deployment may be one of a model that refuses the older limit.
	deployed := strings.Replace(chat(user), "max_tokens", "max_completion_tokens", 1)
	for path, body := range map[string]string{
		"/openai/v1/responses": respond(rUser), "/openai/v1/chat/completions": deployed,
		"/openai/deployments/my-gpt.5/chat/completions?api-version=2024-10-21": deployed,
		rPath: respond(rUser), "/v1/chat/completions": chat(user),
	} {
		platform := strings.HasPrefix(path, "/openai/")
		for header, value := range map[string]string{"Api-Key": "right", "Authorization": "Bearer right", "api-key": "wrong"} {
			server := start(t, fakemodel.Options{Key: "right"})
			server.Enqueue(fakemodel.Text("fine"))
			request, err := http.NewRequest(http.MethodPost, server.Root()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(header, value)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			want := 401
			if value == "Bearer right" || (value == "right" && platform) {
				want = 200
			}
			if response.StatusCode != want {
				t.Errorf("%s with %s %s: got %d, want %d", path, header, value, response.StatusCode, want)
			}
		}
	}
}
