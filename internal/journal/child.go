package journal

import (
	"fmt"
	"math"
)

// Lineage says of a child run where it comes from.
type Lineage struct {
	// Parent is the name of the run whose call it is, ParentUID its UID.
	Parent    string `json:"parent"`
	ParentUID string `json:"parentUID"`
	// Root is the name of the run at the top, RootUID its UID.
	Root    string `json:"root"`
	RootUID string `json:"rootUID"`
	// Depth is its level; the top has level 1.
	Depth int32 `json:"depth"`
}

// Budget is what a child run may spend: as its declaration says, or as it was reserved out
// of what its parent has left.
type Budget struct {
	Tokens int64 `json:"tokens"`
	// Cost in US dollars as a decimal, empty for no bound.
	Cost string `json:"cost,omitempty"`
	// ActiveSeconds and DeadlineSeconds bound its work, and all of its time.
	ActiveSeconds   int32 `json:"activeSeconds"`
	DeadlineSeconds int32 `json:"deadlineSeconds"`
}

// Spent is what a child run, with the runs below it, has cost its parent.
type Spent struct {
	Usage Usage `json:"usage"`
	// Cost is exact, and of the prices of the children's own Models.
	Cost Cost `json:"cost,omitempty"`
}

// Level is the run's level in its tree, 1 for one that is no child.
func (s *State) Level() int32 {
	if s.Run == nil || s.Run.Lineage == nil {
		return 1
	}
	return s.Run.Lineage.Depth
}

// TotalUsage is what the run and its children have used.
func (s *State) TotalUsage() Usage { return s.Usage.Add(s.Children.Usage) }

// TotalCost is what the run and its children have cost.
func (s *State) TotalCost() Cost {
	if s.Run == nil {
		return s.Children.Cost
	}
	return s.Run.Model.Prices.Cost(s.Usage).Add(s.Children.Cost)
}

// Reserved is what child runs may still spend that were sent and have no result.
func (s *State) Reserved() (tokens int64, cost Cost) {
	for i := range s.Transcript {
		for j := range s.Transcript[i].Calls {
			call := &s.Transcript[i].Calls[j]
			if call.Budget == nil || call.Phase == PhaseDone || call.Charged {
				continue
			}
			tokens += call.Budget.Tokens
			cost = cost.Add(ParseCost(call.Budget.Cost))
		}
	}
	return tokens, cost
}

// Add is the sum of two amounts, at most the largest one.
func (c Cost) Add(d Cost) Cost {
	if c > math.MaxInt64-d {
		return math.MaxInt64
	}
	return c + d
}

// checkBudgets makes sure that the children which are about to be sent can't spend more
// than the run has left, all together.
func (s *State) checkBudgets(turn *Turn, dispatches []Dispatch) error {
	tokens, cost := s.Reserved()
	reserves := false
	for _, dispatch := range dispatches {
		call := turn.call(dispatch.ID)
		known, granted := call.Budget, dispatch.Budget
		switch {
		case (call.Call.Child == nil) != (granted == nil):
			return fmt.Errorf("call %s: only child runs have a budget, and each of them has one", dispatch.ID)
		case granted == nil:
		case known != nil && *known != *granted:
			return fmt.Errorf("call %s: has another budget than before", dispatch.ID)
		case known == nil:
			reserves = true
			tokens += granted.Tokens
			cost = cost.Add(ParseCost(granted.Cost))
		}
	}
	limits := s.Run.Limits
	switch {
	case !reserves:
		return nil
	case tokens > limits.MaxTokens-s.TotalUsage().Total():
		return fmt.Errorf("the budgets of children pass what is left of maxTokens")
	case limits.MaxCost != "" && cost.Add(s.TotalCost()) > ParseCost(limits.MaxCost):
		return fmt.Errorf("the budgets of children pass what is left of maxCost")
	}
	return nil
}

// charge adds what a child has spent, once.
func (s *State) charge(call *CallState, spent *Spent) {
	if spent == nil {
		return
	}
	call.Charged = true
	s.Children.Usage = s.Children.Usage.Add(spent.Usage)
	s.Children.Cost = s.Children.Cost.Add(spent.Cost)
}

// checkSpent makes sure that nothing is charged twice.
func (c *CallState) checkSpent(p CallCompleted) error {
	switch {
	case p.Spent == nil:
		return nil
	case c.Budget == nil:
		return fmt.Errorf("has spent something and is no child run")
	case c.Charged:
		return fmt.Errorf("was charged already")
	case p.Spent.Usage.InputTokens < 0 || p.Spent.Usage.OutputTokens < 0 || p.Spent.Cost < 0:
		return fmt.Errorf("gives back more than it was given")
	}
	return nil
}
