package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// fakeModel decides by a script: the n-th decision is the same however often it is asked.
type fakeModel struct {
	p               *process
	namespace, name string
}

// Decide implements model.Client.
func (m *fakeModel) Decide(ctx context.Context, request model.Request) (model.Reply, error) {
	p := m.p
	w := p.w
	script := w.scriptOf(request.Messages[0].Text)
	fault := p.outside(SiteModel)
	if script.adapterPanics {
		panic("an adapter that panics")
	}
	if failure := m.connect(ctx, fault); failure != nil {
		return model.Reply{}, failure
	}
	w.check.asked(p, script, request)
	if m.name == sharedModel {
		defer w.check.begins(p, m.namespace)()
	}
	w.counts.ModelCalls++
	if failure := m.think(ctx, script, fault); failure != nil {
		return model.Reply{}, failure
	}
	switch fault {
	case FaultCrashAfter:
		p.die("before the decision was recorded")
	case FaultNone, FaultStop:
	case FaultThrottled:
		return model.Reply{}, &model.Error{Class: model.ClassThrottled, Status: 429, RetryAfter: time.Second, Sent: true}
	default:
		return model.Reply{}, &model.Error{Class: model.ClassTransient, Status: 500, Sent: true}
	}
	if w.chance(w.faults.rates.modelFails) {
		return model.Reply{}, &model.Error{Class: model.ClassTransient, Status: 503, Sent: true}
	}
	w.note(p.id, "decision %d of %s", request.Decision, script.name)
	return script.reply(request), nil
}

// connect takes its time, and asks the gate after it.
func (m *fakeModel) connect(ctx context.Context, fault Fault) error {
	w, t := m.p.w, m.p.w.current
	if fault == FaultUnreachable {
		return &model.Error{Class: model.ClassTransient}
	}
	takes := w.faults.latency(m.p)
	if w.chance(w.faults.rates.toolSlow / 4) {
		takes = w.between(time.Second, 9*time.Second)
	}
	t.sleep(takes)
	if ctx.Err() != nil {
		return &model.Error{Class: model.ClassCanceled}
	}
	if gate := transport.GateOf(ctx); gate != nil && gate() != nil {
		return &model.Error{Class: model.ClassTransient}
	}
	return nil
}

// think lets the time pass that a decision takes.
func (m *fakeModel) think(ctx context.Context, script *scenarioRun, fault Fault) error {
	w, t := m.p.w, m.p.w.current
	takes := w.between(5*time.Millisecond, 400*time.Millisecond)
	if w.chance(w.faults.rates.toolSlow) {
		takes = w.between(time.Second, 20*time.Second)
	}
	if script.thinks > 0 {
		takes = script.thinks
	}
	switch fault {
	case FaultCrashUnsure:
		m.p.die("while the model thinks")
	case FaultStop:
		m.p.stop(stopTime)
	case FaultTimeout, FaultTimeoutDone, FaultTimeoutLate:
		takes = time.Minute
	default:
	}
	for until := w.elapsed + takes; w.elapsed < until; {
		if ctx.Err() != nil {
			return &model.Error{Class: model.ClassCanceled, Sent: true}
		}
		t.sleep(min(300*time.Millisecond, until-w.elapsed))
	}
	return nil
}

// reply is the scripted decision, an answer once the script is at its end.
func (s *scenarioRun) reply(request model.Request) model.Reply {
	out := model.Reply{StopReason: "stop", Usage: model.Usage{InputTokens: 10, OutputTokens: 5, Reported: true}}
	if request.Decision > len(s.turns) {
		out.Decision = model.Decision{Kind: model.KindFinal, Text: "done"}
		return out
	}
	out.Decision.Kind = model.KindCalls
	for i, proposed := range s.turns[request.Decision-1] {
		out.Decision.Calls = append(out.Decision.Calls, model.Call{
			ID:    fmt.Sprintf("c%d%c", request.Decision, 'a'+i),
			Alias: aliasOf(request.Tools, proposed.tool), Arguments: argumentsOf(request.Tools, proposed),
		})
	}
	return out
}

// argumentsOf are a proposal's own, or the announcement of others.
func argumentsOf(tools []model.Tool, proposed proposal) string {
	if len(proposed.announced) == 0 {
		return proposed.arguments
	}
	var calls []string
	for _, announced := range proposed.announced {
		calls = append(calls, fmt.Sprintf(`{"tool":%q,"arguments":%s}`, aliasOf(tools, announced.tool), announced.arguments))
	}
	return fmt.Sprintf(`{"text":"May I?","calls":[%s]}`, strings.Join(calls, ","))
}

func aliasOf(tools []model.Tool, name string) string {
	for _, offered := range tools {
		if offered.Name == name {
			return offered.Alias
		}
	}
	return name
}
