package gemini_test

import (
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// outcome is how a call ended.
type outcome struct {
	text   string
	failed bool
}

// TestTranscriptsOfInvalidReplies sends what a conversation looks like after replies that
// run nothing: what was said, if anything, and what to change.
func TestTranscriptsOfInvalidReplies(t *testing.T) {
	for name, answer := range map[string]fakemodel.Answer{
		"cut off":          fakemodel.CutOff("Half an ans"),
		"cut off at once":  fakemodel.CutOff(""),
		"nothing":          fakemodel.Text(""),
		"a malformed call": {Reply: &fakemodel.Reply{StopReason: "MALFORMED_FUNCTION_CALL"}},
		"an unknown stop":  {Reply: &fakemodel.Reply{Text: "Hm", StopReason: "TIRED"}},
		"garbage":          fakemodel.Raw([]byte("{}")),
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), answer, fakemodel.Propose(fakemodel.Call{Name: "lookup"}), fakemodel.Text("done"))
			talk := &talk{t: t, server: server, request: opening()}
			talk.answer(talk.ask(), outcome{text: "1"})
			got := talk.ask()
			if got.Decision.Kind != model.KindInvalid {
				t.Fatalf("got %+v", got.Decision)
			}
			// As the projection of the journal does it.
			if got.Decision.Text != "" {
				talk.request.Messages = append(talk.request.Messages, model.Message{Role: model.RoleAssistant, Text: got.Decision.Text})
			}
			talk.request.Messages = append(talk.request.Messages, model.Message{Role: model.RoleUser, Text: got.Decision.Problem})
			talk.answer(talk.ask(), outcome{text: "2"})
			if got := talk.ask(); got.Decision.Text != "done" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestTranscriptsOfAnotherModel continues a conversation that another provider began, of
// which nothing is signed.
func TestTranscriptsOfAnotherModel(t *testing.T) {
	server := startServer(t, fakemodel.Options{AllowUnknownPrefix: true})
	server.Enqueue(fakemodel.Propose(fakemodel.Call{Name: "lookup"}), fakemodel.Text("done"))
	talk := &talk{t: t, server: server, request: opening()}
	talk.request.Messages = append(talk.request.Messages,
		model.Message{Role: model.RoleAssistant, Text: "Let me see.", Calls: []model.Call{{ID: "call_1", Alias: "lookup", Arguments: `{"key":"a"}`}, {ID: "call_2", Alias: "other.tool", Arguments: "not JSON"}}},
		model.Message{Role: model.RoleTool, CallID: "call_1", Text: "1"}, model.Message{Role: model.RoleTool, CallID: "call_2", Text: "no such tool", Failed: true},
		model.Message{Role: model.RoleAssistant, Text: "It is 1."}, model.Message{Role: model.RoleUser, Text: "Sure?"},
	)
	talk.answer(talk.ask(), outcome{text: "1"})
	talk.ask()
}

// TestRepairedEchoIsAccepted sends each repaired echo to a server that refuses what the
// vendor refuses.
func TestRepairedEchoIsAccepted(t *testing.T) {
	for name, content := range map[string]string{
		"parts that say nothing":  said(`{"text":""}`, plainCall, `{"thought":true}`),
		"no role":                 `{"parts":[` + plainCall + `]}`,
		"a name that is illegal":  said(`{"functionCall":{"name":"lookup it!","args":{}}}`),
		"arguments as a string":   said(`{"functionCall":{"name":"lookup","args":"{\"a\":1}"}}`),
		"a call beside no text":   said(`{"text":"","functionCall":{"name":"lookup"}}`),
		"arguments as a list":     said(`{"functionCall":{"name":"lookup","args":[1]}}`),
		"ids for some":            said(callA, plainCall, callB),
		"the same id as before":   said(callB),
		"a signature of its own":  said(plainCall, `{"text":"","thoughtSignature":"c2ln"}`),
		"more than one signature": said(`{"text":"See:","thoughtSignature":"c2ln"}`, callA),
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			first := fakemodel.Raw([]byte(reply(said(callB), `"STOP"`)))
			server.Enqueue(first, fakemodel.Raw([]byte(reply(content, `"STOP"`))), fakemodel.Text("done"))
			talk := &talk{t: t, server: server, request: opening(), model: "gemini-2.5-flash"}
			talk.answer(talk.ask(), outcome{text: "1"})
			got := talk.ask()
			var results []outcome
			for range got.Decision.Calls {
				results = append(results, outcome{text: "2"})
			}
			talk.answer(got, results...)
			talk.ask()
		})
	}
}

func opening() model.Request {
	return model.Request{
		System: "Be brief.", Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, MaxOutputTokens: 100,
		Tools: []model.Tool{{Name: "crm.lookup", Alias: "lookup", Description: "Looks up."}},
	}
}

// talk is a conversation that goes on.
type talk struct {
	t       *testing.T
	server  *fakemodel.Server
	request model.Request
	model   string
}

// ask makes the next request, which has to be accepted.
func (c *talk) ask() model.Reply {
	c.t.Helper()
	if c.model == "" {
		c.model = "gemini-3-pro"
	}
	c.request.Decision++
	got, err := newClient(c.t, wire.Config{Endpoint: c.server.Endpoint(fakemodel.Gemini), Model: c.model}).Decide(c.t.Context(), c.request)
	if err != nil {
		c.t.Fatalf("%v; %s", err, strings.Join(c.server.Refusals(), "; "))
	}
	checkReply(c.t, got)
	return got
}

// answer adds a reply and the outcome of each of its calls.
func (c *talk) answer(reply model.Reply, results ...outcome) {
	c.t.Helper()
	if len(results) != len(reply.Decision.Calls) {
		c.t.Fatalf("%d calls: %+v", len(reply.Decision.Calls), reply.Decision)
	}
	c.request.Messages = append(c.request.Messages, model.Message{Role: model.RoleAssistant, Text: reply.Decision.Text, Calls: reply.Decision.Calls, Raw: reply.Raw})
	for i, result := range results {
		c.request.Messages = append(c.request.Messages, model.Message{Role: model.RoleTool, CallID: reply.Decision.Calls[i].ID, Text: result.text, Failed: result.failed})
	}
}
