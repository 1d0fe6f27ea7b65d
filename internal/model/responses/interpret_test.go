package responses_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
)

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

// failed is a reply that failed for a reason.
func failed(code string) string {
	return `{"id":"resp_7","status":"failed","error":{"code":"` + code + `","message":"` + secret + `"},"output":[` + callA + `]}`
}

// TestInterpretFailed has every code with which a reply may have failed.
func TestInterpretFailed(t *testing.T) {
	want := map[model.Class][]string{
		model.ClassTransient: {"server_error", "vector_store_timeout", "a_code_to_come"},
		model.ClassThrottled: {"rate_limit_exceeded", "server_is_overloaded", "slow_down"},
		model.ClassQuota:     {"insufficient_quota"},
		model.ClassOverflow:  {"context_length_exceeded"},
		model.ClassRequest: {
			"data_residency_mismatch", "invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url",
			"image_too_large", "image_too_small", "image_parse_error", "invalid_image_mode", "image_file_too_large",
			"unsupported_image_media_type", "empty_image_file", "failed_to_download_image", "image_file_not_found",
		},
	}
	for class, codes := range want {
		for _, code := range codes {
			_, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(failed(code))}, model.Request{})
			if failure == nil {
				t.Errorf("%s is no error", code)
				continue
			}
			checkError(t, failure)
			if failure.Class != class || failure.Code != code || !failure.Sent || failure.Status != 200 {
				t.Errorf("%s: got %+v, want class %s", code, failure, class)
			}
		}
	}
	for _, code := range []string{"invalid_prompt", "bio_policy", "misalignment_policy_violation", "image_content_policy_violation", "content_filter"} {
		got, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(failed(code))}, model.Request{})
		if failure != nil {
			t.Errorf("%s is an error: %v", code, failure)
			continue
		}
		checkReply(t, got)
		if got.Decision.Kind != model.KindRefused || got.StopReason != code {
			t.Errorf("%s: got %+v", code, got)
		}
	}
}

// TestInterpretUnfinished checks replies that nobody will ever finish, and that nothing in
// them runs.
func TestInterpretUnfinished(t *testing.T) {
	for _, status := range []string{"cancelled", "queued", "in_progress", "failed"} {
		for _, items := range [][]string{{callA}, {answer}, {}} {
			_, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(reply(status, items...))}, model.Request{})
			if failure == nil {
				t.Fatalf("%s is no error", status)
			}
			checkError(t, failure)
			if failure.Class != model.ClassTransient || !failure.Sent || (failure.Code != status && status != "failed") {
				t.Errorf("%s: got %+v", status, failure)
			}
		}
	}
}

// What the provider says that a failed reply has cost is not lost with it.
func TestInterpretKeepsUsageOfFailures(t *testing.T) {
	const usage = `"usage":{"input_tokens":70,"output_tokens":900,"total_tokens":970,"output_tokens_details":{"reasoning_tokens":850}}`
	want := model.Usage{InputTokens: 70, OutputTokens: 900, ReasoningTokens: 850, Reported: true}
	for name, body := range map[string]string{
		"failed":           `{"status":"failed","error":{"code":"server_error","message":"m"},"output":[],` + usage + `}`,
		"failed by itself": `{"status":"failed","output":[],` + usage + `}`,
		"cancelled":        `{"status":"cancelled","output":[],` + usage + `}`,
		"refused":          `{"status":"failed","error":{"code":"content_filter","message":"m"},"output":[],` + usage + `}`,
	} {
		got, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(body)}, model.Request{})
		if failure != nil {
			got.Usage = failure.Usage
		}
		if diff := cmp.Diff(want, got.Usage); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	_, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(`{"status":"failed","usage":{"input_tokens":-1}}`)}, model.Request{})
	if failure == nil || failure.Usage.Reported {
		t.Errorf("an absurd report is believed: %+v", failure)
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
				"empty": "", "HTML": "<html>", "null": "null", "a reply": reply("completed", callA), "a message": `{"error":{"message":"` + secret + `"}}`,
			} {
				_, failure := responses.Interpret(wire.Response{Status: status, Body: []byte(body)}, model.Request{})
				if failure == nil {
					t.Errorf("status %d with body %s is no error", status, name)
					continue
				}
				checkError(t, failure)
				if failure.Class != class || failure.Status != status || !failure.Sent {
					t.Errorf("status %d with body %s: got %+v; want class %s", status, name, failure, class)
				}
			}
		}
	}
}

