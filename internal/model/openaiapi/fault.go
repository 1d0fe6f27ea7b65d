package openaiapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// fault is what an error body says, whichever of the shapes in use it has. Only words
// that are codes may leave this package; message is looked at and forgotten, since
// providers quote requests and keys in it.
type fault struct {
	// status is the error's own idea of an HTTP status, 0 for none.
	status int
	// code and kind are the provider's words, still untrusted.
	code, kind string
	message    string
	// moderated is true if the input was flagged, so that a refusal is not taken for
	// a bad key.
	moderated bool
	// failed is what the model wrote when its own call could not be parsed.
	failed string
	// filter is what Azure's content filter adds.
	filter string
	// inner is the fault of the provider behind a router.
	inner *fault
}

// Codes by what they mean, in addition to the status.
var (
	quotaCodes = []string{
		"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "budget_exceeded",
		"enforced_spend_limit_reached", "contract_spend_limit_reached", "insufficient_balance",
		"insufficient_credits", "insufficient_user_quota",
	}
	overflowCodes = []string{
		"context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded",
		"exceed_context_size_error",
	}
	refusalCodes = []string{
		"content_filter", "content_policy_violation", "invalid_prompt", "bio_policy",
		"misalignment_policy_violation", "image_content_policy_violation", "ResponsibleAIPolicyViolation",
	}
	modelFaultCodes = []string{"tool_use_failed", "json_validate_failed", "output_parse_failed"}
	overloadCodes   = []string{"server_is_overloaded", "slow_down", "overloaded_error", "rate_limit_exceeded"}

	// codeStatus gives the status of errors that come without one.
	codeStatus = map[string]int{
		"authentication_error": 401, "invalid_api_key": 401,
		"permission_error": 403,
		"model_not_found":  404, "not_found_error": 404,
		"invalid_request_error": 400, "bad_request": 400,
		"rate_limit_error": 429, "rate_limit_exceeded": 429, "slow_down": 503,
		"overloaded_error": 529, "server_is_overloaded": 503,
		"server_error": 500, "vector_store_timeout": 504,
		"content_filter": 400, "content_policy_violation": 400, "invalid_prompt": 400, "bio_policy": 400,
		"misalignment_policy_violation": 400, "image_content_policy_violation": 400,
		"data_residency_mismatch": 400, "invalid_image": 400, "invalid_image_format": 400,
		"invalid_base64_image": 400, "invalid_image_url": 400, "image_too_large": 400, "image_too_small": 400,
		"image_parse_error": 400, "invalid_image_mode": 400, "image_file_too_large": 400,
		"unsupported_image_media_type": 400, "empty_image_file": 400, "failed_to_download_image": 400,
		"image_file_not_found": 400,
	}
)

// readFault reads an error body. It never fails: a body that says nothing leaves
// everything to the status.
func readFault(body []byte) fault {
	if !json.Valid(body) {
		return fault{}
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return fault{}
	}
	if value := top.Get("error"); value != nil {
		return faultOf(value)
	}
	// Older servers have the members at the top, web frameworks a detail.
	f := faultOf(body)
	if f.message == "" {
		f.message, _ = top.Text("detail")
	}
	return f
}

func faultOf(value json.RawMessage) fault {
	var f fault
	if json.Unmarshal(value, &f.message) == nil {
		return f
	}
	members, err := wire.ParseObject(value)
	if err != nil {
		return f
	}
	f.message, _ = members.Text("message")
	f.kind, _ = members.Text("type")
	f.failed, _ = members.Text("failed_generation")
	f.code, _ = members.Text("code")
	f.status = errorStatus(members.Get("code"))
	if metadata, err := wire.ParseObject(members.Get("metadata")); err == nil {
		f.moderated = metadata.Get("flagged_input") != nil || metadata.Get("reasons") != nil
		if raw, _ := metadata.Text("raw"); raw != "" {
			inner := readRouted(raw)
			f.inner = &inner
		}
	}
	if filter, err := wire.ParseObject(members.Get("innererror")); err == nil {
		f.filter, _ = filter.Text("code")
	}
	return f
}

// readRouted reads what a router passes on from the provider behind it: that
// provider's body as text, or plain words. One level is enough; no router nests.
func readRouted(raw string) fault {
	if !wire.IsObject([]byte(raw)) {
		return fault{message: raw}
	}
	inner := readFault([]byte(raw))
	inner.inner = nil
	return inner
}

// errorStatus reads a code that is a status, as a number or as text.
func errorStatus(code json.RawMessage) int {
	status, err := strconv.Atoi(strings.Trim(string(code), `"`))
	if err != nil || status < 400 || status > 599 {
		return 0
	}
	return status
}

// words are the codes and types that the fault carries, the most telling first.
func (f fault) words() []string {
	var words []string
	if f.inner != nil {
		words = append(words, f.inner.code, f.inner.kind)
	}
	return append(words, f.code, f.kind, f.filter)
}

func (f fault) says(codes []string) bool {
	return slices.ContainsFunc(f.words(), func(w string) bool { return slices.Contains(codes, w) })
}

// cleanCode is the first word that is a code and not free text.
func (f fault) cleanCode() string {
	for _, word := range f.words() {
		if wire.IsCode(word) {
			return word
		}
	}
	if f.status != 0 {
		return strconv.Itoa(f.status)
	}
	return ""
}

// overflows reports whether the conversation was too long.
func (f fault) overflows(status int) bool {
	if f.says(overflowCodes) {
		return true
	}
	message := f.message
	if f.inner != nil {
		message += "\n" + f.inner.message
	}
	return wire.TellsTooLong(status, message)
}

// classify says what a status with this fault means for the next attempt.
func (f fault) classify(status int) model.Class {
	switch {
	case f.says(quotaCodes) || status == 402:
		return model.ClassQuota
	case f.overflows(status):
		return model.ClassOverflow
	case status == 401 || status == 403:
		return model.ClassUnauthorized
	case status == 429 || status == 529:
		return model.ClassThrottled
	case status >= 500 && f.says(overloadCodes):
		return model.ClassThrottled
	case wire.Transient(status):
		return model.ClassTransient
	default:
		return model.ClassRequest
	}
}

// effectiveStatus is the status of an error inside a successful response. One that
// says nothing of itself happened while the reply was made, so it may pass.
func (f fault) effectiveStatus() int {
	if f.status != 0 {
		return f.status
	}
	for _, word := range f.words() {
		if status := codeStatus[word]; status != 0 {
			return status
		}
	}
	return 502
}
