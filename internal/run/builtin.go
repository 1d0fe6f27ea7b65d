package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// Names of the built-in tools, by which the model turns to people.
const (
	ToolAsk             = "ask"
	ToolRequestApproval = "request_approval"
	ToolCannotContinue  = "cannot_continue"
)

// BuiltInTools are offered to the model where spec.humanInput is Enabled.
func BuiltInTools() []journal.Tool {
	return []journal.Tool{
		builtInTool(ToolAsk, "Ask a person one question and wait for the answer. Use it only when you can't go on without it. It must be the only call of your reply.",
			`{"type":"object","properties":{"question":{"type":"string","minLength":1,"maxLength":4096}},"required":["question"],"additionalProperties":false}`),
		builtInTool(ToolRequestApproval, "Ask a person to approve what you intend to do, before you do it. List the exact calls. It must be the only call of your reply.",
			`{"type":"object","properties":{"text":{"type":"string","minLength":1,"maxLength":4096},"calls":{"type":"array","maxItems":64,"items":{"type":"object","properties":{"tool":{"type":"string"},"arguments":{"type":"object","additionalProperties":true}},"required":["tool","arguments"],"additionalProperties":false}}},"required":["text"],"additionalProperties":false}`),
		builtInTool(ToolCannotContinue, "Give up, with the reason. It must be the only call of your reply.",
			`{"type":"object","properties":{"reason":{"type":"string","minLength":1,"maxLength":4096}},"required":["reason"],"additionalProperties":false}`),
	}
}

// ReadTool is offered beside other tools: it gives what was cut of their results, or
// reduced when the conversation was shortened.
func ReadTool() journal.Tool {
	return builtInTool(prompt.ReadResult, "Read on in the result of an earlier call, where it was cut or is given by its beginning only.",
		`{"type":"object","properties":{"call":{"type":"string","minLength":1,"maxLength":64,"description":"The id of the earlier call."},"offset":{"type":"integer","minimum":0,"description":"Where to begin, in bytes."}},"required":["call"],"additionalProperties":false}`)
}

// pageOf is what read_result is called with.
type pageOf struct {
	Call   string `json:"call"`
	Offset int64  `json:"offset"`
}

func readsResult(call *journal.CallState) bool {
	return call.Phase == journal.PhasePrepared && call.Call.Tool == prompt.ReadResult && call.Call.Invalid == ""
}

func pageInput(call *journal.CallState) (input pageOf, ok bool) {
	err := json.Unmarshal(ArgumentBytes(call.Call.Arguments), &input)
	return input, err == nil
}

// readAgain answers calls of read_result out of the journal and its artifacts. Nothing is
// sent, so nothing is asked of policy or people.
func readAgain(f Facts, turn *journal.Turn) (Step, bool) {
	if artifacts := missing(f, turn); len(artifacts) > 0 {
		return Step{Kind: Fetch, Artifacts: artifacts}, true
	}
	var payloads []journal.Payload
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if !readsResult(call) {
			continue
		}
		result := journal.CallCompleted{ID: call.Call.ID, Final: true, Class: "ok"}
		if page, problem := pageFor(f, call); problem != "" {
			result.Class, result.Message = "tool_error", problem
		} else {
			result.Value = jsonString(page)
		}
		result.ResultDigest = resultDigest(f, call, result)
		result.Repeats = repeatsOf(f.State, call.Call.PlanDigest, result.ResultDigest)
		payloads = append(payloads, result)
	}
	if what := repetition(f.State, turn, f.State.Run.Limits.MaxRepeatedPlans); len(payloads) > 0 && what != "" {
		return finish(f, "NoProgress", what), true
	}
	return commit(payloads...), len(payloads) > 0
}

func pageFor(f Facts, call *journal.CallState) (page, problem string) {
	input, ok := pageInput(call)
	if !ok {
		return "", "the arguments can't be read"
	}
	var whole Fetched
	if artifact := prompt.Kept(f.State, input.Call); artifact != nil {
		whole = f.Fetched[artifact.Digest]
	}
	if whole.Problem != "" {
		return "", whole.Problem
	}
	return prompt.Page(f.State, input.Call, input.Offset, whole.Text)
}

