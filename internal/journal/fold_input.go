package journal

import "fmt"

func (s *State) applyInputRequired(r Record, p InputRequired) error {
	_, call := s.Live(p.ID)
	switch {
	case call == nil:
		return fmt.Errorf("no turn has call %s open", p.ID)
	case call.Phase != PhaseDispatched && call.Phase != PhaseDeferred:
		return fmt.Errorf("call %s was not under way", p.ID)
	case p.Attempt != call.Attempt:
		return fmt.Errorf("call %s has attempt %d, not %d", p.ID, call.Attempt, p.Attempt)
	case call.Asks() || int(p.Round) != len(call.Inputs)+1:
		return fmt.Errorf("call %s asks in round %d after %d", p.ID, p.Round, len(call.Inputs))
	case call.Phase == PhaseDeferred && len(p.Questions) == 0:
		return fmt.Errorf("call %s asks nothing", p.ID)
	}
	call.Inputs = append(call.Inputs, CallInput{Asked: p})
	if call.Phase == PhaseDispatched {
		call.Phase, call.EndedAt = PhaseInput, r.Event.Time
	}
	return nil
}

func (s *State) applyCallContinued(r Record, p CallContinued) error {
	turn, call := s.Live(p.ID)
	if call == nil || !call.Asks() {
		return fmt.Errorf("call %s does not wait for input", p.ID)
	}
	input := call.Input()
	if p.Attempt != call.Attempt || p.Round != input.Asked.Round {
		return fmt.Errorf("call %s waits in attempt %d and round %d", p.ID, call.Attempt, input.Asked.Round)
	}
	if err := turn.checkPermission(call.Call); err != nil {
		return fmt.Errorf("call %s: %w", p.ID, err)
	}
	if err := input.checkContinued(p, call.Phase); err != nil {
		return fmt.Errorf("call %s: %w", p.ID, err)
	}
	input.Continued, input.Refused = true, p.Refused
	call.Deadline, call.LastSent = p.Deadline, r.Event.Time
	if call.Phase == PhaseInput {
		call.Phase = PhaseDispatched
		return nil
	}
	again := *call.Deferred
	again.Until = p.Deadline
	call.Deferred, call.DeferredAt = &again, r.Event.Time
	return nil
}

// checkContinued makes sure that a service gets what was asked of it and nothing else: an
// answer, or the word that there is none.
func (i *CallInput) checkContinued(p CallContinued, phase Phase) error {
	open := i.Gate == GatePending || i.Answer == nil && len(i.Asked.Questions) > 0
	switch {
	case p.Refused && phase != PhaseDeferred:
		return fmt.Errorf("is not sent to say that there is no answer")
	case p.Refused:
		return nil
	case open:
		return fmt.Errorf("has no answer that may be sent")
	case i.Gate == GateDenied || i.Answer != nil && (i.Answer.Expired || i.Answer.Declined):
		return fmt.Errorf("was refused its answer")
	default:
		return nil
	}
}

// CallInput is what a call asked in one round, and what came of that.
type CallInput struct {
	Asked InputRequired
	// Question is the id under which people are asked, empty until they are.
	Question string
	Answer   *QuestionAnswered
	// Gate, Granted and Denied say whether the call may go on with the answer, where a rule
	// asks people that.
	Gate    Gate
	Granted *ApprovalRequested
	Denied  *ApprovalDenied
	// Continued is true once the service was about to be told, Refused where it was to be
	// told that there is no answer.
	Continued, Refused bool
}

// Input is what the call asked last, nil for nothing.
func (c *CallState) Input() *CallInput {
	if len(c.Inputs) == 0 {
		return nil
	}
	return &c.Inputs[len(c.Inputs)-1]
}

// Asks is true while the call's service waits for input.
func (c *CallState) Asks() bool {
	input := c.Input()
	return input != nil && !input.Continued && (c.Phase == PhaseInput || c.Phase == PhaseDeferred)
}

// asking finds the input that people are being asked for, nil where the question is the
// model's own.
func (s *State) asking() *CallInput {
	if s.Question == nil {
		return nil
	}
	_, call := s.Live(s.Question.CallID)
	if call == nil || call.Input() == nil || call.Input().Question != s.Question.ID {
		return nil
	}
	return call.Input()
}

// AskingCall is the call whose service asks the question that is open, nil where the model
// asks it.
func (s *State) AskingCall() *CallState {
	if s.asking() == nil {
		return nil
	}
	_, call := s.Live(s.Question.CallID)
	return call
}

// ContinuedCall is the call that waits for leave to go on with an answer, nil where what is
// pending is something else.
func (s *State) ContinuedCall() *CallState {
	if s.Approval == nil || s.Approval.Continues == "" {
		return nil
	}
	_, call := s.Live(s.Approval.Continues)
	return call
}

// withdraw takes back what people are asked about a call that has its result.
func (s *State) withdraw(id string) {
	if s.Question != nil && s.Question.CallID == id {
		s.Question = nil
	}
	if s.Approval != nil && s.Approval.Continues == id {
		s.Approval = nil
	}
}
