package journal

import "fmt"

// Bounds of State.InputPerMille: an estimate is only ever corrected upwards, and not by
// more than text of any script or encoding takes.
const (
	minPerMille = 1000
	maxPerMille = 4000
	// calibrateFrom is the smallest estimate worth comparing: below it what the provider
	// adds by itself weighs more than what was sent.
	calibrateFrom = 1000
)

func (s *State) applyModelFailed(r Record, p ModelFailed) error {
	if !s.DecisionDue() {
		return fmt.Errorf("no decision is due")
	}
	s.ModelAttempts++
	s.ModelFailure, s.FailedAt = &p, r.Event.Time
	s.Usage = s.Usage.Add(p.Usage)
	if p.TooLong > 0 {
		// What is asked next is another request, and no repetition of this one.
		s.TooLong, s.ModelAttempts = p.TooLong, 0
	}
	return nil
}

// calibrate learns from a report how far estimates of this conversation are off.
func (s *State) calibrate(p DecisionMade) {
	if p.Usage.Estimated || p.RequestTokens < calibrateFrom {
		return
	}
	s.InputPerMille = min(max(p.Usage.InputTokens*1000/p.RequestTokens, minPerMille), maxPerMille)
}

func (s *State) applyContextReduced(_ Record, p ContextReduced) error {
	switch {
	case !s.DecisionDue():
		return fmt.Errorf("no decision is due")
	case p.Through > s.Turns || p.Through < s.Context.Through || p.FullFrom < 1 || p.FullFrom > p.Through+1:
		return fmt.Errorf("turns up to %d with results from %d on do not fit %d turns, %d of them told before", p.Through, p.FullFrom, s.Turns, s.Context.Through)
	case p.Through == s.Context.Through && p.FullFrom <= s.Context.FullFrom:
		return fmt.Errorf("nothing is reduced")
	}
	s.Context.Through, s.Context.FullFrom = p.Through, p.FullFrom
	s.shortened()
	return nil
}

func (s *State) applyContextSummarised(_ Record, p ContextSummarised) error {
	switch {
	case !s.DecisionDue():
		return fmt.Errorf("no decision is due")
	case p.Through > s.Turns || p.Through <= s.Context.Summarised:
		return fmt.Errorf("a summary through turn %d does not fit %d turns, %d of them summarised", p.Through, s.Turns, s.Context.Summarised)
	}
	s.Usage = s.Usage.Add(p.Usage)
	s.ModelAttempts = 0
	if p.Text == "" {
		s.Context.Refused++
		s.Context.Clipped, s.Context.CostClipped = p.Clipped, p.CostClipped
		return nil
	}
	s.Context.Summary, s.Context.Summarised, s.Context.Refused = p.Text, p.Through, 0
	// The newest turns are told too, whole: what the provider signed in them is bound to a
	// conversation that is no more.
	s.Context.Through = s.Turns
	s.Context.FullFrom = max(s.Context.FullFrom, p.Through+1)
	s.shortened()
	return nil
}

// shortened forgets that the conversation was too long: it is another one now.
func (s *State) shortened() {
	if s.ModelFailure != nil && s.ModelFailure.TooLong > 0 {
		s.ModelFailure = nil
	}
}
