package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Stop reasons of the wire.
const (
	stopEnd           = "stop"
	stopLength        = "length"
	stopCalls         = "tool_calls"
	stopContentFilter = "content_filter"
	stopFunctionCall  = "function_call"
	// stopContext is Z.AI's.
	stopContext = "model_context_window_exceeded"
)

// stopsElsewhere are what servers compatible with the wire say for stopEnd.
var stopsElsewhere = []string{"eos", "eos_token", "stop_sequence"}

// Decode normalises the body of a successful response. It is total: whatever the
// bytes are, the result is a reply, and calls are in it only if the reply as a whole
// makes sense. Raw is set for answers and calls only, so that the calls of a refused
// or broken reply can't come back through the conversation.
func Decode(body []byte) model.Reply {
	return decode(body, nil)
}

// decode is Decode in a conversation that already has the used call ids.
func decode(body []byte, used map[string]bool) model.Reply {
	top, problem := wire.ParseBody(body)
	if problem != "" {
		return wire.Malformed(problem)
	}
	reply := model.Reply{Usage: readUsage(top.Get("usage"))}
	if id, ok := top.Text("id"); ok {
		reply.RequestID = wire.SupportID(id)
	}
	choice, problem := firstChoice(top)
	if problem != "" {
		reply.Decision = wire.Invalid(model.CodeMalformed, problem)
		return reply
	}
	reply.StopReason = wire.StopReason(choice.stop)
	reply.Decision = choice.decide(used)
	if k := reply.Decision.Kind; k == model.KindFinal || k == model.KindCalls {
		wire.Keep(&reply, echoMessage(choice.raw, choice.message, choice.calls))
	}
	return reply
}

// choice is the first choice of a reply, read as far as it can be. What is wrong with
// a part is kept beside it, because it may not matter: the calls of a reply that was
// cut off are of no interest.
type choice struct {
	stop    string
	raw     json.RawMessage
	message wire.Object
	content content
	calls   []proposal
	problem string
}

// firstChoice finds the message. A reply that holds several choices was not asked
// for; the first is as good as any.
func firstChoice(top wire.Object) (choice, string) {
	value := top.Get("choices")
	if value == nil {
		return choice{}, "it has no choices"
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		return choice{}, "choices is not a list"
	}
	if len(list) == 0 {
		return choice{}, "choices is empty"
	}
	first, err := wire.ParseObject(list[0])
	if err != nil {
		return choice{}, "its choice: " + err.Error()
	}
	stop, ok := first.Text("finish_reason")
	if !ok {
		return choice{}, "finish_reason is not a string"
	}
	raw := first.Get("message")
	if raw == nil {
		return choice{}, "its choice has no message"
	}
	message, err := wire.ParseObject(raw)
	if err != nil {
		return choice{}, "its message: " + err.Error()
	}
	c := choice{stop: stop, raw: raw, message: message}
	c.read()
	return c, ""
}

// read fills in content and calls, and keeps the first problem.
func (c *choice) read() {
	if role, ok := c.message.Text("role"); !ok || (role != "" && role != string(model.RoleAssistant)) {
		c.problem = "its message does not come from the assistant"
	}
	note := func(problem string) {
		if c.problem == "" {
			c.problem = problem
		}
	}
	var problem string
	c.content, problem = readContent(c.message)
	note(problem)
	c.calls, problem = readCalls(c.message.Get("tool_calls"))
	note(problem)
	if c.message.Get("function_call") != nil {
		// The calling convention before tools. Nobody was offered it, and a call in
		// it has no id that a result could be given to.
		note("it uses function_call: propose calls through tool_calls")
	}
}

// decide turns the choice into a decision. Refusals and cut replies come first, for
// nothing else in them counts; then calls decide, since servers disagree about the
// stop reason that goes with them.
func (c *choice) decide(used map[string]bool) model.Decision {
	switch {
	case !wire.Blank(c.content.refusal):
		return model.Decision{Kind: model.KindRefused, Text: c.content.refusal}
	case c.stop == stopContentFilter:
		return model.Decision{Kind: model.KindRefused, Text: c.content.text}
	case c.stop == stopContext:
		return model.Decision{Kind: model.KindOverflow, Text: c.content.text}
	case c.stop == stopLength:
		return wire.CutOff(c.content.text)
	case !known(c.stop):
		return wire.UnknownStop(c.content.text)
	case c.problem != "":
		return wire.Invalid(model.CodeMalformed, c.problem)
	case len(c.calls) > 0:
		return c.decideCalls(used)
	case c.stop == stopCalls || c.stop == stopFunctionCall:
		return wire.NoCalls(c.content.text)
	case strings.TrimSpace(c.content.text) == "":
		return wire.Empty()
	default:
		return model.Decision{Kind: model.KindFinal, Text: c.content.text}
	}
}

func (c *choice) decideCalls(used map[string]bool) model.Decision {
	if wire.AssignIDs(pointers(c.calls), used) {
		return wire.DuplicateIDs()
	}
	calls := make([]model.Call, 0, len(c.calls))
	for _, p := range c.calls {
		if c.stop == "" && !wire.IsObject([]byte(p.Arguments)) {
			return wire.CutOff(c.content.text)
		}
		calls = append(calls, p.Call)
	}
	return model.Decision{Kind: model.KindCalls, Text: c.content.text, Calls: calls}
}

// known reports whether a reply with this stop reason may be complete. Some servers
// leave it out: the document is whole then, and calls are taken only if their
// arguments are, too.
func known(stop string) bool {
	switch stop {
	case stopEnd, stopCalls, stopFunctionCall, "":
		return true
	default:
		return slices.Contains(stopsElsewhere, stop)
	}
}
