package tool

import (
	"context"
	"encoding/json"
	"time"
)

// Continuer is a Server whose calls may need input before they go on.
type Continuer interface {
	// Continue sends a call again with the answers to what it asked. It is the same call,
	// with the same arguments and the same effect key, and its outcome takes the place of
	// the one that asked.
	Continue(ctx context.Context, call Call, asked Input, answers []Answer) Outcome
}

// Deferrer is a Server that may take a call and answer it later.
type Deferrer interface {
	// Poll asks what became of a call that was deferred. A ClassDeferred outcome means:
	// nothing yet. A retryable one means that nothing was learned, and that the handle is
	// as good as before.
	Poll(ctx context.Context, call Call, handle string) Outcome
	// Answer gives a deferred call the input that it waits for.
	Answer(ctx context.Context, call Call, handle string, asked Input, answers []Answer) error
	// CancelDeferred asks the service to give up. It need not, and may still complete.
	CancelDeferred(ctx context.Context, call Call, handle string) error
}

// NothingLearned is the outcome of a Poll that brought no answer: all is as it was.
func NothingLearned(message string) Outcome {
	return Outcome{Class: ClassTransport, Effect: EffectUnknown, Retryable: true, Message: message}
}

// Input is what a service wants to know before it goes on with a call.
type Input struct {
	// Questions to people, in a stable order. None means that the service only wants to
	// be asked again.
	Questions []Question `json:"questions,omitempty"`
	// State is the service's own, given back exactly as it is; nil for none.
	State *string `json:"state,omitempty"`
}

// Question is one of them. All of it is untrusted.
type Question struct {
	// Key is the service's name for it.
	Key string `json:"key"`
	// Message is what people are asked, at most 4 KiB.
	Message string `json:"message"`
	// Schema of the answer, an object whose members are plain values. It can be used as
	// it is.
	Schema json.RawMessage `json:"schema"`
}

// Action is what a person did with a question.
type Action string

// Actions.
const (
	// ActionAccept gives an answer.
	ActionAccept Action = "accept"
	// ActionDecline refuses to give one.
	ActionDecline Action = "decline"
	// ActionCancel means that nobody decided.
	ActionCancel Action = "cancel"
)

// Answer answers the question with its key.
type Answer struct {
	Key    string `json:"key"`
	Action Action `json:"action"`
	// Content satisfies the question's schema, for ActionAccept.
	Content json.RawMessage `json:"content,omitempty"`
}

// Deferred is a call that a service goes on with by itself.
type Deferred struct {
	// Handle by which the service knows it, at most 1 KiB.
	Handle string `json:"handle"`
	// PollAfter is how long to wait before asking, from one second to five minutes.
	PollAfter time.Duration `json:"pollAfter"`
	// Lifetime is how long after the call the service may have forgotten it, 0 for no
	// limit that it named.
	Lifetime time.Duration `json:"lifetime,omitempty"`
}
