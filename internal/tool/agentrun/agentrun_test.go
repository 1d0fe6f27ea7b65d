package agentruntool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	agentruntool "github.com/pawl-run/pawl/internal/tool/agentrun"
	"github.com/pawl-run/pawl/internal/tool/object"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// cluster is a strict one: it takes orders that make sense, keeps a child for ever, and fails
// as it is told.
type cluster struct {
	t        *testing.T
	children map[string]agentruntool.State
	orders   []agentruntool.Order
	// refuse, loseCreate and deaf are what goes wrong: the next create is refused, is lost
	// before or after it was carried out, or nothing can be looked at.
	refuse     error
	loseCreate string
	deaf       bool
	cancelled  []string
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t: t, children: map[string]agentruntool.State{}}
}

func (c *cluster) Create(ctx context.Context, order agentruntool.Order) error {
	c.t.Helper()
	c.orders = append(c.orders, order)
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 5*time.Second {
		c.t.Error("a create that may arrive long after the right to send it has lapsed")
	}
	want := agentruntool.Order{
		Child:  agentruntool.Child{Namespace: "shop", Name: "pawl-1", ParentUID: "uid-1", EffectKey: "pawl-1"},
		Parent: "order", CallID: "call-1", Prompt: "Find 7.", Template: template, Inherited: inherited,
	}
	if diff := cmp.Diff(want, order); diff != "" {
		c.t.Errorf("order (-want +got):\n%s", diff)
	}
	switch {
	case c.refuse != nil:
		return c.refuse
	case c.loseCreate == "before":
		return errors.New("connection reset")
	}
	if _, there := c.children[order.Name]; !there {
		c.children[order.Name] = agentruntool.State{Phase: agentruntool.Open}
	}
	if c.loseCreate == "after" {
		return errors.New("connection reset")
	}
	return nil
}

func (c *cluster) Look(_ context.Context, child agentruntool.Child) (agentruntool.State, error) {
	state, there := c.children[child.Name]
	switch {
	case c.deaf:
		return agentruntool.State{}, errors.New("no connection")
	case !there:
		return agentruntool.State{Phase: agentruntool.Missing}, nil
	default:
		return state, nil
	}
}

func (c *cluster) Cancel(_ context.Context, child agentruntool.Child) error {
	c.cancelled = append(c.cancelled, child.Name)
	return nil
}

var (
	template  = json.RawMessage(`{"modelRef":{"name":"m"}}`)
	inherited = tool.Child{Tokens: 100, Cost: "0.5", ActiveSeconds: 60, DeadlineSeconds: 90, Depth: 2, Root: "order", RootUID: "uid-1", CreatedBy: "ann"}
)

func newServer(c *cluster) *agentruntool.Server {
	schema := json.RawMessage(`{"type":"object"}`)
	return agentruntool.New(c, []agentruntool.Tool{
		{Definition: tool.Definition{Name: "find", InputSchema: schema}, Prompt: `"Find " + string(args.n) + "."`, Template: template},
		{Definition: tool.Definition{Name: "broken", InputSchema: schema}, Prompt: `1`, Problem: "prompt: it must give a string"},
	})
}

func aCall(change ...func(*tool.Call)) tool.Call {
	call := tool.Call{
		Tool: "find", FullName: "team.find", Arguments: json.RawMessage(`{"n":7}`), ID: "call-1", EffectKey: "pawl-1", Attempt: 1, Epoch: 1,
		RunNamespace: "shop", RunName: "order", RunUID: "uid-1", MaxResultBytes: 4096, Child: &inherited,
	}
	for _, c := range change {
		c(&call)
	}
	return call
}

func repeatable(c *tool.Call) { c.Repeatable = true }

func TestList(t *testing.T) {
	listing, err := newServer(newCluster(t)).List(t.Context())
	if err != nil || len(listing.Tools) != 1 || listing.Tools[0].Name != "find" {
		t.Errorf("List = %+v, %v", listing, err)
	}
	if want := []tool.Quarantined{{Name: "broken", Reason: "prompt: it must give a string"}}; !cmp.Equal(want, listing.Quarantined) {
		t.Errorf("quarantined are %+v", listing.Quarantined)
	}
}

