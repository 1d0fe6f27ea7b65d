package transcripts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// scene is what befalls a run, and what the model reads of it.
type scene struct {
	// replies of the model before its last one, which is an answer.
	replies []fakemodel.Answer
	acts    []act
	// results are pieces of the results that the model reads, of all turns, in order.
	results []string
	// told is a piece of the last words to the model that are no result.
	told string
	// contextTokens is how long a request may be, 0 for no limit; shortened and summarised
	// say how many turns are told of in the first message then, and in a summary.
	contextTokens         int64
	shortened, summarised int32
	// textArguments leaves out the wires on which arguments are an object.
	textArguments bool
	// pauses leaves out the wires that don't.
	pauses bool
}

// act is one thing that happens.
type act func(s *stage, last run.Step)

func lands(alias string, outcome tool.Outcome) act {
	return func(s *stage, _ run.Step) { s.land(alias, outcome) }
}

// learns ends the call of render that goes on outside.
func learns(outcome tool.Outcome) act {
	return func(s *stage, _ run.Step) { s.learn("render", outcome) }
}

// looks has the model look at the first call in the background, with more arguments.
func looks(more string) act {
	return func(s *stage, _ run.Step) {
		about := append(s.state().Handles(), s.state().Untold()...)
		if len(about) == 0 {
			s.t.Fatal("nothing is in the background")
		}
		s.server.Enqueue(proposes(call("check", fmt.Sprintf(`{"call":%q%s}`, about[0].Call.ID, more))))
	}
}

// says has the model say one thing more.
func says(reply fakemodel.Answer) act {
	return func(s *stage, _ run.Step) { s.server.Enqueue(reply) }
}

func restarts(s *stage, _ run.Step) { s.restart() }

func cancels(s *stage, _ run.Step) { s.facts.Desired = run.Cancelled }

// passes lets time pass until the run wants to be looked at.
func passes(s *stage, last run.Step) {
	if !last.Until.After(s.facts.Now) {
		s.t.Fatalf("the run waits for %s %s", last.Kind, last.Waiting)
	}
	s.facts.Now = last.Until
}

func approves(s *stage, _ run.Step) {
	s.facts.Verdicts = run.Verdicts{Approve: pending(s), ApproveBy: "ann"}
}

func denies(s *stage, _ run.Step) {
	s.facts.Verdicts = run.Verdicts{Deny: pending(s), DenyBy: "ann", DenyReason: "too much"}
}

func pending(s *stage) string {
	s.t.Helper()
	if s.state().Approval == nil {
		s.t.Fatal("nothing is pending")
	}
	return s.state().Approval.Digest
}

func answers(text string) act {
	return func(s *stage, _ run.Step) {
		if s.state().Question == nil {
			s.t.Fatal("nothing is asked")
		}
		s.facts.Verdicts = run.Verdicts{Answers: map[string]string{s.state().Question.ID: text}, AnswerBy: "ann"}
	}
}

func settles(effect string) act {
	return func(s *stage, _ run.Step) {
		if len(s.state().Unknown) == 0 {
			s.t.Fatal("no outcome is unknown")
		}
		s.facts.Verdicts = run.Verdicts{Settlements: map[string]string{}, SettleBy: "ann"}
		for _, unknown := range s.state().Unknown {
			s.facts.Verdicts.Settlements[unknown.EffectKey] = effect
		}
	}
}

var (
	reads  = proposes(call("read", `{"k":"a"}`))
	writes = proposes(call("put", `{"n":1}`))
	takes  = proposes(call("act", `{"n":1}`))
	pays   = proposes(call("pay", `{"n":1}`))
	render = proposes(call("render", `{"n":1}`))
	three  = proposes(call("read", `{"k":"a"}`), call("act", `{"n":1}`), call("read", `{"k":"b"}`))
)

func replies(list ...fakemodel.Answer) []fakemodel.Answer { return list }

