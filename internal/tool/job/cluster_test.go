package jobtool_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// cluster is a strict one: it takes orders that make sense, keeps a job until it is let go,
// and fails as it is told.
type cluster struct {
	t    *testing.T
	jobs map[string]*held
	// orders are those that came, answered or not.
	orders []jobtool.Order
	// refuse, loseCreate and deaf are what goes wrong: the next create is refused, is lost
	// before or after it was carried out, or nothing can be looked at.
	refuse     error
	loseCreate string
	deaf       bool
	deleted    []string
	// onDelete is called before a job is deleted.
	onDelete func(*held)
}

type held struct {
	order jobtool.Order
	state jobtool.State
}

func newCluster(t *testing.T) *cluster { return &cluster{t: t, jobs: map[string]*held{}} }

func (c *cluster) Create(ctx context.Context, order jobtool.Order) error {
	c.t.Helper()
	c.orders = append(c.orders, order)
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 5*time.Second {
		c.t.Error("a create that may arrive long after the right to send it has lapsed")
	}
	c.check(order)
	if c.refuse != nil {
		return c.refuse
	}
	if c.loseCreate == "before" {
		return errors.New("connection reset")
	}
	if there := c.jobs[order.Name]; there != nil {
		if there.order.EffectKey != order.EffectKey || there.order.RunUID != order.RunUID {
			return &object.RefusedError{Text: "another Job has its name"}
		}
		return nil
	}
	c.jobs[order.Name] = &held{order: order, state: jobtool.State{Phase: jobtool.Running}}
	if c.loseCreate == "after" {
		return errors.New("connection reset")
	}
	return nil
}

// check looks at what every order of the tests has.
func (c *cluster) check(order jobtool.Order) {
	c.t.Helper()
	want := jobtool.Order{
		Job:     jobtool.Job{Namespace: "shop", Name: order.EffectKey, RunUID: "uid-1", EffectKey: order.EffectKey},
		RunName: "order", CallID: "call-1", Arguments: order.Arguments, Template: template, Timeout: time.Minute,
	}
	if diff := cmp.Diff(want, order); diff != "" || !json.Valid(order.Arguments) {
		c.t.Errorf("order (-want +got):\n%s", diff)
	}
}

func (c *cluster) find(job jobtool.Job) *held {
	if job.Namespace != "shop" || job.RunUID != "uid-1" || job.EffectKey != "pawl-1" {
		c.t.Errorf("job %+v", job)
	}
	return c.jobs[job.Name]
}

func (c *cluster) Look(_ context.Context, job jobtool.Job) (jobtool.State, error) {
	there := c.find(job)
	switch {
	case c.deaf:
		return jobtool.State{}, errors.New("no connection")
	case there == nil:
		return jobtool.State{Phase: jobtool.Missing}, nil
	default:
		return there.state, nil
	}
}

func (c *cluster) Delete(_ context.Context, job jobtool.Job) error {
	there := c.find(job)
	if c.deaf {
		return errors.New("no connection")
	}
	c.deleted = append(c.deleted, job.Name)
	if there == nil {
		return nil
	}
	if c.onDelete != nil {
		c.onDelete(there)
	}
	return nil
}

// set changes how the only job stands.
func (c *cluster) set(state jobtool.State) {
	c.t.Helper()
	if len(c.jobs) != 1 {
		c.t.Fatalf("%d jobs", len(c.jobs))
	}
	for _, there := range c.jobs {
		there.state = state
	}
}

var template = json.RawMessage(`{"containers":[{"name":"a","image":"b"}]}`)

func newServer(c *cluster) *jobtool.Server {
	return jobtool.New(c, []jobtool.Tool{
		{Definition: tool.Definition{Name: "test", InputSchema: json.RawMessage(`{"type":"object"}`)}, Template: template},
		{Definition: tool.Definition{Name: "build", InputSchema: json.RawMessage(`{"type":"object"}`)}, Template: template},
	})
}

func aCall(change ...func(*tool.Call)) tool.Call {
	call := tool.Call{
		Tool: "test", FullName: "ci.test", Arguments: json.RawMessage(`{"a":1}`), ID: "call-1", EffectKey: "pawl-1", Attempt: 1, Epoch: 1,
		RunNamespace: "shop", RunName: "order", RunUID: "uid-1", Timeout: time.Minute, MaxResultBytes: 4096,
	}
	for _, c := range change {
		c(&call)
	}
	return call
}

func repeatable(c *tool.Call) { c.Repeatable = true }

// start brings a call to where it goes on outside.
func start(t *testing.T, s *jobtool.Server, call tool.Call) (handle string) {
	t.Helper()
	out := s.Call(t.Context(), call)
	if out.Class != tool.ClassDeferred || out.Deferred == nil || out.Effect != tool.EffectUnknown {
		t.Fatalf("outcome %+v", out)
	}
	return out.Deferred.Handle
}

func names(orders []jobtool.Order) []string {
	var out []string
	for _, o := range orders {
		out = append(out, o.Name)
	}
	return slices.Compact(out)
}
