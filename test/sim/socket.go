package sim

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// socket is the way from a process to the tools. Like the real one it asks the gate
// immediately before the first byte, and it is honest about what may have arrived. What
// may be repeated it sends again by itself when a connection breaks, as libraries do.
type socket struct{ p *process }

var _ tool.Server = (*socket)(nil)

// List implements tool.Server.
func (*socket) List(context.Context) (tool.Listing, error) {
	var out tool.Listing
	for _, known := range toolSpecs {
		out.Tools = append(out.Tools, tool.Definition{Name: known.name, InputSchema: json.RawMessage(argumentSchema)})
	}
	return out, nil
}

// late is a context whose deadline has passed in simulated time.
type late struct{ context.Context }

// Err implements context.Context.
func (late) Err() error { return context.DeadlineExceeded }

// exchange is one request on its way.
type exchange struct {
	p        *process
	t        *task
	ctx      context.Context
	call     tool.Call
	known    *toolSpec
	deadline time.Duration
	fault    Fault
}

// Call implements tool.Server.
func (s *socket) Call(ctx context.Context, call tool.Call) tool.Outcome {
	known := specOf(call.Tool)
	w := s.p.w
	x := &exchange{p: s.p, t: w.current, ctx: ctx, call: call, known: known, deadline: w.elapsed + time.Duration(known.timeout)*time.Second}
	x.fault = s.p.outside(SiteTool)
	outcome := x.run()
	w.note(s.p.id, "call %s of %s attempt %d: %s, %s", call.ID, call.RunName, call.Attempt, outcome.Class, outcome.Effect)
	if x.fault == FaultCrashAfter {
		s.p.die("before the outcome was recorded")
	}
	w.check.returned(s.p, call, known, outcome)
	return outcome
}

// run takes the request there and the answer back.
func (x *exchange) run() tool.Outcome {
	if failed, ready := x.connect(); !ready {
		return failed
	}
	said, arrives := x.send()
	if x.fault == FaultCrashUnsure {
		x.p.die("after a request was sent")
	}
	if x.p.w.chance(x.p.w.faults.rates.toolHangs) {
		return x.hang(said, arrives)
	}
	return x.receive(said, arrives)
}

// hang comes back when nobody waits any more: an adapter that does not keep its deadline.
func (x *exchange) hang(said *answer, arrives time.Duration) tool.Outcome {
	w := x.p.w
	over := x.deadline - w.elapsed + w.between(5*time.Second, 50*time.Second)
	x.t.sleep(max(arrives, over))
	if said.status == 0 {
		return transport.Lost(late{x.ctx}, x.call, context.DeadlineExceeded)
	}
	w.counts.Late++
	return interpret(x.call, *said)
}

// connect goes as far as the first byte, and says whether it may be sent. The outcome is
// for when it may not.
func (x *exchange) connect() (tool.Outcome, bool) {
	w, p := x.p.w, x.p
	connect := w.faults.latency(x.p)
	if w.chance(w.faults.rates.toolSlow / 4) {
		connect = w.between(time.Second, 9*time.Second)
	}
	if x.fault == FaultStop {
		p.stop(stopTime + w.between(0, 20*time.Second))
	}
	if err := x.wait(connect); err != nil {
		return transport.NotSent(err, x.call, err.Err()), false
	}
	if p.toolsCutOff > w.elapsed || x.fault == FaultUnreachable || w.chance(w.faults.rates.toolAway) {
		return transport.NotSent(x.ctx, x.call, errLost), false
	}
	if gate := transport.GateOf(x.ctx); gate != nil {
		if err := gate(); err != nil {
			return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected, Message: "not sent: " + err.Error()}, false
		}
	}
	return tool.Outcome{}, true
}

// receive waits for the answer, which may get lost.
func (x *exchange) receive(said *answer, arrives time.Duration) tool.Outcome {
	w, p := x.p.w, x.p
	if err := x.wait(arrives); err != nil {
		return transport.Lost(err, x.call, err.Err())
	}
	lost := x.fault == FaultReplyLost || p.toolsCutOff > w.elapsed || w.chance(w.faults.rates.toolLost)
	again := lost && x.call.Repeatable
	if again {
		// The library below sends what may be repeated once more.
		said, arrives = x.send()
		if err := x.wait(arrives); err != nil {
			return transport.Lost(err, x.call, err.Err())
		}
		lost = w.chance(0.5)
	}
	if lost || again && said.status >= 400 {
		// What answers the second request knows nothing of the first.
		return transport.Lost(x.ctx, x.call, errLost)
	}
	return interpret(x.call, *said)
}