// A call that is made again, by whoever, has the child that there is.
func TestOneChildPerCall(t *testing.T) {
	c := newCluster(t)
	for range 3 {
		out := newServer(c).Call(t.Context(), aCall(repeatable))
		if out.Class != tool.ClassDeferred || out.Deferred.Handle != "pawl-1" || out.Effect != tool.EffectUnknown {
			t.Errorf("outcome %+v", out)
		}
	}
	if len(c.children) != 1 {
		t.Errorf("%d children", len(c.children))
	}
}

// What is refused before anything was created did not happen.
func TestNothingIsCreated(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	lapsed := transport.WithGate(t.Context(), func() error { return errors.New("lapsed") })
	for name, tc := range map[string]struct {
		ctx  context.Context
		call tool.Call
		want tool.Class
	}{
		"no right to send":      {lapsed, aCall(), tool.ClassNotRun},
		"cancelled":             {cancelled, aCall(), tool.ClassNotRun},
		"another definition":    {t.Context(), aCall(func(c *tool.Call) { c.Digest = "sha256:0" }), tool.ClassDenied},
		"no such tool":          {t.Context(), aCall(func(c *tool.Call) { c.Tool = "other" }), tool.ClassValidation},
		"a tool in quarantine":  {t.Context(), aCall(func(c *tool.Call) { c.Tool = "broken" }), tool.ClassValidation},
		"no budget":             {t.Context(), aCall(func(c *tool.Call) { c.Child = nil }), tool.ClassDenied},
		"no prompt":             {t.Context(), aCall(func(c *tool.Call) { c.Arguments = json.RawMessage(`{}`) }), tool.ClassValidation},
		"arguments that are no": {t.Context(), aCall(func(c *tool.Call) { c.Arguments = json.RawMessage(`[]`) }), tool.ClassValidation},
	} {
		c := newCluster(t)
		out := newServer(c).Call(tc.ctx, tc.call)
		if out.Class != tc.want || out.Effect != tool.EffectRejected || len(c.orders) != 0 {
			t.Errorf("%s: %+v after %d orders", name, out, len(c.orders))
		}
	}
}

