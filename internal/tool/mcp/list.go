package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// maxRepairs bounds how often one list is begun anew because the server turned out to
// speak something else, or to have lost the session.
const maxRepairs = 3

// List implements tool.Server.
func (s *Server) List(ctx context.Context) (tool.Listing, error) {
	_, c, err := s.look(ctx)
	if err != nil {
		return tool.Listing{}, listError(ctx, err)
	}
	return c.listing, nil
}

// look begins a visit with what the server offers. An access token that is refused then is
// fetched anew, once: looking changes nothing.
func (s *Server) look(ctx context.Context) (*visit, *catalogue, error) {
	for again := false; ; again = true {
		v, err := s.visit(ctx)
		if err != nil {
			return nil, nil, err
		}
		c, err := v.catalogue(ctx)
		var refused *statusError
		if again || !errors.As(err, &refused) || !refused.tokenRefused {
			return v, c, err
		}
	}
}

// catalogue gives what the server offers: what is known of it if that is fresh, else what
// it says now. Whoever comes while somebody else asks, waits for that answer.
func (v *visit) catalogue(ctx context.Context) (*catalogue, error) {
	select {
	case v.place.turn <- struct{}{}:
		defer func() { <-v.place.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	v.version = v.memory.version(v.place)
	if c, fresh := v.memory.last(v.place); fresh && v.version != "" {
		return c, nil
	}
	return v.ask(ctx)
}

// ask lists the tools, and finds out on the way what the server speaks. A list changes
// nothing, so it is begun anew where anything else than the server stands in its way.
func (v *visit) ask(ctx context.Context) (*catalogue, error) {
	ctx = transport.WithGate(ctx, nil)
	// ambiguous is a list by which nobody can tell what the server speaks.
	var ambiguous *catalogue
	for repairs := 0; ; repairs++ {
		current, err := v.session(ctx)
		if err != nil {
			if ambiguous != nil && isHandshake(err) {
				return v.found(ambiguous, modernVersion), nil
			}
			if repairs < maxRepairs && v.reconsider(err) {
				continue
			}
			v.memory.learn(v.place, "")
			return nil, err
		}
		found, a, err := v.pages(ctx, current)
		switch {
		case err == nil && !current.known && !found.modern:
			ambiguous, v.version = found, sessionVersion
			continue
		case err == nil:
			return v.found(found, current.version), nil
		case repairs < maxRepairs && v.repair(current, a):
			continue
		}
		v.memory.learn(v.place, "")
		return nil, err
	}
}

// found remembers what the server speaks and offers.
func (v *visit) found(c *catalogue, version string) *catalogue {
	v.version = version
	v.memory.learn(v.place, version)
	v.memory.keep(v.place, c)
	return c
}

func isHandshake(err error) bool {
	var refused *handshakeError
	return errors.As(err, &refused)
}

// reconsider drops what was remembered of a server that answers a handshake otherwise
// than it did: another may have taken its place.
func (v *visit) reconsider(err error) bool {
	if !isHandshake(err) || v.memory.version(v.place) == "" {
		return false
	}
	v.version = ""
	v.memory.learn(v.place, "")
	return true
}

// pages reads all pages in one session. The answer is the last one.
func (v *visit) pages(ctx context.Context, current *session) (*catalogue, answer, error) {
	known, _ := v.memory.last(v.place)
	reader := &catalogueReader{known: known, marked: current.modern(), freshness: maxFreshness}
	shared := newBudget(maxListBytes, maxListDepth)
	params := map[string]any{}
	if meta := v.meta(current); len(meta) > 0 {
		params["_meta"] = meta
	}
	for range maxPages {
		a := v.exchange(ctx, current, request{method: "tools/list", params: params, budget: shared})
		if err := pageError(a); err != nil {
			return nil, a, err
		}
		if err := reader.page(ctx, a.result); err != nil {
			return nil, a, err
		}
		next, ok := a.result["nextCursor"]
		if !ok || next == nil || next == "" {
			return reader.catalogue(), a, nil
		}
		cursor, ok := next.(string)
		if !ok || len(cursor) > maxCursorBytes {
			return nil, a, fault("its nextCursor is not a string of at most 4 KiB")
		}
		params["cursor"] = cursor
	}
	return nil, answer{}, faultf("it has more than %d pages of tools: offer fewer", maxPages)
}

// pageError says why an answer is no page.
func pageError(a answer) error {
	switch {
	case a.err != nil:
		return a.err
	case a.code() == codeUnsupportedVersion:
		return errNoRevision
	case a.status() < 200 || a.status() > 299:
		return refusal(a.resp, a.sending)
	case a.failure != nil:
		return faultf("it refused to list its tools (JSON-RPC error %d)", a.code())
	}
	if kind, ok := a.result["resultType"]; ok && kind != "complete" {
		return fault("its list of tools is not complete, but of a type that is not supported")
	}
	return nil
}

// freshness is how long a page is taken for true.
func freshness(page map[string]any) time.Duration {
	number, _ := page["ttlMs"].(json.Number)
	ms, err := number.Int64()
	if err != nil {
		return defaultFreshness
	}
	return min(max(time.Duration(min(ms, int64(maxFreshness/time.Millisecond)))*time.Millisecond, minFreshness), maxFreshness)
}

// listError is what List reports: texts of this package, or of the function that
// gives the configured headers.
func listError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("list tools: the server did not answer in time")
	case ctx.Err() != nil:
		return fmt.Errorf("list tools: %w", ctx.Err())
	case errors.Is(err, transport.ErrHeaders):
		return fmt.Errorf("list tools: %w", err)
	}
	if text, ours := faultText(err); ours {
		return errors.New("list tools: " + text)
	}
	return fmt.Errorf("list tools: %s", transport.Reason(err))
}

// faultText is the text of an error that is this package's own.
func faultText(err error) (string, bool) {
	var handshake *handshakeError
	var status *statusError
	var large *largeError
	var own fault
	switch {
	case errors.As(err, &handshake):
		return handshake.Error(), true
	case errors.As(err, &status):
		return status.Error(), true
	case errors.As(err, &large):
		return "the server has a fault: " + large.Error(), true
	case errors.As(err, &own):
		return "the server has a fault: " + own.Error(), true
	}
	return "", false
}

// notListed is the outcome of a call before which the server's tools could not be listed,
// so that nobody knows whether the tool is still what it was.
func notListed(ctx context.Context, call tool.Call, err error) tool.Outcome {
	out := transport.NotSent(ctx, call, err)
	text, ours := faultText(err)
	if ctx.Err() != nil || !ours {
		return out
	}
	out.Message = "not sent: " + text + "; nothing was done"
	var refused *statusError
	if !errors.As(err, &refused) {
		return out
	}
	switch {
	case refused.tokenRefused:
		out.Class = tool.ClassRejected
		out.Message = "not sent: the server refused the access token, and another attempt gets a new one; nothing was done"
	case refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden:
		out.Class, out.Retryable = tool.ClassRejected, false
		out.Message = "not sent: " + text + "; an administrator has to correct the credentials"
	case refused.status == http.StatusTooManyRequests || refused.status == http.StatusServiceUnavailable:
		out.Class, out.RetryAfter = tool.ClassThrottled, refused.retryAfter
		out.Message = "not sent: " + text + ", which means to try again later; nothing was done"
	}
	return out
}
