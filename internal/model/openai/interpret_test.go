package openai_test

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const secret = "sk-verysecretkey123"

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
		model.ClassTransient:    {408, 409, 424, 425, 499, 500, 502, 503, 504, 599},
		model.ClassThrottled:    {429, 529},
	}
	for class, statuses := range want {
		for _, status := range statuses {
			for name, body := range map[string]string{
				"empty": "", "HTML": "<html>", "null": "null", "no members": `{"error":{}}`, "a message": `{"error":{"message":"` + secret + `"}}`,
			} {
				_, failure := openai.Interpret(wire.Response{Status: status, Body: []byte(body)}, model.Request{})
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

func TestInterpretBody(t *testing.T) {
	tests := map[string]struct {
		status    int
		body      string
		wantClass model.Class
		wantCode  string
	}{
		"a bad key":                     {401, `{"error":{"message":"Incorrect key ` + secret + `","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, model.ClassUnauthorized, "invalid_api_key"},
		"no such model":                 {404, `{"error":{"code":"model_not_found","type":"invalid_request_error"}}`, model.ClassRequest, "model_not_found"},
		"too long, by code":             {400, `{"error":{"code":"context_length_exceeded","type":"invalid_request_error"}}`, model.ClassOverflow, "context_length_exceeded"},
		"too long, with a top level":    {400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","code":400}`, model.ClassOverflow, "BadRequestError"},
		"too long, of another server":   {400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`, model.ClassOverflow, "exceed_context_size_error"},
		"too long, in a detail":         {422, `{"detail":"Prompt is too long"}`, model.ClassOverflow, ""},
		"a large reply asked for":       {400, `{"error":{"message":"max_tokens is too large: 100000.","type":"invalid_request_error","param":"max_tokens","code":null}}`, model.ClassRequest, "invalid_request_error"},
		"a rate limit":                  {429, `{"error":{"type":"requests","code":"rate_limit_exceeded"}}`, model.ClassThrottled, "rate_limit_exceeded"},
		"a quota":                       {429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, model.ClassQuota, "insufficient_quota"},
		"a quota, by type alone":        {429, `{"error":{"type":"insufficient_quota","code":null}}`, model.ClassQuota, "insufficient_quota"},
		"a bill":                        {429, `{"error":{"code":"billing_hard_limit_reached"}}`, model.ClassQuota, "billing_hard_limit_reached"},
		"a quota under another status":  {403, `{"error":{"code":"insufficient_user_quota"}}`, model.ClassQuota, "insufficient_user_quota"},
		"an overloaded server":          {503, `{"error":{"code":"server_is_overloaded"}}`, model.ClassThrottled, "server_is_overloaded"},
		"slow down":                     {503, `{"error":{"type":"slow_down"}}`, model.ClassThrottled, "slow_down"},
		"an error that is text":         {500, `{"error":"model runner has unexpectedly stopped"}`, model.ClassTransient, ""},
		"a router's 429":                {429, `{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"{\"error\":{\"message\":\"slow\",\"code\":\"rate_limit_exceeded\"}}","provider_name":"X"}}}`, model.ClassThrottled, "rate_limit_exceeded"},
		"a router's words":              {429, `{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"some-model is temporarily rate-limited upstream","provider_name":"X"}}}`, model.ClassThrottled, "429"},
		"a quota behind a router":       {429, `{"error":{"code":429,"metadata":{"raw":"{\"error\":{\"code\":\"insufficient_quota\"}}"}}}`, model.ClassQuota, "insufficient_quota"},
		"too long behind a router":      {400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"maximum context length is 10\"}}"}}}`, model.ClassOverflow, "400"},
		"success with an error":         {200, `{"error":{"message":"busy","code":429}}`, model.ClassThrottled, "429"},
		"success with an auth error":    {200, `{"error":{"code":"invalid_api_key"}}`, model.ClassUnauthorized, "invalid_api_key"},
		"success with a request error":  {200, `{"error":{"type":"invalid_request_error","message":"no"}}`, model.ClassRequest, "invalid_request_error"},
		"success with a long prompt":    {200, `{"error":{"code":400,"message":"maximum context length is 10"}}`, model.ClassOverflow, "400"},
		"success with an overload":      {200, `{"error":{"type":"overloaded_error"}}`, model.ClassThrottled, "overloaded_error"},
		"success with an unknown error": {200, `{"error":{"message":"hm"}}`, model.ClassTransient, ""},
		"success with words":            {200, `{"error":"hm"}`, model.ClassTransient, ""},
		"an error in the choice":        {200, `{"choices":[{"error":{"code":502,"message":"gone"},"finish_reason":"error","message":{"role":"assistant","content":"4"}}]}`, model.ClassTransient, "502"},
		"a code that is free text":      {400, `{"error":{"code":"Client specified an invalid argument ` + secret + `","type":"bad"}}`, model.ClassRequest, "bad"},
		"a code that is too long":       {400, `{"error":{"code":"` + strings.Repeat("x", 65) + `"}}`, model.ClassRequest, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, failure := openai.Interpret(wire.Response{Status: test.status, Body: []byte(test.body)}, model.Request{})
			if failure == nil {
				t.Fatal("no error")
			}
			checkError(t, failure)
			if failure.Class != test.wantClass || failure.Code != test.wantCode || failure.Status != test.status {
				t.Errorf("got class %s, code %q, status %d; want class %s, code %q", failure.Class, failure.Code, failure.Status, test.wantClass, test.wantCode)
			}
		})
	}
}

