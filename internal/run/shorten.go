package run

import (
	"fmt"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

// maxSummaries is how often the model is asked for a summary that it does not write.
const maxSummaries = 2

// shorten makes room when the next request would be too long: first older results are
// reduced to their beginnings, then older turns to a summary, and what is then still too
// long ends the run. Only whole turns are touched.
func shorten(f Facts, request model.Request) (Step, bool) {
	s := f.State
	switch {
	case s.Context.Clipped:
		return finish(f, "TokenBudgetExhausted", "a summary of the conversation was cut off by what was left of the token budget (maxTokens)"), true
	case s.Context.CostClipped:
		return finish(f, "CostBudgetExhausted", "a summary of the conversation was cut off by what was left of the cost budget (maxCost)"), true
	}
	limit := contextLimit(s)
	if limit == 0 || inputTokens(s, request) <= limit {
		return Step{}, false
	}
	if reduced, ok := reduce(s, limit); ok {
		return commit(reduced), true
	}
	if s.Context.Refused >= maxSummaries {
		return overflow(f, limit), true
	}
	// The newest turn stays as it is; of the others as many as one request can tell of.
	for through := s.Turns - 1; through > s.Context.Summarised; through-- {
		summary := prompt.Summarise(s, through)
		if inputTokens(s, summary) <= limit {
			step := afford(f, summary)
			step.Through = through
			return step, true
		}
	}
	return overflow(f, limit), true
}

func overflow(f Facts, limit int64) Step {
	return finish(f, "ContextOverflow", fmt.Sprintf("the conversation is longer than a request may be (%d tokens by estimate) and can't be shortened any more", limit))
}

// contextLimit is what a request may be estimated at: what the run says, less once the
// provider has found a request too long that we did not. 0 is no limit.
func contextLimit(s *journal.State) int64 {
	limit := s.Run.ContextTokens
	if s.TooLong > 0 {
		found := max(s.TooLong*3/4, 1)
		if limit == 0 || found < limit {
			limit = found
		}
	}
	return limit
}

// reduce finds how many of the newest results can stay whole. Half of the limit is aimed
// at, so that the next turns fit without another change; three quarters will do.
func reduce(s *journal.State, limit int64) (journal.ContextReduced, bool) {
	after := func(fullFrom int32) int64 {
		changed := *s
		changed.Context.Through, changed.Context.FullFrom = s.Turns, fullFrom
		return inputTokens(s, prompt.Project(&changed))
	}
	first := max(s.Context.FullFrom, s.Context.Summarised+1, 1)
	for fullFrom := first; fullFrom <= s.Turns+1; fullFrom++ {
		room := limit / 2
		if fullFrom >= s.Turns {
			room = limit * 3 / 4
		}
		changes := s.Context.Through < s.Turns || fullFrom > s.Context.FullFrom
		if changes && after(fullFrom) <= room {
			return journal.ContextReduced{Through: s.Turns, FullFrom: fullFrom}, true
		}
	}
	return journal.ContextReduced{}, false
}

// RecordSummary turns the reply to a request for a summary into an event. Only an answer
// in words is one; a request that left it no room is followed by a shorter one.
func RecordSummary(f Facts, asked Asked, reply model.Reply) Entry {
	d := normalise(reply)
	if d.Kind == model.KindOverflow {
		return recordOverflow(f, asked, reply)
	}
	event := journal.ContextSummarised{
		Through: asked.Through, StopReason: bounded(reply.StopReason, 64), RequestID: bounded(reply.RequestID, 128),
		Usage: charge(f.State, asked.Request, reply), Attempt: f.State.ModelAttempts + 1,
		DurationMillis: asked.Duration.Round(time.Millisecond).Milliseconds(),
		RequestDigest:  prompt.Digest(asked.Request), Projection: max(f.State.Run.Projection, 1), MaxOutputTokens: asked.lowered(),
	}
	switch {
	case d.Kind == model.KindFinal:
		event.Text = bounded(d.Text, prompt.MaxSummaryBytes)
	case d.Code == model.CodeCutOff:
		event.Clipped, event.CostClipped = asked.Clipped, asked.CostClipped
	}
	return Entry{Payload: event}
}