// scenes by what befalls the calls.
func scenes() map[string]scene {
	return map[string]scene{
		"nothing":                    {},
		"a result":                   {replies: replies(reads), acts: []act{lands("read", fine)}, results: []string{"12.50"}},
		"denied by a rule":           {replies: replies(proposes(call("erase", `{}`))), results: []string{"denied"}},
		"a part of a batch denied":   {replies: replies(proposes(call("read", `{}`), call("erase", `{}`))), acts: []act{lands("read", fine)}, results: []string{"12.50", "denied"}},
		"denied by a person":         {replies: replies(pays), acts: []act{denies}, results: []string{"too much"}},
		"a batch denied by a person": {replies: replies(proposes(call("read", `{}`), call("pay", `{"n":1}`))), acts: []act{denies}, results: []string{"denied", "denied"}},
		"approved":                   {replies: replies(pays), acts: []act{approves, lands("pay", fine)}, results: []string{"12.50"}},
		"nobody approved":            {replies: replies(pays), acts: []act{passes}, results: []string{"denied"}},
		"a timeout":                  {replies: replies(reads), acts: []act{lands("read", timedOut), passes, lands("read", timedOut), passes, lands("read", timedOut)}, results: []string{"timeout"}},
		"a timeout, then a result":   {replies: replies(reads), acts: []act{lands("read", timedOut), passes, lands("read", fine)}, results: []string{"12.50"}},
		"never sent":                 {replies: replies(takes), acts: []act{lands("act", notSent)}, results: []string{"transport"}},
		"cancelled while it runs":    {replies: replies(reads), acts: []act{cancels}, results: []string{"it was stopped"}},
		"a batch cancelled":          {replies: replies(three), acts: []act{lands("read", fine), cancels}, results: []string{"12.50", "unknown", "not_run"}},
		"cancelled while people think": {
			replies: replies(pays), acts: []act{cancels}, results: []string{"not_run"},
		},
		"cancelled with an effect that nobody knows": {replies: replies(takes), acts: []act{cancels}, results: []string{"unknown"}},
		"lost in a crash, nothing done":              {replies: replies(reads), acts: []act{restarts, passes, lands("read", fine)}, results: []string{"12.50"}},
		"lost in a crash, sent again":                {replies: replies(writes), acts: []act{restarts, passes, lands("put", fine)}, results: []string{"12.50"}},
		"lost in a crash, settled as done":           {replies: replies(takes), acts: []act{restarts, settles("committed")}, results: []string{"took effect"}},
		"lost in a crash, settled as not done":       {replies: replies(takes), acts: []act{restarts, settles("rejected")}, results: []string{"rejected"}},
		"unknown, settled as done":                   {replies: replies(takes), acts: []act{lands("act", timedOut), settles("committed")}, results: []string{"took effect"}},
		"unknown, settled as not done":               {replies: replies(takes), acts: []act{lands("act", timedOut), settles("rejected")}, results: []string{"rejected"}},
		"one of three fails":                         {replies: replies(three), acts: []act{lands("read", fine), lands("act", toolError), lands("read", fine)}, results: []string{"12.50", "no such order", "12.50"}},
		"all of three fail":                          {replies: replies(three), acts: []act{lands("read", turnedOff), lands("act", turnedOff), lands("read", toolError)}, results: []string{"rejected", "rejected", "no such order"}},
		"one of three is unknown": {
			replies: replies(three), acts: []act{lands("read", fine), lands("act", timedOut), settles("rejected"), lands("read", fine)}, results: []string{"12.50", "rejected", "12.50"},
		},
		"arguments against the schema":              {replies: replies(proposes(call("read", `{"n":"many"}`))), results: []string{"validation"}},
		"arguments that nobody declared":            {replies: replies(proposes(call("read", `{"sudo":true}`), call("read", `{}`))), acts: []act{lands("read", fine)}, results: []string{"validation", "12.50"}},
		"arguments that are no JSON":                {replies: replies(proposes(call("read", `{"k": a`))), results: []string{"validation"}, textArguments: true},
		"arguments that are a list":                 {replies: replies(proposes(call("read", `["a"]`))), results: []string{"validation"}, textArguments: true},
		"no arguments at all":                       {replies: replies(proposes(call("read", ` `))), acts: []act{lands("read", fine)}, results: []string{"12.50"}, textArguments: true},
		"an unknown tool":                           {replies: replies(proposes(call("rm_rf", `{}`))), results: []string{"there is no tool"}},
		"an unknown tool of several":                {replies: replies(proposes(call("rm_rf", `{}`), call("read", `{}`))), acts: []act{lands("read", fine)}, results: []string{"there is no tool", "12.50"}},
		"a question answered":                       {replies: replies(proposes(call("ask", `{"question":"Which order?"}`))), acts: []act{answers("The second.")}, results: []string{"The second."}},
		"a question answered after a crash":         {replies: replies(proposes(call("ask", `{"question":"Which order?"}`))), acts: []act{restarts, answers("The second.")}, results: []string{"The second."}},
		"a request for approval, approved":          {replies: replies(asksFirst), acts: []act{approves}, results: []string{"approved"}},
		"a request for approval, denied":            {replies: replies(asksFirst), acts: []act{denies}, results: []string{"too much"}},
		"a request for approval, and what it is":    {replies: replies(asksFirst, pays), acts: []act{approves, lands("pay", fine)}, results: []string{"approved", "12.50"}},
		"a reply that was cut off":                  {replies: replies(fakemodel.Thinking(fakemodel.CutOff("The answer"), "Hm.")), told: "cut off"},
		"a reply cut off before its first word":     {replies: replies(fakemodel.Thinking(fakemodel.CutOff("\n\n"), "Hm.")), told: "cut off"},
		"white space that ends for no known reason": {replies: replies(endsOddly), told: "unknown reason"},
		"white space and no calls, twice":           {replies: replies(reads, fakemodel.Text(" "), fakemodel.Text("")), acts: []act{lands("read", fine)}, results: []string{"12.50"}, told: "empty"},
		"nothing at first, twice":                   {replies: replies(fakemodel.Text(""), fakemodel.Text(" ")), told: "empty"},
		"an empty reply":                            {replies: replies(fakemodel.Text("")), told: "empty"},
		"a batch that was cut off":                  {replies: replies(cutBatch), told: "cut off"},
		"a pause":                                   {replies: replies(fakemodel.Thinking(fakemodel.Paused("Let me"), "Hm."), reads), acts: []act{lands("read", fine)}, results: []string{"12.50"}, pauses: true},
		"in the background, waited for":             {replies: replies(render), acts: []act{lands("render", goesOn), looks(`,"wait":true`), learns(fine)}, results: []string{"running", "12.50"}},
		"in the background, looked at twice":        {replies: replies(render), acts: []act{lands("render", goesOn), looks(``), learns(fine), looks(``)}, results: []string{"running", "running", "12.50"}},
		"in the background, refused":                {replies: replies(render), acts: []act{lands("render", goesOn), looks(`,"wait":true`), learns(turnedOff)}, results: []string{"running", "rejected"}},
		"in the background, after a crash":          {replies: replies(render), acts: []act{lands("render", goesOn), restarts, looks(`,"wait":true`), restarts, learns(fine)}, results: []string{"running", "12.50"}},
		"in the background, beside another": {
			replies: replies(proposes(call("render", `{}`), call("read", `{}`))), acts: []act{lands("render", goesOn), lands("read", fine), looks(`,"wait":true`), learns(toolError)},
			results: []string{"running", "12.50", "no such order"},
		},
		"in the background, cancelled": {replies: replies(render), acts: []act{lands("render", goesOn), cancels, learns(turnedOff)}, results: []string{"running"}},
		"in the background when the model answers": {
			replies: replies(render), acts: []act{lands("render", goesOn), says(fakemodel.Thinking(fakemodel.Text("All done."), "Hm.")), learns(fine)},
			results: []string{"running"}, told: "12.50",
		},
		"results that were reduced": {
			replies: many(5), acts: manyLarge(5), contextTokens: 4000, shortened: 4, results: []string{"all work"},
		},
		"turns that were summarised": {
			replies: append(many(10), fakemodel.Text("All is well so far."), reads), acts: append(manyLarge(10), lands("read", fine)),
			contextTokens: 2400, shortened: 10, summarised: 9, results: []string{"12.50"},
		},
		"everything, one after the other": {
			replies: replies(reads, proposes(call("erase", `{}`)), three, pays, proposes(call("ask", `{"question":"Go on?"}`)), proposes(call("read", `{"k":"c"}`))),
			acts: []act{
				lands("read", timedOut), passes, lands("read", fine),
				lands("read", fine), restarts, settles("rejected"), lands("read", toolError),
				denies, answers("Yes."), lands("read", fine),
			},
			results: []string{"12.50", "denied", "12.50", "rejected", "no such order", "denied", "Yes.", "12.50"},
		},
	}
}

