package anthropic_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const secret = "sk-ant-verysecretkey123"

func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	var failure *model.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a model error", err)
	}
	checkError(t, failure)
	return failure
}

var legalCode = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,64}$`)

// checkError checks what holds for every error.
func checkError(t *testing.T, failure *model.Error) {
	t.Helper()
	switch failure.Class {
	case model.ClassTransient, model.ClassThrottled, model.ClassUnauthorized, model.ClassQuota,
		model.ClassOverflow, model.ClassRequest, model.ClassCanceled:
	default:
		t.Errorf("unknown class %q", failure.Class)
	}
	if !legalCode.MatchString(failure.Code) {
		t.Errorf("code %q is no code", failure.Code)
	}
	if failure.Detail == "" {
		t.Error("no detail")
	}
	if failure.RetryAfter < 0 || failure.RetryAfter > 366*24*time.Hour {
		t.Errorf("a wait of %s", failure.RetryAfter)
	}
	if strings.Contains(failure.Error(), secret) {
		t.Errorf("the error holds the key: %v", failure)
	}
}

func TestInterpretStatus(t *testing.T) {
	want := map[model.Class][]int{
		model.ClassRequest:      {101, 301, 302, 307, 308, 400, 404, 405, 410, 415, 422},
		model.ClassUnauthorized: {401, 403},
		model.ClassQuota:        {402},
		model.ClassOverflow:     {413},
		model.ClassTransient:    {408, 409, 424, 425, 500, 502, 503, 504, 599},
		model.ClassThrottled:    {429, 529},
	}
	for class, statuses := range want {
		for _, status := range statuses {
			for name, body := range map[string]string{
				"empty": "", "HTML": "<html>", "null": "null", "a list": "[]", "no members": `{"error":{}}`, "a message": `{"error":{"message":"` + secret + `"}}`,
			} {
				_, failure := anthropic.Interpret(wire.Response{Status: status, Body: []byte(body)}, model.Request{})
				if failure == nil {
					t.Errorf("status %d with body %s is no error", status, name)
					continue
				}
				checkError(t, failure)
				if failure.Class != class || failure.Status != status || !failure.Sent {
					t.Errorf("status %d with body %s: got class %s, status %d, sent %v; want class %s", status, name, failure.Class, failure.Status, failure.Sent, class)
				}
			}
		}
	}
}

// said is an error as the vendor writes it.
func said(kind, code, message string) string {
	details := ""
	if code != "" {
		details = `,"details":{"error_code":"` + code + `"}`
	}
	return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"` + details + `},"request_id":"req_8"}`
}

