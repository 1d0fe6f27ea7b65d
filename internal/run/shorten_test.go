package run

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/tool"
)

// narrow is a run whose requests may be so long, by estimate.
func narrow(tokens int64) func(*journal.RunStarted) {
	return func(r *journal.RunStarted) {
		r.ContextTokens = tokens
		r.Limits.MaxTurns, r.Limits.MaxToolCalls, r.Limits.MaxTokens = 200, 200, 1_000_000_000
	}
}

// readsLong are turns that read results of so many bytes, each another.
func readsLong(n, bytes int) []act {
	var acts []act
	for i := range n {
		id := fmt.Sprintf("r%d", i+1)
		value, _ := json.Marshal(fmt.Sprintf("result %d: %s", i+1, strings.Repeat("x", bytes)))
		acts = append(acts, says(readsAgain(i+1)), lands(id, gave(string(value))))
	}
	return acts
}

func count(records []journal.Record, wanted journal.Type) int {
	n := 0
	for _, r := range records {
		if r.Event.Type == wanted {
			n++
		}
	}
	return n
}

func TestLongConversationsAreReduced(t *testing.T) {
	s := scene{started: narrow(4000), acts: readsLong(12, 2000), wantKind: Await}.play(t)
	if n := count(s.records, journal.TypeContextReduced); n < 1 || n > 6 {
		t.Errorf("the conversation was reduced %d times in 12 turns", n)
	}
	if n := prompt.EstimateTokens(s.asked.Request); n > 4000 {
		t.Errorf("a request of %d tokens", n)
	}
	first := s.asked.Request.Messages[0].Text
	for i := 1; i <= int(s.state().Context.Through); i++ {
		id, result := fmt.Sprintf(`"id":"r%d"`, i), fmt.Sprintf("result %d: ", i)
		if strings.Count(first, id) != 1 || strings.Count(first, result) != 1 {
			t.Errorf("call %d or its result is not told, or twice", i)
		}
	}
	checkRequests(t, s.records)
}

// Whatever was reduced can be read again, whole.
func TestReducedResultsCanBeReadAgain(t *testing.T) {
	s := scene{started: narrow(4000), acts: readsLong(8, 6000), wantKind: Await}.play(t)
	var read strings.Builder
	for offset, n := 0, 0; ; n++ {
		id := fmt.Sprintf("again%d", n)
		s.answer(proposes(called(id+":read_result", fmt.Sprintf(`{"call":"r1","offset":%d}`, offset))))
		s.drive()
		var page string
		if err := json.Unmarshal(s.call(id).Last.Value, &page); err != nil || len(page) > 4096 {
			t.Fatalf("a page of %d bytes: %v", len(page), err)
		}
		place, text, _ := strings.Cut(page, "]\n")
		read.WriteString(text)
		var begin, end, of int
		_, _ = fmt.Sscanf(place, "[bytes %d to %d of %d; go on at offset %d", &begin, &end, &of, &offset)
		if end == of {
			break
		}
	}
	if want := "result 1: " + strings.Repeat("x", 6000); read.String() != want {
		t.Errorf("read %d bytes, want %d", read.Len(), len(want))
	}
	checkRequests(t, s.records)
}

func TestReadingAgain(t *testing.T) {
	before := turn("a", "read", `{}`, gave(`"abc"`))
	failed := turn("f", "read", `{"n":2}`, toolError)
	playAll(t, map[string]scene{
		"a result":        {acts: turns(before, []act{calls(called("p:read_result", `{"call":"a"}`))}), wantKind: Await, wantClasses: map[string]string{"a": "ok", "p": "ok"}},
		"a failure":       {acts: turns(failed, []act{calls(called("p:read_result", `{"call":"f"}`))}), wantKind: Await, wantClasses: map[string]string{"f": "tool_error", "p": "ok"}},
		"nothing":         {acts: turns(before, []act{calls(called("p:read_result", `{"call":"z"}`))}), wantKind: Await, wantClasses: map[string]string{"a": "ok", "p": "tool_error"}},
		"beyond the end":  {acts: turns(before, []act{calls(called("p:read_result", `{"call":"a","offset":3}`))}), wantKind: Await, wantClasses: map[string]string{"a": "ok", "p": "tool_error"}},
		"wrong arguments": {acts: turns(before, []act{calls(called("p:read_result", `{"call":7}`))}), wantKind: Await, wantClasses: map[string]string{"a": "ok", "p": "validation"}},
		"beside other calls": {
			acts:        turns(before, []act{calls(called("p:read_result", `{"call":"a"}`), called("b:read", `{"n":2}`)), lands("b", gave(`1`))}),
			wantKind:    Await,
			wantClasses: map[string]string{"a": "ok", "p": "ok", "b": "ok"},
		},
		"no matter what policy says": {
			spec: ptr.To(ruled(denyRule("no", "*"))), acts: turns([]act{calls(called("b:read", `{}`))}, []act{calls(called("p:read_result", `{"call":"b"}`))}),
			wantKind: Await, wantClasses: map[string]string{"b": "denied", "p": "tool_error"},
		},
		"again and again is no progress": {
			acts: turns(before, []act{
				calls(called("p:read_result", `{"call":"a"}`)), calls(called("q:read_result", `{"call":"a"}`)), calls(called("r:read_result", `{"call":"a"}`)),
				calls(called("s:read_result", `{"call":"a"}`)),
			}), wantReason: v1alpha1.ReasonNoProgress,
		},
	})
}

