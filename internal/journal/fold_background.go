package journal

import "fmt"

// CallDetached lets the model work on while a call goes on outside: what it reads as the
// call's result is that it runs. What it comes to follows as a CallCompleted, in whatever
// turn that is.
type CallDetached struct {
	ID      string `json:"id"`
	Attempt int32  `json:"attempt"`
}

// Type implements Payload.
func (CallDetached) Type() Type { return TypeCallDetached }

func (s *State) applyCallDetached(_ Record, p CallDetached) error {
	turn := s.OpenTurn()
	if turn == nil {
		return fmt.Errorf("no turn is open")
	}
	call := turn.call(p.ID)
	switch {
	case call == nil:
		return fmt.Errorf("call %s is not part of turn %d", p.ID, turn.Number)
	case call.Phase != PhaseDeferred || call.Detached:
		return fmt.Errorf("call %s does not go on outside", p.ID)
	case !call.Call.Background:
		return fmt.Errorf("call %s may not go on in the background", p.ID)
	case p.Attempt != call.Attempt:
		return fmt.Errorf("call %s has attempt %d, not %d", p.ID, call.Attempt, p.Attempt)
	}
	call.Detached = true
	return nil
}

// Handles lists the calls in the background that have not ended, oldest first.
func (s *State) Handles() []*CallState {
	return s.calls(func(c *CallState) bool { return c.Detached && c.Phase != PhaseDone })
}

// Untold lists the calls in the background that have ended, and of which the model has not
// read what they came to, oldest first.
func (s *State) Untold() []*CallState {
	return s.calls(func(c *CallState) bool { return c.Detached && c.Phase == PhaseDone && !c.Told })
}

// Outside lists the calls that go on outside, in the background too, oldest first.
func (s *State) Outside() []*CallState {
	return s.calls(func(c *CallState) bool { return c.Phase == PhaseDeferred })
}

func (s *State) calls(wanted func(*CallState) bool) []*CallState {
	var found []*CallState
	for i := range s.Transcript {
		for j := range s.Transcript[i].Calls {
			if call := &s.Transcript[i].Calls[j]; wanted(call) {
				found = append(found, call)
			}
		}
	}
	return found
}

// Live finds a call that still moves, with its turn: one of the open turn, or one in the
// background. It returns nil for none.
func (s *State) Live(id string) (*Turn, *CallState) {
	open := s.OpenTurn()
	for i := range s.Transcript {
		turn := &s.Transcript[i]
		if call := turn.call(id); call != nil && (turn == open || call.Detached && call.Phase != PhaseDone) {
			return turn, call
		}
	}
	return nil, nil
}

// checkAbout makes sure that a result which is about a call in the background says of it
// what is so.
func (s *State) checkAbout(call *CallState, p CallCompleted) error {
	if p.Of == "" {
		return nil
	}
	about := s.Call(p.Of)
	switch {
	case about == nil || !about.Detached:
		return fmt.Errorf("is about a call that is not in the background")
	case call.Attempt > 0 || !p.Final:
		return fmt.Errorf("was sent, and is no look at another call")
	case len(p.Value) == 0 && about.Phase != PhaseDone:
		return fmt.Errorf("gives the result of a call that has none")
	}
	return nil
}

// look notes that the model looked at a call in the background.
func (s *State) look(p CallCompleted) {
	if p.Of == "" {
		return
	}
	about := s.Call(p.Of)
	about.Looks++
	about.Told = about.Told || len(p.Value) == 0
}

// report notes that the model is told what calls in the background came to.
func (s *State) report(ids []string) error {
	for _, id := range ids {
		if call := s.Call(id); call == nil || !call.Detached || call.Phase != PhaseDone {
			return fmt.Errorf("call %s has nothing to tell", id)
		}
	}
	for _, id := range ids {
		s.Call(id).Told = true
	}
	return nil
}
