package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// answer is what became of one request.
type answer struct {
	// sending tells whether the request left; nil where there was none.
	sending *transport.Sending
	// resp is the answer's status and header; nil where none came. Its body is read.
	resp *http.Response
	// result or failure is the reply, where there is one.
	result  map[string]any
	failure map[string]any
	// body is the text of an answer that is no success.
	body []byte
	// err is what went wrong on the way.
	err error
}

// status is 0 where no answer came.
func (a answer) status() int {
	if a.resp == nil {
		return 0
	}
	return a.resp.StatusCode
}

// code is the JSON-RPC error's.
func (a answer) code() int64 {
	number, _ := a.failure["code"].(json.Number)
	code, _ := number.Int64()
	return code
}

// sessionLost is true for answers that say: this session, or this revision, is not
// known here. A server that says so ran nothing. Servers differ in how: 404 by the
// book, 400 in the wild, and anything without an MCP error where another server
// answers at the address now.
func (a answer) sessionLost(current *session) bool {
	if a.status() != http.StatusNotFound && a.status() != http.StatusBadRequest {
		return false
	}
	return current.id != "" || a.failure == nil || a.code() == codeUnsupportedVersion
}

// newRequest builds a request whose body can't be read twice.
func newRequest(ctx context.Context, method string, to *url.URL, body []byte) *http.Request {
	req := (&http.Request{Method: method, URL: to, Host: to.Host, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if len(body) > 0 {
		req.Body = io.NopCloser(struct{ io.Reader }{bytes.NewReader(body)})
		req.ContentLength = int64(len(body))
	}
	return req
}

// request builds one in a session.
func (s *Server) request(ctx context.Context, current *session, httpMethod, method, name string, body []byte) (*http.Request, error) {
	to, err := url.Parse(s.endpoint)
	if err != nil {
		return nil, err
	}
	req := newRequest(ctx, httpMethod, to, body)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", current.version)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if current.id != "" {
		req.Header.Set("Mcp-Session-Id", current.id)
	}
	if current.modern() {
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	}
	return req, nil
}

// exchange sends one request, once, and reads its reply.
func (s *Server) exchange(ctx context.Context, current *session, method string, params parameters, once bool) answer {
	id := fmt.Sprintf(`"pawl-%d"`, s.ids.Add(1))
	body, err := encode(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method, "params": params})
	if err != nil {
		return answer{err: err}
	}
	req, err := s.request(ctx, current, http.MethodPost, method, params.Name, body)
	if err != nil {
		return answer{err: err}
	}
	resp, sending, err := s.client.Send(req, once)
	a := answer{sending: sending, resp: resp, err: err}
	if err == nil {
		s.readReply(ctx, &a, current, id)
		_ = resp.Body.Close()
	}
	if ctx.Err() != nil && a.result == nil && a.failure == nil {
		s.cancelled(ctx, current, id, sending)
	}
	return a
}

// readReply fills in the rest of an answer.
func (s *Server) readReply(ctx context.Context, a *answer, current *session, id string) {
	if a.status() < 200 || a.status() > 299 {
		a.body, _ = io.ReadAll(io.LimitReader(a.resp.Body, maxErrorBytes)) // the status stands without it
		if message, err := strictjson.Object(a.body, strictjson.Limits{MaxDepth: maxAnswerDepth}); err == nil {
			a.failure, _ = message["error"].(map[string]any)
		}
		return
	}
	if a.status() == http.StatusAccepted || a.status() == http.StatusNoContent {
		a.err = errNoReply
		return
	}
	b := newBudget(maxAnswerBytes)
	message, again, err := readMessage(a.resp, id, b)
	for resumes := 0; err != nil && again.lastEventID != "" && !current.modern() && resumable(err) && resumes < maxResumes; resumes++ {
		message, again, err = s.resume(ctx, current, id, again, b)
	}
	if err != nil {
		a.err = err
		return
	}
	a.result, _ = message["result"].(map[string]any)
	a.failure, _ = message["error"].(map[string]any)
}

// resumable errors are those of a stream that broke off.
func resumable(err error) bool {
	return !errors.Is(err, errTooLarge) && !errors.Is(err, errUnreadable) && !errors.Is(err, errNotResumed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// resume asks for the rest of a reply's stream. That repeats nothing: it names the
// last event that came.
func (s *Server) resume(ctx context.Context, current *session, id string, again resume, b *budget) (map[string]any, resume, error) {
	delay := resumeDelay
	if again.delay > 0 {
		delay = min(max(again.delay, minResumeDelay), maxResumeDelay)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, again, ctx.Err()
	}
	req, err := s.request(ctx, current, http.MethodGet, "", "", nil)
	if err != nil {
		return nil, again, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", again.lastEventID)
	resp, _, err := s.client.Send(req, true)
	if err != nil {
		return nil, again, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return nil, again, errNotResumed
	}
	message, next, err := readStream(b.reader(resp.Body), id)
	if next.lastEventID == "" {
		next.lastEventID = again.lastEventID
	}
	return message, next, err
}

// cancelled tells a server with sessions that nobody waits for a reply any more.
// Without sessions the closed connection says so.
func (s *Server) cancelled(ctx context.Context, current *session, id string, sending *transport.Sending) {
	if current.modern() || !sending.MayHaveArrived() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	body, err := encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": json.RawMessage(id), "reason": "the caller gave up"}})
	if err != nil {
		return
	}
	req, err := s.request(ctx, current, http.MethodPost, "notifications/cancelled", "", body)
	if err != nil {
		return
	}
	if resp, _, err := s.client.Send(req, true); err == nil {
		_ = resp.Body.Close()
	}
}

// encode writes JSON without escapes for HTML, so that arguments go out as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, errors.New("the arguments are not valid JSON")
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
