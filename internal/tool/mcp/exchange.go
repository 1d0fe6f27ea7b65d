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

// request is one JSON-RPC request.
type request struct {
	method string
	// name goes into Mcp-Name, "" for none.
	name string
	// mirrored are arguments that go into headers besides.
	mirrored http.Header
	params   map[string]any
	// once is true where nothing may send it twice.
	once bool
	// budget bounds what is read of the answer.
	budget *budget
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

// inSession builds an HTTP request in a session.
func (v *visit) inSession(ctx context.Context, current *session, method string, body []byte) *http.Request {
	req := newRequest(ctx, method, v.endpoint, body)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", current.version)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if current.id != "" {
		req.Header.Set("Mcp-Session-Id", current.id)
	}
	return req
}

// exchange sends one request, once, and reads its reply.
func (v *visit) exchange(ctx context.Context, current *session, r request) answer {
	id := fmt.Sprintf(`"pawl-%s-%d"`, v.nonce, v.ids.Add(1))
	body, err := encode(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": r.method, "params": r.params})
	if err != nil {
		return answer{err: err}
	}
	req := v.inSession(ctx, current, http.MethodPost, body)
	if current.modern() {
		req.Header.Set("Mcp-Method", r.method)
		if r.name != "" {
			req.Header.Set("Mcp-Name", headerValue(r.name))
		}
		for name, values := range r.mirrored {
			req.Header[name] = values
		}
	}
	resp, sending, err := v.client.SendAs(v.credentials, req, r.once)
	a := answer{sending: sending, resp: resp, err: err}
	if err == nil {
		v.readReply(ctx, &a, current, id, r.budget)
		_ = resp.Body.Close()
	}
	if ctx.Err() != nil && a.result == nil && a.failure == nil {
		v.cancelled(ctx, current, id, sending)
	}
	return a
}

// readReply fills in the rest of an answer.
func (v *visit) readReply(ctx context.Context, a *answer, current *session, id string, b *budget) {
	if a.status() < 200 || a.status() > 299 {
		a.refused(id)
		return
	}
	if a.status() == http.StatusAccepted || a.status() == http.StatusNoContent {
		a.err = errNoReply
		return
	}
	message, again, err := readMessage(a.resp, id, b)
	for resumes := 0; err != nil && again.lastEventID != "" && !current.modern() && resumable(err) && resumes < maxResumes; resumes++ {
		message, again, err = v.resume(ctx, current, id, again, b)
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
	var large *largeError
	return !errors.As(err, &large) && !errors.Is(err, errUnreadable) && !errors.Is(err, errNotResumed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// resume asks for the rest of a reply's stream. That repeats nothing: it names the
// last event that came.
func (v *visit) resume(ctx context.Context, current *session, id string, again resume, b *budget) (map[string]any, resume, error) {
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
	req := v.inSession(ctx, current, http.MethodGet, nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", again.lastEventID)
	resp, _, err := v.client.SendAs(v.credentials, req, true)
	if err != nil {
		return nil, again, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return nil, again, errNotResumed
	}
	message, next, err := readStream(b.reader(resp.Body), id, b.depth)
	if next.lastEventID == "" {
		next.lastEventID = again.lastEventID
	}
	return message, next, err
}

// cancelled tells a server with sessions that nobody waits for a reply any more.
// Without sessions the closed connection says so.
func (v *visit) cancelled(ctx context.Context, current *session, id string, sending *transport.Sending) {
	if current.modern() || !sending.MayHaveArrived() {
		return
	}
	ctx, cancel := context.WithTimeout(transport.WithGate(context.WithoutCancel(ctx), nil), cancelTimeout)
	defer cancel()
	body, err := encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": json.RawMessage(id), "reason": "the caller gave up"}})
	if err != nil {
		return
	}
	if resp, _, err := v.client.SendAs(v.credentials, v.inSession(ctx, current, http.MethodPost, body), true); err == nil {
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

// answer is what became of one request.
type answer struct {
	// sending tells whether the request left; nil where there was none.
	sending *transport.Sending
	// resp is the answer's status and header; nil where none came. Its body is read.
	resp *http.Response
	// result or failure is the reply, where there is one.
	result  map[string]any
	failure map[string]any
	// unaddressed is true for a failure that names no request: the server refused what
	// came before it read it as one.
	unaddressed bool
	// body is the text of an answer that is no success.
	body []byte
	// err is what went wrong on the way.
	err error
}

// refused reads an answer that is no success, and the JSON-RPC error in it.
func (a *answer) refused(id string) {
	a.body, _ = io.ReadAll(io.LimitReader(a.resp.Body, maxErrorBytes)) // the status stands without it
	message, err := strictjson.Object(a.body, strictjson.Limits{MaxDepth: maxAnswerDepth})
	if err != nil || message["jsonrpc"] != "2.0" {
		return
	}
	named := message["id"]
	a.unaddressed = named == nil
	if a.unaddressed || sameID(named, id) {
		a.failure, _ = message["error"].(map[string]any)
	}
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
