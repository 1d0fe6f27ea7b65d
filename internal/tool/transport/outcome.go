package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

const (
	defaultResultBytes = 64 << 10
	maxReceipt         = 256
	maxRetryAfter      = 24 * time.Hour
)

// NotSent is the outcome of a call whose request never left.
func NotSent(ctx context.Context, call tool.Call, err error) tool.Outcome {
	out := tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: call.Repeatable}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		out.Class = tool.ClassTimeout
		out.Message = "not sent: no connection to the service in time; nothing was done"
	case ctx.Err() != nil:
		out.Class, out.Retryable = tool.ClassNotRun, false
		out.Message = "not sent: the call was cancelled before; nothing was done"
	default:
		out.Message = "not sent: " + Reason(err) + "; nothing was done"
	}
	return out
}

// Lost is the outcome of a call whose request may have arrived and whose answer did
// not come back whole.
func Lost(ctx context.Context, call tool.Call, err error) tool.Outcome {
	out := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: call.Repeatable}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		out.Class = tool.ClassTimeout
		out.Message = "no answer in time; nobody knows whether the call took effect"
	case ctx.Err() != nil:
		out.Retryable = false
		out.Message = "cancelled while the answer was awaited; nobody knows whether the call took effect"
	default:
		out.Message = "the connection broke before the answer was complete (" + Reason(err) + "); nobody knows whether the call took effect"
	}
	return out
}

// Failed picks NotSent or Lost by what the socket saw.
func Failed(ctx context.Context, call tool.Call, sending *Sending, err error) tool.Outcome {
	if sending.MayHaveArrived() {
		return Lost(ctx, call, err)
	}
	if refused := sending.Refused(); refused != nil {
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Retryable: call.Repeatable, Message: "not sent: the right to send it has lapsed; nothing was done"}
	}
	return NotSent(ctx, call, err)
}

// Reason is a short text for err. It quotes nothing that the service sent and
// nothing that could be confidential.
func Reason(err error) string {
	var (
		dns       *net.DNSError
		op        *net.OpError
		untrusted x509.UnknownAuthorityError
		badHost   x509.HostnameError
		badCert   *tls.CertificateVerificationError
		notTLS    tls.RecordHeaderError
		timeout   net.Error
		token     *tokenError
	)
	switch {
	case errors.As(err, &token):
		return token.Error()
	case errors.Is(err, ErrHeaders):
		return "the service's configured headers can't be read"
	case errors.As(err, &dns):
		return "the service's host name can't be resolved"
	case errors.As(err, &untrusted), errors.As(err, &badHost), errors.As(err, &badCert):
		return "the service's certificate is not trusted"
	case errors.As(err, &notTLS):
		return "the service doesn't speak TLS"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "connection timed out"
	case errors.As(err, &op) && op.Err != nil:
		return strictjson.Preview([]byte(op.Op+": "+op.Err.Error()), 120)
	}
	return "the service doesn't speak HTTP as expected"
}

// Status is the outcome of an answer whose status is not a success. value is the
// service's own error, if any.
func Status(call tool.Call, sending *Sending, resp *http.Response, value Value) tool.Outcome {
	out := tool.Outcome{RetryAfter: RetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	code := resp.StatusCode
	switch {
	case code == http.StatusConflict && (out.RetryAfter > 0 || call.Attempt > 1):
		// Only our own request has this key: one that is in flight is a copy or an attempt of it.
		out.Class, out.Effect, out.Retryable = tool.ClassThrottled, tool.EffectUnknown, call.Repeatable
		out.Message = "the service is still at work on an earlier request with the same key (HTTP 409); nobody knows yet whether the call took effect"
	case code == http.StatusRequestTimeout:
		out.Class, out.Effect, out.Retryable = tool.ClassTimeout, tool.EffectUnknown, call.Repeatable
		out.Message = "the service, or a gateway before it, gave the request up (HTTP 408); nobody knows whether the call took effect"
	case code == http.StatusTooEarly || code == http.StatusTooManyRequests:
		out.Class, out.Effect, out.Retryable = tool.ClassThrottled, tool.EffectRejected, call.Repeatable
		out.Message = fmt.Sprintf("the service asks to try again later (HTTP %d); nothing was done", code)
		if out.RetryAfter > 0 {
			out.Message += fmt.Sprintf("; wait at least %d seconds", int64((out.RetryAfter+time.Second-1)/time.Second))
		}
	case code >= 400 && code < 500:
		out.Class, out.Effect = tool.ClassRejected, tool.EffectRejected
		out.Value, out.Truncated, out.Size = value.JSON, value.Truncated, value.Size
		out.Message, out.Retryable = rejection(code), sending.TokenRefused() && call.Repeatable
		if sending.TokenRefused() {
			out.Message = "the service refused the access token (HTTP 401), and another attempt gets a new one; nothing was done"
		}
	case code >= 300 && code < 400:
		out.Class, out.Effect = tool.ClassUnknown, tool.EffectUnknown
		out.Message = fmt.Sprintf("the service answered with a redirect (HTTP %d), which is never followed; nobody knows whether the call took effect; the server's url has to be corrected", code)
	default:
		out.Class, out.Effect, out.Retryable = tool.ClassUnknown, tool.EffectUnknown, call.Repeatable
		out.Message = fmt.Sprintf("the service failed (HTTP %d); nobody knows whether the call took effect", code)
	}
	return out
}

func rejection(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the service refused the credentials it was given (HTTP %d); nothing was done; an administrator has to correct them", code)
	case http.StatusNotFound:
		return "the service knows no such tool or object (HTTP 404); nothing was done; change the arguments or use another tool"
	}
	return fmt.Sprintf("the service refused the call (HTTP %d); nothing was done; change the arguments as its answer says", code)
}

