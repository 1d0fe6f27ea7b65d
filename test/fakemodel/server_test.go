package fakemodel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func start(t *testing.T, options fakemodel.Options) *fakemodel.Server {
	t.Helper()
	server, err := fakemodel.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// post sends a body and returns the status and the response body.
func post(t *testing.T, server *fakemodel.Server, body string) (int, string) {
	t.Helper()
	response, err := http.Post(server.Endpoint(fakemodel.Chat)+"/chat/completions", "application/json", strings.NewReader(body))
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

// chat is a request of these messages, each as JSON text.
func chat(messages ...string) string {
	return `{"model":"m","max_tokens":9,"tools":[` + tool + `],"tool_choice":"auto","messages":[` + strings.Join(messages, ",") + `]}`
}

const (
	tool   = `{"type":"function","function":{"name":"lookup","description":"x","strict":false,"parameters":{"type":"object","properties":{}}}}`
	system = `{"role":"system","content":"Be brief."}`
	user   = `{"role":"user","content":"Go."}`
	calls  = `{"role":"assistant","content":null,"tool_calls":[` + one + `,` + two + `]}`
	one    = `{"id":"1","type":"function","function":{"name":"lookup","arguments":"{}"}}`
	two    = `{"id":"2","type":"function","function":{"name":"lookup","arguments":"{}"}}`
	first  = `{"role":"tool","tool_call_id":"1","content":"a"}`
	second = `{"role":"tool","tool_call_id":"2","content":""}`
)

func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 41)
	tests := map[string]struct {
		body string
		// want is part of the reason; "" for an accepted request.
		want string
	}{
		"a first request":                {chat(system, user), ""},
		"instructions from a developer":  {chat(`{"role":"developer","content":"x"}`, user), ""},
		"results in another order":       {chat(user, calls, second, first), ""},
		"an undeclared tool":             {chat(user, strings.Replace(calls, "lookup", "other", 1), first, second), ""},
		"no JSON":                        {`{`, "not a JSON object"},
		"no messages":                    {chat(), "messages"},
		"no model":                       {`{"messages":[` + user + `]}`, "model"},
		"an unknown member":              {strings.Replace(chat(user), `"model"`, `"temprature":1,"model"`, 1), "temprature"},
		"the older limit":                {strings.Replace(chat(user), `"m"`, `"o3"`, 1), "max_completion_tokens"},
		"the newer limit":                {strings.Replace(chat(user), `max_tokens`, `max_completion_tokens`, 1), "max_tokens"},
		"a limit of 0":                   {strings.Replace(chat(user), `:9`, `:0`, 1), "positive"},
		"a choice without tools":         {strings.Replace(chat(user), `"tools":[`+tool+`],`, "", 1), "tool_choice"},
		"no tools in the list":           {strings.Replace(chat(user), tool, "", 1), "tool"},
		"a stream":                       {strings.Replace(chat(user), `"model"`, `"stream":true,"model"`, 1), "stream"},
		"a tool twice":                   {strings.Replace(chat(user), tool, tool+","+tool, 1), "earlier tool"},
		"an illegal tool name":           {strings.Replace(chat(user), "lookup", "crm.lookup", 1), "illegal name"},
		"a tool with a long description": {strings.Replace(chat(user), `"x"`, `"`+strings.Repeat("x", 1025)+`"`, 1), "1024"},
		"a tool without properties":      {strings.Replace(chat(user), `,"properties":{}`, "", 1), "schema"},
		"instructions alone":             {chat(system), "no message from the user"},
		"the assistant first":            {chat(system, `{"role":"assistant","content":"Hi."}`, user), "first message"},
		"an unknown role":                {chat(user, `{"role":"function","content":"x"}`), "unknown role"},
		"no content":                     {chat(`{"role":"user"}`), "content"},
		"nothing from the assistant":     {chat(user, `{"role":"assistant","content":null}`, user), "needs content"},
		"an empty list of calls":         {chat(user, `{"role":"assistant","content":"x","tool_calls":[]}`, user), "tool_calls is empty"},
		"null calls":                     {chat(user, `{"role":"assistant","content":"x","tool_calls":null}`, user), "tool_calls is empty"},
		"a call without type":            {chat(user, strings.Replace(calls, `"type":"function",`, "", 1), first, second), "type"},
		"a call without id":              {chat(user, strings.Replace(calls, `"1"`, `""`, 1), first, second), "no id"},
		"a call with a long id":          {chat(user, strings.Replace(calls, `"1"`, `"`+long+`"`, 1), first, second), "40"},
		"a call with an illegal name":    {chat(user, strings.Replace(calls, `lookup`, `a.b`, 1), first, second), "illegal name"},
		"arguments as an object":         {chat(user, strings.Replace(calls, `"{}"`, `{}`, 1), first, second), "not a string"},
		"arguments that are not JSON":    {chat(user, strings.Replace(calls, `"{}"`, `"{"`, 1), first, second), "not a JSON object"},
		"two calls with one id":          {chat(user, strings.Replace(calls, two, one, 1), first, first), "again"},
		"no results":                     {chat(user, calls), "not answered"},
		"a result too few":               {chat(user, calls, first), "not answered"},
		"a result too late":              {chat(user, calls, first, user, second), "before the calls"},
		"a result twice":                 {chat(user, calls, first, first, second), "no call that is open"},
		"a result of nothing":            {chat(user, first), "no call that is open"},
		"calls of the user":              {chat(strings.Replace(calls, "assistant", "user", 1)), "belong to the assistant"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{AllowUnknownPrefix: true})
			server.Enqueue(fakemodel.Text("fine"))
			status, answer := post(t, server, test.body)
			refusal := server.Requests()[0].Refusal
			switch {
			case test.want == "" && (status != 200 || refusal != ""):
				t.Errorf("refused with %d: %s", status, answer)
			case test.want != "" && (status != 400 || !strings.Contains(refusal, test.want) || len(server.Refusals()) != 1):
				t.Errorf("got %d and reason %q, want 400 and %q", status, refusal, test.want)
			}
		})
	}
}

