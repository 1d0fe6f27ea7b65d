package httptool

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

var _ tool.Deferrer = (*Server)(nil)

const cannotAsk = "the service could not be asked about the call"

// accepted reads a 202: with a Location of the service's own it is a call that goes on,
// without one nobody will ever know.
func (s *Server) accepted(call tool.Call, resp *http.Response) tool.Outcome {
	unknown := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: call.Repeatable}
	location := resp.Header.Get("Location")
	if location == "" {
		unknown.Message = "the service accepted the call (HTTP 202) and gave no Location to ask at; nobody knows whether the call took effect"
		return unknown
	}
	address, err := s.statusURL(location)
	if err != nil {
		unknown.Message = "the service accepted the call (HTTP 202) with a Location that is not its own; nobody knows whether the call took effect"
		return unknown
	}
	return goesOn(address.String(), resp.Header)
}

// goesOn is the outcome of a call that has not ended yet, its handle being the URL to ask at.
func goesOn(handle string, header http.Header) tool.Outcome {
	return tool.Outcome{Class: tool.ClassDeferred, Effect: tool.EffectUnknown, Message: "the service goes on with it",
		Deferred: &tool.Deferred{Handle: handle, PollAfter: transport.RetryAfter(header.Get("Retry-After"), time.Now())}}
}

// statusURL resolves a Location. Credentials go to the service alone, so another origin is
// refused.
func (s *Server) statusURL(location string) (*url.URL, error) {
	reference, err := url.Parse(location)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	address := s.base.ResolveReference(reference)
	if address.Scheme != s.base.Scheme || !strings.EqualFold(address.Host, s.base.Host) || address.User != nil {
		return nil, errors.New("another origin")
	}
	address.Fragment = ""
	return address, nil
}

// verdicts are the statuses by which a service says that it refused a call which it had
// accepted. Others come from whatever stands before it, or say that it has forgotten: those
// teach nothing about what it did.
var verdicts = []int{http.StatusBadRequest, http.StatusPaymentRequired, http.StatusConflict, http.StatusPreconditionFailed,
	http.StatusUnprocessableEntity, http.StatusFailedDependency}

// Poll implements tool.Deferrer: GET the status URL. 202 says that the call goes on,
// another 2xx is its result, one of the verdicts with a JSON body refuses it, and everything
// else says nothing.
func (s *Server) Poll(ctx context.Context, call tool.Call, handle string) tool.Outcome {
	address, err := s.statusURL(handle)
	if err != nil {
		return tool.NothingLearned(cannotAsk) // the policy names another service by now
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return tool.NothingLearned(cannotAsk)
	}
	s.identify(ctx, req, call)
	resp, _, err := s.client.Send(req, false)
	if err != nil {
		return tool.NothingLearned(cannotAsk)
	}
	defer func() { _ = resp.Body.Close() }()
	switch code := resp.StatusCode; {
	case code == http.StatusAccepted, code == http.StatusTooManyRequests, code == http.StatusTooEarly, code == http.StatusRequestTimeout:
		return goesOn(handle, resp.Header)
	case code >= 200 && code <= 299:
		out := s.result(ctx, call, resp)
		if out.Class != tool.ClassOK {
			return tool.NothingLearned(cannotAsk) // it broke off, and can be asked for again
		}
		out.Receipt = transport.Receipt(resp.Header)
		return out
	case slices.Contains(verdicts, code) && resp.Header.Get("Retry-After") == "":
		return refusedLater(call, resp)
	default:
		return tool.NothingLearned(cannotAsk)
	}
}

// refusedLater reads a verdict, which says why in JSON.
func refusedLater(call tool.Call, resp *http.Response) tool.Outcome {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isJSON := err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"))
	value, err := transport.ReadValue(resp, transport.Bound(call))
	if !isJSON || err != nil {
		return tool.NothingLearned(cannotAsk)
	}
	return tool.Outcome{
		Class: tool.ClassRejected, Effect: tool.EffectRejected, Value: value.JSON, Truncated: value.Truncated, Size: value.Size,
		Message: fmt.Sprintf("the service refused the call after it had accepted it (HTTP %d); nothing was done; change the arguments as its answer says", resp.StatusCode),
	}
}

// Answer implements tool.Deferrer. No service of this kind asks for anything.
func (s *Server) Answer(context.Context, tool.Call, string, tool.Input, []tool.Answer) error {
	return errors.New("the service asked for nothing")
}

// CancelDeferred implements tool.Deferrer. The contract has no way to call a request off.
func (s *Server) CancelDeferred(context.Context, tool.Call, string) error {
	return errors.New("the service has no way to give a call up")
}
