package jobtool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/tool"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	"github.com/pawl-run/pawl/internal/tool/object"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

func TestList(t *testing.T) {
	listing, err := newServer(newCluster(t)).List(t.Context())
	if err != nil || len(listing.Tools) != 2 || listing.Tools[0].Name != "build" || listing.Tools[1].Name != "test" {
		t.Errorf("List = %+v, %v", listing, err)
	}
}

// A call that is made again, by whoever, has the job that there is.
func TestOneJobPerCall(t *testing.T) {
	c := newCluster(t)
	for range 3 {
		if handle := start(t, newServer(c), aCall(repeatable)); handle != "pawl-1" {
			t.Errorf("handle %q", handle)
		}
	}
	if len(c.jobs) != 1 || !cmp.Equal(names(c.orders), []string{"pawl-1"}) {
		t.Errorf("%d jobs of %v", len(c.jobs), names(c.orders))
	}
}

func TestNoArgumentsAreAnObject(t *testing.T) {
	c := newCluster(t)
	start(t, newServer(c), aCall(func(call *tool.Call) { call.Arguments = nil }))
	if got := string(c.orders[0].Arguments); got != "{}" {
		t.Errorf("arguments %q", got)
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
		"no right to send":   {lapsed, aCall(), tool.ClassNotRun},
		"cancelled":          {cancelled, aCall(), tool.ClassNotRun},
		"another definition": {t.Context(), aCall(func(c *tool.Call) { c.Digest = "sha256:0" }), tool.ClassDenied},
		"no such tool":       {t.Context(), aCall(func(c *tool.Call) { c.Tool = "other" }), tool.ClassValidation},
		"no name":            {t.Context(), aCall(func(c *tool.Call) { c.EffectKey = "Not/A/Name" }), tool.ClassNotRun},
	} {
		c := newCluster(t)
		out := newServer(c).Call(tc.ctx, tc.call)
		if out.Class != tc.want || out.Effect != tool.EffectRejected || len(c.orders) != 0 {
			t.Errorf("%s: %+v after %d orders", name, out, len(c.orders))
		}
	}
}

func TestTheGateIsAskedRightBefore(t *testing.T) {
	c, asked := newCluster(t), 0
	ctx := transport.WithGate(t.Context(), func() error {
		asked++
		if len(c.orders) > 0 {
			t.Error("the job was ordered before the gate was asked")
		}
		return nil
	})
	if out := newServer(c).Call(ctx, aCall()); out.Class != tool.ClassDeferred || asked != 1 || len(c.orders) != 1 {
		t.Errorf("%+v, asked %d times, %d orders", out, asked, len(c.orders))
	}
}

func TestARefusedJobDidNotHappen(t *testing.T) {
	c := newCluster(t)
	c.refuse = &object.RefusedError{Text: "exceeded quota"}
	out := newServer(c).Call(t.Context(), aCall())
	if out.Class != tool.ClassRejected || out.Effect != tool.EffectRejected || !strings.Contains(out.Message, "exceeded quota") {
		t.Errorf("%+v", out)
	}
}

// A create whose answer is lost is settled by looking.
func TestALostAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		lose       string
		deaf       bool
		repeatable bool
		want       tool.Class
		retryable  bool
	}{
		"carried out":                    {"after", false, false, tool.ClassDeferred, false},
		"not carried out":                {"before", false, false, tool.ClassUnknown, false},
		"not carried out, may be again":  {"before", false, true, tool.ClassUnknown, true},
		"nothing to be seen":             {"after", true, false, tool.ClassDeferred, false},
		"nothing to be seen, may be too": {"after", true, true, tool.ClassUnknown, true},
	} {
		c := newCluster(t)
		c.loseCreate, c.deaf = tc.lose, tc.deaf
		out := newServer(c).Call(t.Context(), aCall(func(call *tool.Call) { call.Repeatable = tc.repeatable }))
		if out.Class != tc.want || out.Effect != tool.EffectUnknown || out.Retryable != tc.retryable || len(c.orders) != 1 {
			t.Errorf("%s: %+v after %d orders", name, out, len(c.orders))
		}
	}
}

func TestAForeignJobIsNotTaken(t *testing.T) {
	c := newCluster(t)
	start(t, newServer(c), aCall())
	c.jobs["pawl-1"].order.RunUID = "uid-0"
	if out := newServer(c).Call(t.Context(), aCall()); out.Class != tool.ClassRejected {
		t.Errorf("%+v", out)
	}
}

