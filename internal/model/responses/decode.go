package responses

import (
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Reasons why a reply is incomplete.
const (
	reasonOutputTokens  = "max_output_tokens"
	reasonMessages      = "max_messages"
	reasonContentFilter = "content_filter"
	reasonSteered       = "steered"
)

// Decode normalises the body of a successful response. It is total: whatever the bytes
// are, the result is a reply, and calls are in it only if the reply as a whole makes
// sense. Raw is set for answers and calls only, so that the calls of a refused or broken
// reply can't come back through the conversation.
func Decode(body []byte) model.Reply {
	return decode(body, past{})
}

// decode is Decode in a conversation with a past.
func decode(body []byte, before past) model.Reply {
	top, problem := wire.ParseBody(body)
	if problem != "" {
		return wire.Malformed(problem)
	}
	reply := model.Reply{Usage: readUsage(top.Get("usage"))}
	if id, ok := top.Text("id"); ok {
		reply.RequestID = wire.SupportID(id)
	}
	o, problem := readOutput(top)
	if problem != "" {
		reply.Decision = wire.Invalid(model.CodeMalformed, problem)
		return reply
	}
	reply.StopReason = wire.StopReason(o.word())
	reply.Decision = o.decide(before)
	if k := reply.Decision.Kind; k == model.KindFinal || k == model.KindCalls {
		wire.Keep(&reply, echo(o.items, before))
	}
	return reply
}

// output is a reply, read as far as it can be.
type output struct {
	status, reason string
	items          []item
	problem        string
}

// readOutput finds the items and keeps the first problem.
func readOutput(top wire.Object) (output, string) {
	o := output{}
	var ok bool
	if o.status, ok = top.Text("status"); !ok {
		return o, "status is not a string"
	}
	if value := top.Get("incomplete_details"); value != nil {
		details, err := wire.ParseObject(value)
		if err != nil {
			return o, "incomplete_details: " + err.Error()
		}
		if o.reason, ok = details.Text("reason"); !ok {
			return o, "the reason for being incomplete is not a string"
		}
	}
	value := top.Get("output")
	list, ok := wire.List(value)
	if value == nil || !ok {
		return o, "its output is not a list"
	}
	note := func(problem string) {
		if o.problem == "" {
			o.problem = problem
		}
	}
	for _, raw := range list {
		i, problem := readItem(raw)
		note(problem)
		o.items = append(o.items, i)
	}
	note(unanswerable(o.items))
	if len(o.calls()) > wire.MaxCalls {
		note("it has more than 64 tool calls")
	}
	return o, ""
}

// word is the wire's own for how the reply ended.
func (o output) word() string {
	if o.status == statusIncomplete && o.reason != "" {
		return o.reason
	}
	return o.status
}

func (o output) calls() []*model.Call {
	var calls []*model.Call
	for _, i := range o.items {
		if i.call != nil {
			calls = append(calls, i.call)
		}
	}
	return calls
}

// text is what the model says. What calls itself commentary is no part of an answer that
// stands beside it.
func (o output) text() (text string, onlyCommentary bool) {
	var all, answer strings.Builder
	for _, i := range o.items {
		all.WriteString(i.text)
		if !i.commentary {
			answer.WriteString(i.text)
		}
	}
	if len(o.calls()) > 0 || strings.TrimSpace(answer.String()) == "" {
		return all.String(), strings.TrimSpace(all.String()) != ""
	}
	return answer.String(), false
}

func (o output) refusal() string {
	var refusal strings.Builder
	for _, i := range o.items {
		refusal.WriteString(i.refusal)
	}
	return refusal.String()
}

// decide turns the output into a decision. Refusals and replies that are not complete come
// first, for nothing else in them counts.
func (o output) decide(before past) model.Decision {
	text, onlyCommentary := o.text()
	if refusal := o.refusal(); !wire.Blank(refusal) {
		return model.Decision{Kind: model.KindRefused, Text: refusal}
	}
	switch o.status {
	case statusCompleted, "":
	case statusIncomplete:
		return o.incomplete(text)
	default:
		return wire.UnknownStop(text)
	}
	if o.problem != "" {
		return wire.Invalid(model.CodeMalformed, o.problem)
	}
	switch status := o.unfinished(); status {
	case "":
	case statusIncomplete, statusInProgress:
		return wire.CutOff(text)
	default:
		return wire.UnknownStop(text)
	}
	switch {
	case len(o.calls()) > 0:
		return o.decideCalls(text, before)
	case onlyCommentary:
		d := wire.Invalid(model.CodeEmpty, "the reply commented on the work and held neither an answer nor a tool call: give the answer, or propose a tool call")
		d.Text = text
		return d
	case strings.TrimSpace(text) == "":
		return wire.Empty()
	default:
		return model.Decision{Kind: model.KindFinal, Text: text}
	}
}

// unfinished is the status of the first message or call that is not complete by its own
// account, empty for none.
func (o output) unfinished() string {
	for _, i := range o.items {
		matters := i.kind == typeMessage || i.kind == typeFunctionCall
		if matters && i.status != "" && i.status != statusCompleted {
			return i.status
		}
	}
	return ""
}

// incomplete is the decision of a reply that ended before its end.
func (o output) incomplete(text string) model.Decision {
	switch o.reason {
	case reasonContentFilter:
		return model.Decision{Kind: model.KindRefused, Text: text}
	case reasonOutputTokens, reasonMessages:
		return wire.CutOff(text)
	case reasonSteered:
		d := wire.Invalid(model.CodeCutOff, "the reply was interrupted, so nothing of it ran: answer again")
		d.Text = text
		return d
	default:
		return wire.UnknownStop(text)
	}
}

func (o output) decideCalls(text string, before past) model.Decision {
	proposed := o.calls()
	if wire.AssignIDs(proposed, before.callIDs) {
		return wire.DuplicateIDs()
	}
	calls := make([]model.Call, 0, len(proposed))
	for _, c := range proposed {
		// A server that does not say whether the reply is complete may have cut it.
		if o.status == "" && !wire.IsObject([]byte(c.Arguments)) {
			return wire.CutOff(text)
		}
		calls = append(calls, *c)
	}
	return model.Decision{Kind: model.KindCalls, Text: text, Calls: calls}
}
