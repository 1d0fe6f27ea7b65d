package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pawl-run/pawl/internal/model/openaiapi"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// reserved are the request members that may not come from parameters: what this
// package sets itself, what would change the reply into a shape (a stream, more than one
// choice, the older calling convention) that it does not read, and what has the vendor, or
// a server compatible with it, act by itself, past policy and journal.
var reserved = []string{
	"compound_custom", "data_sources", "enable_search", "function_call", "functions", "mcp_servers", "messages", "model",
	"n", "plugins", "search_parameters", "stream", "stream_options", "tool_choice", "tools", "web_search", "web_search_options",
}

// Members that bound a reply. Reasoning models refuse the older one, and many compatible
// servers know only that.
const (
	limitNewer = "max_completion_tokens"
	limitOlder = "max_tokens"
)

// ReservedParameters lists the members that parameters may not have, sorted.
func ReservedParameters() []string { return slices.Clone(reserved) }

// CheckParameters says what is wrong with parameters before any request is made. The
// error names members, never values.
func CheckParameters(parameters json.RawMessage) error {
	_, err := readParameters(parameters)
	return err
}

// parameters of a Model, by what they mean.
type parameters struct {
	// limitMember is the member that bounds a reply, empty for the one that fits.
	limitMember string
	// limit bounds every reply, beside what a request asks for.
	limit int32
	// body members are added to the request as they are.
	body wire.Object
}

// readParameters takes the bound of a reply out of the parameters. Whoever sets one says
// by its name which of the two the server takes: the name of a deployment, or of what a
// gateway routes to, tells nothing.
func readParameters(raw json.RawMessage) (parameters, error) {
	members, err := wire.ParseParameters(raw, reserved)
	if err != nil {
		return parameters{}, err
	}
	p := parameters{limit: math.MaxInt32, body: members}
	for _, name := range []string{limitNewer, limitOlder} {
		if !members.Has(name) {
			continue
		}
		tokens, ok := members.Count(name)
		switch {
		case p.limitMember != "":
			return parameters{}, errors.New("parameters: set one of max_completion_tokens and max_tokens, the one that the server takes")
		case !ok || tokens < 1:
			return parameters{}, fmt.Errorf("parameters: %s must be a whole number of tokens, at least 1", name)
		}
		p.limitMember, p.limit, p.body = name, int32(min(tokens, math.MaxInt32)), p.body.Without(name)
	}
	return p, nil
}

// outputLimitMember names the member that bounds a reply.
func outputLimitMember(config wire.Config, address openaiapi.Address) string {
	// A deployment's name says nothing of the model behind it, and all of them that are
	// still served take the newer member.
	if address.NamesDeployments() || openaiapi.ReasoningFamily(config.Model) {
		return limitNewer
	}
	return limitOlder
}
