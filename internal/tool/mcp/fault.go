package mcptool

import (
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-run/pawl/internal/tool/transport"
)

// handshakeError says why there is no session. Its text is ours.
type handshakeError struct{ text string }

func (e *handshakeError) Error() string { return "no MCP session: " + e.text }

// statusError is an HTTP status that is no success.
type statusError struct {
	status     int
	retryAfter time.Duration
	// tokenRefused is true where another access token may be taken.
	tokenRefused bool
}

// refusal is the error for a status that is no success.
func refusal(resp *http.Response, sending *transport.Sending) *statusError {
	return &statusError{resp.StatusCode, transport.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), sending.TokenRefused()}
}

func (e *statusError) Error() string {
	text := "the server answered with HTTP " + fmt.Sprint(e.status)
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		text = fmt.Sprintf("the server refused the credentials it was given (HTTP %d)", e.status)
	case e.status >= 300 && e.status < 400:
		text += ", a redirect, which is never followed: correct the server's url"
	case e.status == http.StatusNotFound || e.status == http.StatusMethodNotAllowed:
		text += ": check that the server's url is its MCP endpoint"
	}
	return text
}

// fault is an error whose text is ours: it quotes nothing that a server sent.
type fault string

func (f fault) Error() string { return string(f) }

// faultf makes a fault.
func faultf(format string, args ...any) fault { return fault(fmt.Sprintf(format, args...)) }

const (
	errUnreadable = fault("its answer is not a valid MCP message")
	errTooLarge   = fault("its answer is too large")
	errNoReply    = fault("its answer ended without a reply")
	errNotResumed = fault("its answer broke off and could not be taken up again")
	errClosed     = fault("the session is gone")
	errNoRevision = fault("it speaks no revision of MCP that is supported")
)
