// Package jobtool runs each call as a job in a cluster. A call's job is named after its
// effect key, so that whoever looks finds the one there is, and it is created by who holds
// the right to send, once. What became of it is read from the job itself:
//
//	exit code 0                the result: the termination message, JSON or else text
//	another exit code          tool_error: it ran, and what it did stays done
//	more memory than allowed   tool_error, likewise
//	evicted                    tool_error where its container ended, else not known
//	the image can't be pulled  rejected: nothing ran; the job is given up
//	its time is over           not known
//	gone, or nobody can say    not known
package jobtool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// kind is that of jobs. That one ends is heard; that its image can't be pulled is only seen.
var kind = object.Kind{Noun: "job", LookAfter: 15 * time.Second}

// jobName keeps a name to one that a cluster takes.
var jobName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Cluster is where jobs run.
type Cluster interface {
	// Create creates the job of an order, or finds that very job. The error is a
	// *object.RefusedError where the cluster has refused it; after any other nobody knows whether
	// there is a job.
	Create(ctx context.Context, order Order) error
	// Look says how the job of a call stands.
	Look(ctx context.Context, job Job) (State, error)
	// Delete stops a job and whatever runs of it. What is gone already is no error.
	Delete(ctx context.Context, job Job) error
}

// Job names the job of a call.
type Job struct {
	// Namespace and Name of the job.
	Namespace, Name string
	// RunUID and EffectKey say whose it has to be.
	RunUID, EffectKey string
}

// Order is what a job is created from.
type Order struct {
	Job
	// RunName is the name of the run.
	RunName string
	// CallID is the id of the call.
	CallID string
	// Arguments of the call, a JSON object.
	Arguments json.RawMessage
	// Template of the pod, as the tool's declaration has it.
	Template json.RawMessage
	// Timeout is how long the job may take.
	Timeout time.Duration
}

// Tool is a tool whose calls are jobs.
type Tool struct {
	tool.Definition
	// Template of the pods.
	Template json.RawMessage
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
		listing.Tools = append(listing.Tools, t.Definition)
	}
	return listing, nil
}

// Call implements tool.Server: it creates the call's job, which goes on by itself.
func (s *Server) Call(ctx context.Context, call tool.Call) tool.Outcome {
	at := slices.IndexFunc(s.tools, func(t Tool) bool { return t.Name == call.Tool })
	if at < 0 {
		return tool.Gone()
	}
	if s.tools[at].Changed(call) {
		return tool.Refused()
	}
	if !jobName.MatchString(call.EffectKey) {
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Message: "not sent: the call's effect key can't name a job"}
	}
	order := Order{
		Job: jobOf(call, call.EffectKey), RunName: call.RunName, CallID: call.ID,
		Arguments: call.Arguments, Template: s.tools[at].Template, Timeout: call.Timeout,
	}
	if len(order.Arguments) == 0 {
		order.Arguments = json.RawMessage("{}")
	}
	return kind.Begin(ctx, call, object.Object{
		Name:   order.Name,
		Create: func(ctx context.Context) error { return s.cluster.Create(ctx, order) },
		There: func(ctx context.Context) (bool, error) {
			state, err := s.cluster.Look(ctx, order.Job)
			return err == nil && state.Phase != Missing && state.Phase != Foreign, err
		},
	})
}

const cannotLook = "the call's job could not be looked at"

// Poll implements tool.Deferrer: it looks at the job.
func (s *Server) Poll(ctx context.Context, call tool.Call, handle string) tool.Outcome {
	job := jobOf(call, handle)
	state, err := s.cluster.Look(ctx, job)
	if err != nil {
		return tool.NothingLearned(cannotLook)
	}
	if state.Phase == NoImage {
		return s.giveUp(ctx, call, job)
	}
	return understand(call, handle, state)
}

// giveUp ends a job whose image can't be pulled. It looks again afterwards: the image may
// have come in the meantime.
func (s *Server) giveUp(ctx context.Context, call tool.Call, job Job) tool.Outcome {
	if err := s.cluster.Delete(ctx, job); err != nil {
		return tool.NothingLearned(cannotLook)
	}
	state, err := s.cluster.Look(ctx, job)
	switch {
	case err != nil:
		return tool.NothingLearned(cannotLook)
	case state.Started:
		return understand(call, job.Name, state)
	default:
		return tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected,
			Message: "the image of the call's job can't be pulled, so nothing was started and nothing was done; somebody has to correct the tool's image or the registry's credentials"}
	}
}

// Answer implements tool.Deferrer. A job asks for nothing.
func (s *Server) Answer(context.Context, tool.Call, string, tool.Input, []tool.Answer) error {
	return errors.New("a job asks for nothing")
}

// CancelDeferred implements tool.Deferrer: it deletes the job.
func (s *Server) CancelDeferred(ctx context.Context, call tool.Call, handle string) error {
	return s.cluster.Delete(ctx, jobOf(call, handle))
}

func jobOf(call tool.Call, name string) Job {
	return Job{Namespace: call.RunNamespace, Name: name, RunUID: call.RunUID, EffectKey: call.EffectKey}
}
