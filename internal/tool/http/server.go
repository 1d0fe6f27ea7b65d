// Package httptool calls tools of plain HTTP services: one POST per call, the body
// being the arguments. How an answer is understood:
//
//	2xx                    the result: JSON, or a JSON string where it isn't JSON
//	204 or an empty body   the result null
//	202 with a Location    goes on: GET it, where 202 is "not yet", another 2xx the result
//	                       and 400, 402, 409, 412, 422 and 424 with a JSON body a refusal; the
//	                       Location must be of the same origin
//	202 without            not known
//	425, 429               nothing was done, try later
//	409 with Retry-After, or to another attempt
//	                       an earlier request with this key is in flight: not known
//	408                    not known
//	other 4xx              nothing was done by this attempt, the body is the error
//	3xx, 5xx               not known
//	cut off, no answer     not known, or not sent where no byte was written
package httptool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// toolName keeps a name to one path segment that means the same to everybody.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$`)

// Options of a Server.
type Options struct {
	// URL that "/<tool>" is appended to: http or https, without user, query or
	// fragment.
	URL string
	// Tools that the service has.
	Tools []tool.Definition
	// Connection says with what credentials and trust the service is reached.
	Connection transport.Options
}

// Server is one HTTP service with tools.
type Server struct {
	base   *url.URL
	tools  []tool.Definition
	client *transport.Client
}

var _ tool.Server = (*Server)(nil)

// New makes a Server. It opens no connection.
func New(o Options) (*Server, error) {
	base, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("url is not a valid URL: correct it")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("url must be absolute and start with http:// or https://")
	case base.User != nil, base.RawQuery != "", base.ForceQuery, base.Fragment != "":
		return nil, errors.New("url must have no user, query or fragment: remove them")
	}
	for _, t := range o.Tools {
		if !toolName.MatchString(t.Name) {
			return nil, fmt.Errorf("tool name %.80q: use letters, digits, _ and -", t.Name)
		}
	}
	client, err := transport.New(o.Connection)
	if err != nil {
		return nil, err
	}
	tools := slices.Clone(o.Tools)
	slices.SortFunc(tools, func(a, b tool.Definition) int { return cmp.Compare(a.Name, b.Name) })
	return &Server{base: base, tools: tools, client: client}, nil
}

// Close closes connections that are kept for later calls.
func (s *Server) Close() { s.client.Close() }

// List implements tool.Server with the tools that were configured.
func (s *Server) List(context.Context) (tool.Listing, error) {
	return tool.Listing{Tools: slices.Clone(s.tools)}, nil
}

// Call implements tool.Server.
func (s *Server) Call(ctx context.Context, call tool.Call) tool.Outcome {
	if call.Digest != "" {
		at := slices.IndexFunc(s.tools, func(t tool.Definition) bool { return t.Name == call.Tool })
		if at < 0 {
			return tool.Gone()
		}
		if s.tools[at].Changed(call) {
			return tool.Refused()
		}
	}
	req, err := s.request(ctx, call)
	if err != nil {
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Message: "not sent: " + err.Error()}
	}
	resp, sending, err := s.client.Send(req, !call.Repeatable)
	if err != nil {
		return transport.Failed(ctx, call, sending, err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := s.understand(ctx, call, sending, resp)
	out.Receipt = transport.Receipt(resp.Header)
	return out
}

// request builds the POST. Nothing in call can change host or path but the tool's
// name, and that is one segment.
func (s *Server) request(ctx context.Context, call tool.Call) (*http.Request, error) {
	if !toolName.MatchString(call.Tool) {
		return nil, errors.New("the tool's name can't be part of a URL")
	}
	arguments := []byte(call.Arguments)
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	// A reader of no type that net/http knows: it must not become rewindable.
	body := io.NopCloser(struct{ io.Reader }{bytes.NewReader(arguments)})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base.JoinPath(call.Tool).String(), body)
	if err != nil {
		return nil, errors.New("the server's url can't be used")
	}
	req.ContentLength = int64(len(arguments))
	req.Header.Set("Content-Type", "application/json")
	s.identify(ctx, req, call)
	return req, nil
}

// identify says for whom a request is made.
func (s *Server) identify(ctx context.Context, req *http.Request, call tool.Call) {
	header := map[string]string{
		"Accept":       "application/json",
		"Pawl-Run":     call.RunNamespace + "/" + call.RunName,
		"Pawl-Run-UID": call.RunUID,
		"Pawl-Call-Id": url.PathEscape(call.ID),
		"Pawl-Attempt": strconv.Itoa(int(call.Attempt)),
		"Pawl-Epoch":   strconv.FormatInt(call.Epoch, 10),
	}
	if call.EffectKey != "" {
		header["Idempotency-Key"] = call.EffectKey
	}
	maps.Copy(header, transport.Trace(ctx))
	for name, value := range header {
		req.Header.Set(name, value)
	}
}

// understand reads the answer to its end or its bound.
func (s *Server) understand(ctx context.Context, call tool.Call, sending *transport.Sending, resp *http.Response) tool.Outcome {
	code := resp.StatusCode
	if code == http.StatusAccepted {
		return s.accepted(call, resp)
	}
	if code >= 200 && code <= 299 {
		return s.result(ctx, call, resp)
	}
	value, err := transport.ReadValue(resp, transport.Bound(call))
	if err != nil {
		value = transport.Value{} // the status stands, whatever was to explain it
	}
	return transport.Status(call, sending, resp, value)
}

// result reads the body of a success.
func (s *Server) result(ctx context.Context, call tool.Call, resp *http.Response) tool.Outcome {
	value, err := transport.ReadValue(resp, transport.Bound(call))
	if err != nil {
		return transport.Lost(ctx, call, err)
	}
	return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size}
}
