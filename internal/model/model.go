// Package model is the seam between the turn machine and whatever decides: one small
// interface, a closed decision, and errors whose class says what happens next.
//
// Adapters below this package speak one wire each. They never see Kubernetes types,
// never retry, and never sleep longer than the context allows: attempts belong to the
// journal, not to memory.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Client asks one model for one decision.
type Client interface {
	// Decide sends one request and normalises the reply. Every error it returns is
	// an *Error. A reply that arrived but makes no sense is not an error: it is a
	// Decision of kind KindInvalid, so that it is journalled and charged.
	Decide(ctx context.Context, request Request) (Reply, error)
}

// Request is everything a decision depends on.
type Request struct {
	// Decision counts the run's decisions, starting at 1.
	Decision int
	// System holds the instructions; empty for none.
	System string
	// Messages is the conversation, oldest first. It starts with a user message, and
	// each assistant message with calls is followed by one tool message per call, in
	// call order.
	Messages []Message
	// Tools that may be proposed, in a stable order.
	Tools []Tool
	// MaxOutputTokens bounds the reply.
	MaxOutputTokens int32
	// Summary is true for a request whose answer is a summary of the run's older turns and
	// not a decision. It offers no tools.
	Summary bool `json:",omitempty"`
	// Conversation names the run, the same in each of its requests, so that a provider
	// can find the prefix it has cached. It says nothing about the run.
	Conversation string `json:",omitempty"`
}

// Role says who speaks in a Message.
type Role string

// Roles of a message.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of the conversation.
type Message struct {
	Role Role
	// Text of a user message, of an assistant message, or a tool result as the model
	// reads it.
	Text string
	// Calls of an assistant message.
	Calls []Call
	// Raw is what the provider itself said in this message, in the wire's own shape (a
	// message, its content or a list of items), echoed byte for byte where the wire
	// allows it. Empty when the message did not come from this provider: it is then
	// written from Text and Calls.
	Raw json.RawMessage
	// CallID is the id of the call that a tool message answers.
	CallID string
	// Value is the tool result as a JSON value, null for a failed call.
	Value json.RawMessage
	// Failed is true for a tool result that reports a failure.
	Failed bool
}

// Tool is a tool as the model sees it.
type Tool struct {
	// Name is the full name, <server>.<tool>; built-in tools have no dot.
	Name string
	// Alias is the model-safe name, [a-zA-Z_][a-zA-Z0-9_-]{0,63}, unique in a run.
	Alias string
	// Description for the model.
	Description string
	// InputSchema is the JSON Schema of the arguments.
	InputSchema json.RawMessage
}

// Reply is one normalised answer.
type Reply struct {
	Decision Decision
	// StopReason is the wire's own word, unchanged.
	StopReason string
	Usage      Usage
	// Raw is what Message.Raw of later requests repeats. Set for answers, calls and
	// pauses only, so that the calls of a refused or broken reply can't come back.
	Raw json.RawMessage
	// RequestID is the provider's id of the request, for support cases.
	RequestID string
}

// Kind is the closed set of decisions on the wire. The turn machine splits KindCalls
// further, since questions and the like are calls of built-in tools.
type Kind string

// Kinds of a decision.
const (
	// KindFinal is an answer. Its text is not empty.
	KindFinal Kind = "Final"
	// KindCalls proposes at least one tool call.
	KindCalls Kind = "Calls"
	// KindPaused is a reply that the provider interrupted and wants to be asked to go on
	// with: the conversation is sent again with this reply at its end. It has no calls.
	KindPaused Kind = "Paused"
	// KindRefused says that the model or a content filter refused.
	KindRefused Kind = "Refused"
	// KindOverflow says that the conversation no longer fits the model's context.
	KindOverflow Kind = "Overflow"
	// KindInvalid is a reply that can't be taken as any of the others: cut off,
	// empty, malformed, or with a stop reason that nobody knows. Nothing in it runs.
	KindInvalid Kind = "Invalid"
)

// Decision is a normalised decision.
type Decision struct {
	Kind Kind
	// Text is the answer, or what the model said beside its calls.
	Text string
	// Calls of KindCalls, in the reply's order.
	Calls []Call
	// Code says in one word what is wrong with a KindInvalid: see the Code constants.
	Code string
	// Problem tells the model what to change, for KindInvalid.
	Problem string
}

// Codes of an invalid decision.
const (
	CodeCutOff       = "CutOff"       // the reply hit the output limit
	CodeEmpty        = "Empty"        // neither text nor calls
	CodeMalformed    = "Malformed"    // not the shape that the wire promises
	CodeDuplicateIDs = "DuplicateIDs" // two calls of one reply share an id
	CodeUnknownStop  = "UnknownStop"  // a stop reason that nobody knows
)

// Call is a proposed tool call.
type Call struct {
	// ID is the provider's id, unique within the reply. Adapters assign one where
	// the server gave none.
	ID string
	// Alias is the name as the model wrote it.
	Alias string
	// Arguments as the model wrote them, not yet parsed; may be anything.
	Arguments string
}

// Usage counts tokens. Input includes cache reads and writes, output includes reasoning,
// whatever the wire's own arithmetic.
type Usage struct {
	InputTokens      int64
	OutputTokens     int64
	CacheReadTokens  int64
	CacheWriteTokens int64
	ReasoningTokens  int64
	// Reported is false when the server gave no usable report; the turn machine then
	// charges an estimate.
	Reported bool
}

// Class says what an error means for the next attempt.
type Class string

// Classes of an error.
const (
	// ClassTransient may pass: connection trouble, timeouts, 5xx. Try again with back-off.
	ClassTransient Class = "Transient"
	// ClassThrottled passes after RetryAfter: 429 and overload.
	ClassThrottled Class = "Throttled"
	// ClassUnauthorized is a refused or missing credential: 401, 403.
	ClassUnauthorized Class = "Unauthorized"
	// ClassQuota is an exhausted quota or unpaid bill: it won't pass by waiting.
	ClassQuota Class = "Quota"
	// ClassOverflow says that the conversation is longer than the model accepts.
	ClassOverflow Class = "Overflow"
	// ClassRequest is a request that the provider refuses whatever the time: 400, 404, 413, 422.
	ClassRequest Class = "Request"
	// ClassCanceled says that our own context ended the request.
	ClassCanceled Class = "Canceled"
)

// Error is a request that brought no decision.
type Error struct {
	Class Class
	// Status is the HTTP status, 0 when no answer came.
	Status int
	// Code is the provider's own error code or type, at most 64 characters of
	// [A-Za-z0-9_.-]; never free text.
	Code string
	// RetryAfter is how long the provider asked to wait, 0 when it did not say.
	RetryAfter time.Duration
	// Sent is true once a byte of the request may have reached the provider, so that
	// the attempt may have cost something.
	Sent bool
	// Cut is true for an answer that broke off after its status, so that nobody knows how
	// much of a reply was made.
	Cut bool
	// Usage is what the provider itself reported for a reply that failed, the zero value
	// where it did not.
	Usage Usage
	// Detail says for developers what went wrong, without any content of request,
	// reply or credentials.
	Detail string
}

// Error implements error. It never contains content of the request or the reply.
func (e *Error) Error() string {
	return fmt.Sprintf("model request failed: class %s, status %d, code %q: %s", e.Class, e.Status, e.Code, e.Detail)
}
