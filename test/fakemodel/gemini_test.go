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

// postGemini sends a body and returns the status and the response body.
func postGemini(t *testing.T, server *fakemodel.Server, path, body string) (int, string) {
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
	geminiPath = "/v1beta/models/gemini-2.5-flash:generateContent"
	signedPath = "/v1beta/models/gemini-3-pro:generateContent"
	vertexPath = "/v1/projects/my-project/locations/global/publishers/google/models/gemini-2.5-flash:generateContent"

	gUser    = `{"role":"user","parts":[{"text":"Go."}]}`
	gCalls   = `{"role":"model","parts":[` + gOne + `,` + gTwo + `]}`
	gOne     = `{"functionCall":{"id":"1","name":"lookup","args":{"a":1}}}`
	gTwo     = `{"functionCall":{"name":"search"}}`
	gFirst   = `{"functionResponse":{"id":"1","name":"lookup","response":{"output":"a"}}}`
	gSecond  = `{"functionResponse":{"name":"search","response":{"error":"b"}}}`
	gResults = `{"role":"user","parts":[` + gFirst + `,` + gSecond + `]}`
	gTools   = `"tools":[{"functionDeclarations":[{"name":"lookup","description":"x","parametersJsonSchema":{"type":"object"}},{"name":"search","description":"y"}]}],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}`
)

// generate is a request of these contents, each as JSON text.
func generate(contents ...string) string {
	return `{"systemInstruction":{"role":"user","parts":[{"text":"Be brief."}]},` + gTools +
		`,"contents":[` + strings.Join(contents, ",") + `],"generationConfig":{"maxOutputTokens":9}}`
}

