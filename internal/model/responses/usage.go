package responses

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// readUsage reads the token counts. A report that is missing, negative, absurd or at odds
// with itself is no report: the caller then charges an estimate, because a wrong number in
// a budget is worse than a rough one.
func readUsage(value json.RawMessage) model.Usage {
	if value == nil {
		return model.Usage{}
	}
	report, err := wire.ParseObject(value)
	if err != nil {
		return model.Usage{}
	}
	input, inputOK := report.Count("input_tokens")
	output, outputOK := report.Count("output_tokens")
	total, totalOK := report.Count("total_tokens")
	cached, cachedOK := report.Detail("input_tokens_details", "cached_tokens")
	written, writtenOK := report.Detail("input_tokens_details", "cache_write_tokens")
	reasoning, reasoningOK := report.Detail("output_tokens_details", "reasoning_tokens")
	if !inputOK || !outputOK || !totalOK || !cachedOK || !writtenOK || !reasoningOK {
		return model.Usage{}
	}
	if total > 0 {
		if total < input+output {
			return model.Usage{}
		}
		// Some servers count reasoning in the total only.
		output = total - input
	}
	usage := model.Usage{
		InputTokens: input, OutputTokens: output,
		CacheReadTokens: cached, CacheWriteTokens: written, ReasoningTokens: reasoning,
		Reported: true,
	}
	if !wire.Believable(usage) {
		return model.Usage{}
	}
	return usage
}