// RetryAfter reads the header of that name: seconds or a date, at most a day, 0 when
// it says nothing usable.
func RetryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	var wait time.Duration
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil {
		wait = time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// Receipt reads the Effect-Id header.
func Receipt(header http.Header) string {
	return strictjson.Preview([]byte(header.Get("Effect-Id")), maxReceipt)
}

// Value is a result or error value within its bounds.
type Value struct {
	JSON      json.RawMessage
	Truncated bool
	// Size is set where Truncated is.
	Size int64
}

// Bound is the number of bytes that a call's result may have.
func Bound(call tool.Call) int {
	if call.MaxResultBytes <= 0 {
		return defaultResultBytes
	}
	return int(call.MaxResultBytes)
}

// ReadValue reads a body as a value of at most bound bytes: JSON where it is strict
// JSON, a JSON string where it isn't, null where it is empty. Of a longer body only
// the beginning is read. An error means that the body broke off.
func ReadValue(resp *http.Response, bound int) (Value, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(bound)+1))
	if err != nil {
		return Value{}, err
	}
	if len(body) > bound {
		return Beginning(body, max(resp.ContentLength, int64(len(body))), bound), nil
	}
	return ToValue(body, bound), nil
}

// ToValue makes a value of a whole body.
func ToValue(body []byte, bound int) Value {
	if len(strings.TrimSpace(string(body))) == 0 {
		return Value{JSON: json.RawMessage("null")}
	}
	if _, err := strictjson.Parse(body, strictjson.Limits{MaxBytes: len(body)}); err == nil {
		return Value{JSON: compact(body)}
	}
	return TextValue(string(body), bound)
}

// TextValue makes a JSON string of text, cut where it would be longer than bound.
func TextValue(text string, bound int) Value {
	encoded := strictjson.Canonical(text)
	if len(encoded) > bound+2 {
		return Beginning([]byte(text), int64(len(text)), bound)
	}
	return Value{JSON: encoded}
}

// Beginning makes a JSON string of the start of a body that has size bytes or more,
// and says in it what was cut. The text encoded takes at most bound bytes, the
// sentence not counted.
func Beginning(body []byte, size int64, bound int) Value {
	end := min(len(body), bound)
	for back := end; end < len(body) && back > end-utf8.UTFMax && back > 0; back-- {
		if utf8.RuneStart(body[back]) {
			end = back
			break
		}
	}
	text := strings.ToValidUTF8(string(body[:end]), "\ufffd")
	shown, used := 0, 0
	for shown < len(text) {
		_, width := utf8.DecodeRuneInString(text[shown:])
		cost := len(strictjson.Canonical(text[shown:shown+width])) - 2
		if used+cost > bound {
			break
		}
		shown, used = shown+width, used+cost
	}
	sentence := fmt.Sprintf("\n[cut here: the first %d of at least %d bytes; ask for less]", shown, size)
	return Value{JSON: strictjson.Canonical(text[:shown] + sentence), Truncated: true, Size: size}
}

// compact drops white space between tokens and changes nothing else.
func compact(body []byte) json.RawMessage {
	var out bytes.Buffer
	if err := json.Compact(&out, body); err != nil {
		return body
	}
	return out.Bytes()
}