// summoned is a run that has just asked for a summary.
func summoned(t *testing.T) *stage {
	t.Helper()
	s := scene{started: narrow(2500), acts: readsLong(10, 400), wantKind: Await}.play(t)
	for i := 11; s.asked == nil || s.asked.Through == 0; i++ {
		if s.asked == nil || i > 150 {
			t.Fatalf("nobody asked for a summary, %s in turn %d", s.reason(), i)
		}
		s.answer(readsAgain(i))
		s.drive()
		s.land(fmt.Sprintf("r%d", i), gave(fmt.Sprintf(`"another result %d"`, i)))
		s.drive()
	}
	return s
}

func TestSummaries(t *testing.T) {
	s := summoned(t)
	request := s.asked.Request
	if len(request.Tools) != 0 || len(request.Messages) != 1 || !request.Summary || prompt.EstimateTokens(request) > 2500 {
		t.Errorf("the request for a summary has %d tools, %d messages, %d tokens", len(request.Tools), len(request.Messages), prompt.EstimateTokens(request))
	}
	turns, used := s.state().Turns, s.state().Usage.Total()
	s.answer(finalAnswer("I read it all."))
	s.drive()
	if s.state().Turns != turns || s.state().Usage.Total() != used+110 {
		t.Errorf("a summary counts as %d turns and %d tokens", s.state().Turns-turns, s.state().Usage.Total()-used)
	}
	if s.asked == nil || s.asked.Through != 0 || !strings.Contains(s.asked.Request.Messages[0].Text, `"summary":"I read it all."`) || strings.Contains(s.asked.Request.Messages[0].Text, `"id":"r1"`) {
		t.Error("the next request is not made of the summary")
	}
	s.answer(finalAnswer("42"))
	s.drive()
	if s.reason() != string(v1alpha1.ReasonCompleted) {
		t.Errorf("ended as %s", s.reason())
	}
	checkRequests(t, s.records)
}

// A summary that is not one leaves everything as it was, and is paid for.
func TestSummariesThatAreNone(t *testing.T) {
	for name, reply := range map[string]model.Reply{
		"calls":   proposes(called("x:read", `{}`)),
		"refused": counted(model.Decision{Kind: model.KindRefused}),
		"cut off": invalidReply(model.CodeCutOff),
		"empty":   finalAnswer(" "),
	} {
		t.Run(name, func(t *testing.T) {
			s := summoned(t)
			for range 2 {
				if s.asked == nil || s.asked.Through == 0 {
					t.Fatal("nobody asked for a summary")
				}
				s.answer(reply)
				s.drive()
			}
			if s.reason() != string(v1alpha1.ReasonContextOverflow) {
				t.Errorf("ended as %q", s.reason())
			}
			if s.call("x") != nil {
				t.Error("a call out of a summary is in the run")
			}
			checkRequests(t, s.records)
		})
	}
}

// begrudged is a run that is to ask for a summary, for which a budget leaves this much. It
// counts the tokens or dollars that a request for one and so many tokens of reply may cost.
func begrudged(t *testing.T, reply int64) *stage {
	t.Helper()
	s := summoned(t)
	s.state().Run.Limits.MaxTokens = s.state().Usage.Total() + inputTokens(s.state(), s.asked.Request) + reply
	s.asked = nil
	s.drive()
	return s
}

