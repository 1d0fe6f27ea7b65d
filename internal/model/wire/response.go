package wire

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/model"
)

// maxStopReasonBytes bounds what is kept of a word that the provider chose.
const maxStopReasonBytes = 64

// Response is an answer as it came from the wire.
type Response struct {
	// Status is the HTTP status.
	Status int
	// Header may be nil.
	Header http.Header
	Body   []byte
	// TooLarge is true when the body was not read to its end.
	TooLarge bool
	// ReceivedAt is what dates in the header are compared with.
	ReceivedAt time.Time
}

// Success reports whether the status is one of success.
func (r Response) Success() bool { return r.Status >= 200 && r.Status < 300 }

// RequestID finds the id that a support case can name.
func (r Response) RequestID() string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "Apim-Request-Id", "X-Amzn-Requestid"} {
		if id := SupportID(r.Header.Get(name)); id != "" {
			return id
		}
	}
	return ""
}

// ParseBody reads the body of a success, which is one JSON object in UTF-8. The problem
// is empty for one that is.
func ParseBody(body []byte) (top Object, problem string) {
	if !utf8.Valid(body) {
		return nil, "it is not UTF-8 text"
	}
	// Valid first: it bounds the nesting, and readers look at parts only.
	if !json.Valid(body) {
		return nil, "it is not one JSON document"
	}
	top, err := ParseObject(body)
	if err != nil {
		return nil, err.Error()
	}
	return top, ""
}

// Keep gives an answer what later requests repeat of it. Nothing costs nothing, and an
// answer did: a report without output is none.
func Keep(reply *model.Reply, raw json.RawMessage) {
	reply.Raw = raw
	if reply.Usage.OutputTokens == 0 {
		reply.Usage = model.Usage{}
	}
}

// CutOff is the decision of a reply that hit its output limit.
func CutOff(text string) model.Decision {
	d := Invalid(model.CodeCutOff, "the reply hit the output limit and was cut off, so nothing of it ran: answer more briefly, or with fewer calls at a time")
	d.Text = text
	return d
}

// Empty is the decision of a reply with neither text nor calls.
func Empty() model.Decision {
	return Invalid(model.CodeEmpty, "the reply was empty: give an answer, or propose a tool call")
}

// NoCalls is the decision of a reply whose stop reason announced calls and that has none.
func NoCalls(text string) model.Decision {
	d := Invalid(model.CodeEmpty, "the reply announced tool calls and held none: propose them as tool calls, or give the answer")
	d.Text = text
	return d
}

// UnknownStop is the decision of a reply that ended for a reason that nobody knows.
func UnknownStop(text string) model.Decision {
	d := Invalid(model.CodeUnknownStop, "the reply ended for an unknown reason, so it can't be taken as complete: answer again")
	d.Text = text
	return d
}

// DuplicateIDs is the decision of a reply in which two calls share an id.
func DuplicateIDs() model.Decision {
	return Invalid(model.CodeDuplicateIDs, "two calls of the reply had the same id, so nothing ran: propose each call once, with an id of its own")
}

// Invalid is a decision that runs nothing; problem tells the model what to change.
func Invalid(code, problem string) model.Decision {
	if code == model.CodeMalformed {
		problem = "the reply could not be read (" + problem + "), so nothing of it ran: answer again"
	}
	return model.Decision{Kind: model.KindInvalid, Code: code, Problem: problem}
}

// Malformed is a reply that is not what the wire promises.
func Malformed(problem string) model.Reply {
	return model.Reply{Decision: Invalid(model.CodeMalformed, problem)}
}

// TooLarge is a reply beyond what is read.
func TooLarge() model.Reply { return Malformed("it is larger than a reply may be") }

// StopReason bounds a word that the provider chose.
func StopReason(word string) string { return bounded(word, maxStopReasonBytes) }

// bounded cuts text to at most limit bytes, at a character.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// SupportID keeps an id that a support case can name, and drops one that holds
// anything but the characters of ids.
func SupportID(id string) string {
	const maxBytes = 128
	if len(id) > maxBytes {
		return ""
	}
	foreign := func(r rune) bool {
		plain := r <= unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
		return !plain && !strings.ContainsRune("-_.:/", r)
	}
	if strings.IndexFunc(id, foreign) >= 0 {
		return ""
	}
	return id
}

// IsCode tells a provider's code, which may be shown, from free text, which may not.
func IsCode(word string) bool {
	const maxBytes = 64
	if word == "" || len(word) > maxBytes {
		return false
	}
	for _, r := range word {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("_.-", r):
		default:
			return false
		}
	}
	return true
}