// TestInterpretBody has what this wire's servers say; what both of the vendor's wires say
// alike is tested with Chat Completions.
func TestInterpretBody(t *testing.T) {
	const azureFilter = `{"error":{"message":"The response was filtered","type":null,"param":"prompt","code":"BadRequest","status":400,` +
		`"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true,"severity":"high"}}}}}`
	tests := map[string]struct {
		status    int
		body      string
		wantClass model.Class
		wantCode  string
	}{
		"a thought without consequences": {400, `{"error":{"message":"Item 'rs_1' of type 'reasoning' was provided without its required following item.","type":"invalid_request_error","param":"input","code":null}}`, model.ClassRequest, "invalid_request_error"},
		"a thought that was altered":     {400, `{"error":{"code":"invalid_encrypted_content","type":"invalid_request_error"}}`, model.ClassRequest, "invalid_encrypted_content"},
		"an item that is not stored":     {404, `{"error":{"message":"Item with id 'rs_1' not found. Items are not persisted when store is set to false.","type":"invalid_request_error"}}`, model.ClassRequest, "invalid_request_error"},
		"too long":                       {400, `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, model.ClassOverflow, "context_length_exceeded"},
		"too long, in words":             {400, `{"error":{"message":"Your input exceeds the context window of this model."}}`, model.ClassOverflow, ""},
		"a rate limit":                   {429, `{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`, model.ClassThrottled, "rate_limit_exceeded"},
		"a quota":                        {429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, model.ClassQuota, "insufficient_quota"},
		"no such deployment":             {404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, model.ClassRequest, "DeploymentNotFound"},
		"a bad key of the platform":      {401, `{"error":{"code":"401","message":"Access denied due to invalid subscription key."}}`, model.ClassUnauthorized, "401"},
		"a gateway of the platform":      {429, `{"statusCode":429,"message":"Rate limit is exceeded."}`, model.ClassThrottled, ""},
		"a router's error in a success":  {200, `{"error":{"code":429,"message":"busy"}}`, model.ClassThrottled, "429"},
		"an error beside an answer":      {200, strings.Replace(reply("completed", answer), `"error":null`, `"error":{"code":"server_error"}`, 1), model.ClassTransient, "server_error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, failure := responses.Interpret(wire.Response{Status: test.status, Body: []byte(test.body)}, model.Request{})
			if failure == nil {
				t.Fatal("no error")
			}
			checkError(t, failure)
			if failure.Class != test.wantClass || failure.Code != test.wantCode || failure.Status != test.status {
				t.Errorf("got %+v; want class %s, code %q", failure, test.wantClass, test.wantCode)
			}
		})
	}
	for name, body := range map[string]string{
		"a filter":              `{"error":{"code":"content_filter","message":"x"}}`,
		"a filter of Azure":     azureFilter,
		"a prompt nobody reads": `{"error":{"code":"invalid_prompt","type":"invalid_request_error","message":"x"}}`,
	} {
		got, failure := responses.Interpret(wire.Response{Status: 400, Body: []byte(body)}, model.Request{})
		if failure != nil || got.Decision.Kind != model.KindRefused || got.StopReason == "" {
			t.Errorf("%s: got %+v, %v", name, got, failure)
		}
	}
}

func TestInterpretKeepsTheRequestID(t *testing.T) {
	for name, want := range map[string]string{"X-Request-Id": "req_1", "Apim-Request-Id": "req_1", "X-Other": "resp_7"} {
		response := wire.Response{Status: 200, Header: http.Header{name: {"req_1"}}, Body: []byte(reply("completed", answer))}
		got, failure := responses.Interpret(response, model.Request{})
		if failure != nil || got.RequestID != want {
			t.Errorf("%s: got %q, %v", name, got.RequestID, failure)
		}
	}
}

func TestInterpretIgnoresEmptyErrors(t *testing.T) {
	for _, value := range []string{`null`, `{}`, `""`, `false`} {
		body := strings.Replace(reply("completed", answer), `"error":null`, `"error":`+value, 1)
		got, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(body)}, model.Request{})
		if failure != nil || got.Decision.Kind != model.KindFinal {
			t.Errorf("error %s: got %+v, %v", value, got.Decision, failure)
		}
	}
}

func TestInterpretCutWithoutStatus(t *testing.T) {
	body := []byte(reply("", answer))
	got, _ := responses.Interpret(wire.Response{Status: 200, Body: body}, model.Request{MaxOutputTokens: 5})
	checkReply(t, got)
	if got.Decision.Code != model.CodeCutOff {
		t.Errorf("a reply as long as was allowed, without a status, is %s", got.Decision.Kind)
	}
	got, _ = responses.Interpret(wire.Response{Status: 200, Body: body}, model.Request{MaxOutputTokens: 6})
	if got.Decision.Kind != model.KindFinal {
		t.Errorf("a reply shorter than was allowed is %s", got.Decision.Kind)
	}
}

// TestInterpretLeaked checks that a call which a server left in the text is no answer.
func TestInterpretLeaked(t *testing.T) {
	body := []byte(strings.Replace(reply("completed", answer), `"42"`, `"<tool_call>{\"name\":\"lookup\",\"arguments\":{}}</tool_call>"`, 1))
	got, failure := responses.Interpret(wire.Response{Status: 200, Body: body}, conversation())
	if failure != nil {
		t.Fatal(failure)
	}
	checkReply(t, got)
	if got.Decision.Code != model.CodeMalformed || len(got.Decision.Calls) != 0 {
		t.Errorf("got %+v", got.Decision)
	}
	got, _ = responses.Interpret(wire.Response{Status: 200, Body: body}, model.Request{})
	if got.Decision.Kind != model.KindFinal {
		t.Errorf("with no tool to call: got %+v", got.Decision)
	}
}

func TestInterpretTooLarge(t *testing.T) {
	got, failure := responses.Interpret(wire.Response{Status: 200, Body: []byte(reply("completed", answer)), TooLarge: true}, model.Request{})
	if failure != nil || cmp.Diff(wire.TooLarge(), got) != "" {
		t.Errorf("got %+v, %v", got, failure)
	}
}
