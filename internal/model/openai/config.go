package openai

import (
	"encoding/json"
	"slices"

	"github.com/pawl-run/pawl/internal/model/wire"
)

// reserved are the request members that may not come from parameters: what this
// package sets itself, and what would change the reply into a shape (a stream, more
// than one choice, the older calling convention) that it does not read.
var reserved = []string{
	"function_call", "functions", "max_completion_tokens", "max_tokens", "messages", "model",
	"n", "stream", "stream_options", "tool_choice", "tools",
}

// ReservedParameters lists the members that parameters may not have, sorted.
func ReservedParameters() []string { return slices.Clone(reserved) }

// CheckParameters says what is wrong with parameters before any request is made. The
// error names members, never values.
func CheckParameters(parameters json.RawMessage) error {
	_, err := wire.ParseParameters(parameters, reserved)
	return err
}
