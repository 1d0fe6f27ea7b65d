package journal

import "fmt"

func (s *State) applyApprovalRequested(_ Record, p ApprovalRequested) error {
	turn := s.OpenTurn()
	switch {
	case s.Approval != nil || s.Question != nil:
		return fmt.Errorf("people are asked something already")
	case p.Digest == "":
		return fmt.Errorf("the request has no digest")
	case p.Continues != "":
		return s.requestContinuation(p)
	case turn == nil:
		return fmt.Errorf("no turn is open")
	case turn.Dispatched:
		return fmt.Errorf("calls of turn %d were sent before", turn.Number)
	}
	s.Approval = &p
	turn.Gate, turn.Granted = GatePending, nil
	return nil
}

// requestContinuation asks whether a call may go on with an answer.
func (s *State) requestContinuation(p ApprovalRequested) error {
	_, call := s.Live(p.Continues)
	if call == nil || !call.Asks() || call.Input().Answer == nil {
		return fmt.Errorf("call %s has no answer to go on with", p.Continues)
	}
	s.Approval = &p
	call.Input().Gate, call.Input().Granted = GatePending, nil
	return nil
}

func (s *State) applyApprovalGranted(r Record, p ApprovalGranted) error {
	turn := s.OpenTurn()
	continued := s.ContinuedCall()
	if turn == nil && continued == nil || s.Approval == nil || p.Digest != s.Approval.Digest {
		return fmt.Errorf("the approval names what is not pending")
	}
	if r.Event.By == "" {
		return fmt.Errorf("the approval names nobody")
	}
	if s.Approval.Intent {
		for _, call := range s.Approval.Calls {
			s.Intents = append(s.Intents, Intent{Tool: call.Tool, ArgumentsDigest: call.ArgumentsDigest, Approval: p.Digest})
		}
	}
	if continued != nil {
		continued.Input().Gate, continued.Input().Granted = GateGranted, s.Approval
	} else {
		turn.Gate, turn.Granted = GateGranted, s.Approval
	}
	s.Approval = nil
	return nil
}

func (s *State) applyApprovalDenied(r Record, p ApprovalDenied) error {
	if input := s.continuation(p.Digest); input != nil {
		return s.denyContinuation(r, input, p)
	}
	turn := s.OpenTurn()
	if turn == nil || p.Digest == "" {
		return fmt.Errorf("no request for approval is open")
	}
	granted := turn.Granted != nil && p.Digest == turn.Granted.Digest && !turn.Dispatched
	pending := s.Approval != nil && p.Digest == s.Approval.Digest
	if !granted && !pending {
		return fmt.Errorf("the denial names what is not pending")
	}
	if !p.Expired && r.Event.By == "" {
		return fmt.Errorf("the denial names nobody")
	}
	if !p.Expired {
		s.refuse(turn)
	}
	s.Approval = nil
	turn.Gate, turn.Denied = GateDenied, &p
	return nil
}

// refuse remembers what a person denied, so that nobody is asked for the same again.
func (s *State) refuse(turn *Turn) {
	for i := range turn.Calls {
		if plan := turn.Calls[i].Call.PlanDigest; plan != "" {
			s.Refused[plan] = true
		}
	}
	for _, intent := range turn.Decision.Intents {
		if intent.PlanDigest != "" {
			s.Refused[intent.PlanDigest] = true
		}
	}
}

// continuation finds the input whose answer a digest is about.
func (s *State) continuation(digest string) *CallInput {
	for _, call := range s.calls((*CallState).Asks) {
		input := call.Input()
		asked := s.Approval != nil && s.Approval.Continues == call.Call.ID && s.Approval.Digest == digest
		if asked || input.Granted != nil && input.Granted.Digest == digest {
			return input
		}
	}
	return nil
}

// denyContinuation refuses that a call goes on with an answer. The call itself was not
// refused, so it may be proposed again.
func (s *State) denyContinuation(r Record, input *CallInput, p ApprovalDenied) error {
	if !p.Expired && r.Event.By == "" {
		return fmt.Errorf("the denial names nobody")
	}
	if s.Approval != nil && s.Approval.Digest == p.Digest {
		s.Approval = nil
	}
	input.Gate, input.Denied = GateDenied, &p
	return nil
}