func TestRequireOfferedCalls(t *testing.T) {
	server := start(t, fakemodel.Options{AllowUnknownPrefix: true, RequireOfferedCalls: true})
	server.Enqueue(fakemodel.Text("fine"))
	if status, _ := post(t, server, chat(user, calls, first, second)); status != 200 {
		t.Errorf("a call of an offered tool: got %d", status)
	}
	if status, _ := post(t, server, chat(user, strings.Replace(calls, "lookup", "other", 1), first, second)); status != 400 {
		t.Errorf("a call of another tool: got %d", status)
	}
}

func TestPrefix(t *testing.T) {
	three := strings.NewReplacer(`"1"`, `"3"`, `"2"`, `"4"`)
	begun := []string{chat(system, user), chat(system, user, calls, first, second)}
	continued := chat(system, user, calls, first, second, three.Replace(calls), three.Replace(first), three.Replace(second))
	tests := map[string]struct {
		body string
		want bool
	}{
		"the next turn":                  {continued, true},
		"the same request again":         {begun[1], true},
		"an earlier request again":       {begun[0], true},
		"another conversation":           {chat(user), true},
		"feedback appended":              {chat(system, user, calls, first, second, `{"role":"user","content":"Answer."}`), true},
		"members in another order":       {chat(`{"content":"Be brief.","role":"system"}`, user, calls, first, second, `{"role":"assistant","content":"x"}`, user), true},
		"other instructions":             {strings.Replace(continued, "Be brief.", "Be long.", 1), false},
		"other words of the user":        {strings.Replace(continued, "Go.", "Go!", 1), false},
		"another result":                 {strings.Replace(continued, `"a"`, `"b"`, 1), false},
		"other tools":                    {strings.Replace(continued, `"x"`, `"y"`, 1), false},
		"two turns at once":              {chat(system, user, calls, first, second, `{"role":"assistant","content":"x"}`, user, `{"role":"assistant","content":"y"}`, user), false},
		"a turn cut out of the past":     {chat(system, user, three.Replace(calls), three.Replace(first), three.Replace(second), `{"role":"assistant","content":"x"}`, user), false},
		"a conversation never begun":     {chat(`{"role":"user","content":"Other."}`, calls, first, second), false},
		"an assistant message rewritten": {strings.Replace(continued, `"content":null`, `"content":"hm"`, 1), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer { return fakemodel.Text("fine") }})
			for _, body := range begun {
				if status, answer := post(t, server, body); status != 200 {
					t.Fatalf("got %d: %s", status, answer)
				}
			}
			if status, answer := post(t, server, test.body); (status == 200) != test.want {
				t.Errorf("got %d: %s", status, answer)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	server := start(t, fakemodel.Options{})
	server.Enqueue(
		fakemodel.Propose(fakemodel.Call{Name: "lookup"}, fakemodel.Call{Name: "lookup", Arguments: `{"a":1}`}),
		fakemodel.Throttled(2*time.Second),
		fakemodel.Slow(fakemodel.Text("late"), 10*time.Millisecond),
	)
	_, answer := post(t, server, chat(user))
	var reply struct {
		Choices []struct {
			Message      fakemodel.ChatMessage `json:"message"`
			FinishReason string                `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(answer), &reply); err != nil {
		t.Fatal(err)
	}
	proposed := reply.Choices[0].Message.ToolCalls
	if len(proposed) != 2 || proposed[0].ID == proposed[1].ID || reply.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("got %s", answer)
	}
	if status, _ := post(t, server, chat(user)); status != 429 {
		t.Errorf("throttled: got %d", status)
	}
	if status, answer := post(t, server, chat(user)); status != 200 || !strings.Contains(answer, "late") {
		t.Errorf("slow: got %d %s", status, answer)
	}
	if status, answer := post(t, server, chat(user)); status != 400 || !strings.Contains(answer, "no_answer_queued") {
		t.Errorf("an empty queue: got %d %s", status, answer)
	}
	if n := server.Queued(); n != 0 {
		t.Errorf("%d answers are left", n)
	}
}

// TestTrouble checks that every kind of trouble has a code of the vendor's.
func TestTrouble(t *testing.T) {
	server := start(t, fakemodel.Options{})
	for _, test := range []struct {
		answer fakemodel.Answer
		status int
		want   string
	}{
		{fakemodel.Throttled(2 * time.Second), 429, "rate_limit_exceeded"},
		{fakemodel.Overloaded(), 503, "server_is_overloaded"},
		{fakemodel.OutOfQuota(), 429, "insufficient_quota"},
		{fakemodel.TooLong(), 400, "context_length_exceeded"},
		{fakemodel.Refuse(418, "teapot", "short and stout"), 418, "teapot"},
		{fakemodel.ServerError(502), 502, "upstream trouble"},
	} {
		server.Enqueue(test.answer)
		if status, answer := post(t, server, chat(user)); status != test.status || !strings.Contains(answer, test.want) {
			t.Errorf("got %d %s, want %d with %s", status, answer, test.status, test.want)
		}
	}
	if n := len(server.Refusals()); n != 0 {
		t.Errorf("%d requests were refused", n)
	}
}

// TestMistakes checks that what a test or a client gets wrong shows in Refusals.
func TestMistakes(t *testing.T) {
	server := start(t, fakemodel.Options{})
	server.Enqueue(fakemodel.Paused("wait"))
	if status, _ := post(t, server, chat(user)); status != http.StatusNotImplemented {
		t.Errorf("an answer that the wire has no words for: got %d", status)
	}
	response, err := http.Get(server.Root() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("a path of no wire: got %d", response.StatusCode)
	}
	if n := len(server.Refusals()); n != 2 {
		t.Errorf("got %d refusals: %v", n, server.Refusals())
	}
}

// TestUsage checks that a report is the one that the test gives.
func TestUsage(t *testing.T) {
	reply := fakemodel.Reply{Text: "fine", Usage: &model.Usage{InputTokens: 50, CacheReadTokens: 20, OutputTokens: 7, ReasoningTokens: 3, Reported: true}}
	body := string(fakemodel.Body(fakemodel.Chat, fakemodel.Answer{Reply: &reply}))
	for _, want := range []string{`"prompt_tokens":50`, `"completion_tokens":7`, `"total_tokens":57`, `"cached_tokens":20`, `"reasoning_tokens":3`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	reply.Usage = &model.Usage{}
	if body := string(fakemodel.Body(fakemodel.Chat, fakemodel.Answer{Reply: &reply})); strings.Contains(body, "usage") {
		t.Errorf("a report that nobody made: %s", body)
	}
}

// TestAuthorize checks that a test can check more than a key.
func TestAuthorize(t *testing.T) {
	server := start(t, fakemodel.Options{Authorize: func(r *http.Request, body []byte) string {
		if r.Header.Get("Content-Type") != "application/json" || len(body) == 0 {
			return "not what was signed"
		}
		return "never mind"
	}})
	if status, answer := post(t, server, chat(user)); status != 401 || !strings.Contains(answer, "never mind") {
		t.Errorf("got %d %s", status, answer)
	}
}

func TestKey(t *testing.T) {
	server := start(t, fakemodel.Options{Key: "right"})
	server.Enqueue(fakemodel.Text("fine"))
	for key, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer right": 200} {
		request, err := http.NewRequest(http.MethodPost, server.Endpoint(fakemodel.Chat)+"/chat/completions", strings.NewReader(chat(user)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("key %q: got %d, want %d", key, response.StatusCode, want)
		}
	}
}

// TestCloseEndsHangingRequests checks that a server whose clients wait can be closed.
func TestCloseEndsHangingRequests(t *testing.T) {
	arrived := make(chan struct{})
	server := start(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer {
		close(arrived)
		return fakemodel.Hang()
	}})
	ended := make(chan error)
	go func() {
		response, err := http.Post(server.Endpoint(fakemodel.Chat)+"/chat/completions", "application/json", strings.NewReader(chat(user)))
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}()
	<-arrived
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a hanging request was answered")
	}
}

// TestLeft checks that the server notices a client that gives up.
func TestLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := start(t, fakemodel.Options{Answer: func(fakemodel.Request) fakemodel.Answer {
		cancel()
		return fakemodel.Hang()
	}})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.Endpoint(fakemodel.Chat)+"/chat/completions", strings.NewReader(chat(user)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(request); err == nil {
		t.Fatal("a hanging request was answered")
	}
	for deadline := time.Now().Add(5 * time.Second); server.Left() != 1; {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests were left", server.Left())
		}
	}
}

func TestDiffRequests(t *testing.T) {
	recorded := `{"model":"m","seed":9007199254740993,"messages":[{"role":"user","content":"Go."},{"role":"assistant","tool_calls":[` + one + `]},` + first + `]}`
	echo := strings.Replace(recorded, `"role":"assistant"`, `"content":null,"annotations":[],"role":"assistant"`, 1)
	tests := map[string]struct {
		sent  string
		named []fakemodel.Difference
		equal bool
	}{
		"the same":                       {recorded, nil, true},
		"members in another order":       {strings.Replace(recorded, `"role":"user","content":"Go."`, `"content":"Go.","role":"user"`, 1), nil, true},
		"empty members, not named":       {echo, nil, false},
		"empty members, named":           {echo, []fakemodel.Difference{fakemodel.EchoKeepsEmptyMembers}, true},
		"another text":                   {strings.Replace(echo, "Go.", "Go!", 1), []fakemodel.Difference{fakemodel.EchoKeepsEmptyMembers}, false},
		"an empty member of the user":    {strings.Replace(recorded, `"content":"Go."`, `"content":"Go.","name":null`, 1), []fakemodel.Difference{fakemodel.EchoKeepsEmptyMembers}, false},
		"a number that only looks equal": {strings.Replace(recorded, "9007199254740993", "9007199254740992", 1), nil, false},
		"not JSON":                       {`{`, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := fakemodel.DiffRequests([]byte(test.sent), []byte(recorded), test.named...); (diff == "") != test.equal {
				t.Errorf("got difference %q", diff)
			}
		})
	}
}

func TestGarbageIsGarbage(t *testing.T) {
	for name, body := range fakemodel.Garbage(fakemodel.Chat) {
		var reply struct {
			Choices []struct {
				Message *fakemodel.ChatMessage `json:"message"`
				Reason  string                 `json:"finish_reason"`
			} `json:"choices"`
		}
		valid := json.Unmarshal(body, &reply) == nil && !bytes.Contains(body, []byte{0xff})
		if valid && len(reply.Choices) > 0 && reply.Choices[0].Message != nil {
			t.Errorf("%s is a reply", name)
		}
	}
}
