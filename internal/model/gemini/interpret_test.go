package gemini_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const secret = "AIzaVerySecretKey123"

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
		model.ClassTransient:    {408, 409, 425, 499, 500, 502, 503, 504, 599},
		model.ClassThrottled:    {429, 529},
	}
	for class, statuses := range want {
		for _, status := range statuses {
			for name, body := range map[string]string{
				"empty": "", "HTML": "<html>", "null": "null", "a list": "[]", "no members": `{"error":{}}`, "a message": `{"error":{"message":"` + secret + `"}}`,
			} {
				_, failure := gemini.Interpret(wire.Response{Status: status, Body: []byte(body)}, model.Request{})
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

// fault is an error body of the vendor's shape.
func fault(status, message string, details ...string) string {
	return `{"error":{"code":0,"message":"` + message + `","status":"` + status + `","details":[` + strings.Join(details, ",") + `]}}`
}

// Details of errors.
const (
	retrySoon = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.074824224s"}`
	help      = `{"@type":"type.googleapis.com/google.rpc.Help","links":[{"url":"https://ai.google.dev"}]}`
	perMinute = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier","quotaValue":"10"}]}`
	perDay    = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`
	dayLimit  = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","domain":"googleapis.com","metadata":{"quota_limit":"RequestsPerDayPerProject","service":"aiplatform.googleapis.com"}}`
	dayUnit   = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","metadata":{"quota_unit":"1/d/{project}"}}`
	badKey    = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}`
	noBilling = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"BILLING_DISABLED","domain":"googleapis.com"}`
)

func TestInterpretBody(t *testing.T) {
	tests := map[string]struct {
		status    int
		body      string
		wantClass model.Class
		wantCode  string
		wantWait  time.Duration
	}{
		"a bad key":                     {400, fault("INVALID_ARGUMENT", "API key not valid: "+secret, badKey), model.ClassUnauthorized, "API_KEY_INVALID", 0},
		"no key":                        {403, fault("PERMISSION_DENIED", "Method doesn't allow unregistered callers"), model.ClassUnauthorized, "PERMISSION_DENIED", 0},
		"a token that ended":            {401, fault("UNAUTHENTICATED", "invalid credentials"), model.ClassUnauthorized, "UNAUTHENTICATED", 0},
		"no such model":                 {404, fault("NOT_FOUND", "models/x is not found"), model.ClassRequest, "NOT_FOUND", 0},
		"a bad request":                 {400, fault("INVALID_ARGUMENT", "Invalid JSON payload received"), model.ClassRequest, "INVALID_ARGUMENT", 0},
		"a missing signature":           {400, fault("INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts."), model.ClassRequest, "INVALID_ARGUMENT", 0},
		"a place that is not served":    {400, fault("FAILED_PRECONDITION", "User location is not supported for the API use."), model.ClassRequest, "FAILED_PRECONDITION", 0},
		"a large reply asked for":       {400, fault("INVALID_ARGUMENT", "maxOutputTokens has a value of 100000 but the supported range is from 1 to 65537"), model.ClassRequest, "INVALID_ARGUMENT", 0},
		"too long":                      {400, fault("INVALID_ARGUMENT", "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."), model.ClassOverflow, "INVALID_ARGUMENT", 0},
		"too long, on the platform":     {400, fault("INVALID_ARGUMENT", "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576."), model.ClassOverflow, "INVALID_ARGUMENT", 0},
		"too large":                     {400, fault("INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."), model.ClassOverflow, "INVALID_ARGUMENT", 0},
		"a rate":                        {429, fault("RESOURCE_EXHAUSTED", "You exceeded your current quota", perMinute, help, retrySoon), model.ClassThrottled, "RESOURCE_EXHAUSTED", 34074824224},
		"a rate without details":        {429, fault("RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later."), model.ClassThrottled, "RESOURCE_EXHAUSTED", 0},
		"a wait in its parts":           {429, fault("RESOURCE_EXHAUSTED", "", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{"seconds":3,"nanos":1}}`), model.ClassThrottled, "RESOURCE_EXHAUSTED", 3 * time.Second},
		"a wait that is nonsense":       {429, fault("RESOURCE_EXHAUSTED", "", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"soon"}`), model.ClassThrottled, "RESOURCE_EXHAUSTED", 0},
		"a negative wait":               {429, fault("RESOURCE_EXHAUSTED", "", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"-5s"}`), model.ClassThrottled, "RESOURCE_EXHAUSTED", 0},
		"a day's quota":                 {429, fault("RESOURCE_EXHAUSTED", "You exceeded your current quota", perDay, help, retrySoon), model.ClassQuota, "RESOURCE_EXHAUSTED", 0},
		"a day's quota by its limit":    {429, fault("RESOURCE_EXHAUSTED", "", dayLimit), model.ClassQuota, "RATE_LIMIT_EXCEEDED", 0},
		"a day's quota by its unit":     {429, fault("RESOURCE_EXHAUSTED", "", dayUnit), model.ClassQuota, "RATE_LIMIT_EXCEEDED", 0},
		"no credit":                     {429, fault("RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."), model.ClassQuota, "RESOURCE_EXHAUSTED", 0},
		"a cap on spending":             {429, fault("RESOURCE_EXHAUSTED", "Your project has exceeded its monthly spending cap."), model.ClassQuota, "RESOURCE_EXHAUSTED", 0},
		"no payment":                    {402, fault("FAILED_PRECONDITION", ""), model.ClassQuota, "FAILED_PRECONDITION", 0},
		"no billing":                    {403, fault("PERMISSION_DENIED", "", noBilling), model.ClassQuota, "BILLING_DISABLED", 0},
		"an overloaded model":           {503, fault("UNAVAILABLE", "The model is overloaded. Please try again later."), model.ClassTransient, "UNAVAILABLE", 0},
		"an overload that says when":    {503, fault("UNAVAILABLE", "", retrySoon), model.ClassTransient, "UNAVAILABLE", 34074824224},
		"an internal error":             {500, fault("INTERNAL", "An internal error has occurred"), model.ClassTransient, "INTERNAL", 0},
		"a deadline":                    {504, fault("DEADLINE_EXCEEDED", ""), model.ClassTransient, "DEADLINE_EXCEEDED", 0},
		"an error in a list":            {429, `[` + fault("RESOURCE_EXHAUSTED", "", perDay) + `]`, model.ClassQuota, "RESOURCE_EXHAUSTED", 0},
		"an error that is text":         {500, `{"error":"gone"}`, model.ClassTransient, "", 0},
		"a wait beside a bad request":   {400, fault("INVALID_ARGUMENT", "", retrySoon), model.ClassRequest, "INVALID_ARGUMENT", 0},
		"details of the wrong types":    {429, `{"error":{"code":"429","message":7,"status":"RESOURCE_EXHAUSTED","details":[7,{"@type":7},{"@type":"google.rpc.QuotaFailure","violations":[7,{"quotaId":7}]},{"@type":"x/google.rpc.ErrorInfo","reason":"` + secret + ` is bad","metadata":[]}]}}`, model.ClassThrottled, "RESOURCE_EXHAUSTED", 0},
		"a status that is free text":    {400, fault("Invalid argument "+secret, ""), model.ClassRequest, "", 0},
		"success with an error":         {200, `{"error":{"code":429,"message":"busy","status":"RESOURCE_EXHAUSTED","details":[` + retrySoon + `]}}`, model.ClassThrottled, "RESOURCE_EXHAUSTED", 34074824224},
		"success with a status alone":   {200, `{"error":{"status":"UNAUTHENTICATED"}}`, model.ClassUnauthorized, "UNAUTHENTICATED", 0},
		"success with a code alone":     {200, `{"error":{"code":404}}`, model.ClassRequest, "404", 0},
		"success with a long prompt":    {200, `{"error":{"code":400,"message":"The input token count is too high"}}`, model.ClassOverflow, "400", 0},
		"success with an unknown error": {200, `{"error":{"message":"hm"}}`, model.ClassTransient, "", 0},
		"success with words":            {200, `{"error":"hm"}`, model.ClassTransient, "", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, failure := gemini.Interpret(wire.Response{Status: test.status, Body: []byte(test.body)}, model.Request{})
			if failure == nil {
				t.Fatal("no error")
			}
			checkError(t, failure)
			if failure.Class != test.wantClass || failure.Code != test.wantCode || failure.Status != test.status || failure.RetryAfter != test.wantWait {
				t.Errorf("got class %s, code %q, status %d, wait %s; want class %s, code %q, wait %s",
					failure.Class, failure.Code, failure.Status, failure.RetryAfter, test.wantClass, test.wantCode, test.wantWait)
			}
		})
	}
}

// TestInterpretStatusNames checks each name of an error, in a response that says nothing
// else.
func TestInterpretStatusNames(t *testing.T) {
	for name, want := range map[string]model.Class{
		"INVALID_ARGUMENT": model.ClassRequest, "FAILED_PRECONDITION": model.ClassRequest, "OUT_OF_RANGE": model.ClassRequest, "NOT_FOUND": model.ClassRequest,
		"UNAUTHENTICATED": model.ClassUnauthorized, "PERMISSION_DENIED": model.ClassUnauthorized,
		"RESOURCE_EXHAUSTED": model.ClassThrottled,
		"ABORTED":            model.ClassTransient, "ALREADY_EXISTS": model.ClassTransient, "CANCELLED": model.ClassTransient, "DATA_LOSS": model.ClassTransient,
		"INTERNAL": model.ClassTransient, "UNKNOWN": model.ClassTransient, "UNIMPLEMENTED": model.ClassTransient,
		"UNAVAILABLE": model.ClassTransient, "DEADLINE_EXCEEDED": model.ClassTransient, "ANEW": model.ClassTransient,
	} {
		_, failure := gemini.Interpret(wire.Response{Status: 200, Body: []byte(`{"error":{"status":"` + name + `"}}`)}, model.Request{})
		if failure == nil || failure.Class != want {
			t.Errorf("%s: got %v, want class %s", name, failure, want)
		}
	}
}

func TestInterpretIgnoresEmptyErrors(t *testing.T) {
	for _, value := range []string{`null`, `{}`, `""`, `false`} {
		body := strings.Replace(reply(said(answer), `"STOP"`), `{`, `{"error":`+value+`,`, 1)
		got, failure := gemini.Interpret(wire.Response{Status: 200, Body: []byte(body)}, model.Request{})
		if failure != nil || got.Decision.Kind != model.KindFinal {
			t.Errorf("error %s: got %+v, %v", value, got.Decision, failure)
		}
	}
}

func TestInterpretWait(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		header http.Header
		body   string
		want   time.Duration
	}{
		"nothing said":         {nil, "", 0},
		"a header":             {http.Header{"Retry-After": {"7"}}, "", 7 * time.Second},
		"a date":               {http.Header{"Retry-After": {now.Add(90 * time.Second).Format(http.TimeFormat)}}, "", 90 * time.Second},
		"the longer of both":   {http.Header{"Retry-After": {"7"}}, fault("RESOURCE_EXHAUSTED", "", retrySoon), 34074824224},
		"the header if longer": {http.Header{"Retry-After": {"70"}}, fault("RESOURCE_EXHAUSTED", "", retrySoon), 70 * time.Second},
		"for ever":             {nil, fault("RESOURCE_EXHAUSTED", "", `{"@type":"google.rpc.RetryInfo","retryDelay":"1e300s"}`), 0},
		"a very long time":     {nil, fault("RESOURCE_EXHAUSTED", "", `{"@type":"google.rpc.RetryInfo","retryDelay":"2000000h"}`), 366 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := gemini.Interpret(wire.Response{Status: 429, Header: test.header, Body: []byte(test.body), ReceivedAt: now}, model.Request{})
			checkError(t, failure)
			if failure.RetryAfter != test.want || failure.Class != model.ClassThrottled {
				t.Errorf("got a wait of %s and class %s, want %s", failure.RetryAfter, failure.Class, test.want)
			}
		})
	}
}

func TestInterpretShouldNotRetry(t *testing.T) {
	header := http.Header{"X-Should-Retry": {"false"}}
	for status, want := range map[int]model.Class{429: model.ClassQuota, 503: model.ClassRequest} {
		_, failure := gemini.Interpret(wire.Response{Status: status, Header: header, Body: []byte(fault("X", "", retrySoon))}, model.Request{})
		if failure.Class != want || failure.RetryAfter != 0 {
			t.Errorf("status %d: got class %s and a wait of %s, want class %s", status, failure.Class, failure.RetryAfter, want)
		}
	}
}

// TestInterpretRenamesUsedIDs checks that an id which an earlier turn used is ours to
// change, and stays what it was on the wire.
func TestInterpretRenamesUsedIDs(t *testing.T) {
	request := model.Request{Messages: []model.Message{
		{Role: model.RoleUser, Text: "Go."},
		{Role: model.RoleAssistant, Calls: []model.Call{{ID: "id_a", Alias: "lookup"}}},
		{Role: model.RoleTool, CallID: "id_a", Text: "1"},
	}, MaxOutputTokens: 10}
	body := []byte(reply(said(callA, callB), `"STOP"`))
	got, failure := gemini.Interpret(wire.Response{Status: 200, Body: body}, request)
	if failure != nil {
		t.Fatal(failure)
	}
	checkReply(t, got)
	first, second := got.Decision.Calls[0].ID, got.Decision.Calls[1].ID
	if first == "id_a" || second != "id_b" {
		t.Errorf("got ids %q and %q, want a new one and id_b", first, second)
	}
	again, _ := gemini.Interpret(wire.Response{Status: 200, Body: body}, request)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same reply was given other ids:\n%s", diff)
	}
	request.Messages = append(request.Messages,
		model.Message{Role: model.RoleAssistant, Calls: got.Decision.Calls, Raw: got.Raw},
		model.Message{Role: model.RoleTool, CallID: first, Text: "first"}, model.Message{Role: model.RoleTool, CallID: second, Text: "second"})
	sent := encoded(t, wire.Config{Model: "m"}, request)
	want := said(callA, callB) + `,{"role":"user","parts":[` +
		`{"functionResponse":{"id":"id_a","name":"lookup","response":{"output":"first"}}},` +
		`{"functionResponse":{"id":"id_b","name":"lookup","response":{"output":"second"}}}]}]`
	if !strings.Contains(sent, want) {
		t.Errorf("want %s in\n%s", want, sent)
	}
}

func TestInterpretTooLarge(t *testing.T) {
	got, failure := gemini.Interpret(wire.Response{Status: 200, TooLarge: true, Body: []byte(reply(said(callA), `"STOP"`))}, model.Request{})
	if failure != nil || got.Decision.Code != model.CodeMalformed {
		t.Errorf("got %+v, %v", got.Decision, failure)
	}
}
