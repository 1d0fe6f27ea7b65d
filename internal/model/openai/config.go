package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultEndpoint is the vendor's public root.
	DefaultEndpoint = "https://api.openai.com/v1"
	// DefaultTimeout bounds a request where Config doesn't.
	DefaultTimeout = 2 * time.Minute
	// DefaultMaxReplyBytes bounds a reply where Config doesn't.
	DefaultMaxReplyBytes = 8 << 20
)

// Config says how to reach one model.
type Config struct {
	// Endpoint is the base URL that /chat/completions is appended to. Empty for
	// DefaultEndpoint.
	Endpoint string
	// Model is the provider's own model name.
	Model string
	// APIKey is asked once per request, so that a rotated key takes effect. Nil for
	// servers without authentication. Its error must not hold the key.
	APIKey func() (string, error)
	// CABundle holds PEM certificates that are trusted instead of the system's.
	CABundle []byte
	// Timeout bounds a request from its first byte sent to its last byte read. 0 or
	// less for DefaultTimeout.
	Timeout time.Duration
	// Parameters is a JSON object whose members are added to each request.
	Parameters json.RawMessage
	// Transport replaces the client's own, CABundle included. It must not retry.
	Transport http.RoundTripper
	// MaxReplyBytes bounds what is read of a reply. 0 or less for DefaultMaxReplyBytes.
	MaxReplyBytes int64
	// Now is the clock that Retry-After dates are compared with. Nil for time.Now.
	Now func() time.Time
}

// reserved are the request members that may not come from parameters: what this
// package sets itself, and what would change the reply into a shape (a stream, more
// than one choice, the older calling convention) that it does not read.
var reserved = []string{
	"function_call", "functions", "max_completion_tokens", "max_tokens", "messages", "model",
	"n", "stream", "stream_options", "tool_choice", "tools",
}

// ReservedParameters lists the members that Config.Parameters may not have, sorted.
func ReservedParameters() []string { return slices.Clone(reserved) }

// CheckParameters says what is wrong with parameters before any request is made. The
// error names members, never values.
func CheckParameters(parameters json.RawMessage) error {
	_, err := parseParameters(parameters)
	return err
}

// parseParameters returns the members sorted by name, so that equal settings give
// equal bytes whatever order they were written in.
func parseParameters(parameters json.RawMessage) (object, error) {
	if len(parameters) == 0 || isNull(parameters) {
		return nil, nil
	}
	members, err := parseObject(parameters)
	if err != nil {
		return nil, fmt.Errorf("parameters must be a JSON object: %w", err)
	}
	var taken []string
	for _, m := range members {
		if slices.Contains(reserved, m.name) {
			taken = append(taken, m.name)
		}
	}
	slices.Sort(taken)
	if len(taken) > 0 {
		return nil, fmt.Errorf("parameters may not set %s: remove what is set by the operator", strings.Join(taken, ", "))
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return members, nil
}

// requestURL appends the operation to the endpoint.
func requestURL(endpoint string) (string, error) {
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		// The parser's own text repeats the input, which may hold a password.
		return "", errors.New("endpoint is not a URL")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errors.New("endpoint must be an absolute http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errors.New("endpoint may not have a user, a query or a fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/chat/completions"
	u.RawPath = ""
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
