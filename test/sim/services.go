package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/agentrun"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
)

// effect is what a service knows of one effect key.
type effect struct {
	key, tool string
	class     v1alpha1.Effect
	run       string
	// sent and received count requests, as they leave and as they arrive.
	sent, received int
	// underWay counts requests that left and have not been dealt with.
	underWay  int
	first     time.Duration
	applied   int
	appliedAt time.Duration
	// refused is set once somebody was told that it did not and will not happen.
	refused bool
	// accepted is set once the service goes on with it by itself.
	accepted bool
}

// services are all tools and their ledgers, and the models.
type services struct {
	w       *world
	effects map[string]*effect
	order   []string
}

func newServices(w *world) *services { return &services{w: w, effects: map[string]*effect{}} }

func (s *services) effect(key string) *effect {
	e := s.effects[key]
	if e == nil {
		e = &effect{key: key}
		s.effects[key] = e
		s.order = append(s.order, key)
	}
	return e
}

// answer is what a service says to one request.
type answer struct {
	status int
	value  json.RawMessage
}

// receive deals with a request that arrived.
func (s *services) receive(call tool.Call, known *toolSpec) answer {
	w := s.w
	if w.chance(w.faults.rates.toolReject / 2) {
		// A gateway, which knows nothing of what was done before.
		return answer{status: 401}
	}
	if known.class == v1alpha1.EffectReadOnly {
		return answer{200, json.RawMessage(fmt.Sprintf(`{"seen":%q}`, call.ID))}
	}
	e := s.effect(call.EffectKey)
	e.received++
	if e.received == 1 {
		e.first = w.elapsed
	}
	w.check.received(e, call)
	done := answer{200, json.RawMessage(fmt.Sprintf(`{"done":%q}`, call.ID))}
	if e.refused {
		return answer{status: 410}
	}
	if e.accepted {
		return answer{status: 202}
	}
	remembers := w.elapsed-e.appliedAt < time.Duration(known.lifetime)*time.Second
	if known.class == v1alpha1.EffectIdempotent && e.applied > 0 && remembers {
		return done
	}
	switch {
	case w.chance(w.faults.rates.toolReject):
		// The same request is refused again whenever it comes.
		e.refused = true
		return answer{status: 422}
	case w.chance(w.faults.rates.toolBroken):
		return answer{status: 500}
	}
	if known.later {
		s.accept(e, call)
		return answer{status: 202}
	}
	s.apply(e, call)
	if w.chance(w.faults.rates.toolBroken / 2) {
		return answer{status: 502}
	}
	return done
}

func (s *services) apply(e *effect, call tool.Call) {
	w := s.w
	e.applied++
	e.appliedAt = w.elapsed
	w.counts.Effects++
	w.note("service", "applies %s of %s (%d)", call.ID, e.run, e.applied)
	w.check.applied(e)
}

// accept goes on with a call by itself, which ends one way or the other unless it is called
// off before.
func (s *services) accept(e *effect, call tool.Call) {
	w := s.w
	e.accepted = true
	w.counts.Accepted++
	w.note("service", "accepts %s of %s", call.ID, e.run)
	w.after(w.between(500*time.Millisecond, 90*time.Second), nil, func() {
		switch {
		case e.refused:
		case w.chance(w.faults.rates.toolReject * 2):
			e.refused = true
			w.note("service", "refuses %s of %s after all", call.ID, e.run)
		default:
			s.apply(e, call)
		}
	})
}

// look says what became of an effect.
func (s *services) look(key string) httptool.Found {
	e := s.effects[key]
	switch {
	case e == nil:
		return httptool.Found{State: httptool.EffectNotFound}
	case e.applied > 0:
		return httptool.Found{State: tool.EffectCommitted, Result: json.RawMessage(`{"found":true}`)}
	case e.underWay > 0 || e.accepted && !e.refused:
		return httptool.Found{State: httptool.EffectPending}
	case e.received > 0:
		e.refused = true
		return httptool.Found{State: tool.EffectRejected}
	default:
		return httptool.Found{State: httptool.EffectNotFound}
	}
}

// clients are what a process reaches models and tools with.
type clients struct{ p *process }

var _ agentrun.Clients = (*clients)(nil)

// Children implements agentrun.Clients. Nothing here is a child run.
func (c *clients) Children() tool.Deferrer { return nil }

// Model implements agentrun.Clients.
func (c *clients) Model(_ context.Context, namespace string, frozen journal.Model) (model.Client, string, error) {
	at := address{kindModel, types.NamespacedName{Namespace: namespace, Name: frozen.Name}}
	if _, there := c.p.view.objects[at]; !there {
		return nil, "the Model does not exist", nil
	}
	return &fakeModel{p: c.p, namespace: namespace, name: frozen.Name}, "", nil
}

// Tool implements agentrun.Clients.
func (c *clients) Tool(_ context.Context, _ string, _ []string, fullName string) (tool.Server, string, error) {
	return &socket{p: c.p}, fullName[len(serverName)+1:], nil
}

// Server implements agentrun.Clients.
func (c *clients) Server(context.Context, string, v1alpha1.ToolServer) (tool.Server, error) {
	return &socket{p: c.p}, nil
}

// Missing implements agentrun.Clients.
func (c *clients) Missing(context.Context, string, *v1alpha1.Model, []v1alpha1.ToolServer) (string, error) {
	return "", nil
}

// Effects implements agentrun.Clients.
func (c *clients) Effects(context.Context, string, []string, journal.UnknownEffect) (agentrun.EffectService, error) {
	return lookUp{c.p}, nil
}

type lookUp struct{ p *process }

// Close implements agentrun.EffectService.
func (lookUp) Close() {}

var errLost = errors.New("connection reset by peer")

// Look implements agentrun.EffectService.
func (l lookUp) Look(ctx context.Context, key string) (httptool.Found, error) {
	p := l.p
	w, t := p.w, p.w.current
	fault := p.outside(SiteEffect)
	t.sleep(w.faults.latency(p))
	if p.toolsCutOff > w.elapsed || ctx.Err() != nil {
		return httptool.Found{}, errLost
	}
	found := w.services.look(key)
	w.counts.Lookups++
	switch fault {
	case FaultCrashUnsure:
		p.die("while looking an effect up")
	case FaultCrashAfter:
		p.doomed = true
	case FaultStop:
		p.stop(stopTime)
	case FaultNone:
	default:
		t.sleep(time.Second)
		return httptool.Found{}, errLost
	}
	t.sleep(w.faults.latency(p))
	w.note(p.id, "finds %s to be %s", key, found.State)
	return found, nil
}

// outside draws the fault of a call that goes elsewhere than to the API server.
func (p *process) outside(site Site) Fault {
	if p.doomed {
		p.die("before a " + string(site))
	}
	fault := p.w.faults.at(site, outsideFaults)
	if fault == FaultNone {
		return fault
	}
	p.w.note(p.id, "FAULT %q at %s", fault, site)
	if fault == FaultCrashBefore {
		p.die("before a " + string(site))
	}
	return fault
}