// TestInterpretModelFault checks errors that are no reason to ask again, since they
// are about what the model said or was told.
func TestInterpretModelFault(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   model.Decision
	}{
		"a call that could not be parsed": {400, `{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=x>"}}`,
			model.Decision{Kind: model.KindInvalid, Code: model.CodeMalformed, Text: "<function=x>"}},
		"the same in a success": {200, `{"error":{"code":"tool_use_failed","type":"invalid_request_error"}}`, model.Decision{}},
		"input that was filtered": {400, `{"error":{"code":"content_filter","message":"The response was filtered","innererror":{}}}`,
			model.Decision{Kind: model.KindRefused}},
		"input that a router flagged": {403, `{"error":{"code":403,"message":"flagged","metadata":{"reasons":["violence"],"flagged_input":"..."}}}`,
			model.Decision{Kind: model.KindRefused}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, failure := openai.Interpret(wire.Response{Status: test.status, Body: []byte(test.body), Header: http.Header{"X-Request-Id": {"req_1"}}}, model.Request{})
			if failure != nil {
				t.Fatal(failure)
			}
			checkReply(t, got)
			got.Decision.Problem = ""
			if test.want.Kind == "" {
				test.want = model.Decision{Kind: model.KindInvalid, Code: model.CodeMalformed}
			}
			if diff := cmp.Diff(test.want, got.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if got.RequestID != "req_1" || got.StopReason == "" && test.status != 403 {
				t.Errorf("got request id %q, stop reason %q", got.RequestID, got.StopReason)
			}
		})
	}
}

func TestInterpretIgnoresEmptyErrors(t *testing.T) {
	for _, value := range []string{`null`, `{}`, `""`, `false`} {
		body := `{"error":` + value + `,"choices":[{"error":` + value + `,"message":{"role":"assistant","content":"42"},"finish_reason":"stop"}]}`
		got, failure := openai.Interpret(wire.Response{Status: 200, Body: []byte(body)}, model.Request{})
		if failure != nil || got.Decision.Kind != model.KindFinal {
			t.Errorf("error %s: got %+v, %v", value, got.Decision, failure)
		}
	}
}

