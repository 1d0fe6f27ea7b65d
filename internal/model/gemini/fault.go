package gemini

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// fault is what an error body says. Only a code may leave this package; the message is
// looked at and forgotten, since providers quote requests and keys in it.
type fault struct {
	// code is the error's own idea of an HTTP status, 0 for none.
	code int
	// status is the name of the error, reason the more exact one of its details. Both
	// are still untrusted.
	status, reason string
	message        string
	// wait is how long the details ask to wait.
	wait time.Duration
	// exhausted is true for a quota that waiting does not fill in time.
	exhausted bool
}

// statuses are the names of errors, with the status that goes with them.
var statuses = map[string]int{
	"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400,
	"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404,
	"ABORTED": 409, "ALREADY_EXISTS": 409, "RESOURCE_EXHAUSTED": 429, "CANCELLED": 499,
	"DATA_LOSS": 500, "INTERNAL": 500, "UNKNOWN": 500, "UNIMPLEMENTED": 501,
	"UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504,
}

// quotaPhrases are how it says that money is missing, under the status of a rate limit.
var quotaPhrases = []string{"credits are depleted", "spending cap", "spend cap", "billing account"}

// longQuota matches the name of a quota that counts by the day or longer.
var longQuota = regexp.MustCompile(`(?i)per_?(day|week|month)|^1/[dwm]/`)

// readFault reads an error body. It never fails: a body that says nothing leaves
// everything to the status.
func readFault(body []byte) fault {
	if !json.Valid(body) {
		return fault{}
	}
	if list, ok := wire.List(body); ok && len(list) > 0 {
		// Some gateways answer with the first element of a stream that never began.
		body = list[0]
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return fault{}
	}
	return faultOf(top.Get("error"))
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
	f.status, _ = members.Text("status")
	if code, err := strconv.Atoi(string(members.Get("code"))); err == nil && code >= 400 && code <= 599 {
		f.code = code
	}
	details, _ := wire.List(members.Get("details"))
	for _, raw := range details {
		if detail, err := wire.ParseObject(raw); err == nil {
			f.add(detail)
		}
	}
	return f
}

// add reads one of the details that matter.
func (f *fault) add(detail wire.Object) {
	kind, _ := detail.Text("@type")
	switch kind[strings.LastIndexByte(kind, '/')+1:] {
	case "google.rpc.RetryInfo":
		f.wait = max(f.wait, delay(detail.Get("retryDelay")))
	case "google.rpc.ErrorInfo":
		if f.reason == "" {
			f.reason, _ = detail.Text("reason")
		}
		if metadata, err := wire.ParseObject(detail.Get("metadata")); err == nil {
			f.note(metadata, "quota_limit", "quota_unit")
		}
	case "google.rpc.QuotaFailure":
		violations, _ := wire.List(detail.Get("violations"))
		for _, raw := range violations {
			if violation, err := wire.ParseObject(raw); err == nil {
				f.note(violation, "quotaId", "subject")
			}
		}
	}
}

// note looks for long quotas in members.
func (f *fault) note(members wire.Object, names ...string) {
	for _, name := range names {
		if text, ok := members.Text(name); ok && longQuota.MatchString(text) {
			f.exhausted = true
		}
	}
}

// delay reads a duration as text, or in its parts.
func delay(value json.RawMessage) time.Duration {
	var text string
	if json.Unmarshal(value, &text) == nil {
		wait, _ := wire.Duration(text)
		return wait
	}
	parts, err := wire.ParseObject(value)
	if err != nil {
		return 0
	}
	seconds, _ := parts.Count("seconds")
	wait, _ := wire.Duration(strconv.FormatInt(seconds, 10))
	return wait
}

// cleanCode is the most telling word that is a code and not free text.
func (f fault) cleanCode() string {
	for _, word := range []string{f.reason, f.status} {
		if wire.IsCode(word) {
			return word
		}
	}
	if f.code != 0 {
		return strconv.Itoa(f.code)
	}
	return ""
}

func (f fault) says(phrases []string) bool {
	message := strings.ToLower(f.message)
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(message, p) })
}

// unpaid reports whether there is no more to be had, by waiting a little.
func (f fault) unpaid(status int) bool {
	if status == http.StatusPaymentRequired || f.reason == "BILLING_DISABLED" {
		return true
	}
	return status == http.StatusTooManyRequests && (f.exhausted || f.says(quotaPhrases))
}

// classify says what a status with this fault means for the next attempt.
func (f fault) classify(status int) model.Class {
	switch {
	case f.unpaid(status):
		return model.ClassQuota
	case wire.TellsTooLong(status, f.message):
		return model.ClassOverflow
	case status == http.StatusBadRequest && strings.HasPrefix(f.reason, "API_KEY_"):
		return model.ClassUnauthorized
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return model.ClassUnauthorized
	case status == http.StatusTooManyRequests || status == 529:
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
	switch {
	case f.code != 0:
		return f.code
	case statuses[f.status] != 0:
		return statuses[f.status]
	default:
		return http.StatusBadGateway
	}
}
