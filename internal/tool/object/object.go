// Package object begins calls that are objects of a cluster. The object of a call is named
// after its effect key, so that whoever looks finds the one there is, and it is created by who
// holds the right to send, once.
package object

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

const (
	// createTimeout bounds the request that creates an object, so that the right to send it
	// is not much older when it arrives.
	createTimeout = 5 * time.Second
	// lookTimeout bounds the look after a request whose answer did not come.
	lookTimeout = 10 * time.Second
)

// RefusedError means that there is no object, since the cluster did not take it.
type RefusedError struct {
	// Text says why. It holds no secret.
	Text string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Text }

// Kind is a kind of objects that calls can be.
type Kind struct {
	// Noun is what people call one.
	Noun string
	// LookAfter is how often one is looked at that nothing is heard of.
	LookAfter time.Duration
}

// Object is that of one call.
type Object struct {
	// Name of the object.
	Name string
	// Create creates it, or finds that very object. The error is a *RefusedError where the
	// cluster has refused it; after any other nobody knows whether there is one.
	Create func(context.Context) error
	// There says whether the call's own object is there.
	There func(context.Context) (bool, error)
}

// Begin creates the object of a call, which goes on by itself, unless the right to send it
// has lapsed.
func (k Kind) Begin(ctx context.Context, call tool.Call, o Object) tool.Outcome {
	if err := ctx.Err(); err != nil {
		return transport.NotSent(ctx, call, err)
	}
	if gate := transport.GateOf(ctx); gate != nil && gate() != nil {
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Retryable: call.Repeatable,
			Message: "not sent: the right to send it has lapsed; nothing was done"}
	}
	var refused *RefusedError
	switch err := bounded(ctx, createTimeout, o.Create); {
	case err == nil:
		return k.GoesOn(o.Name)
	case errors.As(err, &refused):
		return tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected,
			Message: "the cluster refused the call's " + k.Noun + ": " + refused.Text + "; nothing was done; somebody has to correct the tool or make room for it"}
	}
	var there bool
	// A cancelled call may have one all the same.
	err := bounded(context.WithoutCancel(ctx), lookTimeout, func(ctx context.Context) (err error) {
		there, err = o.There(ctx)
		return err
	})
	if there || err != nil && !call.Repeatable { // whether there is one shows later
		return k.GoesOn(o.Name)
	}
	return tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: call.Repeatable,
		Message: "the cluster did not answer when the call's " + k.Noun + " was created, and has none of that name; nobody knows whether the call took effect"}
}

func bounded(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx)
}

// GoesOn is the outcome of a call whose object has not ended.
func (k Kind) GoesOn(name string) tool.Outcome {
	return tool.Outcome{Class: tool.ClassDeferred, Effect: tool.EffectUnknown, Message: "the call's " + k.Noun + " goes on",
		Deferred: &tool.Deferred{Handle: name, PollAfter: k.LookAfter}}
}