func TestInterpretWait(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := now.Add(90 * time.Second).Format(http.TimeFormat)
	tests := map[string]struct {
		status int
		header http.Header
		want   time.Duration
	}{
		"nothing said":                    {429, nil, 0},
		"seconds":                         {429, http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		"a fraction":                      {429, http.Header{"Retry-After": {"1.5"}}, 1500 * time.Millisecond},
		"a date":                          {429, http.Header{"Retry-After": {date}}, 90 * time.Second},
		"a date in the past":              {429, http.Header{"Retry-After": {now.Add(-time.Hour).Format(http.TimeFormat)}}, 0},
		"the longer of two":               {429, http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"250"}}, 7 * time.Second},
		"milliseconds that are nonsense":  {429, http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"soon"}}, 7 * time.Second},
		"nonsense":                        {429, http.Header{"Retry-After": {"soon"}}, 0},
		"negative":                        {429, http.Header{"Retry-After": {"-5"}}, 0},
		"not a number":                    {429, http.Header{"Retry-After": {"NaN"}}, 0},
		"for ever":                        {429, http.Header{"Retry-After": {strings.Repeat("9", 300)}}, 366 * 24 * time.Hour},
		"without end":                     {429, http.Header{"Retry-After": {"Inf"}}, 0},
		"tokens exhausted":                {429, http.Header{"X-Ratelimit-Reset-Tokens": {"6m0s"}, "X-Ratelimit-Remaining-Tokens": {"0"}, "X-Ratelimit-Reset-Requests": {"1h"}, "X-Ratelimit-Remaining-Requests": {"9"}}, 6 * time.Minute},
		"requests exhausted":              {429, http.Header{"X-Ratelimit-Reset-Tokens": {"6m0s"}, "X-Ratelimit-Remaining-Tokens": {"5"}, "X-Ratelimit-Reset-Requests": {"8.64s"}, "X-Ratelimit-Remaining-Requests": {"0"}}, 8640 * time.Millisecond},
		"both exhausted":                  {429, http.Header{"X-Ratelimit-Reset-Tokens": {"20ms"}, "X-Ratelimit-Remaining-Tokens": {"0"}, "X-Ratelimit-Reset-Requests": {"2s"}, "X-Ratelimit-Remaining-Requests": {"0"}}, 2 * time.Second},
		"tokens too few":                  {429, http.Header{"X-Ratelimit-Reset-Tokens": {"3s"}, "X-Ratelimit-Remaining-Tokens": {"12"}}, 3 * time.Second},
		"requests alone":                  {429, http.Header{"X-Ratelimit-Reset-Requests": {"4"}}, 4 * time.Second},
		"retry-after before limits":       {429, http.Header{"Retry-After": {"1"}, "X-Ratelimit-Reset-Requests": {"40s"}}, time.Second},
		"an overloaded server":            {529, http.Header{"Retry-After": {"3"}}, 3 * time.Second},
		"a server error that says when":   {503, http.Header{"Retry-After": {"3"}}, 3 * time.Second},
		"limits beside a server error":    {503, http.Header{"X-Ratelimit-Reset-Requests": {"40s"}}, 0},
		"a bad request that says when":    {400, http.Header{"Retry-After": {"3"}}, 0},
		"a success error with a wait":     {200, http.Header{"Retry-After": {"3"}}, 3 * time.Second},
		"a wait of a year and a day more": {429, http.Header{"Retry-After": {strconv.Itoa(400 * 24 * 3600)}}, 366 * 24 * time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := ""
			if test.status == 200 {
				body = `{"error":{"code":429}}`
			}
			_, failure := openai.Interpret(wire.Response{Status: test.status, Header: test.header, Body: []byte(body), ReceivedAt: now}, model.Request{})
			checkError(t, failure)
			if failure.RetryAfter != test.want {
				t.Errorf("got a wait of %s, want %s", failure.RetryAfter, test.want)
			}
		})
	}
}

func TestInterpretShouldNotRetry(t *testing.T) {
	header := http.Header{"X-Should-Retry": {"false"}, "Retry-After": {"1"}}
	for status, want := range map[int]model.Class{
		429: model.ClassQuota, 529: model.ClassQuota, 500: model.ClassRequest, 409: model.ClassRequest, 401: model.ClassUnauthorized,
	} {
		_, failure := openai.Interpret(wire.Response{Status: status, Header: header}, model.Request{})
		if failure.Class != want || failure.RetryAfter != 0 {
			t.Errorf("status %d: got class %s and a wait of %s, want class %s", status, failure.Class, failure.RetryAfter, want)
		}
	}
}

func TestInterpretRenamesUsedIDs(t *testing.T) {
	request := model.Request{Messages: []model.Message{
		{Role: model.RoleUser, Text: "Go."},
		{Role: model.RoleAssistant, Calls: []model.Call{{ID: "call_a", Alias: "lookup"}}},
		{Role: model.RoleTool, CallID: "call_a", Text: "1"},
	}}
	body := []byte(reply(withCalls(callA, callB), `"tool_calls"`))
	got, failure := openai.Interpret(wire.Response{Status: 200, Body: body}, request)
	if failure != nil {
		t.Fatal(failure)
	}
	checkReply(t, got)
	if first, second := got.Decision.Calls[0].ID, got.Decision.Calls[1].ID; first == "call_a" || second != "call_b" {
		t.Errorf("got ids %q and %q, want a new one and call_b", first, second)
	}
	again, _ := openai.Interpret(wire.Response{Status: 200, Body: body}, request)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same reply was given other ids:\n%s", diff)
	}
}

func TestInterpretCutWithoutStopReason(t *testing.T) {
	body := []byte(reply(`{"role":"assistant","content":"4"}`, ""))
	got, _ := openai.Interpret(wire.Response{Status: 200, Body: body}, model.Request{MaxOutputTokens: 5})
	checkReply(t, got)
	if got.Decision.Code != model.CodeCutOff {
		t.Errorf("a reply as long as was allowed, without a stop reason, is %s", got.Decision.Kind)
	}
	got, _ = openai.Interpret(wire.Response{Status: 200, Body: body}, model.Request{MaxOutputTokens: 6})
	if got.Decision.Kind != model.KindFinal {
		t.Errorf("a reply shorter than was allowed is %s", got.Decision.Kind)
	}
}
