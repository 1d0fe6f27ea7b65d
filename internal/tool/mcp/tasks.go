package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

const (
	maxHandleBytes  = 1 << 10
	defaultPoll     = 5 * time.Second
	minPoll         = time.Second
	maxPoll         = 5 * time.Minute
	maxTaskLifetime = 366 * 24 * time.Hour
)

var _ tool.Deferrer = (*Server)(nil)

// created is the outcome of a result that is a task.
func (v *visit) created(call tool.Call, r map[string]any) tool.Outcome {
	if !v.capabilities().Tasks {
		return unknown(call, "the server turned the call into a task, which nobody asked for")
	}
	handle, ok := r["taskId"].(string)
	if !ok || handle == "" || len(handle) > maxHandleBytes {
		return unknown(call, "the server turned the call into a task, but gave it no usable name")
	}
	return deferred(handle, r)
}

// deferred is the outcome of a task that goes on.
func deferred(handle string, r map[string]any) tool.Outcome {
	return tool.Outcome{Class: tool.ClassDeferred, Effect: tool.EffectUnknown, Message: "the server goes on with it as a task", Deferred: &tool.Deferred{
		Handle:    handle,
		PollAfter: min(max(milliseconds(r["pollIntervalMs"], defaultPoll), minPoll), maxPoll),
		Lifetime:  min(milliseconds(r["ttlMs"], 0), maxTaskLifetime),
	}}
}

// milliseconds reads a number of them that is not negative.
func milliseconds(given any, otherwise time.Duration) time.Duration {
	number, _ := given.(json.Number)
	ms, err := number.Int64()
	if err != nil || ms < 0 {
		return otherwise
	}
	return time.Duration(min(ms, int64(maxTaskLifetime/time.Millisecond))) * time.Millisecond
}

// Poll implements tool.Deferrer.
func (s *Server) Poll(ctx context.Context, call tool.Call, handle string) tool.Outcome {
	v, a, err := s.aboutTask(ctx, "tasks/get", handle, nil)
	switch {
	case a.code() == codeInvalidParams || a.code() == codeResourceNotFound:
		return final(unknown(call, "the server does not know the task any more"))
	case err != nil:
		return tool.NothingLearned("the task could not be asked after: " + taskReason(ctx, err))
	}
	r := a.result
	kind, typed := r["resultType"]
	// Servers say "complete" here, since the answer is the whole of what was asked for; the
	// extension's own examples say "task".
	if typed && kind != "complete" && kind != "task" || r["taskId"] != handle {
		return tool.NothingLearned("the server's answer is not about the task")
	}
	switch r["status"] {
	case "working":
		return deferred(handle, r)
	case "input_required":
		return v.taskInput(call, handle, r)
	case "completed":
		return v.taskResult(ctx, call, a)
	case "failed":
		failure, ok := r["error"].(map[string]any)
		if !ok {
			return final(unknown(call, "the task failed without saying how"))
		}
		return final(protocolError(call, answer{failure: failure}))
	case "cancelled":
		return final(unknown(call, "the server gave the task up"))
	}
	return tool.NothingLearned("the task is in a state that is not known")
}

// final makes an outcome that asking again won't change.
func final(out tool.Outcome) tool.Outcome {
	out.Retryable = false
	return out
}

// taskInput is the outcome of a task that waits for input.
func (v *visit) taskInput(call tool.Call, handle string, r map[string]any) tool.Outcome {
	out := deferred(handle, r)
	if !v.capabilities().Elicitation {
		return final(unknown(call, "the task needs input, which is not supported"))
	}
	// The state of a task is the server's own matter.
	input, err := readInput(map[string]any{"inputRequests": r["inputRequests"]})
	if err != nil {
		return final(unknown(call, "the task asks for input, but "+err.Error()))
	}
	out.Input = input
	return out
}

// taskResult is the outcome of a task that is complete.
func (v *visit) taskResult(ctx context.Context, call tool.Call, a answer) tool.Outcome {
	result, ok := a.result["result"].(map[string]any)
	if kind, typed := result["resultType"]; !ok || typed && kind != "complete" {
		return final(unknown(call, "the task is complete, but its result is of a type that is not supported"))
	}
	c, err := v.catalogue(ctx)
	if err != nil {
		return tool.NothingLearned("the tools could not be listed, so that the task's result can't be checked: " + taskReason(ctx, err))
	}
	o := c.offers[call.Tool]
	if o == nil {
		o = &offer{} // it was there when the call was made; what became of the call counts
	}
	out := completed(call, o, result)
	out.Receipt = transport.Receipt(a.resp.Header)
	return out
}

// Answer implements tool.Deferrer.
func (s *Server) Answer(ctx context.Context, _ tool.Call, handle string, asked tool.Input, answers []tool.Answer) error {
	more, err := responses(asked, answers)
	if err != nil {
		return err
	}
	if _, _, err := s.aboutTask(ctx, "tasks/update", handle, more); err != nil {
		return errors.New("the task did not take the answers: " + taskReason(ctx, err))
	}
	return nil
}

// CancelDeferred implements tool.Deferrer.
func (s *Server) CancelDeferred(ctx context.Context, _ tool.Call, handle string) error {
	if _, _, err := s.aboutTask(ctx, "tasks/cancel", handle, nil); err != nil {
		return errors.New("the task could not be cancelled: " + taskReason(ctx, err))
	}
	return nil
}

// aboutTask makes one request about a task, in the current revision, which is the only one
// that has them.
func (s *Server) aboutTask(ctx context.Context, method, handle string, params map[string]any) (*visit, answer, error) {
	if handle == "" || len(handle) > maxHandleBytes {
		return nil, answer{}, fault("it has no usable name")
	}
	v, err := s.visit(ctx)
	if err != nil {
		return nil, answer{}, err
	}
	current := &session{version: modernVersion, known: true, place: v.place}
	sent := map[string]any{"taskId": handle, "_meta": v.meta(current)}
	for name, value := range params {
		sent[name] = value
	}
	a := v.exchange(ctx, current, request{method: method, name: handle, params: sent, once: true, budget: newBudget(maxAnswerBytes, maxAnswerDepth)})
	switch {
	case a.err != nil:
		return v, a, a.err
	case a.status() < 200 || a.status() > 299:
		return v, a, refusal(a.resp, a.sending)
	case a.failure != nil:
		return v, a, faultf("the server refused (JSON-RPC error %d)", a.code())
	}
	return v, a, nil
}

// taskReason is a short text for what went wrong.
func taskReason(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "the server did not answer in time"
	}
	if text, ours := faultText(err); ours {
		return text
	}
	return transport.Reason(err)
}
