package gemini

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/model/wire/vertex"
)

// DefaultEndpoint is the vendor's public root.
const DefaultEndpoint = "https://generativelanguage.googleapis.com/v1beta"

// operation asks for one whole reply.
const operation = "generateContent"

// settings is the member that holds most of what can be set, the output limit among it.
const settings = "generationConfig"

// reserved are the request members that may not come from parameters: what this package
// sets itself, and what is cached at the vendor with tools and instructions of its own,
// under both names that the vendor reads.
var reserved = []string{
	"cachedContent", "cached_content", "contents", "generation_config", "model", "systemInstruction", "system_instruction",
	"toolConfig", "tool_config", "tools",
}

// reservedSettings are those within generationConfig: the output limit, and what would
// bring more than one reply.
var reservedSettings = []string{"candidateCount", "candidate_count", "maxOutputTokens", "max_output_tokens"}

// ReservedParameters lists the members that parameters may not have, sorted.
func ReservedParameters() []string { return slices.Clone(reserved) }

// CheckParameters says what is wrong with parameters before any request is made. The
// error names members, never values.
func CheckParameters(parameters json.RawMessage) error {
	_, err := parseParameters(parameters)
	return err
}

// parameters are a Model's, taken apart.
type parameters struct {
	settings wire.Object
	others   wire.Object
}

func parseParameters(raw json.RawMessage) (parameters, error) {
	all, err := wire.ParseParameters(raw, reserved)
	if err != nil {
		return parameters{}, err
	}
	p := parameters{others: all.Without(settings)}
	if p.settings, err = wire.ParseParameters(all.Get(settings), reservedSettings); err != nil {
		return parameters{}, fmt.Errorf("in %s: %w", settings, err)
	}
	return p, nil
}

// requestURL is where the operation of the model is.
func requestURL(config wire.Config) (string, error) {
	name := strings.TrimPrefix(config.Model, "models/")
	switch platform := config.Platform; {
	case platform.Vertex != nil:
		return vertex.ModelURL(config.Endpoint, *platform.Vertex, vertex.PublisherGoogle, name, operation)
	case platform.Name() != "":
		return "", fmt.Errorf("platform %s does not serve provider Gemini", platform.Name())
	}
	endpoint := config.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	u, err := wire.ParseEndpoint(endpoint, ":"+operation)
	if err != nil {
		return "", err
	}
	return u.JoinPath("models", url.PathEscape(name)+":"+operation).String(), nil
}

// signsCalls reports whether a model refuses the first call of a step without a
// signature. The third generation was the first to.
func signsCalls(name string) bool { return signingFamily.MatchString(name) }

var signingFamily = regexp.MustCompile(`(^|/)gemini-([3-9]|[1-9][0-9])([^0-9]|$)`)
