package run

import (
	"fmt"
	"math"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

// afford asks the model if the budgets allow the request with at least one token of
// reply, and lowers the reply's limit to what they allow. It is code that says no, before
// anything is spent.
func afford(f Facts, request model.Request) Step {
	s := f.State
	limits := s.Run.Limits
	input := inputTokens(s, request)
	reserved, _ := s.Reserved()
	tokens := limits.MaxTokens - s.TotalUsage().Total() - reserved - input
	if tokens < 1 {
		return finish(f, "TokenBudgetExhausted", fmt.Sprintf("%d of %d tokens are used and the next request would pass the limit (maxTokens)", s.TotalUsage().Total(), limits.MaxTokens))
	}
	paid := affordable(s, input)
	if paid < 1 {
		return finish(f, "CostBudgetExhausted", fmt.Sprintf("%s of %s USD are spent and the next request would pass the limit (maxCost)", s.TotalCost(), limits.MaxCost))
	}
	step := Step{Kind: AskModel, Request: request}
	if allowed := min(tokens, paid); allowed < int64(request.MaxOutputTokens) {
		step.Request.MaxOutputTokens = int32(allowed)
		step.Clipped, step.CostClipped = allowed == tokens, allowed != tokens
	}
	return step
}

// affordable is how many tokens of reply the cost budget allows after a request of so
// much input.
func affordable(s *journal.State, input int64) int64 {
	prices, limit := s.Run.Model.Prices, s.Run.Limits.MaxCost
	if limit == "" || prices == nil {
		return math.MaxInt64
	}
	// All of the input might have to be written to a cache, which can cost more.
	dearest := max(prices.Cost(journal.Usage{InputTokens: input}), prices.Cost(journal.Usage{InputTokens: input, CacheWriteTokens: input}))
	_, reserved := s.Reserved()
	left := journal.ParseCost(limit) - s.TotalCost() - reserved - dearest
	price := prices.Cost(journal.Usage{OutputTokens: 1})
	switch {
	case left < 0:
		return 0
	case price == 0:
		return math.MaxInt64
	default:
		return int64(left / price)
	}
}

// inputTokens is the estimate of a request, corrected by what the provider counted for
// the conversation before.
func inputTokens(s *journal.State, request model.Request) int64 {
	return prompt.EstimateTokens(request) * max(s.InputPerMille, 1000) / 1000
}
