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

	"github.com/pawl-run/pawl/internal/strictjson"
)

// Server is one place that tools come from.
type Server interface {
	// List says what the server offers. The error says what to change and holds no
	// secret.
	List(ctx context.Context) (Listing, error)
	// Call makes one attempt at one call. Whatever happens is in the outcome.
	Call(ctx context.Context, call Call) Outcome
}

// Listing is what a server offers.
type Listing struct {
	// Tools that can be used, in a stable order, each name once.
	Tools []Definition
	// Quarantined are those that can't, in a stable order. One bad tool is no reason to
	// do without the others.
	Quarantined []Quarantined
}

// Quarantined is a tool that its server offers and nobody gets.
type Quarantined struct {
	// Name as the server spells it, shortened where it is long; fit to be shown, and
	// for nothing else.
	Name string
	// Reason says what to change, in at most 512 bytes.
	Reason string
}

// Definition is a tool as its server describes it; all of it is untrusted input.
type Definition struct {
	Name        string
	Description string
	InputSchema json.RawMessage
	// Annotations are the server's hints about the tool, nil for none.
	Annotations json.RawMessage
}

// Digest names the definition under the tool's full name, so that a change is noticed.
// Spelling that changes no value, such as white space, changes no digest either.
func (d Definition) Digest(fullName string) string {
	parts := []any{fullName, d.Description, canonical(d.InputSchema)}
	if len(d.Annotations) > 0 {
		parts = append(parts, canonical(d.Annotations))
	}
	return strictjson.Digest(strictjson.Canonical(parts))
}

func canonical(text json.RawMessage) string {
	same, err := strictjson.CanonicalBytes(text)
	if err != nil {
		same = text // refused elsewhere; a digest is still a digest
	}
	return string(same)
}

// Call is one attempt at one tool call.
type Call struct {
	// Tool is the server's own name of the tool, FullName the one that the run knows it
	// by.
	Tool, FullName string
	// Digest is that of the definition that the model was shown, empty where none was. A
	// tool that is defined otherwise by now is not called.
	Digest string
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
	// Timeout is how long the call may take, however late it is answered.
	Timeout time.Duration
	// MaxResultBytes bounds what is read of the result.
	MaxResultBytes int32
	// Child is what a call needs that is a child run, nil for every other.
	Child *Child
	// IncludeBinary keeps binary content of the result, as base64, instead of a
	// description alone.
	IncludeBinary bool
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
	// ClassInputRequired means that the service wants input before it goes on, and will
	// be sent the call again with it. It comes only from servers that were told that
	// somebody can give it.
	ClassInputRequired Class = "input_required"
	// ClassDeferred means that the service took the call and goes on by itself. It comes
	// only from servers that were told that somebody will ask again.
	ClassDeferred Class = "deferred"
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
	// Embedded names the members of Value, or of each element of a list, that hold the
	// tool's own words where the form around them is the adapter's or the protocol's. A dot
	// leads into a member.
	Embedded []string
	// Message tells the model what went wrong and what to change. Written by the
	// adapter, never by the service, and free of secrets.
	Message string
	// Receipt is the service's own id of the effect, at most 256 characters.
	Receipt string
	// Spent is what the run cost that the call was, nil where nobody knows.
	Spent *Spent
	// Input says what the service wants to know, for ClassInputRequired, and for
	// ClassDeferred where it waits for that.
	Input *Input
	// Deferred says how to ask again, for ClassDeferred.
	Deferred *Deferred
}

// Changed says whether a call is for another definition than the tool has now.
func (d Definition) Changed(call Call) bool {
	return call.Digest != "" && call.Digest != d.Digest(call.FullName)
}

// Refused is the outcome of a call whose tool is defined otherwise by now than when it
// was offered to the model.
func Refused() Outcome {
	return Outcome{Class: ClassDenied, Effect: EffectRejected,
		Message: "not sent: the tool's definition has changed since it was offered to you, so it can't be used in this run any more; nothing was done; use another tool, or do without"}
}

// Gone is the outcome of a call whose tool is not offered any more.
func Gone() Outcome {
	return Outcome{Class: ClassValidation, Effect: EffectRejected,
		Message: "not sent: the server does not offer this tool; nothing was done; use another tool, or do without"}
}
