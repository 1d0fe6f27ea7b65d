package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// handshake stands between the SDK and a server. Of an answer the SDK sees one
// message, the reply to its own request, checked and bounded: neither streams nor
// what a server would like to ask or tell besides.
type handshake struct {
	visit *visit

	mu     sync.Mutex
	closed bool
	// failure is the last request's, so that its cause is known without reading what
	// the SDK makes of it.
	failure error
}

// shut lets nothing more out.
func (h *handshake) shut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

func (h *handshake) isShut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

func (h *handshake) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = err
}

// explain says why no session came about.
func (h *handshake) explain(ctx context.Context, sdk error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	h.mu.Lock()
	failure := h.failure
	h.mu.Unlock()
	var status *statusError
	switch {
	case errors.As(failure, &status), errors.Is(failure, errUnreadable), errors.Is(failure, errTooLarge):
		return &handshakeFailure{handshakeError{failure.Error()}, failure}
	case failure != nil:
		return failure
	}
	return &handshakeFailure{handshakeError{errNoRevision.Error()}, sdk}
}

// handshakeFailure is a handshakeError with its cause.
type handshakeFailure struct {
	handshakeError
	cause error
}

// Unwrap gives the text first, then the cause.
func (e *handshakeFailure) Unwrap() []error { return []error{&e.handshakeError, e.cause} }

// RoundTrip implements http.RoundTripper.
func (h *handshake) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if h.isShut() {
		return nil, errClosed
	}
	ctx := req.Context()
	if req.Method == http.MethodDelete {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	sent := newRequest(ctx, req.Method, req.URL, body)
	sent.Header = req.Header.Clone()
	resp, sending, err := h.visit.client.SendAs(h.visit.credentials, sent, true)
	if err != nil {
		h.note(err)
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := h.read(resp, sending, body)
	h.note(err)
	var status *statusError
	if err != nil && !errors.As(err, &status) {
		return nil, err
	}
	return synthetic(req, resp, text), nil
}

// read takes the one message that matters out of an answer.
func (h *handshake) read(resp *http.Response, sending *transport.Sending, request []byte) ([]byte, error) {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
		if err != nil {
			return nil, err
		}
		if _, err := strictjson.Parse(body, strictjson.Limits{MaxDepth: maxAnswerDepth}); err != nil {
			body = nil
		}
		return body, refusal(resp, sending)
	}
	var call struct {
		ID json.RawMessage `json:"id"`
	}
	if len(request) == 0 || json.Unmarshal(request, &call) != nil || call.ID == nil {
		return nil, nil // a notification or the end of a session: no answer wanted
	}
	message, _, err := readMessage(resp, string(call.ID), newBudget(maxHandshakeBytes, maxAnswerDepth))
	if err != nil {
		return nil, err
	}
	return strictjson.Canonical(message), nil
}

// synthetic is what the SDK gets to see.
func synthetic(req *http.Request, resp *http.Response, body []byte) *http.Response {
	header := http.Header{}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		header.Set("Mcp-Session-Id", id)
	}
	if len(body) > 0 {
		header.Set("Content-Type", "application/json")
	}
	return &http.Response{
		Status: resp.Status, StatusCode: resp.StatusCode,
		Proto: resp.Proto, ProtoMajor: resp.ProtoMajor, ProtoMinor: resp.ProtoMinor,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}
