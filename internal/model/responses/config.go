package responses

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// reserved are the request members that may not come from parameters: what this package
// sets itself, what would keep state at the vendor, what would change the reply into a
// shape (a stream, a promise) that it does not read, and what is stored at a vendor with
// tools that it calls by itself, past policy and journal: prompts and agents.
var reserved = []string{
	"agent", "agent_reference", "background", "conversation", "input", "instructions", "max_output_tokens", "mcp_servers", "model",
	"plugins", "previous_response_id", "prompt", "search_parameters", "store", "stream", "stream_options", "tool_choice", "tools",
}

// ReservedParameters lists the members that parameters may not have, sorted.
func ReservedParameters() []string { return slices.Clone(reserved) }

// CheckParameters says what is wrong with parameters before any request is made. The
// error names members, never values.
func CheckParameters(parameters json.RawMessage) error {
	_, err := wire.ParseParameters(parameters, reserved)
	return err
}

// includesReasoning reports whether to ask for what the model has thought. Models that
// don't reason refuse to be asked. Where the name does not tell, such as that of a
// deployment, settings for reasoning do; and whoever sets include himself is right.
func includesReasoning(name string, parameters wire.Object) bool {
	switch {
	case parameters.Has("include"):
		return false
	case parameters.Get("reasoning") != nil:
		return true
	default:
		// The one of its family that does not reason.
		return openaiapi.ReasoningFamily(name) && !strings.Contains(strings.ToLower(name), "gpt-5-chat")
	}
}
