package openai

import (
	"encoding/json"
	"math"

	"github.com/pawl-run/pawl/internal/model"
)

// maxTokens is the largest count that is believed.
const maxTokens = 1_000_000_000

// readUsage reads the token counts. A report that is missing, negative, absurd or at
// odds with itself is no report: the caller then charges an estimate, because a wrong
// number in a budget is worse than a rough one.
func readUsage(value json.RawMessage) model.Usage {
	if value == nil {
		return model.Usage{}
	}
	report, err := parseObject(value)
	if err != nil {
		return model.Usage{}
	}
	input, inputOK := report.count("prompt_tokens")
	output, outputOK := report.count("completion_tokens")
	total, totalOK := report.count("total_tokens")
	cached, cachedOK := report.detail("prompt_tokens_details", "cached_tokens")
	reasoning, reasoningOK := report.detail("completion_tokens_details", "reasoning_tokens")
	if !inputOK || !outputOK || !totalOK || !cachedOK || !reasoningOK {
		return model.Usage{}
	}
	if total > 0 {
		if total < input+output {
			return model.Usage{}
		}
		// Some servers count reasoning in the total only.
		output = total - input
	}
	// No prompt is empty, so a 0 stands for "not counted".
	if input == 0 || cached > input || reasoning > output {
		return model.Usage{}
	}
	return model.Usage{
		InputTokens: input, OutputTokens: output,
		CacheReadTokens: cached, ReasoningTokens: reasoning,
		Reported: true,
	}
}

// count reads a number of tokens; a missing one is 0.
func (o object) count(name string) (int64, bool) {
	value := o.get(name)
	if value == nil {
		return 0, true
	}
	var n float64
	if json.Unmarshal(value, &n) != nil || n < 0 || n > maxTokens || n != math.Trunc(n) {
		return 0, false
	}
	return int64(n), true
}

// detail reads a number out of one of the report's own objects.
func (o object) detail(group, name string) (int64, bool) {
	value := o.get(group)
	if value == nil {
		return 0, true
	}
	details, err := parseObject(value)
	if err != nil {
		return 0, false
	}
	return details.count(name)
}
