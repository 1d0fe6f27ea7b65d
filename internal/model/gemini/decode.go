package gemini

import (
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Stop reasons of the wire, by what they mean. A reason that is missing says that the
// model has not stopped, and counts as one that nobody knows, like all others.
const (
	stopEnd           = "STOP"
	stopLength        = "MAX_TOKENS"
	stopContinuation  = "CONTINUATION"
	stopMalformedCall = "MALFORMED_FUNCTION_CALL"
	stopMalformed     = "MALFORMED_RESPONSE"
	stopUnexpected    = "UNEXPECTED_TOOL_CALL"
	stopTooManyCalls  = "TOO_MANY_TOOL_CALLS"
	stopLanguage      = "LANGUAGE"
	// stopCalls is no reason of the vendor's, only of servers that imitate it.
	stopCalls = "FUNCTION_CALL"
)

// refusals are the reasons for which a reply was stopped because of what is in it.
var refusals = []string{
	"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "JAILBREAK",
	"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
}

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
	reply := model.Reply{Usage: readUsage(top.Get("usageMetadata"))}
	if id, ok := top.Text("responseId"); ok {
		reply.RequestID = wire.SupportID(id)
	}
	blocked, problem := blockReason(top)
	if blocked != "" {
		reply.StopReason, reply.Decision = wire.StopReason(blocked), model.Decision{Kind: model.KindRefused}
		return reply
	}
	var c candidate
	if problem == "" {
		c, problem = firstCandidate(top)
	}
	if problem != "" {
		reply.Decision = wire.Invalid(model.CodeMalformed, problem)
		return reply
	}
	reply.StopReason = wire.StopReason(c.stop)
	reply.Decision = c.decide(used)
	if k := reply.Decision.Kind; k == model.KindFinal || k == model.KindCalls {
		wire.Keep(&reply, c.said.echo())
	}
	return reply
}

// blockReason is why the prompt was refused, empty if it was not. Nothing else of such a
// reply counts.
func blockReason(top wire.Object) (reason, problem string) {
	value := top.Get("promptFeedback")
	if value == nil {
		return "", ""
	}
	feedback, err := wire.ParseObject(value)
	if err != nil {
		return "", "promptFeedback: " + err.Error()
	}
	reason, ok := feedback.Text("blockReason")
	if !ok {
		return "", "blockReason is not a string"
	}
	return reason, ""
}

// candidate is the first candidate of a reply, read as far as it can be. What is wrong
// with a part is kept beside it, because it may not matter: the calls of a reply that was
// cut off are of no interest.
type candidate struct {
	stop    string
	said    content
	problem string
}

// firstCandidate finds the reply. One that holds several was not asked for; the first is
// as good as any.
func firstCandidate(top wire.Object) (candidate, string) {
	list, ok := wire.List(top.Get("candidates"))
	if !ok {
		return candidate{}, "candidates is not a list"
	}
	if len(list) == 0 {
		return candidate{}, "it has no candidates"
	}
	first, err := wire.ParseObject(list[0])
	if err != nil {
		return candidate{}, "its candidate: " + err.Error()
	}
	stop, ok := first.Text("finishReason")
	if !ok {
		return candidate{}, "finishReason is not a string"
	}
	c := candidate{stop: stop}
	c.said, c.problem = readContent(first.Get("content"))
	return c, ""
}

// decide turns the candidate into a decision. Refusals and cut replies come first, for
// nothing else in them counts; then calls decide, which have no stop reason of their own.
func (c *candidate) decide(used map[string]bool) model.Decision {
	switch {
	case slices.Contains(refusals, c.stop):
		return model.Decision{Kind: model.KindRefused, Text: c.said.text}
	case c.stop == stopLength, c.stop == stopContinuation:
		return wire.CutOff(c.said.text)
	case c.stop != stopEnd && c.stop != stopCalls:
		return c.stopped()
	case c.problem != "":
		return wire.Invalid(model.CodeMalformed, c.problem)
	case len(c.said.proposals()) > 0:
		return c.decideCalls(used)
	case c.stop == stopCalls:
		return wire.NoCalls(c.said.text)
	case strings.TrimSpace(c.said.text) == "":
		return wire.Empty()
	default:
		return model.Decision{Kind: model.KindFinal, Text: c.said.text}
	}
}

// stopped is the decision of a reply that the provider gave up, with what the model can
// do about it.
func (c *candidate) stopped() model.Decision {
	d := wire.UnknownStop(c.said.text)
	switch c.stop {
	case stopMalformedCall, stopMalformed:
		d = wire.Invalid(model.CodeMalformed, "its tool call did not have the form that the provider parses")
	case stopUnexpected:
		d = wire.Invalid(model.CodeMalformed, "it called a tool that is not offered")
	case stopTooManyCalls:
		d = wire.Invalid(model.CodeMalformed, "it called too many tools in a row: propose fewer calls at a time")
	case stopLanguage:
		d.Problem = "the reply stopped at a language that the model does not support, so it can't be taken as complete: answer in another"
	}
	return d
}

func (c *candidate) decideCalls(used map[string]bool) model.Decision {
	var pointers []*model.Call
	for _, p := range c.said.proposals() {
		call := p.Call
		pointers = append(pointers, &call)
	}
	if wire.AssignIDs(pointers, used) {
		return wire.DuplicateIDs()
	}
	calls := make([]model.Call, 0, len(pointers))
	for _, call := range pointers {
		calls = append(calls, *call)
	}
	return model.Decision{Kind: model.KindCalls, Text: c.said.text, Calls: calls}
}
