package anthropic

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// fault is what an error says, in the provider's shape or in a platform's. Only words
// that are codes may leave this package; message is looked at and forgotten, since
// providers quote requests and keys in it.
type fault struct {
	// words are codes and types, the most telling first, still untrusted.
	words     []string
	message   string
	requestID string
}

// Codes by what they mean, in addition to the status.
var (
	quotaCodes = []string{
		"enforced_spend_limit_reached", "contract_spend_limit_reached",
		"linked_organization_spend_limit_reached", "linked_organization_billing_unavailable",
		"billing_error", "ServiceQuotaExceededException",
	}
	overflowCodes = []string{"request_too_large", "request_body_too_large_after_decoding"}
	overloadCodes = []string{"overloaded_error", "rate_limit_error", "compaction_unavailable"}

	// codeStatus gives the status of errors that come without one.
	codeStatus = map[string]int{
		"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
		"not_found_error": 404, "conflict_error": 409, "request_too_large": 413, "rate_limit_error": 429,
		"api_error": 500, "timeout_error": 504, "overloaded_error": 529,
	}
)

// What some errors say without having a code for it, in lower case.
var (
	quotaPhrases = []string{
		"credit balance is too low", "specified api usage limits", "out of extra usage", "tokens per day",
	}
	refusalPhrases = []string{"blocked by content filtering policy"}
)

// readFault reads an error. It never fails: a body that says nothing leaves everything to
// the status.
func readFault(response wire.Response) fault {
	var f fault
	// AWS names the error in a header: a code, perhaps followed by where it is defined.
	name, _, _ := strings.Cut(response.Header.Get("X-Amzn-Errortype"), ":")
	if json.Valid(response.Body) {
		f.readBody(response.Body)
	}
	f.words = append(f.words, name)
	return f
}

func (f *fault) readBody(body []byte) {
	if list, ok := wire.List(body); ok && len(list) > 0 {
		// Google sends a list of one.
		body = list[0]
	}
	top, err := wire.ParseObject(body)
	if err != nil {
		return
	}
	f.requestID, _ = top.Text("request_id")
	f.requestID = wire.SupportID(f.requestID)
	value := top.Get("error")
	switch {
	case value == nil:
		// AWS and web frameworks have the members at the top.
		f.readMembers(top)
	case json.Unmarshal(value, &f.message) == nil:
	default:
		if members, err := wire.ParseObject(value); err == nil {
			f.readMembers(members)
		}
	}
}

func (f *fault) readMembers(members wire.Object) {
	if details, err := wire.ParseObject(members.Get("details")); err == nil {
		code, _ := details.Text("error_code")
		f.words = append(f.words, code)
	}
	for _, name := range []string{"type", "code", "status", "__type"} {
		word, _ := members.Text(name)
		f.words = append(f.words, word)
	}
	for _, name := range []string{"message", "Message", "detail"} {
		text, _ := members.Text(name)
		f.message += text
	}
}

func (f fault) says(codes []string) bool {
	return slices.ContainsFunc(f.words, func(w string) bool { return slices.Contains(codes, w) })
}

func (f fault) tells(phrases []string) bool {
	message := strings.ToLower(f.message)
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(message, p) })
}

// cleanCode is the first word that is a code and not free text.
func (f fault) cleanCode() string {
	for _, word := range f.words {
		if wire.IsCode(word) {
			return word
		}
	}
	return ""
}

// classify says what a status with this fault means for the next attempt.
func (f fault) classify(status int) model.Class {
	switch {
	case f.exhausted(status):
		return model.ClassQuota
	case f.overflows(status):
		return model.ClassOverflow
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return model.ClassUnauthorized
	case status == http.StatusTooManyRequests || status == statusOverloaded || (status >= 500 && f.says(overloadCodes)):
		return model.ClassThrottled
	case wire.Transient(status):
		return model.ClassTransient
	default:
		return model.ClassRequest
	}
}

// exhausted reports whether no money or quota is left. A spend limit that one has set
// oneself is an invalid request to the provider.
func (f fault) exhausted(status int) bool {
	if f.says(quotaCodes) || status == http.StatusPaymentRequired {
		return true
	}
	return (status == http.StatusBadRequest || status == http.StatusTooManyRequests) && f.tells(quotaPhrases)
}

// overflows reports whether the conversation was too long.
func (f fault) overflows(status int) bool {
	return f.says(overflowCodes) || wire.TellsTooLong(status, f.message)
}

// statusOverloaded is Anthropic's own.
const statusOverloaded = 529

// refuses reports whether a filter refused what the model wrote, which is the run's own
// story and no reason to ask again.
func (f fault) refuses(status int) bool {
	return status == http.StatusBadRequest && f.tells(refusalPhrases)
}

// effectiveStatus is the status of an error inside a successful response. One that says
// nothing of itself happened while the reply was made, so it may pass.
func (f fault) effectiveStatus() int {
	for _, word := range f.words {
		if status := codeStatus[word]; status != 0 {
			return status
		}
	}
	return http.StatusBadGateway
}