// send puts the request on the wire: from here on nothing that happens to the sender
// keeps it from arriving.
func (x *exchange) send() (*answer, time.Duration) {
	w := x.p.w
	w.check.sent(x.p, x.call, x.known)
	e := w.services.effect(x.call.EffectKey)
	e.tool, e.class, e.run = x.call.Tool, x.known.class, x.call.RunName
	e.sent++
	e.underWay++
	travel := w.faults.latency(x.p)
	if x.fault == FaultTimeoutLate {
		travel = x.deadline - w.elapsed + w.between(0, 5*time.Second)
	}
	if w.chance(w.faults.rates.toolSlow) {
		travel += w.between(time.Second, 50*time.Second)
	}
	said := &answer{}
	w.after(travel, nil, func() {
		e.underWay--
		switch x.fault {
		case FaultServer:
			*said = answer{status: 500}
		case FaultThrottled:
			*said = answer{status: 429}
		case FaultTimeout:
		default:
			*said = w.services.receive(x.call, x.known)
		}
		if x.fault == FaultServerDone {
			said.status = 502
		}
	})
	back := w.faults.latency(x.p)
	if x.fault == FaultTimeout || x.fault == FaultTimeoutDone {
		back += time.Hour
	}
	return said, travel + back + time.Microsecond
}

// wait lets time pass. It returns the context that ended the wait.
func (x *exchange) wait(d time.Duration) context.Context {
	w := x.p.w
	until := w.elapsed + d
	for w.elapsed < until {
		if x.ctx.Err() != nil {
			return x.ctx
		}
		if w.elapsed >= x.deadline {
			return late{x.ctx}
		}
		x.t.sleep(min(until-w.elapsed, x.deadline-w.elapsed, 300*time.Millisecond))
	}
	switch {
	case x.ctx.Err() != nil:
		return x.ctx
	case w.elapsed > x.deadline:
		return late{x.ctx}
	}
	return nil
}

// interpret is what the adapters make of an answer.
func interpret(call tool.Call, said answer) tool.Outcome {
	switch {
	case said.status == 202:
		return tool.Outcome{Class: tool.ClassDeferred, Effect: tool.EffectUnknown, Deferred: &tool.Deferred{Handle: call.EffectKey, PollAfter: 3 * time.Second}}
	case said.status == 429:
		return tool.Outcome{Class: tool.ClassThrottled, Effect: tool.EffectRejected, Retryable: call.Repeatable, RetryAfter: time.Second}
	case said.status >= 500:
		return tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Retryable: call.Repeatable}
	case said.status >= 400:
		return tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected}
	default:
		return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: said.value}
	}
}

// toolSpec is one tool of the simulated service.
type toolSpec struct {
	name                       string
	class                      v1alpha1.Effect
	parallel, asks, reconciles bool
	// later is true for one whose calls the service accepts and ends by itself.
	later                       bool
	timeout, lifetime, attempts int32
}

// serverName is the first part of every tool's full name.
const serverName = "svc"

const argumentSchema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`

var toolSpecs = []*toolSpec{
	{name: "look", class: v1alpha1.EffectReadOnly, parallel: true, timeout: 10, attempts: 3},
	{name: "put", class: v1alpha1.EffectIdempotent, parallel: true, timeout: 15, lifetime: 330, attempts: 3},
	{name: "keep", class: v1alpha1.EffectIdempotent, reconciles: true, timeout: 15, lifetime: 3300, attempts: 3},
	{name: "charge", class: v1alpha1.EffectNonIdempotent, reconciles: true, timeout: 20},
	{name: "send", class: v1alpha1.EffectNonIdempotent, parallel: true, timeout: 60},
	{name: "refund", class: v1alpha1.EffectNonIdempotent, asks: true, timeout: 20},
	{name: "ship", class: v1alpha1.EffectNonIdempotent, later: true, timeout: 120},
	{name: "render", class: v1alpha1.EffectIdempotent, later: true, parallel: true, reconciles: true, timeout: 60, lifetime: 3300, attempts: 3},
	{name: "tag", class: v1alpha1.EffectIdempotent, parallel: true, asks: true, timeout: 15, lifetime: 3300, attempts: 3},
}

func specOf(name string) *toolSpec {
	for _, known := range toolSpecs {
		if known.name == name {
			return known
		}
	}
	panic("no tool " + name)
}
