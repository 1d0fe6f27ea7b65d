// Package agentruntool makes each call a run of its own, a child. A call's child is named
// after its effect key, so that whoever looks finds the one there is, and it is created by
// who holds the right to send, once. What became of it is read from the child itself:
//
//	it completed               the result: its answer
//	it never began             rejected: nothing was done
//	it ended otherwise         tool_error with its reason: what it did stays done
//	gone, or nobody can say    not known
package agentruntool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/object"
)

const (
	// maxPrompt is how many characters a prompt may have.
	maxPrompt = 131072
)

// kind is that of child runs. What becomes of them is heard.
var kind = object.Kind{Noun: "run", LookAfter: time.Minute}

// Cluster is where child runs are.
type Cluster interface {
	// Create creates the child of an order, or finds that very child. The error is a
	// *object.RefusedError where the cluster has refused it; after any other nobody knows whether
	// there is a child.
	Create(ctx context.Context, order Order) error
	// Look says how the child of a call stands.
	Look(ctx context.Context, child Child) (State, error)
	// Cancel ends a child. What has ended or is gone is no error.
	Cancel(ctx context.Context, child Child) error
}

// Child names the child of a call.
type Child struct {
	// Namespace and Name of the child.
	Namespace, Name string
	// ParentUID and EffectKey say whose it has to be.
	ParentUID, EffectKey string
}

// Order is what a child is created from.
type Order struct {
	Child
	// Parent is the name of the run whose call it is.
	Parent string
	// CallID is the id of the call.
	CallID string
	// Prompt of the child.
	Prompt string
	// Template of its spec, as the tool's declaration has it.
	Template json.RawMessage
	// Inherited is what its parent hands down.
	Inherited tool.Child
}

// Tool is a tool whose calls are child runs.
type Tool struct {
	tool.Definition
	// Prompt is an expression over the arguments.
	Prompt string
	// Template of the children's specs.
	Template json.RawMessage
	// Problem says why the tool can't be used, empty where it can.
	Problem string
}

// Server is a declaration of such tools.
type Server struct {
	tools   []Tool
	cluster Cluster
}

var (
	_ tool.Server   = (*Server)(nil)
	_ tool.Deferrer = (*Server)(nil)
)

// New makes a Server.
func New(cluster Cluster, tools []Tool) *Server {
	sorted := slices.Clone(tools)
	slices.SortFunc(sorted, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	return &Server{tools: sorted, cluster: cluster}
}

// List implements tool.Server with the tools that were declared.
func (s *Server) List(context.Context) (tool.Listing, error) {
	var listing tool.Listing
	for _, t := range s.tools {
		if t.Problem != "" {
			listing.Quarantined = append(listing.Quarantined, tool.Quarantined{Name: t.Name, Reason: t.Problem})
			continue
		}
		listing.Tools = append(listing.Tools, t.Definition)
	}
	return listing, nil
}

// Call implements tool.Server: it creates the call's child, which goes on by itself.
func (s *Server) Call(ctx context.Context, call tool.Call) tool.Outcome {
	at := slices.IndexFunc(s.tools, func(t Tool) bool { return t.Name == call.Tool && t.Problem == "" })
	if at < 0 {
		return tool.Gone()
	}
	declared := s.tools[at]
	if declared.Changed(call) {
		return tool.Refused()
	}
	if call.Child == nil {
		// The policy declared something else when the call was made.
		return tool.Refused()
	}
	prompt, err := promptOf(declared, call)
	if err != nil {
		return tool.Outcome{Class: tool.ClassValidation, Effect: tool.EffectRejected,
			Message: "not sent: no prompt can be made of these arguments: " + err.Error() + "; nothing was done"}
	}
	order := Order{
		Child: childOf(call, call.EffectKey), Parent: call.RunName, CallID: call.ID,
		Prompt: prompt, Template: declared.Template, Inherited: *call.Child,
	}
	return kind.Begin(ctx, call, object.Object{
		Name:   order.Name,
		Create: func(ctx context.Context) error { return s.cluster.Create(ctx, order) },
		There: func(ctx context.Context) (bool, error) {
			state, err := s.cluster.Look(ctx, order.Child)
			return err == nil && state.Phase != Missing && state.Phase != Foreign, err
		},
	})
}

func promptOf(declared Tool, call tool.Call) (string, error) {
	program, err := expression.CompilePrompt(declared.Prompt)
	if err != nil {
		return "", errors.New("the tool's expression can't be used")
	}
	arguments := map[string]any{}
	if len(call.Arguments) > 0 {
		if arguments, err = strictjson.Object(call.Arguments, strictjson.Limits{}); err != nil {
			return "", err
		}
	}
	prompt, err := program.EvalText(map[string]any{"args": arguments})
	switch n := utf8.RuneCountInString(prompt); {
	case err != nil:
		return "", err
	case n == 0:
		return "", errors.New("it would be empty")
	case n > maxPrompt:
		return "", fmt.Errorf("it would have %d characters, more than %d", n, maxPrompt)
	default:
		return prompt, nil
	}
}

// Poll implements tool.Deferrer: it looks at the child.
func (s *Server) Poll(ctx context.Context, call tool.Call, handle string) tool.Outcome {
	state, err := s.cluster.Look(ctx, childOf(call, handle))
	if err != nil {
		return tool.NothingLearned("the call's run could not be looked at")
	}
	return understand(call, handle, state)
}

// Answer implements tool.Deferrer. People answer a child on itself.
func (s *Server) Answer(context.Context, tool.Call, string, tool.Input, []tool.Answer) error {
	return errors.New("a child run is answered on itself")
}

// CancelDeferred implements tool.Deferrer: it cancels the child.
func (s *Server) CancelDeferred(ctx context.Context, call tool.Call, handle string) error {
	return s.cluster.Cancel(ctx, childOf(call, handle))
}

func childOf(call tool.Call, name string) Child {
	return Child{Namespace: call.RunNamespace, Name: name, ParentUID: call.RunUID, EffectKey: call.EffectKey}
}