func TestPromptsAreBounded(t *testing.T) {
	for name, prompt := range map[string]string{"empty": `""`, "too long": `"` + strings.Repeat("a", 1000) + `".replace("a", "` + strings.Repeat("b", 200) + `")`} {
		c := newCluster(t)
		s := agentruntool.New(c, []agentruntool.Tool{{Definition: tool.Definition{Name: "find"}, Prompt: prompt, Template: template}})
		if out := s.Call(t.Context(), aCall()); out.Class != tool.ClassValidation || len(c.orders) != 0 {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// What became of a create that nobody answered is settled by looking.
func TestCreatesThatAreLost(t *testing.T) {
	for name, tc := range map[string]struct {
		set       func(*cluster)
		call      tool.Call
		want      tool.Class
		retryable bool
	}{
		"refused":                                {func(c *cluster) { c.refuse = &object.RefusedError{Text: "quota"} }, aCall(), tool.ClassRejected, false},
		"carried out":                            {func(c *cluster) { c.loseCreate = "after" }, aCall(), tool.ClassDeferred, false},
		"not carried out":                        {func(c *cluster) { c.loseCreate = "before" }, aCall(), tool.ClassUnknown, false},
		"not carried out, may be made again":     {func(c *cluster) { c.loseCreate = "before" }, aCall(repeatable), tool.ClassUnknown, true},
		"nobody knows":                           {func(c *cluster) { c.loseCreate, c.deaf = "after", true }, aCall(), tool.ClassDeferred, false},
		"nobody knows, and it may be made again": {func(c *cluster) { c.loseCreate, c.deaf = "after", true }, aCall(repeatable), tool.ClassUnknown, true},
	} {
		c := newCluster(t)
		tc.set(c)
		if out := newServer(c).Call(t.Context(), tc.call); out.Class != tc.want || out.Retryable != tc.retryable {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestWhatBecameOfAChild reads a child's state as its call's outcome.
func TestWhatBecameOfAChild(t *testing.T) {
	cost := &tool.Spent{InputTokens: 5, CostPicos: 7}
	for name, tc := range map[string]struct {
		state  agentruntool.State
		class  tool.Class
		effect tool.EffectState
		value  string
	}{
		"it goes on":             {agentruntool.State{Phase: agentruntool.Open}, tool.ClassDeferred, tool.EffectUnknown, ""},
		"a text":                 {agentruntool.State{Phase: agentruntool.Completed, Answer: "42", Began: true, Spent: cost}, tool.ClassOK, tool.EffectCommitted, `"42"`},
		"a value":                {agentruntool.State{Phase: agentruntool.Completed, Answer: ` {"n": 42}`, JSON: true, Began: true, Spent: cost}, tool.ClassOK, tool.EffectCommitted, `{"n":42}`},
		"another end":            {agentruntool.State{Phase: agentruntool.Failed, Reason: "MaxTurns", Message: "too many", Began: true, Spent: cost}, tool.ClassToolError, tool.EffectCommitted, `{"message":"too many","reason":"MaxTurns"}`},
		"an outcome unknown":     {agentruntool.State{Phase: agentruntool.Failed, Reason: "OutcomeUnknown", Began: true, Spent: cost}, tool.ClassToolError, tool.EffectCommitted, `{"reason":"OutcomeUnknown"}`},
		"giving up":              {agentruntool.State{Phase: agentruntool.Failed, Reason: "CannotContinue", Words: "no book", Began: true, Spent: cost}, tool.ClassToolError, tool.EffectCommitted, `{"reason":"CannotContinue","words":"no book"}`},
		"an end before it began": {agentruntool.State{Phase: agentruntool.Failed, Reason: "InvalidConfiguration", Spent: cost}, tool.ClassRejected, tool.EffectRejected, `{"reason":"InvalidConfiguration"}`},
		"it is gone":             {agentruntool.State{Phase: agentruntool.Missing}, tool.ClassUnknown, tool.EffectUnknown, ""},
		"it goes away":           {agentruntool.State{Phase: agentruntool.Lost, Spent: cost}, tool.ClassUnknown, tool.EffectUnknown, ""},
		"it is another's":        {agentruntool.State{Phase: agentruntool.Foreign}, tool.ClassUnknown, tool.EffectUnknown, ""},
	} {
		c := newCluster(t)
		c.children["pawl-1"] = tc.state
		out := newServer(c).Poll(t.Context(), aCall(), "pawl-1")
		if out.Class != tc.class || out.Effect != tc.effect || string(out.Value) != tc.value || out.Retryable || out.Spent != tc.state.Spent {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestALongAnswerIsCut(t *testing.T) {
	c := newCluster(t)
	c.children["pawl-1"] = agentruntool.State{Phase: agentruntool.Completed, Answer: strings.Repeat("long ", 2000), Began: true}
	out := newServer(c).Poll(t.Context(), aCall(), "pawl-1")
	if !out.Truncated || out.Size != 10_000 || len(out.Value) > 4400 || !strings.Contains(string(out.Value), "cut here") {
		t.Errorf("%d bytes of %d, cut %v", len(out.Value), out.Size, out.Truncated)
	}
}

func TestNobodyCanLook(t *testing.T) {
	c := newCluster(t)
	c.deaf = true
	if out := newServer(c).Poll(t.Context(), aCall(), "pawl-1"); !out.Retryable || out.Class != tool.ClassTransport {
		t.Errorf("outcome %+v", out)
	}
}

func TestCancelling(t *testing.T) {
	c := newCluster(t)
	if err := newServer(c).CancelDeferred(t.Context(), aCall(), "pawl-1"); err != nil || !cmp.Equal(c.cancelled, []string{"pawl-1"}) {
		t.Errorf("cancelled %v, %v", c.cancelled, err)
	}
}
