package run

import (
	"slices"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/redaction"
	"github.com/pawl-run/pawl/internal/tool"
)

// redacted leaves out of an outcome what may not be stored: by what the policy said when
// the call was proposed, and by what it says now where that is known. Of a result that is
// not whole nothing is kept.
func redacted(f Facts, call journal.Call, outcome tool.Outcome) tool.Outcome {
	names := slices.Clone(call.Redact)
	if f.Policies != nil {
		names = append(names, f.Policies.Properties(call.Tool).Redact...)
	}
	paths := redaction.New(names)
	switch {
	case paths.None() || len(outcome.Value) == 0:
	case outcome.Truncated:
		outcome.Value = paths.Nothing()
	default:
		outcome.Value = paths.Apply(outcome.Value, outcome.Embedded)
	}
	return outcome
}