func TestInterpretBody(t *testing.T) {
	tests := map[string]struct {
		status    int
		body      string
		wantClass model.Class
		wantCode  string
	}{
		"a bad request":             {400, said("invalid_request_error", "", "max_tokens: Field required"), model.ClassRequest, "invalid_request_error"},
		"a changed prefix":          {400, said("invalid_request_error", "", "thinking blocks: prefix mismatch"), model.ClassRequest, "invalid_request_error"},
		"too many tools":            {400, said("invalid_request_error", "available_tools_limit_exceeded", "x"), model.ClassRequest, "available_tools_limit_exceeded"},
		"a bad key":                 {401, said("authentication_error", "", "invalid key "+secret), model.ClassUnauthorized, "authentication_error"},
		"no permission":             {403, said("permission_error", "", "x"), model.ClassUnauthorized, "permission_error"},
		"no bill paid":              {402, said("billing_error", "", "x"), model.ClassQuota, "billing_error"},
		"somebody else's bill":      {402, said("billing_error", "linked_organization_spend_limit_reached", "x"), model.ClassQuota, "linked_organization_spend_limit_reached"},
		"no such model":             {404, said("not_found_error", "", "model: claude"), model.ClassRequest, "not_found_error"},
		"a conflict":                {409, said("conflict_error", "", "x"), model.ClassTransient, "conflict_error"},
		"a large request":           {413, said("request_too_large", "", "x"), model.ClassOverflow, "request_too_large"},
		"too many requests":         {429, said("rate_limit_error", "", "x"), model.ClassThrottled, "rate_limit_error"},
		"too steep a rise":          {429, said("rate_limit_error", "ramp_limit_exceeded", "x"), model.ClassThrottled, "ramp_limit_exceeded"},
		"the month's spend limit":   {429, said("rate_limit_error", "enforced_spend_limit_reached", "x"), model.ClassQuota, "enforced_spend_limit_reached"},
		"the contract's limit":      {429, said("rate_limit_error", "contract_spend_limit_reached", "x"), model.ClassQuota, "contract_spend_limit_reached"},
		"one's own spend limit":     {400, said("invalid_request_error", "", "You have reached your specified API usage limits. You will regain access on 2026-12-01"), model.ClassQuota, "invalid_request_error"},
		"no credit":                 {400, said("invalid_request_error", "", "Your credit balance is too low to access the API"), model.ClassQuota, "invalid_request_error"},
		"trouble":                   {500, said("api_error", "", "x"), model.ClassTransient, "api_error"},
		"no time left":              {504, said("timeout_error", "", "x"), model.ClassTransient, "timeout_error"},
		"overloaded":                {529, said("overloaded_error", "", "Overloaded"), model.ClassThrottled, "overloaded_error"},
		"overloaded, behind a 500":  {500, said("overloaded_error", "", "Overloaded"), model.ClassThrottled, "overloaded_error"},
		"a long prompt":             {400, said("invalid_request_error", "", "prompt is too long: 200001 tokens > 200000 maximum"), model.ClassOverflow, "invalid_request_error"},
		"a long prompt and limit":   {400, said("invalid_request_error", "", "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000"), model.ClassOverflow, "invalid_request_error"},
		"a text in a success":       {200, said("overloaded_error", "", "Overloaded"), model.ClassThrottled, "overloaded_error"},
		"an unknown success error":  {200, `{"error":{"message":"x"}}`, model.ClassTransient, ""},
		"a success error in words":  {200, `{"error":"x"}`, model.ClassTransient, ""},
		"an invalid success error":  {200, said("invalid_request_error", "", "prompt is too long"), model.ClassOverflow, "invalid_request_error"},
		"a spent success error":     {200, said("billing_error", "", "x"), model.ClassQuota, "billing_error"},
		"another server's error":    {429, `{"error":{"message":"x","type":null,"code":"slow"}}`, model.ClassThrottled, "slow"},
		"an error in words":         {400, `{"error":"prompt is too long"}`, model.ClassOverflow, ""},
		"a framework's error":       {400, `{"detail":"This model's maximum context length is 10"}`, model.ClassOverflow, ""},
		"words for a code":          {400, said("it is "+secret, "", "x"), model.ClassRequest, ""},
		"a member twice":            {400, `{"error":{"type":"billing_error","type":"x"}}`, model.ClassRequest, ""},
		"Vertex AI's error":         {429, `[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}]`, model.ClassThrottled, "RESOURCE_EXHAUSTED"},
		"Vertex AI's own":           {404, `{"error":{"code":404,"message":"x","status":"NOT_FOUND"}}`, model.ClassRequest, "NOT_FOUND"},
		"Bedrock's throttling":      {429, `{"message":"Too many tokens, please wait before trying again."}`, model.ClassThrottled, ""},
		"Bedrock's quota of a day":  {429, `{"message":"Too many tokens per day, please wait before trying again."}`, model.ClassQuota, ""},
		"Bedrock's long prompt":     {400, `{"message":"Input is too long for requested model."}`, model.ClassOverflow, ""},
		"Bedrock's type in a body":  {400, `{"__type":"ServiceQuotaExceededException","Message":"x"}`, model.ClassQuota, "ServiceQuotaExceededException"},
		"Bedrock's model's mistake": {424, `{"message":"x"}`, model.ClassTransient, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, failure := anthropic.Interpret(wire.Response{Status: test.status, Body: []byte(test.body)}, model.Request{})
			if failure == nil {
				t.Fatal("no error")
			}
			checkError(t, failure)
			if failure.Class != test.wantClass || failure.Code != test.wantCode {
				t.Errorf("got class %s and code %q, want %s and %q", failure.Class, failure.Code, test.wantClass, test.wantCode)
			}
		})
	}
}