func TestPoll(t *testing.T) {
	long, own := strings.Repeat("x", 5000), []string{"message", "logs"}
	for name, tc := range map[string]struct {
		state jobtool.State
		want  tool.Outcome
	}{
		"goes on":      {jobtool.State{Phase: jobtool.Running}, tool.Outcome{Class: "deferred", Effect: "unknown"}},
		"JSON":         {jobtool.State{Phase: jobtool.Succeeded, Read: true, Message: []byte(` {"n": 9007199254740993} `)}, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`{"n":9007199254740993}`)}},
		"text":         {jobtool.State{Phase: jobtool.Succeeded, Read: true, Message: []byte("all well\n")}, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`"all well\n"`)}},
		"nothing":      {jobtool.State{Phase: jobtool.Succeeded, Read: true}, tool.Outcome{Class: "ok", Effect: "committed", Value: json.RawMessage(`null`)}},
		"not read":     {jobtool.State{Phase: jobtool.Succeeded}, tool.Outcome{Class: "tool_error", Effect: "committed"}},
		"exit code":    {jobtool.State{Phase: jobtool.Exited, Read: true, ExitCode: 3, Reason: "Error", Message: []byte("no branch"), Logs: []byte("a\nb\n")}, tool.Outcome{Class: "tool_error", Effect: "committed", Value: json.RawMessage(`{"exitCode":3,"logs":"a\nb\n","message":"no branch","reason":"Error"}`), Embedded: own}},
		"memory":       {jobtool.State{Phase: jobtool.Exited, Read: true, ExitCode: 137, Reason: "OOMKilled"}, tool.Outcome{Class: "tool_error", Effect: "committed", Value: json.RawMessage(`{"exitCode":137,"reason":"OOMKilled"}`), Embedded: own}},
		"evicted":      {jobtool.State{Phase: jobtool.Exited, Read: true, ExitCode: 137, Reason: "Evicted"}, tool.Outcome{Class: "tool_error", Effect: "committed", Value: json.RawMessage(`{"exitCode":137,"reason":"Evicted"}`), Embedded: own}},
		"lost":         {jobtool.State{Phase: jobtool.Lost}, tool.Outcome{Class: "unknown", Effect: "unknown", Embedded: own}},
		"evicted lost": {jobtool.State{Phase: jobtool.Lost, Reason: "Evicted"}, tool.Outcome{Class: "unknown", Effect: "unknown", Value: json.RawMessage(`{"reason":"Evicted"}`), Embedded: own}},
		"deadline":     {jobtool.State{Phase: jobtool.Deadline}, tool.Outcome{Class: "timeout", Effect: "unknown", Embedded: own}},
		"gone":         {jobtool.State{Phase: jobtool.Missing}, tool.Outcome{Class: "unknown", Effect: "unknown"}},
		"foreign":      {jobtool.State{Phase: jobtool.Foreign}, tool.Outcome{Class: "unknown", Effect: "unknown"}},
		"too long": {jobtool.State{Phase: jobtool.Succeeded, Read: true, Message: []byte(`"` + long + `"`)}, tool.Outcome{Class: "ok", Effect: "committed", Truncated: true, Size: 5002,
			Value: json.RawMessage(`"\"` + long[:4094] + `\n[cut here: the first 4095 of at least 5002 bytes; ask for less]"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			s := newServer(c)
			handle := start(t, s, aCall())
			c.set(tc.state)
			out := s.Poll(t.Context(), aCall(), handle)
			if (out.Class == tool.ClassOK) != (out.Message == "") {
				t.Errorf("class %s with message %q", out.Class, out.Message)
			}
			out.Message, out.Deferred = "", nil
			if diff := cmp.Diff(tc.want, out); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if len(c.deleted) != 0 || len(c.orders) != 1 {
				t.Errorf("looking has deleted %v and ordered %d", c.deleted, len(c.orders))
			}
		})
	}
}

func TestLogsAreTheEnd(t *testing.T) {
	c := newCluster(t)
	s := newServer(c)
	handle := start(t, s, aCall())
	c.set(jobtool.State{Phase: jobtool.Exited, Read: true, ExitCode: 1, Logs: []byte(strings.Repeat("line\n", 1000) + "the end\n")})
	var value struct{ Logs string }
	if err := json.Unmarshal(s.Poll(t.Context(), aCall(), handle).Value, &value); err != nil {
		t.Fatal(err)
	}
	if len(value.Logs) > 2048 || !strings.HasPrefix(value.Logs, "line\n") || !strings.HasSuffix(value.Logs, "line\nthe end\n") {
		t.Errorf("%d bytes: %q", len(value.Logs), value.Logs)
	}
}

func TestNothingToBeSeenSaysNothing(t *testing.T) {
	c := newCluster(t)
	s := newServer(c)
	handle := start(t, s, aCall())
	c.deaf = true
	if out := s.Poll(t.Context(), aCall(), handle); !out.Retryable || out.Effect != tool.EffectUnknown {
		t.Errorf("%+v", out)
	}
	if err := s.CancelDeferred(t.Context(), aCall(), handle); err == nil {
		t.Error("a job was called off that could not be reached")
	}
}

// A job whose image can't be pulled is given up, unless it got the image at that moment.
func TestGivingUp(t *testing.T) {
	for name, tc := range map[string]struct {
		then jobtool.State
		want tool.Class
	}{
		"never started":  {jobtool.State{Phase: jobtool.NoImage}, tool.ClassRejected},
		"gone":           {jobtool.State{Phase: jobtool.Lost}, tool.ClassRejected},
		"started":        {jobtool.State{Phase: jobtool.Running, Started: true}, tool.ClassDeferred},
		"ended meantime": {jobtool.State{Phase: jobtool.Succeeded, Started: true, Read: true}, tool.ClassOK},
	} {
		c := newCluster(t)
		s := newServer(c)
		handle := start(t, s, aCall())
		c.set(jobtool.State{Phase: jobtool.NoImage})
		c.onDelete = func(h *held) { h.state = tc.then }
		out := s.Poll(t.Context(), aCall(), handle)
		if out.Class != tc.want || len(c.deleted) != 1 || (tc.want == tool.ClassRejected) != (out.Effect == tool.EffectRejected) {
			t.Errorf("%s: %+v, deleted %v", name, out, c.deleted)
		}
	}
}

func TestCancelDeletes(t *testing.T) {
	c := newCluster(t)
	s := newServer(c)
	handle := start(t, s, aCall())
	if err := s.CancelDeferred(t.Context(), aCall(), handle); err != nil || !cmp.Equal(c.deleted, []string{"pawl-1"}) {
		t.Errorf("%v, deleted %v", err, c.deleted)
	}
	if err := s.Answer(t.Context(), aCall(), handle, tool.Input{}, nil); err == nil {
		t.Error("a job took an answer")
	}
}