// A summary is asked for under the run's own budgets, like everything.
func TestSummariesAreUnderTheBudget(t *testing.T) {
	s := begrudged(t, 0)
	if s.asked != nil || s.reason() != string(v1alpha1.ReasonTokenBudgetExhausted) {
		t.Errorf("asked for a summary beyond the budget, ended as %q", s.reason())
	}
	s = begrudged(t, 10)
	if s.asked == nil || !s.asked.Clipped || s.asked.Request.MaxOutputTokens != 10 {
		t.Fatalf("what is asked for is %+v", s.asked)
	}
	s.answer(invalidReply(model.CodeCutOff))
	s.drive()
	if s.reason() != string(v1alpha1.ReasonTokenBudgetExhausted) {
		t.Errorf("a summary that the budget cut off ended the run as %q", s.reason())
	}
	checkRequests(t, s.records)
	s = summoned(t)
	s.asked.CostClipped = true
	s.answer(invalidReply(model.CodeCutOff))
	s.drive()
	if s.reason() != string(v1alpha1.ReasonCostBudgetExhausted) {
		t.Errorf("a summary that the cost budget cut off ended the run as %q", s.reason())
	}
}

// A summary that a budget lowered, and that is none for another reason, is asked for again.
func TestSummariesThatAreNoneUnderALoweredLimit(t *testing.T) {
	s := begrudged(t, 500)
	reply := finalAnswer(" ")
	reply.Usage = model.Usage{InputTokens: 1, OutputTokens: 1, Reported: true}
	s.answer(reply)
	s.drive()
	if s.asked == nil || s.asked.Through == 0 {
		t.Errorf("nobody asked again, ended as %q", s.reason())
	}
}

// Thoughts count as output, so that a summary may take what any reply may; in runs that began
// before, what it could take then.
func TestSummariesHaveRoom(t *testing.T) {
	for projection, want := range map[int]int32{1: 2048, 2: 2048, prompt.Version: 9000} {
		state := &journal.State{Run: sampleRun(func(r *journal.RunStarted) { r.Model.MaxOutputTokens, r.Projection = 9000, projection })}
		if got := prompt.Summarise(state, 0).MaxOutputTokens; got != want {
			t.Errorf("projection %d allows %d tokens, want %d", projection, got, want)
		}
	}
}

func TestOverflow(t *testing.T) {
	tooLong := breaks(model.Error{Class: model.ClassOverflow, Status: 400})
	// never is a provider that finds everything too long. Each request is shorter than the
	// one before, until nothing more can go.
	never := func(s *stage, _ Step) {
		for size := int64(math.MaxInt64); s.asked != nil; s.drive() {
			n := prompt.EstimateTokens(s.asked.Request)
			if n > size*3/4 {
				s.t.Fatalf("a request of %d tokens follows one of %d", n, size)
			}
			size = n
			s.fail(&model.Error{Class: model.ClassOverflow, Status: 400})
		}
	}
	fails := breaks(model.Error{Class: model.ClassTransient, Status: 500})
	full := model.Reply{Decision: model.Decision{Kind: model.KindOverflow, Text: "As far as"}, StopReason: "model_context_window_exceeded", Usage: model.Usage{InputTokens: 900, OutputTokens: 90, Reported: true}}
	playAll(t, map[string]scene{
		"a task that is too long by itself":    {started: func(r *journal.RunStarted) { r.ContextTokens, r.Prompt = 300, strings.Repeat("x", 4000) }, wantReason: v1alpha1.ReasonContextOverflow},
		"the provider finds the task too long": {acts: []act{tooLong}, wantReason: v1alpha1.ReasonContextOverflow},
		"the provider finds the conversation too long": {
			acts: append(readsLong(6, 4000), tooLong, says(finalAnswer("42"))), wantReason: v1alpha1.ReasonCompleted,
		},
		"however few attempts it may have": {
			started: func(r *journal.RunStarted) { r.Model.MaxAttempts = 1 },
			acts:    append(readsLong(6, 4000), tooLong, says(finalAnswer("42"))), wantReason: v1alpha1.ReasonCompleted,
		},
		"after failures that used the attempts up": {
			acts: append(readsLong(6, 4000), fails, untilThen, fails, untilThen, tooLong, fails, untilThen, fails, untilThen, says(finalAnswer("42"))), wantReason: v1alpha1.ReasonCompleted,
		},
		"a reply runs into the end of the window": {
			acts: append(readsLong(6, 4000), says(full), says(finalAnswer("42"))), wantReason: v1alpha1.ReasonCompleted,
		},
		"a reply runs into the end of the window of the task alone": {acts: []act{says(full)}, wantReason: v1alpha1.ReasonContextOverflow},
		"a journal that has such a reply as a decision": {
			acts: []act{func(s *stage, _ Step) {
				s.asked = nil
				s.add(Entry{Payload: journal.DecisionMade{Kind: journal.DecisionOverflow}})
			}}, wantReason: v1alpha1.ReasonContextOverflow,
		},
		"again and again": {acts: append(readsLong(6, 4000), never), wantReason: v1alpha1.ReasonContextOverflow},
	})
}

