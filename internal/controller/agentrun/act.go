package agentrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// recordLanded turns what has ended outside into events.
func (r *Reconciler) recordLanded(object *v1alpha1.AgentRun, s *session, rules rules) error {
	if canary.Is(canary.BatchAtEnd) && len(r.flights.landed(s.uid)) < len(r.flights.byRun[s.uid]) {
		return nil
	}
	for _, landed := range r.flights.landed(s.uid) {
		if landed.asked != nil && landed.failure == nil && rules.set == nil {
			// Without rules every call of the reply would be refused. It waits for them.
			continue
		}
		if entry, wanted := r.interpret(object, s, rules, landed); wanted {
			if err := r.add(s, entry); err != nil {
				return err
			}
		}
		s.settled = append(s.settled, landed)
	}
	return nil
}

func (r *Reconciler) interpret(object *v1alpha1.AgentRun, s *session, rules rules, landed *flight) (run.Entry, bool) {
	state := s.draft.State
	facts := r.facts(object, s, rules)
	switch {
	case landed.stale(state, r.members.Identity()):
		return run.Entry{}, false
	case landed.configuration != nil:
		s.configuration = landed.configuration
		return run.Entry{}, false
	case landed.check:
		r.memory.of(s.uid).checked[landed.call] = r.clock.Now()
		return run.RecordFound(facts, landed.call, landed.found)
	case landed.inquiry != "":
		return r.interpretInquiry(facts, s, landed)
	case landed.call != "":
		return interpretCall(facts, landed)
	case landed.asked == nil || !state.DecisionDue() || int(state.Turns)+1 != landed.asked.Request.Decision:
		return run.Entry{}, false
	}
	asked := *landed.asked
	asked.Duration = landed.duration
	if landed.failure != nil {
		return run.RecordFailure(facts, asked, landed.failure), true
	}
	if asked.Through > 0 {
		return run.RecordSummary(facts, asked, landed.reply), asked.Through > state.Context.Summarised
	}
	return run.RecordReply(facts, asked, landed.reply), true
}

// interpretCall takes an outcome as the call's own while this worker's dispatch is the
// newest, and as evidence once the effect counts as unknown.
func interpretCall(facts run.Facts, landed *flight) (run.Entry, bool) {
	if landed.cut && landed.outcome.Class != tool.ClassOK {
		landed.outcome.Retryable = true
	}
	if facts.State.Finished == nil {
		if entry, fits := run.RecordOutcome(facts, landed.call, landed.attempt, landed.outcome, landed.duration); fits {
			return entry, true
		}
	}
	return run.RecordLate(facts, landed.call, landed.epoch, landed.outcome)
}

// testify records, in a run that another worker has by now, what became of calls that
// this one sent: under the other's epoch, as evidence for what is unknown.
func (r *Reconciler) testify(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	for _, landed := range r.flights.landed(s.uid) {
		isCall := landed.call != "" && !landed.check && landed.inquiry == "" && !landed.withheld
		if isCall && landed.outcome.Effect == tool.EffectCommitted && run.Undecided(s.draft.State, landed.call) {
			// The other one may have to call it unknown.
			continue
		}
		s.settled = append(s.settled, landed)
		if !isCall {
			continue
		}
		entry, fits := run.RecordLate(r.facts(object, s, rules{}), landed.call, landed.epoch, landed.outcome)
		if !fits {
			continue
		}
		if err := s.draft.Add(entry.Payload, journal.Meta{Time: r.clock.Now()}); err != nil {
			return fmt.Errorf("proposing evidence: %w", err)
		}
		s.keep(entry)
	}
	return r.flush(ctx, object, s)
}

// ask puts a request to the model in the air, or changes the step to one that waits.
func (r *Reconciler) ask(ctx context.Context, object *v1alpha1.AgentRun, s *session, step *run.Step) (waits bool, err error) {
	frozen := s.draft.State.Run.Model
	decider, problem, err := r.clients.Model(ctx, object.Namespace, frozen)
	if err != nil {
		return false, err
	}
	if problem != "" {
		*step = run.Step{Kind: run.Rest, Waiting: string(v1alpha1.ReasonConfigurationNotReady), Message: problem}
		return true, r.letGo(ctx, object, s, step.Waiting)
	}
	if err := r.claim(s); err != nil {
		return false, err
	}
	if !canary.Is(canary.LateResult) {
		if err := r.flush(ctx, object, s); err != nil {
			return false, err
		}
	}
	timeout := time.Duration(frozen.RequestTimeoutSeconds) * time.Second
	request, asked, place := step.Request, run.Asking(*step), *s.place
	s.place = nil
	entry := &flight{asked: &asked, ended: func() { r.giveBack(place) }}
	gate := r.rightToAsk()
	r.flights.start(s.uid, s.key, entry, timeout, func(ctx context.Context, landed *flight) {
		reply, err := decider.Decide(gate.guard(ctx), request)
		landed.reply, landed.failure = reply, gate.lapsed(asTimeout(ctx, asModelError(err)))
	})
	return false, nil
}

// asModelError keeps the promise of model.Client, that every error is of its kind, from
// becoming a crash when an adapter breaks it.
func asModelError(err error) *model.Error {
	if err == nil {
		return nil
	}
	if failure, ok := err.(*model.Error); ok { //nolint:errorlint // adapters return it unwrapped
		return failure
	}
	return &model.Error{Class: model.ClassTransient, Sent: true, Detail: "the adapter returned an error without a class"}
}

