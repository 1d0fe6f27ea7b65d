package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// Defaults of a tool's properties; those in the schema are repeated for objects that
// were never defaulted.
const (
	defaultTimeoutSeconds     = 30
	defaultMaxResultBytes     = 64 << 10
	defaultMaxAttempts        = 3
	defaultKeyLifetimeSeconds = 86400
)

// Properties are what applies to one tool, all defaults resolved.
type Properties struct {
	// Entry names the element of spec.tools that they come from, as in
	// "support-tools: tools[2]"; empty when none matches the tool.
	Entry string
	// Effect of a call. Default NonIdempotent.
	Effect v1alpha1.Effect
	// Execution inside a batch. Default Sequential.
	Execution v1alpha1.Execution
	// TimeoutSeconds bounds one attempt. Default 30.
	TimeoutSeconds int32
	// MaxResultBytes bounds what is read of a result. Default 65536.
	MaxResultBytes int32
	// IncludeBinary keeps binary content of a result instead of a description of it.
	IncludeBinary bool
	// MaxAttempts bounds the attempts at one call. Default 3. Always 1 for NonIdempotent.
	MaxAttempts int32
	// MaxCallsPerRun bounds the calls of one run; 0 means no bound of its own.
	MaxCallsPerRun int32
	// RequestsPerMinute bounds the attempts begun in a minute by all runs; 0 means no bound.
	RequestsPerMinute int32
	// IdempotencyKeyLifetimeSeconds is how long the service remembers an effect key.
	// Default 86400 for Idempotent, 0 for every other effect.
	IdempotencyKeyLifetimeSeconds int32
	// Required ends the run when the tool can't be reached.
	Required bool
	// IgnoreForProgress lists members left out when results are compared.
	IgnoreForProgress []string
	// Redact lists as JSONPath what is left out of results.
	Redact []string
	// Reconcile is where effects are looked up, nil for nowhere.
	Reconcile *v1alpha1.EffectReconcile
	// HasConflictKey is true when Set.ConflictKey has something to evaluate.
	HasConflictKey bool
}

// resolve fills in the defaults of one element of spec.tools.
func resolve(name string, spec v1alpha1.ToolProperties) Properties {
	p := Properties{
		Entry:             name,
		Effect:            cmp.Or(spec.Effect, v1alpha1.EffectNonIdempotent),
		Execution:         cmp.Or(spec.Execution, v1alpha1.ExecutionSequential),
		TimeoutSeconds:    cmp.Or(spec.TimeoutSeconds, defaultTimeoutSeconds),
		IncludeBinary:     spec.BinaryContent == v1alpha1.BinaryContentInclude,
		MaxResultBytes:    cmp.Or(spec.MaxResultBytes, defaultMaxResultBytes),
		MaxAttempts:       cmp.Or(spec.MaxAttempts, defaultMaxAttempts),
		MaxCallsPerRun:    spec.MaxCallsPerRun,
		RequestsPerMinute: spec.RequestsPerMinute,
		Required:          spec.Required,
		IgnoreForProgress: slices.Clone(spec.IgnoreForProgress),
		Redact:            slices.Clone(spec.Redact),
		Reconcile:         spec.Reconcile.DeepCopy(),
		HasConflictKey:    spec.ConflictKey != "",
	}
	switch p.Effect {
	case v1alpha1.EffectReadOnly:
	case v1alpha1.EffectIdempotent:
		p.IdempotencyKeyLifetimeSeconds = cmp.Or(spec.IdempotencyKeyLifetimeSeconds, defaultKeyLifetimeSeconds)
	default:
		p.Effect = v1alpha1.EffectNonIdempotent
		p.MaxAttempts = 1
	}
	return p
}

// propertiesOf finds the first element of spec.tools that matches, or the defaults.
func (p *Policy) propertiesOf(tool string) entry {
	for _, e := range p.properties {
		if matchesAny(e.globs, tool) {
			return e
		}
	}
	return entry{resolved: resolve("", v1alpha1.ToolProperties{})}
}

func entryName(policy string, index int) string { return fmt.Sprintf("%s: tools[%d]", policy, index) }