// many reads as often as n, each time something else.
func many(n int) []fakemodel.Answer {
	var list []fakemodel.Answer
	for i := range n {
		list = append(list, proposes(call("read", fmt.Sprintf(`{"n":%d}`, i))))
	}
	return list
}

func manyLarge(n int) []act { return slices.Repeat([]act{lands("read", large)}, n) }

var (
	asksFirst = proposes(call("request_approval", `{"text":"May I pay?","calls":[{"tool":"pay","arguments":{"n":1}}]}`))
	endsOddly = fakemodel.Answer{Reply: &fakemodel.Reply{Text: "\n", StopReason: "tired"}}
	cutBatch  = fakemodel.Answer{Reply: &fakemodel.Reply{
		Thoughts: []fakemodel.Thought{{Text: "Hm."}}, Calls: []fakemodel.Call{call("read", `{}`)}, Stop: fakemodel.StopCutOff,
	}}
)

func TestTranscripts(t *testing.T) {
	for _, w := range wiresUnderTest {
		for name, c := range scenes() {
			if c.textArguments && !w.textArguments || c.pauses && !w.pauses {
				continue
			}
			t.Run(w.wire.Name()+"/"+name, func(t *testing.T) { c.play(t, w) })
		}
	}
}

func (c scene) play(t *testing.T, w wireUnderTest) {
	s := newStage(t, w, c.contextTokens)
	s.server.Enqueue(c.replies...)
	last := s.drive()
	for _, happens := range c.acts {
		happens(s, last)
		last = s.drive()
	}
	request := s.final()
	if s.state().Finished == nil {
		t.Fatalf("the run has not ended: it waits for %s %s", last.Kind, last.Waiting)
	}
	if told := s.state().Context; told.Through != c.shortened || told.Summarised != c.summarised {
		t.Errorf("%d turns are told of and %d summarised, want %d and %d", told.Through, told.Summarised, c.shortened, c.summarised)
	}
	var got []fakemodel.Message
	for _, m := range request.Messages {
		if m.Role == "tool" {
			got = append(got, m)
		}
	}
	if len(got) != len(c.results) {
		t.Fatalf("the model reads %d results, want %d: %+v", len(got), len(c.results), got)
	}
	for i, want := range c.results {
		if !strings.Contains(got[i].Text, want) {
			t.Errorf("result %d is %s, want %q in it", i, got[i].Text, want)
		}
	}
	if c.told != "" && (request.Last().Role != "user" || !strings.Contains(request.Last().Text, c.told)) {
		t.Errorf("the last message is %+v, want %q in it", request.Last(), c.told)
	}
	if used := s.facts.Now.Sub(s.records[0].Event.Time); used > 24*time.Hour {
		t.Errorf("the scene took %s", used)
	}
}