// A reply that ran into the end of the window is paid for, takes no turn, and what is asked
// next is shorter. The request for a summary is no other.
func TestRepliesWithoutRoom(t *testing.T) {
	full := model.Reply{Decision: model.Decision{Kind: model.KindOverflow}, Usage: model.Usage{InputTokens: 900, OutputTokens: 90, Reported: true}}
	s := scene{acts: readsLong(6, 4000), wantKind: Await}.play(t)
	turns, used, size := s.state().Turns, s.state().Usage.Total(), prompt.EstimateTokens(s.asked.Request)
	s.answer(full)
	s.drive()
	if s.state().Turns != turns || s.state().Usage.Total() != used+990 {
		t.Errorf("it counts as %d turns and %d tokens", s.state().Turns-turns, s.state().Usage.Total()-used)
	}
	if n := prompt.EstimateTokens(s.asked.Request); n >= size*3/4 {
		t.Errorf("a request of %d tokens follows one of %d", n, size)
	}
	s = summoned(t)
	through, size := s.asked.Through, prompt.EstimateTokens(s.asked.Request)
	s.answer(full)
	s.drive()
	if s.asked == nil || s.asked.Through == 0 || s.asked.Through >= through || prompt.EstimateTokens(s.asked.Request) >= size {
		t.Errorf("a summary through turn %d is followed by %+v", through, s.asked)
	}
	checkRequests(t, s.records)
}

// Between two changes a conversation only grows, and what stays is byte for byte what it
// was: providers check, or cache, the prefix.
func TestConversationsOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		started := sampleRun(narrow(rapid.Int64Range(1500, 8000).Draw(t, "context")))
		s := newStage(t, started)
		s.facts.Policies = compiled(t, sampleSpec())
		var before *model.Request
		through, summarised := int32(0), int32(0)
		for i := range rapid.IntRange(1, 25).Draw(t, "turns") {
			s.drive()
			if s.asked == nil {
				return
			}
			if s.asked.Through > 0 {
				s.answer(finalAnswer("So far so good."))
				continue
			}
			now, c := s.asked.Request, s.state().Context
			if before != nil && c.Through == through && c.Summarised == summarised {
				if diff := cmp.Diff(before.Messages, now.Messages[:len(before.Messages)]); diff != "" {
					t.Fatalf("the prefix changed:\n%s", diff)
				}
			}
			if (c.Through != through || c.Summarised != summarised) && len(now.Messages) != 1 {
				t.Fatalf("a conversation begins anew with %d messages", len(now.Messages))
			}
			if n := prompt.EstimateTokens(now); n > started.ContextTokens {
				t.Fatalf("a request of %d tokens", n)
			}
			before, through, summarised = &now, c.Through, c.Summarised
			checkPaired(t, now)
			id := fmt.Sprintf("r%d", i+1)
			s.answer(readsAgain(i + 1))
			s.drive()
			size := rapid.IntRange(0, 3000).Draw(t, "size")
			s.land(id, tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: mustJSON(strings.Repeat("y", size))})
		}
		checkRequests(t, s.records)
	})
}

// checkPaired checks that each call is followed by its result.
func checkPaired(t tb, request model.Request) {
	t.Helper()
	for i, m := range request.Messages {
		for j, call := range m.Calls {
			if at := i + 1 + j; at >= len(request.Messages) || request.Messages[at].CallID != call.ID {
				t.Fatalf("call %s has no result", call.ID)
			}
		}
	}
}

func TestPausedReplies(t *testing.T) {
	paused := counted(model.Decision{Kind: model.KindPaused, Text: "Still searching."})
	paused.Raw = json.RawMessage(`[{"type":"text","text":"Still searching."}]`)
	s := scene{acts: []act{says(paused)}, wantKind: Await}.play(t)
	last := s.asked.Request.Messages[len(s.asked.Request.Messages)-1]
	if last.Role != model.RoleAssistant || string(last.Raw) != string(paused.Raw) {
		t.Errorf("the conversation ends with %+v", last)
	}
	playAll(t, map[string]scene{
		"go on and end":          {acts: []act{says(paused), says(finalAnswer("42"))}, wantReason: v1alpha1.ReasonCompleted},
		"are turns":              {started: limited(func(l *journal.Limits) { l.MaxTurns = 2 }), acts: []act{says(paused), says(paused)}, wantReason: v1alpha1.ReasonMaxTurns},
		"without parts are none": {started: limited(func(l *journal.Limits) { l.MaxInvalidDecisions = 0 }), acts: []act{says(counted(model.Decision{Kind: model.KindPaused}))}, wantReason: v1alpha1.ReasonInvalidDecision},
	})
}
