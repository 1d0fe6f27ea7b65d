package gemini

import (
	"encoding/json"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// readUsage reads the token counts. The wire counts thoughts beside the candidates, the
// results of its own tools beside the prompt, and cached tokens in the prompt. A report
// that is missing, negative, absurd or at odds with itself is no report.
func readUsage(value json.RawMessage) model.Usage {
	if value == nil {
		return model.Usage{}
	}
	report, err := wire.ParseObject(value)
	if err != nil {
		return model.Usage{}
	}
	prompt, promptOK := report.Count("promptTokenCount")
	tools, toolsOK := report.Count("toolUsePromptTokenCount")
	cached, cachedOK := report.Count("cachedContentTokenCount")
	answer, answerOK := report.Count("candidatesTokenCount")
	thoughts, thoughtsOK := report.Count("thoughtsTokenCount")
	total, totalOK := report.Count("totalTokenCount")
	if !promptOK || !toolsOK || !cachedOK || !answerOK || !thoughtsOK || !totalOK {
		return model.Usage{}
	}
	usage := model.Usage{
		InputTokens: prompt + tools, OutputTokens: answer + thoughts,
		CacheReadTokens: cached, ReasoningTokens: thoughts, Reported: true,
	}
	if total > 0 {
		if total < usage.InputTokens+usage.OutputTokens {
			return model.Usage{}
		}
		// What only the total counts was charged, too.
		usage.OutputTokens = total - usage.InputTokens
	}
	if prompt == 0 || cached > prompt || !wire.Believable(usage) {
		return model.Usage{}
	}
	return usage
}
