package anthropic

import (
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Stop reasons of the wire.
const (
	stopEnd        = "end_turn"
	stopSequence   = "stop_sequence"
	stopCalls      = "tool_use"
	stopLength     = "max_tokens"
	stopContext    = "model_context_window_exceeded"
	stopRefusal    = "refusal"
	stopPause      = "pause_turn"
	stopCompaction = "compaction"
)

// Decode normalises the body of a successful response. It is total: whatever the bytes
// are, the result is a reply, and calls are in it only if the reply as a whole makes
// sense. Raw is the list of its content blocks, each in the provider's own bytes.
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
	m, problem := readMessage(top)
	if problem != "" {
		reply.Decision = wire.Invalid(model.CodeMalformed, problem)
		return reply
	}
	reply.StopReason = wire.StopReason(m.stop)
	reply.Decision = m.decide(used)
	if k := reply.Decision.Kind; k == model.KindFinal || k == model.KindCalls || k == model.KindPaused {
		wire.Keep(&reply, echoed(m.blocks))
	}
	return reply
}

// message is a reply, read as far as it can be. What is wrong with its content is kept
// beside it, because it may not matter: the calls of a reply that was cut off are of no
// interest.
type message struct {
	stop        string
	blocks      []block
	text        string
	explanation string
	problem     string
}

func readMessage(top wire.Object) (message, string) {
	kind, kindOK := top.Text("type")
	role, roleOK := top.Text("role")
	stop, stopOK := top.Text("stop_reason")
	switch {
	case !kindOK || (kind != "" && kind != "message"):
		return message{}, "it is not of type message"
	case !roleOK || (role != "" && role != roleAssistant):
		return message{}, "it does not come from the assistant"
	case !stopOK:
		return message{}, "stop_reason is not a string"
	case !top.Has("content"):
		return message{}, "it has no content"
	}
	m := message{stop: stop}
	m.blocks, m.problem = readContent(top.Get("content"))
	m.text = textOf(m.blocks)
	if details, err := wire.ParseObject(top.Get("stop_details")); err == nil {
		m.explanation, _ = details.Text("explanation")
	}
	return m, ""
}

// calls lets ids be assigned in place.
func (m *message) calls() []*model.Call {
	var calls []*model.Call
	for i := range m.blocks {
		if m.blocks[i].kind == blockCall {
			calls = append(calls, &m.blocks[i].call)
		}
	}
	return calls
}

// decide turns the message into a decision. Refusals and cut replies come first, for
// nothing else in them counts; then calls decide, then the stop reason.
func (m *message) decide(used map[string]bool) model.Decision {
	calls := m.calls()
	switch {
	case m.stop == stopRefusal:
		return model.Decision{Kind: model.KindRefused, Text: m.refusal()}
	case m.stop == stopContext:
		return model.Decision{Kind: model.KindOverflow, Text: m.text}
	case m.stop == stopLength:
		return wire.CutOff(m.text)
	case !known(m.stop):
		return wire.UnknownStop(m.text)
	case m.problem != "":
		return wire.Invalid(model.CodeMalformed, m.problem)
	case len(calls) > 0:
		return m.decideCalls(calls, used)
	case m.stop == stopCalls:
		return wire.NoCalls(m.text)
	case (m.stop == stopPause || m.stop == stopCompaction) && echoed(m.blocks) != nil:
		return model.Decision{Kind: model.KindPaused, Text: m.text}
	case wire.Blank(m.text):
		return wire.Empty()
	default:
		return model.Decision{Kind: model.KindFinal, Text: m.text}
	}
}

func (m *message) decideCalls(calls []*model.Call, used map[string]bool) model.Decision {
	if wire.AssignIDs(calls, used) {
		return wire.DuplicateIDs()
	}
	proposed := make([]model.Call, 0, len(calls))
	for _, call := range calls {
		if m.stop == "" && !wire.IsObject([]byte(call.Arguments)) {
			return wire.CutOff(m.text)
		}
		proposed = append(proposed, *call)
	}
	return model.Decision{Kind: model.KindCalls, Text: m.text, Calls: proposed}
}

// refusal is what the model said, or else the provider's explanation.
func (m *message) refusal() string {
	if wire.Blank(m.text) {
		return m.explanation
	}
	return m.text
}

// known reports whether a reply with this stop reason may be complete. Some servers leave
// it out: the document is whole then.
func known(stop string) bool {
	switch stop {
	case stopEnd, stopSequence, stopCalls, stopPause, stopCompaction, "":
		return true
	default:
		return false
	}
}
