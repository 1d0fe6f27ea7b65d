package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

func maxInvalid(n int32) func(*journal.RunStarted) {
	return func(r *journal.RunStarted) { r.Limits.MaxInvalidDecisions = n }
}

func TestDecisions(t *testing.T) {
	kind := func(d model.Decision) act { return says(counted(d)) }
	bad := invalidReply(model.CodeMalformed)
	playAll(t, map[string]scene{
		"an answer completes the run": {
			acts: []act{says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted,
		},
		"an answer beside nothing is none": {
			acts: []act{says(finalAnswer(" \n"))}, wantKind: Await,
		},
		"a refusal ends the run": {
			acts: []act{kind(model.Decision{Kind: model.KindRefused, Text: "no"})}, wantReason: v1alpha1.ReasonModelRefused,
		},
		"an overflow ends the run": {
			acts: []act{kind(model.Decision{Kind: model.KindOverflow})}, wantReason: v1alpha1.ReasonContextOverflow,
		},
		"a kind that nobody knows is never an answer": {
			started: maxInvalid(0), acts: []act{kind(model.Decision{Kind: "Nonsense", Text: "42"})}, wantReason: v1alpha1.ReasonInvalidDecision,
		},
		"no invalid decision is fed back where the limit is 0": {
			started: maxInvalid(0), acts: []act{says(bad)}, wantReason: v1alpha1.ReasonInvalidDecision,
		},
		"as many invalid decisions are fed back as the limit says": {
			started: maxInvalid(2), acts: []act{says(bad), says(bad)}, wantKind: Await,
		},
		"the next invalid decision ends the run": {
			started: maxInvalid(2), acts: []act{says(bad), says(bad), says(bad)}, wantReason: v1alpha1.ReasonInvalidDecision,
		},
		"only invalid decisions in a row count": {
			started: maxInvalid(1), acts: []act{says(bad), reads(1), lands("r1", gave(`1`)), says(bad)}, wantKind: Await,
		},
		"a reply cut off by the model's own limit is an invalid decision": {
			acts: []act{says(invalidReply(model.CodeCutOff))}, wantKind: Await,
		},
		"a batch without calls is an invalid decision": {
			started: maxInvalid(0), acts: []act{kind(model.Decision{Kind: model.KindCalls})}, wantReason: v1alpha1.ReasonInvalidDecision,
		},
		"an id twice in one reply: nothing of it runs": {
			acts: []act{calls(called("a:read", `{}`), called("a:act", `{}`)), inTheAir()}, wantKind: Await,
		},
		"a batch in which every call is invalid: nothing of it runs": {
			acts: []act{calls(called("a:nothing", `{}`), called("b:read", `{"k":1}`)), inTheAir()}, wantKind: Await,
			wantClasses: map[string]string{"a": "validation", "b": "validation"},
		},
		"each invalid call gets its own result and the others run": {
			acts:        []act{calls(called("a:nothing", `{}`), called("b:read", `{}`), called("c:read", `{"other":1}`), called("d:read", `[]`)), inTheAir("b"), lands("b", gave(`1`))},
			wantClasses: map[string]string{"a": "validation", "b": "ok", "c": "validation", "d": "validation"}, wantKind: Await,
		},
		"nothing at all counts as no arguments": {
			acts: []act{calls(called("a:read", ` `)), inTheAir("a")}, wantKind: Await,
		},
		"a reply of more calls than can be journalled": {
			acts: []act{calls(manyCalls(maxCalls + 1)...), inTheAir()}, wantKind: Await, wantClasses: map[string]string{},
		},
		"a reply larger than can be journalled": {
			acts: []act{calls(called("a:read", `{"k":"`+strings.Repeat("x", maxReplyBytes)+`"}`)), inTheAir()}, wantKind: Await, wantClasses: map[string]string{},
		},
		"a reply that grows when it is journalled": {
			acts: []act{says(finalAnswer(strings.Repeat("\x01", maxReplyBytes-1)))}, wantKind: Await,
		},
		"a built-in tool beside other calls is invalid and the others run": {
			acts:        []act{calls(called("a:ask", `{"question":"?"}`), called("b:read", `{}`)), inTheAir("b")},
			wantClasses: map[string]string{"a": "validation"}, wantKind: Await,
		},
		"built-in tools with wrong arguments": {
			acts: []act{calls(called("a:ask", `{"question":""}`))}, wantKind: Await, wantClasses: map[string]string{"a": "validation"},
		},
		"built-in tools are unknown where people are not asked": {
			started: func(r *journal.RunStarted) { r.HumanInput, r.Tools = false, r.Tools[:len(sampleTools)] },
			acts:    []act{calls(called("a:ask", `{"question":"?"}`))}, wantKind: Await, wantClasses: map[string]string{"a": "validation"},
		},
		"the model gives up": {
			acts: []act{calls(called("a:cannot_continue", `{"reason":"no access"}`))}, wantReason: v1alpha1.ReasonCannotContinue,
			wantClasses: map[string]string{"a": "not_run"},
		},
	})
}

func manyCalls(n int) []model.Call {
	var out []model.Call
	for i := range n {
		out = append(out, called(fmt.Sprintf("m%d:read", i), `{}`))
	}
	return out
}

func TestOutput(t *testing.T) {
	output := func(schema string, validations ...journal.Validation) func(*journal.RunStarted) {
		return func(r *journal.RunStarted) {
			r.Limits.MaxInvalidDecisions = 1
			r.Output = &journal.Output{Schema: json.RawMessage(schema), Validations: validations}
		}
	}
	object := output(`{"type":"object","required":["refunded"],"properties":{"refunded":{"type":"number"}}}`,
		journal.Validation{Expression: "answer.refunded <= 100", Message: "Refund at most 100."})
	text := output("", journal.Validation{Expression: "answer.startsWith('Dear')", Message: "Be polite."})
	playAll(t, map[string]scene{
		"fits":                        {started: object, acts: []act{says(finalAnswer(`{"refunded":10}`))}, wantReason: v1alpha1.ReasonCompleted},
		"fits in a fenced block":      {started: object, acts: []act{says(finalAnswer("```json\n{\"refunded\":10}\n```\n"))}, wantReason: v1alpha1.ReasonCompleted},
		"not JSON":                    {started: object, acts: []act{says(finalAnswer(`Sure: {"refunded":10}`))}, wantKind: Await},
		"does not fit the schema":     {started: object, acts: []act{says(finalAnswer(`{}`))}, wantKind: Await},
		"a validation does not hold":  {started: object, acts: []act{says(finalAnswer(`{"refunded":101}`))}, wantKind: Await},
		"text that fits":              {started: text, acts: []act{says(finalAnswer("Dear Ann"))}, wantReason: v1alpha1.ReasonCompleted},
		"text that does not":          {started: text, acts: []act{says(finalAnswer("Hi"))}, wantKind: Await},
		"a validation that fails":     {started: output("", journal.Validation{Expression: "answer.nothing == 1", Message: "no"}), acts: []act{says(finalAnswer("Hi"))}, wantKind: Await},
		"too many that do not fit":    {started: object, acts: []act{says(finalAnswer(`{}`)), says(finalAnswer(`{}`))}, wantReason: v1alpha1.ReasonOutputInvalid},
		"the last one counts as said": {started: object, acts: []act{says(finalAnswer(`{}`)), says(invalidReply(model.CodeEmpty))}, wantReason: v1alpha1.ReasonInvalidDecision},
	})
}

// What was wrong is appended for the model, never edited into what it said.
func TestTheModelLearnsWhatWasWrong(t *testing.T) {
	s := scene{
		started: func(r *journal.RunStarted) { r.Output = &journal.Output{Schema: json.RawMessage(`{"type":"object"}`)} },
		acts:    []act{says(finalAnswer("not JSON"))},
	}.play(t)
	got := prompt.Project(s.state()).Messages
	if len(got) != 3 || got[1].Text != "not JSON" || got[2].Role != model.RoleUser || !strings.Contains(got[2].Text, "JSON") {
		t.Errorf("messages %+v", got)
	}
}

func TestIdentities(t *testing.T) {
	cases := map[string]struct {
		// earlier is the id of a call of the turn before.
		earlier string
		ids     []string
		wantIDs []string
		// wantWire are the ids that the provider reads back.
		wantWire []string
	}{
		"own ids are kept":                  {ids: []string{"toolu_01", "b"}, wantIDs: []string{"toolu_01", "b"}, wantWire: []string{"toolu_01", "b"}},
		"missing ids are assigned":          {ids: []string{"", ""}, wantIDs: []string{"call-1-1", "call-1-2"}, wantWire: []string{"call-1-1", "call-1-2"}},
		"an id of an earlier turn":          {earlier: "a", ids: []string{"a"}, wantIDs: []string{"call-2-1"}, wantWire: []string{"a"}},
		"an id that is not fit for a label": {ids: []string{"a b"}, wantIDs: []string{"call-1-1"}, wantWire: []string{"a b"}},
		"an id that looks made up":          {ids: []string{"call-7-1"}, wantIDs: []string{"call-1-1"}, wantWire: []string{"call-7-1"}},
		"made up ids do not collide on the wire": {
			ids: []string{"", "call-1-1"}, wantIDs: []string{"call-1-1x", "call-1-2"}, wantWire: []string{"call-1-1x", "call-1-1"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var acts []act
			if test.earlier != "" {
				acts = append(acts, calls(called(test.earlier+":read", `{}`)), lands(test.earlier, gave(`1`)))
			}
			var proposed []model.Call
			for i, id := range test.ids {
				proposed = append(proposed, called(fmt.Sprintf("%s:read", id), fmt.Sprintf(`{"n":%d}`, i)))
			}
			s := scene{acts: append(acts, calls(proposed...))}.play(t)
			var ids, wire []string
			last := s.state().Transcript[len(s.state().Transcript)-1]
			for _, call := range last.Decision.Calls {
				ids = append(ids, call.ID)
			}
			messages := prompt.Project(s.state()).Messages
			for _, m := range messages {
				if m.Role == model.RoleAssistant {
					wire = nil
					for _, call := range m.Calls {
						wire = append(wire, call.ID)
					}
				}
			}
			if diff := cmp.Diff(test.wantIDs, ids); diff != "" {
				t.Errorf("ids, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.wantWire, wire); diff != "" {
				t.Errorf("ids on the wire, -want +got:\n%s", diff)
			}
		})
	}
}

// An effect key is a function of run, turn and place: the same for every attempt, and
// after a restart, and different for every call.
func TestEffectKeys(t *testing.T) {
	keys := map[string]string{}
	s := scene{acts: []act{
		calls(called("a:put", `{}`), called("b:put", `{"k":"b"}`)), lands("a", notSent), restarts, untilThen, lands("a", gave(`1`)), lands("b", gave(`1`)),
		calls(called("c:put", `{}`)),
	}}.play(t)
	for i := range s.state().Transcript {
		for position, call := range s.state().Transcript[i].Decision.Calls {
			if other, used := keys[call.EffectKey]; used || call.EffectKey != effectKey(testUID, int32(i)+1, position) {
				t.Errorf("call %s has key %s, call %s too", call.ID, call.EffectKey, other)
			}
			keys[call.EffectKey] = call.ID
		}
	}
	if len(keys) != 3 {
		t.Errorf("keys %v", keys)
	}
}

func TestUsageIsCharged(t *testing.T) {
	request := model.Request{System: strings.Repeat("s", 400)}
	cases := map[string]struct {
		usage model.Usage
		want  journal.Usage
	}{
		"as reported": {
			usage: model.Usage{InputTokens: 7, OutputTokens: 5, CacheReadTokens: 3, ReasoningTokens: 2, Reported: true},
			want:  journal.Usage{InputTokens: 7, OutputTokens: 5, CacheReadTokens: 3, ReasoningTokens: 2},
		},
		"not reported": {want: journal.Usage{InputTokens: 100, OutputTokens: 3, Estimated: true}},
		"negative": {
			usage: model.Usage{InputTokens: -7, OutputTokens: 5, Reported: true},
			want:  journal.Usage{InputTokens: 100, OutputTokens: 3, Estimated: true},
		},
		"absurd": {
			usage: model.Usage{InputTokens: 1 << 62, OutputTokens: 1 << 62, Reported: true},
			want:  journal.Usage{InputTokens: 100, OutputTokens: 3, Estimated: true},
		},
		"more read from the cache than there was": {
			usage: model.Usage{InputTokens: 7, CacheReadTokens: 8, Reported: true},
			want:  journal.Usage{InputTokens: 100, OutputTokens: 3, Estimated: true},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			reply := model.Reply{Usage: test.usage, Decision: model.Decision{Kind: model.KindFinal, Text: "ten bytes!"}}
			if diff := cmp.Diff(test.want, charge(&journal.State{}, request, reply)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The provider's own reply is kept byte for byte, where it can be echoed.
func TestProvidersOwnReply(t *testing.T) {
	raw := json.RawMessage(`{ "role" : "assistant", "signature":"<a&b>" }`)
	reply := readsAgain(1)
	reply.Raw = raw
	s := scene{acts: []act{says(reply), lands("r1", gave(`1`))}}.play(t)
	if got := prompt.Project(s.state()).Messages[1].Raw; string(got) != string(raw) {
		t.Errorf("raw is %s", got)
	}
	reply = finalAnswer("x")
	reply.Decision.Kind, reply.Raw = model.KindInvalid, raw
	s = scene{acts: []act{says(reply)}}.play(t)
	if got := prompt.Project(s.state()).Messages[1].Raw; got != nil {
		t.Errorf("an invalid reply is echoed as %s", got)
	}
}