func TestGeminiRefusals(t *testing.T) {
	signed := strings.Replace(gCalls, `"args":{"a":1}}}`, `"args":{"a":1}},"thoughtSignature":"skip_thought_signature_validator"}`, 1)
	tests := map[string]struct {
		path, body string
		// want is part of the reason; "" for an accepted request.
		want string
	}{
		"a first request":                {geminiPath, generate(gUser), ""},
		"on the platform":                {vertexPath, generate(gUser), ""},
		"results of calls":               {geminiPath, generate(gUser, gCalls, gResults), ""},
		"feedback after results":         {geminiPath, generate(gUser, gCalls, gResults, gUser), ""},
		"no tools":                       {geminiPath, `{"contents":[` + gUser + `]}`, ""},
		"calls of another model":         {signedPath, generate(gUser, signed, gResults), ""},
		"calls without a signature":      {signedPath, generate(gUser, gCalls, gResults), "missing a thought_signature"},
		"a query":                        {geminiPath + "?key=x", generate(gUser), "query"},
		"no JSON":                        {geminiPath, `{`, "not a JSON object"},
		"no contents":                    {geminiPath, `{"contents":[]}`, "contents"},
		"an unknown member":              {geminiPath, strings.Replace(generate(gUser), `"contents"`, `"messages":[],"contents"`, 1), `unknown member "messages"`},
		"another name for a member":      {geminiPath, strings.Replace(generate(gUser), `systemInstruction`, `system_instruction`, 1), "system_instruction"},
		"an unknown setting":             {geminiPath, strings.Replace(generate(gUser), `"maxOutputTokens"`, `"max_tokens":1,"maxOutputTokens"`, 1), "max_tokens"},
		"a limit of 0":                   {geminiPath, strings.Replace(generate(gUser), `:9`, `:0`, 1), "positive"},
		"two candidates":                 {geminiPath, strings.Replace(generate(gUser), `"maxOutputTokens"`, `"candidateCount":2,"maxOutputTokens"`, 1), "one candidate"},
		"an unknown mode":                {geminiPath, strings.Replace(generate(gUser), "AUTO", "auto", 1), "mode"},
		"a mode without tools":           {geminiPath, strings.Replace(generate(gUser), `"tools"`, `"labels"`, 1), "only with tools"},
		"no tools in the list":           {geminiPath, strings.Replace(`{"tools":[],"contents":[]}`, `[]}`, `[`+gUser+`]}`, 1), "at least one tool"},
		"no functions":                   {geminiPath, `{"tools":[{"functionDeclarations":[]}],"contents":[` + gUser + `]}`, "no functions"},
		"a function twice":               {geminiPath, strings.Replace(generate(gUser), "search", "lookup", 1), "earlier one"},
		"an illegal function name":       {geminiPath, strings.Replace(generate(gUser), "search", "1up", 1), "illegal name"},
		"a schema of a list":             {geminiPath, strings.Replace(generate(gUser), `{"type":"object"}`, `{"type":"array"}`, 1), "no object"},
		"two schemas":                    {geminiPath, strings.Replace(generate(gUser), `"parametersJsonSchema"`, `"parameters":{},"parametersJsonSchema"`, 1), "two languages"},
		"the model first":                {geminiPath, generate(`{"role":"model","parts":[{"text":"Hi."}]}`, gUser), "first content"},
		"the model last":                 {geminiPath, generate(gUser, `{"role":"model","parts":[{"text":"Hi."}]}`), "last content"},
		"the model twice":                {geminiPath, generate(gUser, `{"role":"model","parts":[{"text":"Hi."}]}`, `{"role":"model","parts":[{"text":"Hi."}]}`, gUser), "like the one before"},
		"an unknown role":                {geminiPath, generate(gUser, `{"role":"assistant","parts":[{"text":"Hi."}]}`, gUser), "unknown role"},
		"no role":                        {geminiPath, generate(`{"parts":[{"text":"Hi."}]}`), "unknown role"},
		"no parts":                       {geminiPath, generate(`{"role":"user","parts":[]}`), "no parts"},
		"an empty part":                  {geminiPath, generate(`{"role":"user","parts":[{}]}`), "exactly one"},
		"a thought of nothing":           {geminiPath, generate(gUser, `{"role":"model","parts":[{"thought":true}]}`, gUser), "exactly one"},
		"empty text":                     {geminiPath, generate(`{"role":"user","parts":[{"text":""}]}`), "empty text"},
		"two kinds in a part":            {geminiPath, generate(gUser, strings.Replace(gCalls, `{"functionCall"`, `{"text":"x","functionCall"`, 1), gResults), "exactly one"},
		"an unknown member of a part":    {geminiPath, generate(`{"role":"user","parts":[{"text":"x","cache":1}]}`), "cache"},
		"an unknown member of a call":    {geminiPath, generate(gUser, strings.Replace(gCalls, `"args"`, `"arguments"`, 1), gResults), "arguments"},
		"an unknown member of a result":  {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, `"id"`, `"callId"`, 1)), "callId"},
		"a signature that is none":       {geminiPath, generate(gUser, strings.Replace(signed, "skip_", "skip ", 1), gResults), "base64"},
		"a call with an illegal name":    {geminiPath, generate(gUser, strings.ReplaceAll(gCalls, `lookup`, `a/b`), gResults), "illegal name"},
		"args that are text":             {geminiPath, generate(gUser, strings.Replace(gCalls, `{"a":1}`, `"{}"`, 1), gResults), "no object"},
		"a call of the user":             {geminiPath, generate(`{"role":"user","parts":[`+gOne+`]}`, gResults), "call of the user"},
		"a result of the model":          {geminiPath, generate(gUser, strings.Replace(gResults, "user", "model", 1), gUser), "result of the model"},
		"a result without a name":        {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, "lookup", "", 1)), "no name"},
		"a result of text":               {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, `{"output":"a"}`, `"a"`, 1)), "wrong type"},
		"a result under another name":    {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, `output`, `result`, 1)), "neither"},
		"output and error":               {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, `{"output"`, `{"error":"x","output"`, 1)), "neither"},
		"two calls with one id":          {geminiPath, generate(gUser, strings.Replace(gCalls, gTwo, gOne, 1), strings.Replace(gResults, gSecond, gFirst, 1)), "one id"},
		"no results":                     {geminiPath, generate(gUser, gCalls, gUser), "0 results for 2 calls"},
		"a result too few":               {geminiPath, generate(gUser, gCalls, `{"role":"user","parts":[`+gFirst+`]}`), "1 results for 2 calls"},
		"a result too many":              {geminiPath, generate(gUser, gCalls, `{"role":"user","parts":[`+gFirst+`,`+gSecond+`,`+gSecond+`]}`), "3 results for 2 calls"},
		"results in two contents":        {geminiPath, generate(gUser, gCalls, `{"role":"user","parts":[`+gFirst+`]}`, `{"role":"user","parts":[`+gSecond+`]}`), "1 results for 2 calls"},
		"results in another order":       {geminiPath, generate(gUser, gCalls, `{"role":"user","parts":[`+gSecond+`,`+gFirst+`]}`), "another function"},
		"a result of another function":   {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, "search", "lookup", 1)), "another function"},
		"a result with another id":       {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, `"1"`, `"2"`, 1)), "another id"},
		"a result with an id of its own": {geminiPath, generate(gUser, gCalls, strings.Replace(gResults, `{"name":"search"`, `{"id":"2","name":"search"`, 1)), "another id"},
		"a result of nothing":            {geminiPath, generate(gResults), "2 results for 0 calls"},
		"words among results":            {geminiPath, generate(gUser, gCalls, `{"role":"user","parts":[`+gFirst+`,`+gSecond+`,{"text":"x"}]}`), "beside results"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{AllowUnknownPrefix: true})
			server.Enqueue(fakemodel.Text("fine"))
			status, answer := postGemini(t, server, test.path, test.body)
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

