package openai

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model/wire"
)

// DefaultEndpoint is the vendor's public root.
const DefaultEndpoint = "https://api.openai.com/v1"

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

// requestURL appends the operation to the endpoint.
func requestURL(endpoint string) (string, error) {
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	u, err := wire.ParseEndpoint(endpoint)
	if err != nil {
		return "", err
	}
	u.Path += "/chat/completions"
	return u.String(), nil
}

// limitsDescriptions reports whether the server refuses long tool descriptions. The
// vendor does; cutting them for everybody would take text from models that could
// have read it.
func limitsDescriptions(requestURL string) bool {
	u, err := url.Parse(requestURL)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return strings.HasSuffix(host, ".openai.com") || strings.HasSuffix(host, ".azure.com")
}
