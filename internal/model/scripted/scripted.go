// Package scripted answers from a list, without a network: for tests, dry runs and
// first steps. The n-th decision of a run is answered by the n-th step, whatever was
// asked before, so that a restart in the middle changes nothing. A request for a summary
// is answered by a fixed sentence.
package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/model"
)

// Names of the built-in tools that steps can call.
const (
	askTool            = "ask"
	cannotContinueTool = "cannot_continue"
)

// Step is one scripted decision. Exactly one member but Delay is set.
type Step struct {
	// ToolCalls proposes a batch of calls.
	ToolCalls []ToolCall
	// Final is the answer.
	Final string
	// FinalExpression is CEL over results, the outputs of the last batch in call
	// order; its value is the answer.
	FinalExpression string
	// Question asks a person.
	Question string
	// CannotContinue gives up with a reason.
	CannotContinue string
	// Raw is a whole Chat Completions response body.
	Raw json.RawMessage
	// Status is the HTTP status of a provider that failed. It answers every attempt
	// at the decision.
	Status int
	// Delay passes before the step answers.
	Delay time.Duration
}

// ToolCall is one proposed call.
type ToolCall struct {
	// Tool is the full name. One that the request does not offer is proposed as it is.
	Tool string
	// Arguments of the call; empty for {}.
	Arguments json.RawMessage
}

// After starts a timer. The channel receives once d has passed, unless stop is called
// before.
type After func(d time.Duration) (fired <-chan time.Time, stop func())

// Option changes how a client works.
type Option func(*Client)

// WithAfter replaces the timer behind Step.Delay.
func WithAfter(after After) Option {
	return func(c *Client) { c.after = after }
}

// Client answers from its steps. It has no state, so one client serves many runs.
type Client struct {
	steps []step
	after After
}

var _ model.Client = (*Client)(nil)

// step is a Step with its expression compiled.
type step struct {
	Step
	final *expression.Program
}

// New checks the steps and compiles their expressions. Its error names every step
// that is wrong.
func New(steps []Step, options ...Option) (*Client, error) {
	c := &Client{after: realTimer}
	for _, option := range options {
		option(c)
	}
	var problems []error
	for i, s := range steps {
		compiled, err := compile(s)
		if err != nil {
			problems = append(problems, fmt.Errorf("script step %d: %w", i+1, err))
		}
		c.steps = append(c.steps, compiled)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return c, nil
}

func realTimer(d time.Duration) (<-chan time.Time, func()) {
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

func compile(s Step) (step, error) {
	compiled := step{Step: s}
	set := []bool{
		len(s.ToolCalls) > 0, s.Final != "", s.FinalExpression != "", s.Question != "",
		s.CannotContinue != "", len(s.Raw) > 0, s.Status != 0,
	}
	if n := len(slices.DeleteFunc(set, func(isSet bool) bool { return !isSet })); n != 1 {
		return compiled, fmt.Errorf("sets %d of toolCalls, final, finalExpression, question, cannotContinue, raw and error: set exactly one", n)
	}
	if s.Status != 0 && (s.Status < 400 || s.Status > 599) {
		return compiled, fmt.Errorf("error status %d is not between 400 and 599", s.Status)
	}
	if s.Delay < 0 {
		return compiled, errors.New("the delay is negative")
	}
	for i, call := range s.ToolCalls {
		if call.Tool == "" {
			return compiled, fmt.Errorf("call %d names no tool", i+1)
		}
		if len(call.Arguments) > 0 && !json.Valid(call.Arguments) {
			return compiled, fmt.Errorf("the arguments of call %d are not valid JSON", i+1)
		}
	}
	if s.FinalExpression == "" {
		return compiled, nil
	}
	program, err := expression.CompileFinal(s.FinalExpression)
	if err != nil {
		return compiled, fmt.Errorf("finalExpression: %w", err)
	}
	compiled.final = program
	return compiled, nil
}

// Decide implements model.Client.
func (c *Client) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	if request.Summary {
		return final("Scripted summary of the turns so far.", request), nil
	}
	n := request.Decision
	if n < 1 || n > len(c.steps) {
		return model.Reply{}, &model.Error{
			Class: model.ClassRequest, Code: "script_exhausted",
			Detail: fmt.Sprintf("decision %d has no step in a script of %d", n, len(c.steps)),
		}
	}
	s := c.steps[n-1]
	if err := c.wait(ctx, s.Delay); err != nil {
		return model.Reply{}, err
	}
	reply, failure := s.answer(request)
	if failure != nil {
		return model.Reply{}, failure
	}
	return reply, nil
}

// wait lets the step's delay pass, or reports that the caller gave up.
func (c *Client) wait(ctx context.Context, delay time.Duration) error {
	canceled := &model.Error{Class: model.ClassCanceled, Detail: "the request was ended before its answer was complete"}
	if ctx.Err() != nil {
		return canceled
	}
	if delay == 0 {
		return nil
	}
	fired, stop := c.after(delay)
	defer stop()
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		// A delay stands for a provider that is at work.
		canceled.Sent = true
		return canceled
	}
}
