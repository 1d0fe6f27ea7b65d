package journal

import (
	"strings"
	"testing"
)

// threeTurns are three whole turns without calls.
func threeTurns() []entry {
	invalid := say(DecisionMade{Kind: DecisionInvalid, Problem: "no", Usage: Usage{InputTokens: 10, OutputTokens: 5}})
	entries := begun()
	for range 3 {
		entries = append(entries, invalid, say(TurnCompleted{}))
	}
	return entries
}

func TestShortening(t *testing.T) {
	tooLong := say(ModelFailed{Attempt: 1, Class: "Overflow", TooLong: 900})
	entries := append(threeTurns(), tooLong,
		say(ContextReduced{Through: 3, FullFrom: 2}), say(ContextReduced{Through: 3, FullFrom: 4}),
		say(ContextSummarised{Through: 2, Usage: Usage{InputTokens: 7}}),
		say(ContextSummarised{Through: 2, Text: "so far", Usage: Usage{InputTokens: 7, OutputTokens: 2}}),
	)
	s := journalOf(t, entries...).State
	if want := (Shortened{Through: 3, FullFrom: 4, Summarised: 2, Summary: "so far"}); s.Context != want {
		t.Errorf("got %+v, want %+v", s.Context, want)
	}
	if s.TooLong != 900 || s.ModelFailure != nil || s.ModelAttempts != 0 || s.Turns != 3 || s.Usage.Total() != 45+16 {
		t.Errorf("too long %d, failure %v, attempts %d, turns %d, usage %d", s.TooLong, s.ModelFailure, s.ModelAttempts, s.Turns, s.Usage.Total())
	}
}

func TestShorteningRefusals(t *testing.T) {
	reduced := say(ContextReduced{Through: 2, FullFrom: 2})
	for name, test := range map[string]struct {
		entries []entry
		then    Payload
		want    string
	}{
		"turns that were not made":       {threeTurns(), ContextReduced{Through: 4, FullFrom: 1}, "do not fit 3 turns"},
		"no turn":                        {threeTurns(), ContextReduced{Through: 3}, "do not fit"},
		"fewer turns than before":        {append(threeTurns(), reduced), ContextReduced{Through: 1, FullFrom: 1}, "do not fit"},
		"the same again":                 {append(threeTurns(), reduced), ContextReduced{Through: 2, FullFrom: 2}, "nothing is reduced"},
		"while a turn is open":           {begun(proposed(callOf("a", ReadOnly, allowed))), ContextReduced{Through: 1, FullFrom: 1}, "no decision is due"},
		"a summary of nothing new":       {append(threeTurns(), say(ContextSummarised{Through: 2, Text: "x"})), ContextSummarised{Through: 2, Text: "y"}, "does not fit"},
		"a summary of turns not made":    {threeTurns(), ContextSummarised{Through: 4, Text: "x"}, "does not fit 3 turns"},
		"a summary while a turn is open": {begun(proposed(callOf("a", ReadOnly, allowed))), ContextSummarised{Through: 1, Text: "x"}, "no decision is due"},
		"a pause that has calls":         {begun(), DecisionMade{Kind: DecisionPaused, Calls: []Call{callOf("a", ReadOnly, allowed)}}, "has calls"},
	} {
		t.Run(name, func(t *testing.T) {
			draft := journalOf(t, test.entries...)
			before := *draft.State
			err := draft.Add(test.then, Meta{Time: beginning, ActiveMillis: draft.State.ActiveMillis})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if draft.State.Context != before.Context || draft.State.Events != before.Events {
				t.Error("the state has changed")
			}
		})
	}
}

func TestCalibration(t *testing.T) {
	for name, test := range map[string]struct {
		decision DecisionMade
		want     int64
	}{
		"a short request": {DecisionMade{RequestTokens: 999, Usage: Usage{InputTokens: 5000}}, 0},
		"an estimate":     {DecisionMade{RequestTokens: 2000, Usage: Usage{InputTokens: 5000, Estimated: true}}, 0},
		"more":            {DecisionMade{RequestTokens: 2000, Usage: Usage{InputTokens: 5000}}, 2500},
		"much more":       {DecisionMade{RequestTokens: 2000, Usage: Usage{InputTokens: 500_000}}, 4000},
		"less":            {DecisionMade{RequestTokens: 2000, Usage: Usage{InputTokens: 50}}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			test.decision.Kind = DecisionInvalid
			if got := journalOf(t, begun(say(test.decision))...).State.InputPerMille; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