// TestInterpretAWSHeader checks the error that AWS names in a header.
func TestInterpretAWSHeader(t *testing.T) {
	for header, want := range map[string]struct {
		status int
		class  model.Class
		code   string
	}{
		"ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/": {429, model.ClassThrottled, "ThrottlingException"},
		"ServiceQuotaExceededException":                                            {400, model.ClassQuota, "ServiceQuotaExceededException"},
		"ExpiredTokenException":                                                    {403, model.ClassUnauthorized, "ExpiredTokenException"},
		"ModelTimeoutException":                                                    {408, model.ClassTransient, "ModelTimeoutException"},
		"not a code":                                                               {400, model.ClassRequest, ""},
	} {
		response := wire.Response{Status: want.status, Header: http.Header{"X-Amzn-Errortype": {header}}, Body: []byte(`{"message":"x"}`)}
		_, failure := anthropic.Interpret(response, model.Request{})
		checkError(t, failure)
		if failure.Class != want.class || failure.Code != want.code {
			t.Errorf("%s: got class %s and code %q", header, failure.Class, failure.Code)
		}
	}
}

func TestInterpretFilter(t *testing.T) {
	body := []byte(said("invalid_request_error", "", "Output blocked by content filtering policy"))
	got, failure := anthropic.Interpret(wire.Response{Status: 400, Body: body}, model.Request{})
	if failure != nil {
		t.Fatal(failure)
	}
	checkReply(t, got)
	if got.Decision.Kind != model.KindRefused || got.RequestID != "req_8" {
		t.Errorf("got %+v", got)
	}
}

func TestInterpretRequestID(t *testing.T) {
	body := []byte(reply("end_turn", textBlock))
	failed := []byte(said("api_error", "", "x"))
	for name, test := range map[string]struct {
		header http.Header
		want   string
	}{
		"the vendor's before a proxy's": {http.Header{"Request-Id": {"req_1"}, "X-Request-Id": {"proxy"}}, "req_1"},
		"AWS's":                         {http.Header{"X-Amzn-Requestid": {"1-2"}}, "1-2"},
		"none":                          {nil, ""},
		"words":                         {http.Header{"Request-Id": {"not an id"}}, ""},
	} {
		got, _ := anthropic.Interpret(wire.Response{Status: 200, Header: test.header, Body: body}, model.Request{})
		want := test.want
		if want == "" {
			want = "msg_7"
		}
		if got.RequestID != want {
			t.Errorf("%s: got %q, want %q", name, got.RequestID, want)
		}
		_, failure := anthropic.Interpret(wire.Response{Status: 500, Header: test.header, Body: failed}, model.Request{})
		want = test.want
		if want == "" {
			want = "req_8"
		}
		if !strings.HasSuffix(failure.Detail, ", request "+want) {
			t.Errorf("%s: got %q, want %s", name, failure.Detail, want)
		}
	}
}

func TestInterpretWait(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	reset := func(limit, remaining string, after time.Duration) http.Header {
		return http.Header{
			"Anthropic-Ratelimit-" + limit + "-Reset":     {now.Add(after).Format(time.RFC3339)},
			"Anthropic-Ratelimit-" + limit + "-Remaining": {remaining},
		}
	}
	both := func(headers ...http.Header) http.Header {
		all := http.Header{}
		for _, h := range headers {
			for name, values := range h {
				all[name] = values
			}
		}
		return all
	}
	seconds := http.Header{"Retry-After": {"7"}}
	tests := map[string]struct {
		status int
		header http.Header
		want   time.Duration
	}{
		"seconds":                      {429, seconds, 7 * time.Second},
		"seconds of an overload":       {529, seconds, 7 * time.Second},
		"seconds of a server error":    {503, seconds, 7 * time.Second},
		"seconds of a bad request":     {400, seconds, 0},
		"a date":                       {429, http.Header{"Retry-After": {now.Add(time.Minute).Format(http.TimeFormat)}}, time.Minute},
		"milliseconds":                 {429, http.Header{"Retry-After-Ms": {"250"}}, 250 * time.Millisecond},
		"nothing":                      {429, nil, 0},
		"requests used up":             {429, reset("Requests", "0", time.Minute), time.Minute},
		"input tokens used up":         {429, both(reset("Input-Tokens", "0", time.Minute), reset("Requests", "9", time.Hour), reset("Output-Tokens", "9", time.Hour)), time.Minute},
		"two used up":                  {429, both(reset("Requests", "0", time.Second), reset("Tokens", "0", time.Minute)), time.Minute},
		"tokens too few":               {429, both(reset("Tokens", "12", 3*time.Second), reset("Input-Tokens", "9", 5*time.Second), reset("Requests", "9", time.Minute)), 5 * time.Second},
		"requests alone":               {429, reset("Requests", "5", 4*time.Second), 4 * time.Second},
		"a reset in the past":          {429, reset("Requests", "0", -time.Minute), 0},
		"retry-after before resets":    {429, both(seconds, reset("Requests", "0", time.Hour)), 7 * time.Second},
		"retry-after of nothing":       {429, both(http.Header{"Retry-After": {"0"}}, reset("Requests", "0", time.Hour)), 0},
		"resets beside an overload":    {529, reset("Requests", "0", time.Minute), 0},
		"resets beside a server error": {503, reset("Requests", "0", time.Minute), 0},
		"resets for ever":              {429, reset("Requests", "0", 10000*24*time.Hour), 366 * 24 * time.Hour},
		"nonsense":                     {429, http.Header{"Anthropic-Ratelimit-Requests-Reset": {"soon"}, "Retry-After": {""}}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, failure := anthropic.Interpret(wire.Response{Status: test.status, Header: test.header, ReceivedAt: now}, model.Request{})
			checkError(t, failure)
			if failure.RetryAfter != test.want {
				t.Errorf("got a wait of %s, want %s", failure.RetryAfter, test.want)
			}
		})
	}
}

