package anthropic

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/pawl-run/pawl/internal/model/wire"
)

// reserved are the request members that may not come from parameters: what this package
// sets itself, what would change the reply into a shape that it does not read, and
// servers, skills and plugins by which the provider would act by itself, past policy and
// journal.
var reserved = []string{
	"anthropic_version", "container", "max_tokens", "mcp_servers", "messages", "model", "plugins", "stream", "system", "tools",
}

// parameters of a Model, by where they go.
type parameters struct {
	// body members are added to the request as they are.
	body wire.Object
	// betas are the value of the anthropic-beta header. They are in the body as well,
	// where a platform wants them.
	betas []string
	// toolChoice goes with tools, and only with them.
	toolChoice json.RawMessage
	// budget of thinking that has one, 0 for none.
	budget int64
	// breakpoint marks the end of what the provider caches; nil caches nothing.
	breakpoint json.RawMessage
}

// ReservedParameters lists the members that parameters may not have, sorted.
func ReservedParameters() []string { return slices.Clone(reserved) }

// CheckParameters says what is wrong with parameters before any request is made. The
// error names members, never values.
func CheckParameters(raw json.RawMessage) error {
	_, err := readParameters(raw)
	return err
}

func readParameters(raw json.RawMessage) (parameters, error) {
	members, err := wire.ParseParameters(raw, reserved)
	if err != nil {
		return parameters{}, err
	}
	p := parameters{
		body:       members.Without("anthropic_beta").Without("tool_choice").Without("cache_control"),
		toolChoice: json.RawMessage(`{"type":"auto"}`),
		breakpoint: json.RawMessage(`{"type":"ephemeral"}`),
	}
	if members.Has("cache_control") {
		p.breakpoint = members.Get("cache_control")
	}
	if choice := members.Get("tool_choice"); choice != nil {
		// Any other choice would keep a run from ever giving its answer.
		if chosen, err := wire.ParseObject(choice); err != nil || string(chosen.Get("type")) != `"auto"` {
			return parameters{}, errors.New("parameters: tool_choice must have type auto: it is there for disable_parallel_tool_use")
		}
		p.toolChoice = choice
	}
	if thinking, err := wire.ParseObject(members.Get("thinking")); err == nil {
		p.budget, _ = thinking.Count("budget_tokens")
	}
	if p.betas, err = readBetas(members.Get("anthropic_beta")); err != nil {
		return parameters{}, err
	}
	return p, nil
}

// minThinking is the smallest budget that the provider takes.
const minThinking = 1024

// bodyFor are the members for a request whose reply is limited to so many tokens. The
// provider refuses a budget for thinking that is not below the limit, which near the end
// of a run's own budget may be lower than the Model's. Half of it is then for thinking,
// or nothing if that is too little.
func (p parameters) bodyFor(limit int32) wire.Object {
	if p.budget < int64(limit) {
		return p.body
	}
	half := limit / 2
	thinking, err := wire.ParseObject(p.body.Get("thinking"))
	if half < minThinking || err != nil {
		return p.body.Without("thinking")
	}
	budget := json.RawMessage(strconv.FormatInt(int64(half), 10))
	return p.body.With("thinking", thinking.With("budget_tokens", budget).Bytes())
}

func readBetas(value json.RawMessage) ([]string, error) {
	if value == nil {
		return nil, nil
	}
	var betas []string
	if json.Unmarshal(value, &betas) != nil || slices.ContainsFunc(betas, func(b string) bool { return !wire.IsCode(b) }) {
		return nil, errors.New("parameters: anthropic_beta must be a list of the names of betas")
	}
	return betas, nil
}
