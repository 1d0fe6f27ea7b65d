package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// toolName is what MCP allows.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// List implements tool.Server. A list with a fault in it is refused as a whole: what
// a policy allows must not depend on which half of it could be read.
func (s *Server) List(ctx context.Context) ([]tool.Definition, error) {
	for repaired := false; ; repaired = true {
		current, fresh, err := s.acquire(ctx)
		if err != nil {
			return nil, listError(ctx, err)
		}
		tools, lost, err := s.listIn(ctx, current)
		s.release(current)
		if lost {
			s.forget(current)
			if !fresh && !repaired {
				continue
			}
		}
		if err != nil {
			return nil, listError(ctx, err)
		}
		slices.SortFunc(tools, func(a, b tool.Definition) int { return cmp.Compare(a.Name, b.Name) })
		return tools, nil
	}
}

// listIn reads all pages in one session.
func (s *Server) listIn(ctx context.Context, current *session) (tools []tool.Definition, lost bool, err error) {
	cursor := ""
	for range maxPages {
		a := s.exchange(ctx, current, "tools/list", parameters{Cursor: cursor, Meta: meta(current)}, true)
		if err := pageError(a); err != nil {
			return nil, a.sessionLost(current), err
		}
		tools, err = appendPage(tools, a.result["tools"])
		if err != nil {
			return nil, false, err
		}
		next, ok := a.result["nextCursor"]
		if !ok || next == nil || next == "" {
			return tools, false, nil
		}
		if cursor, ok = next.(string); !ok || len(cursor) > maxCursorBytes {
			return nil, false, fault("its nextCursor is not a string of at most 4 KiB")
		}
	}
	return nil, false, faultf("it has more than %d pages of tools: offer fewer", maxPages)
}

// pageError says why an answer is no page.
func pageError(a answer) error {
	switch {
	case a.err != nil:
		return a.err
	case a.status() < 200 || a.status() > 299:
		return &statusError{a.status()}
	case a.failure != nil:
		return faultf("it refused to list its tools (JSON-RPC error %d)", a.code())
	}
	if kind, ok := a.result["resultType"]; ok && kind != "complete" {
		return fault("its list of tools is not complete, but of a type that is not supported")
	}
	return nil
}

func appendPage(tools []tool.Definition, page any) ([]tool.Definition, error) {
	items, ok := page.([]any)
	if !ok {
		return nil, errUnreadable
	}
	if len(tools)+len(items) > maxTools {
		return nil, faultf("it has more than %d tools: offer fewer", maxTools)
	}
	for _, item := range items {
		t, err := definition(item)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(tools, func(other tool.Definition) bool { return other.Name == t.Name }) {
			return nil, faultf("it has two tools named %s: names must be unique", t.Name)
		}
		tools = append(tools, t)
	}
	return tools, nil
}

// definition reads one tool. Its schema is kept as it is: others judge it.
func definition(item any) (tool.Definition, error) {
	members, ok := item.(map[string]any)
	if !ok {
		return tool.Definition{}, errUnreadable
	}
	name, _ := members["name"].(string)
	if !toolName.MatchString(name) {
		return tool.Definition{}, faultf("it has a tool named %q: names are 1 to 128 letters, digits, dots, _ and -", strictjson.Preview([]byte(name), 40))
	}
	description, _ := members["description"].(string)
	if len(description) > maxDescriptionBytes {
		description = cutText(description, maxDescriptionBytes)
	}
	schema := strictjson.Canonical(members["inputSchema"])
	if len(schema) > maxSchemaBytes {
		return tool.Definition{}, faultf("the input schema of its tool %s has %d bytes, more than the %d allowed: make it smaller", name, len(schema), maxSchemaBytes)
	}
	return tool.Definition{Name: name, Description: description, InputSchema: json.RawMessage(schema)}, nil
}

// faultf makes a fault.
func faultf(format string, args ...any) fault { return fault(fmt.Sprintf(format, args...)) }

// listError is what List reports: texts of this package, or of the function that
// gives the configured headers.
func listError(ctx context.Context, err error) error {
	var handshake *handshakeError
	var status *statusError
	var own fault
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("list tools: the server did not answer in time")
	case ctx.Err() != nil:
		return fmt.Errorf("list tools: %w", ctx.Err())
	case errors.Is(err, transport.ErrHeaders):
		return fmt.Errorf("list tools: %w", err)
	case errors.As(err, &handshake):
		return fmt.Errorf("list tools: %w", handshake)
	case errors.As(err, &status):
		return fmt.Errorf("list tools: %w", status)
	case errors.As(err, &own):
		return fmt.Errorf("list tools: the server has a fault: %w", own)
	}
	return fmt.Errorf("list tools: %s", transport.Reason(err))
}