func TestInterpretShouldNotRetry(t *testing.T) {
	header := http.Header{"X-Should-Retry": {"false"}, "Retry-After": {"1"}, "Anthropic-Ratelimit-Requests-Reset": {"2030-01-01T00:00:00Z"}}
	for status, want := range map[int]model.Class{429: model.ClassQuota, 529: model.ClassQuota, 500: model.ClassRequest, 409: model.ClassRequest} {
		_, failure := anthropic.Interpret(wire.Response{Status: status, Header: header, ReceivedAt: time.Unix(1790000000, 0)}, model.Request{})
		if failure.Class != want || failure.RetryAfter != 0 {
			t.Errorf("status %d: got class %s and a wait of %s, want class %s", status, failure.Class, failure.RetryAfter, want)
		}
	}
}

func TestInterpretRenamesUsedIDs(t *testing.T) {
	request := model.Request{Messages: []model.Message{
		{Role: model.RoleUser, Text: "Go."},
		{Role: model.RoleAssistant, Calls: []model.Call{wantA}},
		{Role: model.RoleTool, CallID: "toolu_a", Text: "1"},
	}}
	body := []byte(reply("tool_use", thought, callA, callB))
	got, failure := anthropic.Interpret(wire.Response{Status: 200, Body: body}, request)
	if failure != nil {
		t.Fatal(failure)
	}
	checkReply(t, got)
	if first, second := got.Decision.Calls[0].ID, got.Decision.Calls[1].ID; first == "toolu_a" || second != "toolu_b" {
		t.Errorf("got ids %q and %q, want a new one and toolu_b", first, second)
	}
	if !strings.HasPrefix(string(got.Raw), "["+thought+`,{"type":"tool_use",`) || !strings.HasSuffix(string(got.Raw), ","+callB+"]") {
		t.Errorf("more than the id was changed: %s", got.Raw)
	}
	again, _ := anthropic.Interpret(wire.Response{Status: 200, Body: body}, request)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same reply was given other ids:\n%s", diff)
	}
}

func TestInterpretCutWithoutStopReason(t *testing.T) {
	body := []byte(reply("", textBlock))
	got, _ := anthropic.Interpret(wire.Response{Status: 200, Body: body}, model.Request{MaxOutputTokens: 5})
	checkReply(t, got)
	if got.Decision.Code != model.CodeCutOff {
		t.Errorf("a reply as long as was allowed, without a stop reason, is %s", got.Decision.Kind)
	}
	got, _ = anthropic.Interpret(wire.Response{Status: 200, Body: body}, model.Request{MaxOutputTokens: 6})
	if got.Decision.Kind != model.KindFinal {
		t.Errorf("a reply shorter than was allowed is %s", got.Decision.Kind)
	}
}