// asTimeout tells a request that took too long, which failed, from one that was stopped.
func asTimeout(ctx context.Context, failure *model.Error) *model.Error {
	if failure != nil && failure.Class == model.ClassCanceled && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		failure.Class, failure.Detail = model.ClassTransient, "no complete answer came within the request's timeout"
	}
	return failure
}

// send commits what announces the calls, then puts them in the air. The commit is the
// right to send: without its acknowledgement nothing leaves.
func (r *Reconciler) send(ctx context.Context, object *v1alpha1.AgentRun, s *session, calls []run.Sending) error {
	if !canary.Is(canary.DispatchFirst) {
		if err := r.flush(ctx, object, s); err != nil {
			return err
		}
	}
	for _, sending := range calls {
		r.dispatch(object, s, sending)
	}
	return nil
}

func (r *Reconciler) dispatch(object *v1alpha1.AgentRun, s *session, sending run.Sending) {
	call := sending.Call
	request := r.request(object, s, sending)
	entry := &flight{call: call.ID, attempt: sending.Attempt, epoch: request.Epoch, effectful: call.Effect != journal.ReadOnly}
	policies := policyNames(object)
	mayLeave := r.rightToSend(s.acknowledged, call.Effect)
	r.flights.start(s.uid, s.key, entry, sending.Timeout, func(ctx context.Context, landed *flight) {
		ctx = transport.WithGate(ctx, mayLeave)
		server, name, err := r.clients.Tool(ctx, object.Namespace, policies, call.Tool)
		if err != nil {
			landed.outcome = tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: true,
				Message: "the tool could not be set up: " + err.Error()}
			return
		}
		defer closeServer(server)
		request.Tool = name
		landed.outcome = callOn(ctx, server, request, sending.Continues)
	})
}

// callOn makes a call, or sends it again with what its service asked for.
func callOn(ctx context.Context, server tool.Server, request tool.Call, with *run.Continuation) tool.Outcome {
	if with == nil {
		return server.Call(ctx, request)
	}
	again, ok := server.(tool.Continuer)
	if !ok {
		return tool.Outcome{Class: tool.ClassNotRun, Effect: tool.EffectRejected,
			Message: "not sent: the tool is served otherwise by now and can't be given the input that it asked for; nothing was done"}
	}
	return again.Continue(ctx, request, with.Asked, with.Answers)
}

// request is what an adapter is told of an attempt.
func (r *Reconciler) request(object *v1alpha1.AgentRun, s *session, sending run.Sending) tool.Call {
	call := sending.Call
	return tool.Call{
		FullName: call.Tool, Digest: offeredDigest(s.draft.State.Run.Tools, call.Tool),
		Arguments: run.ArgumentBytes(call.Arguments), ID: call.ID, EffectKey: call.EffectKey,
		Attempt: sending.Attempt, Epoch: s.draft.State.Epoch,
		Repeatable:   call.Effect == journal.ReadOnly || call.Effect == journal.Idempotent || canary.Is(canary.Replay),
		RunNamespace: object.Namespace, RunName: object.Name, RunUID: string(object.UID),
		Timeout:        time.Duration(call.TimeoutSeconds) * time.Second,
		MaxResultBytes: call.MaxResultBytes, IncludeBinary: call.IncludeBinary, Child: handDown(s.draft.State, sending),
	}
}

// handDown is what a run hands down to the child that a call is, nil for any other call.
func handDown(state *journal.State, sending run.Sending) *tool.Child {
	budget := sending.Budget
	if budget == nil {
		return nil
	}
	child := &tool.Child{
		Tokens: budget.Tokens, Cost: budget.Cost, ActiveSeconds: budget.ActiveSeconds, DeadlineSeconds: budget.DeadlineSeconds,
		Depth: state.Level() + 1, Root: state.Run.Name, RootUID: state.UID, CreatedBy: state.Run.CreatedBy,
	}
	if lineage := state.Run.Lineage; lineage != nil {
		child.Root, child.RootUID = lineage.Root, lineage.RootUID
	}
	return child
}

// offeredDigest is the digest of a tool's definition as the run froze it.
func offeredDigest(tools []journal.Tool, name string) string {
	for i := range tools {
		if tools[i].Name == name {
			return tools[i].Digest
		}
	}
	return ""
}

// closeServer ends what an adapter keeps open: each call has an adapter of its own, made
// of what the policy says at that moment.
func closeServer(server tool.Server) {
	if closer, ok := server.(interface{ Close() }); ok {
		closer.Close()
	}
}

func policyNames(object *v1alpha1.AgentRun) []string {
	names := make([]string, 0, len(object.Spec.ToolPolicyRefs))
	for _, ref := range object.Spec.ToolPolicyRefs {
		names = append(names, ref.Name)
	}
	return names
}

// letGo releases the run in the same write as what it waits for.
func (r *Reconciler) letGo(ctx context.Context, object *v1alpha1.AgentRun, s *session, waiting string) error {
	if state := s.draft.State; state.Owner == r.members.Identity() && state.Finished == nil {
		if err := r.add(s, run.Entry{Payload: journal.Released{Worker: r.members.Identity(), Waiting: waiting}}); err != nil {
			return fmt.Errorf("releasing: %w", err)
		}
	}
	return r.flush(ctx, object, s)
}
