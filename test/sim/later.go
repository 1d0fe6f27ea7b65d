package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pawl-run/pawl/internal/tool"
)

var _ tool.Deferrer = (*socket)(nil)

// Poll implements tool.Deferrer. What stands before the service, or is in its place, teaches
// nothing.
func (s *socket) Poll(_ context.Context, call tool.Call, handle string) tool.Outcome {
	p, w := s.p, s.p.w
	w.current.sleep(w.faults.latency(p))
	if p.toolsCutOff > w.elapsed || w.chance(w.faults.rates.toolLost+w.faults.rates.toolReject/2) {
		return tool.NothingLearned("the service does not answer")
	}
	e := w.services.effect(handle)
	w.current.sleep(w.faults.latency(p))
	switch {
	case e.applied > 0:
		return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(fmt.Sprintf(`{"done":%q}`, call.ID))}
	case e.refused:
		return tool.Outcome{Class: tool.ClassRejected, Effect: tool.EffectRejected}
	default:
		return interpret(call, answer{status: 202})
	}
}

// CancelDeferred implements tool.Deferrer. A service may hear of it too late.
func (s *socket) CancelDeferred(_ context.Context, _ tool.Call, handle string) error {
	p, w := s.p, s.p.w
	w.current.sleep(w.faults.latency(p))
	if e := w.services.effect(handle); p.toolsCutOff <= w.elapsed && e.applied == 0 && w.chance(0.5) {
		e.refused = true
		w.note("service", "gives %s up", handle)
	}
	return nil
}

// Answer implements tool.Deferrer. No simulated service asks for anything.
func (*socket) Answer(context.Context, tool.Call, string, tool.Input, []tool.Answer) error {
	return errors.New("nothing was asked")
}
