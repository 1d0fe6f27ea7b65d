package mcptool

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Members of _meta that tell a server about the call.
const (
	metaKey     = "pawl.run/idempotency-key"
	metaRun     = "pawl.run/run"
	metaRunUID  = "pawl.run/run-uid"
	metaCallID  = "pawl.run/call-id"
	metaAttempt = "pawl.run/attempt"
	metaEpoch   = "pawl.run/epoch"
)

// Call implements tool.Server. A request goes out a second time only where the first was
// refused because the server did not know the session or the revision, and then only if
// it may be repeated or is proven to have done nothing.
func (s *Server) Call(ctx context.Context, call tool.Call) tool.Outcome {
	return s.call(ctx, call, nil)
}

// call makes a call, with further members among its parameters.
func (s *Server) call(ctx context.Context, call tool.Call, more map[string]any) tool.Outcome {
	v, c, err := s.look(ctx)
	if err != nil {
		return notListed(ctx, call, err)
	}
	for repaired := false; ; repaired = true {
		o, out := find(c, call)
		if o == nil {
			return out
		}
		current, err := v.session(ctx)
		if err != nil {
			return notListed(ctx, call, err)
		}
		headers, err := mirror(o.marks, call.Arguments)
		if err != nil {
			return tool.Outcome{Class: tool.ClassValidation, Effect: tool.EffectRejected, Message: "not sent: " + err.Error()}
		}
		a := v.exchange(ctx, current, request{
			method: "tools/call", name: call.Tool, mirrored: headers, params: v.callParams(ctx, current, call, more),
			once: !call.Repeatable, budget: newBudget(maxAnswerBytes, maxAnswerDepth),
		})
		if repaired || !v.stale(current, a) || !call.Repeatable && !a.neverRan() {
			return v.outcome(ctx, call, o, a, current)
		}
		if c, err = v.again(ctx); err != nil {
			return notListed(ctx, call, err)
		}
	}
}

// find gives the tool of a call, as the server defines it now, or the outcome of the call
// where it may not be made.
func find(c *catalogue, call tool.Call) (*offer, tool.Outcome) {
	o := c.offers[call.Tool]
	switch {
	case o == nil:
		return nil, tool.Gone()
	case o.definition.Changed(call):
		return nil, tool.Refused()
	}
	return o, tool.Outcome{}
}

// stale says whether an answer tells that what is known of the server is not true any
// more: its session, its revision, or which arguments it wants in headers.
func (v *visit) stale(current *session, a answer) bool {
	if a.code() == codeHeaderMismatch {
		return current.modern()
	}
	return v.repair(current, a)
}

// again lists the tools again, in what the visit takes the server to speak by now.
func (v *visit) again(ctx context.Context) (*catalogue, error) {
	select {
	case v.place.turn <- struct{}{}:
		defer func() { <-v.place.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return v.ask(ctx)
}

// callParams are the parameters of tools/call.
func (v *visit) callParams(ctx context.Context, current *session, call tool.Call, more map[string]any) map[string]any {
	meta := v.meta(current)
	if call.EffectKey != "" {
		meta[metaKey] = call.EffectKey
	}
	meta[metaRun] = call.RunNamespace + "/" + call.RunName
	meta[metaRunUID] = call.RunUID
	meta[metaCallID] = call.ID
	meta[metaAttempt] = call.Attempt
	meta[metaEpoch] = call.Epoch
	for name, value := range transport.Trace(ctx) {
		meta[name] = value
	}
	arguments := call.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	params := map[string]any{"name": call.Tool, "arguments": arguments, "_meta": meta}
	maps.Copy(params, more)
	return params
}