func builtInTool(name, description, schema string) journal.Tool {
	return journal.Tool{Name: name, Alias: name, Description: description, InputSchema: json.RawMessage(schema),
		Digest: strictjson.Digest([]byte(name + "\n" + description + "\n" + schema))}
}

func builtIn(f Facts, alias string) bool {
	switch alias {
	case ToolAsk, ToolRequestApproval, ToolCannotContinue:
		return f.State.Run.HumanInput && findTool(f.State.Run.Tools, alias) != nil
	default:
		return false
	}
}

// decideBuiltIn reads a reply whose only call is of a built-in tool.
func decideBuiltIn(f Facts, decision *journal.DecisionMade, proposed model.Call) {
	call := identify(f, []model.Call{proposed}, 0)
	call.Tool = proposed.Alias
	decision.Calls = []journal.Call{call}
	var input struct {
		Question string `json:"question"`
		Text     string `json:"text"`
		Reason   string `json:"reason"`
		Calls    []struct {
			Tool      string          `json:"tool"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"calls"`
	}
	entry := findTool(f.State.Run.Tools, proposed.Alias)
	_, err := checkArguments(entry.InputSchema, proposed.Arguments)
	if err == nil {
		err = json.Unmarshal(ArgumentBytes(proposed.Arguments), &input)
	}
	if err != nil {
		decision.Kind, decision.Code, decision.Problem = journal.DecisionInvalid, CodeCalls, err.Error()
		decision.Calls[0].Invalid = err.Error()
		return
	}
	switch proposed.Alias {
	case ToolAsk:
		decision.Kind, decision.Text = journal.DecisionQuestion, input.Question
	case ToolCannotContinue:
		decision.Kind, decision.Text = journal.DecisionCannotContinue, input.Reason
	case ToolRequestApproval:
		decision.Kind, decision.Text = journal.DecisionRequestApproval, input.Text
		for _, intended := range input.Calls {
			decision.Intents = append(decision.Intents, intent(f, intended.Tool, intended.Arguments))
		}
	}
}

// intent names the tool by its full name where the model used the alias, so that the
// approver and a later call mean the same.
func intent(f Facts, name string, arguments json.RawMessage) journal.Intent {
	if entry := findTool(f.State.Run.Tools, name); entry != nil {
		name = entry.Name
	}
	announced := journal.Intent{Tool: bounded(name, 256), Arguments: string(arguments), ArgumentsDigest: strictjson.Digest(arguments)}
	if parsed, err := parseArguments(announced.Arguments); err == nil {
		announced.PlanDigest = planDigest(announced.Tool, parsed)
	}
	return announced
}

// ArgumentBytes are the bytes that schema, policy, approval and executor all see.
func ArgumentBytes(text string) []byte {
	if strings.TrimSpace(text) == "" {
		return []byte("{}")
	}
	return []byte(text)
}

// Aliases gives each tool a name that every provider accepts: its own where that is
// legal and nobody else's, else one with the server's name, shortened and made unique
// by a digest where it must be.
func Aliases(names []string) map[string]string {
	taken := map[string]bool{ToolAsk: true, ToolRequestApproval: true, ToolCannotContinue: true, prompt.ReadResult: true, prompt.CheckCall: true}
	count := map[string]int{}
	for _, name := range names {
		count[shortAlias(name)]++
	}
	aliases := map[string]string{}
	for _, name := range names {
		alias := shortAlias(name)
		if count[alias] > 1 || taken[alias] {
			alias = safeAlias(name)
		}
		if taken[alias] || len(alias) > maxAlias {
			digest := strings.TrimPrefix(strictjson.Digest([]byte(name)), "sha256:")
			alias = fmt.Sprintf("%s_%s", alias[:min(len(alias), maxAlias-9)], digest[:8])
		}
		taken[alias] = true
		aliases[name] = alias
	}
	return aliases
}

const maxAlias = 64

func shortAlias(name string) string {
	if _, own, ok := strings.Cut(name, "."); ok {
		return safeAlias(own)
	}
	return safeAlias(name)
}

// safeAlias keeps [a-zA-Z0-9_-] and starts with a letter or underscore.
func safeAlias(name string) string {
	alias := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, name)
	if alias == "" || alias[0] == '-' || (alias[0] >= '0' && alias[0] <= '9') {
		alias = "_" + alias
	}
	return alias
}