func (s *State) applyCallDispatched(r Record, p CallDispatched) error {
	turn := s.OpenTurn()
	if turn == nil || len(p.Calls) == 0 {
		return fmt.Errorf("no call is to be sent")
	}
	sent := map[string]bool{}
	for _, dispatch := range p.Calls {
		if err := turn.checkDispatch(dispatch); err != nil {
			return fmt.Errorf("call %s: %w", dispatch.ID, err)
		}
		if sent[dispatch.ID] {
			return fmt.Errorf("call %s: is named twice", dispatch.ID)
		}
		sent[dispatch.ID] = true
	}
	if err := s.checkBudgets(turn, p.Calls); err != nil {
		return err
	}
	turn.Dispatched = true
	for _, dispatch := range p.Calls {
		call := turn.call(dispatch.ID)
		if call.Attempt == 0 {
			call.FirstSent = r.Event.Time
			s.ToolCalls++
			s.CallsByTool[call.Call.Tool]++
		}
		call.Phase, call.Attempt = PhaseDispatched, dispatch.Attempt
		call.Deadline, call.LastSent = dispatch.Deadline, r.Event.Time
		call.Budget = dispatch.Budget
	}
	return nil
}

// checkDispatch is the last line of defence: whatever the turn machine believes,
// nothing invalid, denied or pending is ever recorded as sent.
func (t *Turn) checkDispatch(dispatch Dispatch) error {
	call := t.call(dispatch.ID)
	switch {
	case call == nil:
		return fmt.Errorf("is not part of turn %d", t.Number)
	case call.Phase != PhasePrepared && call.Phase != PhaseRetrying:
		return fmt.Errorf("is %s", call.Phase)
	case dispatch.Attempt != call.Attempt+1:
		return fmt.Errorf("attempt %d follows %d", dispatch.Attempt, call.Attempt)
	case call.Attempt > 0 && call.Call.Effect != ReadOnly && call.Call.Effect != Idempotent:
		return fmt.Errorf("is not repeatable")
	}
	return t.checkPermission(call.Call)
}

func (t *Turn) checkPermission(call Call) error {
	switch {
	case t.Decision.Kind != DecisionToolCalls || call.Invalid != "" || call.Verdict == nil:
		return fmt.Errorf("is not valid")
	case call.Verdict.Action != ActionAllow && call.Verdict.Action != ActionAsk:
		return fmt.Errorf("was denied")
	case t.Gate == GatePending || t.Gate == GateDenied || (t.Asks() && t.Gate != GateGranted):
		return fmt.Errorf("has no approval")
	}
	return nil
}

func (s *State) applyCallDeferred(r Record, p CallDeferred) error {
	_, call := s.Live(p.ID)
	switch {
	case call == nil:
		return fmt.Errorf("no turn has call %s open", p.ID)
	case call.Phase != PhaseDispatched && call.Phase != PhaseDeferred:
		return fmt.Errorf("call %s was not under way", p.ID)
	case p.Attempt != call.Attempt:
		return fmt.Errorf("call %s has attempt %d, not %d", p.ID, call.Attempt, p.Attempt)
	case p.Handle == "":
		return fmt.Errorf("call %s is deferred without a handle", p.ID)
	}
	call.Phase, call.Deferred, call.DeferredAt = PhaseDeferred, &p, r.Event.Time
	call.Deadline = p.Until
	return nil
}

func (s *State) applyCallCompleted(r Record, p CallCompleted) error {
	_, call := s.Live(p.ID)
	if call == nil {
		return fmt.Errorf("no turn has call %s open", p.ID)
	}
	if err := call.checkCompleted(p); err != nil {
		return fmt.Errorf("call %s %w", p.ID, err)
	}
	if err := s.checkAbout(call, p); err != nil {
		return fmt.Errorf("call %s %w", p.ID, err)
	}
	s.look(p)
	s.noteArtifact(p.Artifact)
	s.charge(call, p.Spent)
	call.Last, call.EndedAt, call.Deferred = &p, r.Event.Time, nil
	s.withdraw(p.ID)
	unknown := p.Effect == EffectUnknown && call.Call.Effect != ReadOnly
	call.Doubtful = call.Doubtful || unknown
	switch {
	case p.Final:
		call.Phase = PhaseDone
	case p.Retryable:
		call.Phase = PhaseRetrying
	default:
		call.Phase = PhaseUnknown
	}
	if unknown && call.Attempt > 0 && !p.Retryable {
		s.noteUnknown(call, r)
	}
	return nil
}

