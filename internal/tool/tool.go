// Package tool is the seam between the turn machine and what acts outside: one small
// interface, and an outcome that says honestly whether something happened.
//
// Adapters below this package speak one protocol each. They never see Kubernetes
// types, never retry and never follow a redirect: attempts belong to the journal.
package tool

import (
	"context"
	"encoding/json"
	"time"
)

// Server is one place that tools come from.
type Server interface {
	// List names the tools that the server has, in a stable order. The error says
	// what to change and holds no secret.
	List(ctx context.Context) ([]Definition, error)
	// Call makes one attempt at one call. Whatever happens is in the outcome.
	Call(ctx context.Context, call Call) Outcome
}

// Definition is a tool as its server describes it; all of it is untrusted input.
type Definition struct {
	Name        string
	Description string
	InputSchema json.RawMessage
}

// Call is one attempt at one tool call.
type Call struct {
	// Tool is the server's own name of the tool.
	Tool string
	// Arguments is a JSON object that satisfies the tool's schema.
	Arguments json.RawMessage
	// ID of the call, unique in the run.
	ID string
	// EffectKey is the idempotency key, stable over attempts and restarts.
	EffectKey string
	// Attempt counts the attempts at this call, starting at 1.
	Attempt int32
	// Epoch of the owner's claim, a fencing token for services that check it.
	Epoch int64
	// Repeatable is true for calls that may be sent more than once (ReadOnly, or
	// Idempotent with the same key). Where it is false the adapter must make it
	// impossible for any library or kept connection to send the request twice.
	Repeatable bool
	// RunNamespace, RunName and RunUID say for whom the call is made.
	RunNamespace, RunName, RunUID string
	// MaxResultBytes bounds what is read of the result.
	MaxResultBytes int32
}

// Class says how a call ended. It is shown to the model.
type Class string

// Classes of an outcome.
const (
	// ClassOK is a result.
	ClassOK Class = "ok"
	// ClassValidation means that the arguments do not satisfy the tool's schema, or
	// that the tool does not exist.
	ClassValidation Class = "validation"
	// ClassTimeout means that no answer came in time.
	ClassTimeout Class = "timeout"
	// ClassDenied means that policy or a person refused the call.
	ClassDenied Class = "denied"
	// ClassTransport means that the service could not be reached.
	ClassTransport Class = "transport"
	// ClassToolError means that the tool ran and reports a failure.
	ClassToolError Class = "tool_error"
	// ClassRejected means that the service refused the call before doing anything.
	ClassRejected Class = "rejected"
	// ClassThrottled means that the service asks to come back later; nothing was done.
	ClassThrottled Class = "throttled"
	// ClassNotRun means that the call was never sent.
	ClassNotRun Class = "not_run"
	// ClassUnknown means that nobody knows whether the call took effect.
	ClassUnknown Class = "unknown"
)

// EffectState says what is known of a call's effect.
type EffectState string

// States of an effect.
const (
	// EffectCommitted means that it took effect, or that the tool ran.
	EffectCommitted EffectState = "committed"
	// EffectRejected means that it did not take effect.
	EffectRejected EffectState = "rejected"
	// EffectUnknown means that nobody knows.
	EffectUnknown EffectState = "unknown"
)

// Outcome is how one attempt ended.
type Outcome struct {
	Class  Class
	Effect EffectState
	// Retryable is true when another attempt may end otherwise.
	Retryable bool
	// RetryAfter is how long the service asked to wait, 0 when it did not say.
	RetryAfter time.Duration
	// Value is the result as a JSON value, for ClassOK; for ClassToolError and
	// ClassRejected it may hold the service's own error value.
	Value json.RawMessage
	// Truncated is true when Value is a JSON string with the beginning of a longer
	// result; Size is then the bytes seen (at least), Value says in its text that it
	// was cut.
	Truncated bool
	Size      int64
	// Message tells the model what went wrong and what to change. Written by the
	// adapter, never by the service, and free of secrets.
	Message string
	// Receipt is the service's own id of the effect, at most 256 characters.
	Receipt string
}
