package anthropic

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// readUsage reads the token counts. On this wire what was read from a cache, written to
// one and neither are three counts, and together they are the input. A report that is
// missing, negative, absurd or at odds with itself is no report.
func readUsage(value json.RawMessage) model.Usage {
	if value == nil {
		return model.Usage{}
	}
	report, err := wire.ParseObject(value)
	if err != nil {
		return model.Usage{}
	}
	usage, ok := readCounts(report)
	if !ok {
		return model.Usage{}
	}
	summary, ok := readCompactions(report.Get("iterations"))
	if !ok {
		return model.Usage{}
	}
	usage = sum(usage, summary)
	if !wire.Believable(usage) {
		return model.Usage{}
	}
	usage.Reported = true
	return usage
}

func readCounts(report wire.Object) (model.Usage, bool) {
	fresh, freshOK := report.Count("input_tokens")
	read, readOK := report.Count("cache_read_input_tokens")
	written, writtenOK := report.Count("cache_creation_input_tokens")
	output, outputOK := report.Count("output_tokens")
	reasoning, reasoningOK := report.Detail("output_tokens_details", "thinking_tokens")
	usage := model.Usage{
		InputTokens: fresh + read + written, OutputTokens: output,
		CacheReadTokens: read, CacheWriteTokens: written, ReasoningTokens: reasoning,
	}
	return usage, freshOK && readOK && writtenOK && outputOK && reasoningOK
}

// readCompactions adds up what the provider's own summaries of the conversation cost. The
// counts of the whole reply leave them out.
func readCompactions(iterations json.RawMessage) (model.Usage, bool) {
	var total model.Usage
	list, ok := wire.List(iterations)
	if !ok {
		return total, false
	}
	for _, raw := range list {
		iteration, err := wire.ParseObject(raw)
		if err != nil {
			return total, false
		}
		if kind, _ := iteration.Text("type"); kind != stopCompaction {
			continue
		}
		usage, ok := readCounts(iteration)
		if !ok {
			return total, false
		}
		total = sum(total, usage)
	}
	return total, true
}

func sum(a, b model.Usage) model.Usage {
	return model.Usage{
		InputTokens: a.InputTokens + b.InputTokens, OutputTokens: a.OutputTokens + b.OutputTokens,
		CacheReadTokens: a.CacheReadTokens + b.CacheReadTokens, CacheWriteTokens: a.CacheWriteTokens + b.CacheWriteTokens,
		ReasoningTokens: a.ReasoningTokens + b.ReasoningTokens,
	}
}