func TestGeminiRequireOfferedCalls(t *testing.T) {
	server := start(t, fakemodel.Options{AllowUnknownPrefix: true, RequireOfferedCalls: true})
	server.Enqueue(fakemodel.Text("fine"))
	if status, _ := postGemini(t, server, geminiPath, generate(gUser, gCalls, gResults)); status != 200 {
		t.Errorf("calls of offered functions: got %d", status)
	}
	other := generate(gUser, strings.Replace(gCalls, "lookup", "other", 1), strings.Replace(gResults, "lookup", "other", 1))
	if status, _ := postGemini(t, server, geminiPath, other); status != 400 {
		t.Errorf("a call of another function: got %d", status)
	}
}

// TestGeminiSignatures checks what a reply's signatures have to look like when they come
// back.
func TestGeminiSignatures(t *testing.T) {
	for name, test := range map[string]struct {
		change func(content string) string
		want   bool
	}{
		"as it was":            {func(content string) string { return content }, true},
		"a signature left out": {func(content string) string { return withoutSignature(t, content) }, false},
		"a signature altered":  {func(content string) string { return strings.Replace(content, `Signature":"`, `Signature":"AAAA`, 1) }, false},
		"what is signed":       {func(content string) string { return strings.Replace(content, `"key":"a"`, `"key":"b"`, 1) }, false},
		"a signature moved":    {func(content string) string { return moved(t, content) }, false},
		"a thought left out":   {func(content string) string { return strings.Replace(content, `{"text":"Hm.","thought":true},`, "", 1) }, true},
		"one that is made up": {func(content string) string {
			return strings.Replace(withoutSignature(t, content), `"parts":[`, `"parts":[{"text":"","thoughtSignature":"AAAA"},`, 1)
		}, false},
		"the documented way to": {func(content string) string {
			return strings.Replace(withoutSignature(t, content), `{"functionCall"`, `{"thoughtSignature":"skip_thought_signature_validator","functionCall"`, 1)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := start(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"key":"a"}`}, fakemodel.Call{Name: "search"}), "Hm."), fakemodel.Text("fine"))
			_, answer := postGemini(t, server, signedPath, generate(gUser))
			content := contentOf(t, answer)
			results := strings.Replace(gResults, `"id":"1",`, "", 1)
			status, refusal := postGemini(t, server, signedPath, generate(gUser, test.change(content), results))
			if (status == 200) != test.want {
				t.Errorf("got %d %s", status, refusal)
			}
		})
	}
}

// contentOf is the content of the first candidate, with the members in a known order.
func contentOf(t *testing.T, answer string) string {
	t.Helper()
	var reply struct {
		Candidates []struct {
			Content map[string]any `json:"content"`
		} `json:"candidates"`
	}
	if err := json.Unmarshal([]byte(answer), &reply); err != nil {
		t.Fatal(err)
	}
	return marshal(t, reply.Candidates[0].Content)
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func partsOf(t *testing.T, content string) []map[string]any {
	t.Helper()
	var c struct {
		Parts []map[string]any `json:"parts"`
	}
	if err := json.Unmarshal([]byte(content), &c); err != nil {
		t.Fatal(err)
	}
	return c.Parts
}

func withoutSignature(t *testing.T, content string) string {
	t.Helper()
	parts := partsOf(t, content)
	for _, p := range parts {
		delete(p, "thoughtSignature")
	}
	return marshal(t, map[string]any{"role": "model", "parts": parts})
}

// moved puts the signature from the first call to the second.
func moved(t *testing.T, content string) string {
	t.Helper()
	parts := partsOf(t, content)
	parts[2]["thoughtSignature"] = parts[1]["thoughtSignature"]
	delete(parts[1], "thoughtSignature")
	return marshal(t, map[string]any{"role": "model", "parts": parts})
}

func TestGeminiReplies(t *testing.T) {
	usage := &model.Usage{InputTokens: 50, CacheReadTokens: 20, OutputTokens: 7, ReasoningTokens: 3, Reported: true}
	for name, test := range map[string]struct {
		reply fakemodel.Reply
		want  []string
	}{
		"an answer":      {fakemodel.Reply{Text: "fine"}, []string{`"parts":[{"text":"fine"}]`, `"finishReason":"STOP"`}},
		"nothing":        {fakemodel.Reply{}, []string{`"content":{"role":"model"}`}},
		"a thought":      {fakemodel.Reply{Text: "fine", Thoughts: []fakemodel.Thought{{Text: "Hm."}}}, []string{`{"text":"Hm.","thought":true},{"text":"fine","thoughtSignature":"`}},
		"a usage":        {fakemodel.Reply{Text: "fine", Usage: usage}, []string{`"promptTokenCount":50`, `"cachedContentTokenCount":20`, `"candidatesTokenCount":4`, `"thoughtsTokenCount":3`, `"totalTokenCount":57`}},
		"a refusal":      {fakemodel.Reply{Text: "no", Stop: fakemodel.StopRefused}, []string{`"PROHIBITED_CONTENT"`}},
		"a filter":       {fakemodel.Reply{Stop: fakemodel.StopFiltered}, []string{`"SAFETY"`}},
		"the limit":      {fakemodel.Reply{Text: "fi", Stop: fakemodel.StopCutOff}, []string{`"MAX_TOKENS"`}},
		"its own reason": {fakemodel.Reply{Text: "fi", StopReason: "OTHER"}, []string{`"OTHER"`}},
		"calls":          {fakemodel.Reply{Text: "See:", Calls: []fakemodel.Call{{Name: "a"}, {Name: "b"}}}, []string{`{"text":"See:"},{"functionCall":{"args":{},"name":"a"},"thoughtSignature":"`, `{"functionCall":{"args":{},"name":"b"}}]`}},
	} {
		body := string(fakemodel.Body(fakemodel.Gemini, fakemodel.Answer{Reply: &test.reply}))
		for _, want := range test.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s is not in %s", name, want, body)
			}
		}
	}
	for _, reply := range []fakemodel.Reply{{Stop: fakemodel.StopPaused}, {Stop: fakemodel.StopFull}, {Calls: []fakemodel.Call{{Name: "a", Arguments: "{"}}}} {
		if body, err := fakemodel.Gemini.Render(reply, &fakemodel.Names{}); err == nil {
			t.Errorf("the wire has no words for %+v, and got %s", reply, body)
		}
	}
}

func TestGeminiTrouble(t *testing.T) {
	server := start(t, fakemodel.Options{})
	for _, test := range []struct {
		answer fakemodel.Answer
		status int
		want   string
	}{
		{fakemodel.Throttled(90 * time.Second), 429, `"retryDelay":"90s"`},
		{fakemodel.Overloaded(), 503, "UNAVAILABLE"},
		{fakemodel.OutOfQuota(), 429, "PerDay"},
		{fakemodel.TooLong(), 400, "input token count"},
		{fakemodel.Answer{Trouble: &fakemodel.Trouble{Kind: fakemodel.TroubleInternal}}, 500, "INTERNAL"},
		{fakemodel.Answer{Trouble: &fakemodel.Trouble{Kind: fakemodel.TroubleKey}}, 400, "API_KEY_INVALID"},
		{fakemodel.Refuse(418, "TEAPOT", "short and stout"), 418, "TEAPOT"},
	} {
		server.Enqueue(test.answer)
		if status, answer := postGemini(t, server, geminiPath, generate(gUser)); status != test.status || !strings.Contains(answer, test.want) {
			t.Errorf("got %d %s, want %d with %s", status, answer, test.status, test.want)
		}
	}
}

// TestGeminiKey checks where the key of each address is.
func TestGeminiKey(t *testing.T) {
	server := start(t, fakemodel.Options{Key: "right"})
	server.Enqueue(fakemodel.Text("fine"), fakemodel.Text("fine"))
	for _, test := range []struct {
		path, header, value string
		want                int
	}{
		{geminiPath, "X-Goog-Api-Key", "right", 200},
		{geminiPath, "X-Goog-Api-Key", "wrong", 400},
		{geminiPath, "Authorization", "Bearer right", 400},
		{vertexPath, "Authorization", "Bearer right", 200},
		{vertexPath, "X-Goog-Api-Key", "right", 400},
	} {
		request, err := http.NewRequest(http.MethodPost, server.Root()+test.path, strings.NewReader(generate(gUser)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(test.header, test.value)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%+v: got %d", test, response.StatusCode)
		}
	}
}

// TestGeminiDescribes checks what a test reads of a request.
func TestGeminiDescribes(t *testing.T) {
	server := start(t, fakemodel.Options{AllowUnknownPrefix: true})
	server.Enqueue(fakemodel.Text("fine"))
	postGemini(t, server, geminiPath, generate(gUser, gCalls, gResults))
	r := server.Requests()[0]
	if r.Model != "gemini-2.5-flash" || r.System != "Be brief." || len(r.Tools) != 2 || string(r.Tools[0].Schema) != `{"type":"object"}` || len(r.Messages) != 4 {
		t.Fatalf("got model %q, system %q, %d tools and %d messages", r.Model, r.System, len(r.Tools), len(r.Messages))
	}
	if m := r.Messages[1]; m.Role != "assistant" || len(m.Calls) != 2 || m.Calls[0].Arguments != `{"a":1}` {
		t.Errorf("got %+v", m)
	}
	if m := r.Last(); m.Role != "tool" || m.Text != "b" || !m.Failed {
		t.Errorf("got %+v", m)
	}
}