// checkCompleted makes sure that what is said of a call can follow what is known of it.
func (c *CallState) checkCompleted(p CallCompleted) error {
	repeatable := c.Call.Effect == ReadOnly || c.Call.Effect == Idempotent
	switch {
	case c.Phase == PhaseDone:
		return fmt.Errorf("has its result already")
	case p.Attempt != c.Attempt:
		return fmt.Errorf("has attempt %d, not %d", c.Attempt, p.Attempt)
	case p.Final:
		return c.checkSpent(p)
	case c.Phase != PhaseDispatched && c.Phase != PhaseDeferred && (c.Phase != PhaseRetrying && c.Phase != PhaseInput || p.Retryable):
		return fmt.Errorf("was not under way")
	case p.Retryable && !repeatable:
		return fmt.Errorf("is not repeatable")
	case !p.Retryable && (p.Effect != EffectUnknown || c.Call.Effect == ReadOnly):
		return fmt.Errorf("has neither a result nor an unknown effect")
	}
	return c.checkSpent(p)
}

func (s *State) noteUnknown(call *CallState, r Record) {
	for _, unknown := range s.Unknown {
		if unknown.CallID == call.Call.ID {
			return
		}
	}
	s.Unknown = append(s.Unknown, UnknownEffect{
		CallID: call.Call.ID, EffectKey: call.Call.EffectKey, Tool: call.Call.Tool,
		Reconcile: call.Call.Reconcile, MaxResultBytes: call.Call.MaxResultBytes,
		Since: call.LastSent, NotedAt: r.Event.Time,
	})
}

func (s *State) applyEffectReconciled(r Record, p EffectReconciled) error {
	if p.Effect != EffectCommitted && p.Effect != EffectRejected {
		return fmt.Errorf("effect %q is neither committed nor rejected", p.Effect)
	}
	if err := p.checkSource(r.Event.By); err != nil {
		return err
	}
	for i, unknown := range s.Unknown {
		if unknown.CallID != p.ID || unknown.EffectKey != p.EffectKey {
			continue
		}
		s.noteArtifact(p.Artifact)
		s.Unknown = append(s.Unknown[:i:i], s.Unknown[i+1:]...)
		if _, call := s.Live(p.ID); call != nil && call.Phase == PhaseUnknown {
			call.Settled = &p
		}
		return nil
	}
	return fmt.Errorf("call %s has no unknown effect under that key", p.ID)
}

// checkSource makes sure that a settlement names the person whose word it is, and no
// other.
func (p EffectReconciled) checkSource(by string) error {
	switch p.Source {
	case SourcePerson:
		if by == "" {
			return fmt.Errorf("the settlement names nobody")
		}
	case SourceService, SourceWorker:
		if by != "" {
			return fmt.Errorf("the settlement names a person whose word it is not")
		}
	default:
		return fmt.Errorf("settlement by %q is not known", p.Source)
	}
	return nil
}

func (s *State) applyQuestionAsked(_ Record, p QuestionAsked) error {
	turn, call := s.Live(p.CallID)
	switch {
	case call == nil:
		return fmt.Errorf("no call asks it")
	case s.Question != nil || s.Approval != nil:
		return fmt.Errorf("people are asked something already")
	case p.ID == "":
		return fmt.Errorf("the question has no id")
	}
	if turn.Decision.Kind == DecisionToolCalls {
		if !call.Asks() || call.Input().Question != "" {
			return fmt.Errorf("call %s does not ask it", p.CallID)
		}
		call.Input().Question = p.ID
	}
	s.Question = &p
	return nil
}

func (s *State) applyQuestionAnswered(r Record, p QuestionAnswered) error {
	if s.Question == nil || p.ID != s.Question.ID {
		return fmt.Errorf("the answer names a question that is not open")
	}
	asking := s.asking()
	switch {
	case (p.Expired || p.Declined) && asking == nil:
		return fmt.Errorf("the model's question is answered or ends the run")
	case !p.Expired && r.Event.By == "":
		return fmt.Errorf("the answer names nobody")
	}
	s.Question = nil
	if asking != nil {
		asking.Answer = &p
		return nil
	}
	if turn := s.OpenTurn(); turn != nil {
		turn.Answer = &p
	}
	return nil
}
