package journal

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is counted, by what happened.
func TestCounters(t *testing.T) {
	type counters struct {
		Turns, ToolCalls, ModelAttempts, InvalidInRow, FailuresInRow, UnchangedTurns int32
		Tokens                                                                       int64
	}
	read, acts := callOf("r", ReadOnly, allowed), callOf("a", NonIdempotent, allowed)
	invalid := say(DecisionMade{Kind: DecisionInvalid, Calls: []Call{{ID: "x", Invalid: "no"}}})
	failed := say(ModelFailed{Attempt: 1, Usage: Usage{InputTokens: 7, Estimated: true}})
	done := func(p TurnCompleted) entry { return say(p) }
	turn := func(id string, p TurnCompleted) []entry {
		return []entry{proposed(callOf(id, ReadOnly, allowed)), ok(id, 0), done(p)}
	}
	all := func(parts ...[]entry) []entry {
		entries := begun()
		for _, part := range parts {
			entries = append(entries, part...)
		}
		return entries
	}
	cases := map[string]struct {
		entries []entry
		want    counters
	}{
		"nothing yet": {begun(), counters{}},
		"a decision":  {begun(proposed(read)), counters{Turns: 1, Tokens: 15}},
		"failed requests": {
			begun(failed, failed), counters{ModelAttempts: 2, Tokens: 14},
		},
		"a decision ends the attempts": {
			begun(failed, proposed(read)), counters{Turns: 1, Tokens: 22},
		},
		"a lost request": {
			begun(say(Claimed{Worker: "b", Previous: "a", Lost: &Usage{InputTokens: 9, Estimated: true}})), counters{ModelAttempts: 1, Tokens: 9},
		},
		"calls count when they are first sent": {
			begun(proposed(read, acts), dispatched(1, "r", "a"), say(CallCompleted{ID: "r", Attempt: 1, Class: "transport", Retryable: true}), dispatched(2, "r")),
			counters{Turns: 1, ToolCalls: 2, Tokens: 15},
		},
		"invalid decisions in a row": {
			begun(invalid, say(CallCompleted{ID: "x", Final: true, Class: "validation"}), done(TurnCompleted{}), say(DecisionMade{Kind: DecisionInvalid})),
			counters{Turns: 2, InvalidInRow: 2},
		},
		"a valid one ends the row": {
			begun(say(DecisionMade{Kind: DecisionInvalid}), done(TurnCompleted{}), proposed(read)), counters{Turns: 2, Tokens: 15},
		},
		"failed turns in a row": {
			all(turn("a", TurnCompleted{Failed: true}), turn("b", TurnCompleted{Failed: true})), counters{Turns: 2, FailuresInRow: 2, Tokens: 30},
		},
		"one that did not fail ends the row": {
			all(turn("a", TurnCompleted{Failed: true}), turn("b", TurnCompleted{})), counters{Turns: 2, Tokens: 30},
		},
		"an invalid decision does not": {
			all(turn("a", TurnCompleted{Failed: true}), []entry{invalid, say(CallCompleted{ID: "x", Final: true, Class: "validation"}), done(TurnCompleted{})}),
			counters{Turns: 2, FailuresInRow: 1, InvalidInRow: 1, Tokens: 15},
		},
		"executed turns without progress": {
			all(turn("a", TurnCompleted{Plan: "p", Progress: "m"}), turn("b", TurnCompleted{Plan: "p", Progress: "m"}), turn("c", TurnCompleted{}), turn("d", TurnCompleted{Plan: "q", Progress: "m"})),
			counters{Turns: 4, UnchangedTurns: 2, Tokens: 60},
		},
		"progress": {
			all(turn("a", TurnCompleted{Plan: "p", Progress: "m"}), turn("b", TurnCompleted{Plan: "p", Progress: "m"}), turn("c", TurnCompleted{Plan: "p", Progress: "n"})),
			counters{Turns: 3, Tokens: 45},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := journalOf(t, test.entries...).State
			got := counters{s.Turns, s.ToolCalls, s.ModelAttempts, s.InvalidInRow, s.FailuresInRow, s.UnchangedTurns, s.Usage.Total()}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// An effect is unknown until somebody says what became of it.
func TestUnknownEffects(t *testing.T) {
	acts, put := callOf("a", NonIdempotent, allowed), callOf("p", Idempotent, allowed)
	settled := ann(EffectReconciled{ID: "a", EffectKey: "key-a", Effect: EffectRejected})
	sent := begun(proposed(acts, put), dispatched(1, "a", "p"))
	final := func(class, effect string) entry {
		return say(CallCompleted{ID: "a", Attempt: 1, Final: true, Class: class, Effect: effect})
	}
	with := func(more ...entry) []entry { return append(sent[:len(sent):len(sent)], more...) }
	cases := map[string]struct {
		entries      []entry
		wantUnknown  int
		wantPhase    Phase
		wantDoubtful bool
		wantSettled  string
	}{
		"under way":               {with(), 0, PhaseDispatched, false, ""},
		"unknown":                 {with(unknown()), 1, PhaseUnknown, true, ""},
		"settled":                 {with(unknown(), settled), 0, PhaseUnknown, true, EffectRejected},
		"settled, with a result":  {with(unknown(), settled, final("rejected", EffectRejected)), 0, PhaseDone, true, EffectRejected},
		"the run ends before":     {with(unknown(), final("unknown", EffectUnknown)), 1, PhaseDone, true, ""},
		"the run ends under way":  {with(final("unknown", EffectUnknown)), 1, PhaseDone, true, ""},
		"known":                   {with(final("ok", EffectCommitted)), 0, PhaseDone, false, ""},
		"the other is repeatable": {with(say(CallCompleted{ID: "p", Attempt: 1, Class: "timeout", Effect: EffectUnknown, Retryable: true})), 0, PhaseDispatched, false, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := journalOf(t, test.entries...).State
			call := s.Transcript[0].Calls[0]
			if len(s.Unknown) != test.wantUnknown || call.Phase != test.wantPhase || call.Doubtful != test.wantDoubtful || settledAs(call) != test.wantSettled {
				t.Errorf("unknown %v, call %+v", s.Unknown, call)
			}
		})
	}
	s := journalOf(t, with(unknown())...).State
	want := []UnknownEffect{{CallID: "a", EffectKey: "key-a", Tool: "s.a", Since: beginning.Add(3 * time.Second), NotedAt: beginning.Add(4 * time.Second)}}
	if diff := cmp.Diff(want, s.Unknown); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func settledAs(call CallState) string {
	if call.Settled == nil {
		return ""
	}
	return call.Settled.Effect
}

// A person's denial is remembered for every call that it was about; a lapse is not.
func TestRefusedPlans(t *testing.T) {
	asks := callOf("q", NonIdempotent, asked)
	intent := say(DecisionMade{Kind: DecisionRequestApproval, Calls: []Call{{ID: "i", Tool: "request_approval"}}, Intents: []Intent{{Tool: "s.q", PlanDigest: "plan-q"}}})
	cases := map[string]struct {
		entries []entry
		want    map[string]bool
	}{
		"denied":            {begun(proposed(asks), requested("d"), ann(ApprovalDenied{Digest: "d"})), map[string]bool{"plan-q": true}},
		"denied after all":  {begun(proposed(asks), requested("d"), ann(ApprovalGranted{Digest: "d"}), ann(ApprovalDenied{Digest: "d"})), map[string]bool{"plan-q": true}},
		"announced, denied": {begun(intent, requested("d"), ann(ApprovalDenied{Digest: "d"})), map[string]bool{"plan-q": true}},
		"lapsed":            {begun(proposed(asks), requested("d"), say(ApprovalDenied{Digest: "d", Expired: true})), map[string]bool{}},
		"approved":          {begun(proposed(asks), requested("d"), ann(ApprovalGranted{Digest: "d"})), map[string]bool{}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, journalOf(t, test.entries...).State.Refused); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// An approval of what was announced serves one call for each that was announced.
func TestIntentsAreUsedOnce(t *testing.T) {
	call := func(id, approval string) Call {
		c := callOf(id, NonIdempotent, &Verdict{Action: ActionAsk, ApprovedBy: approval})
		c.Tool, c.ArgumentsDigest = "s.q", "args"
		return c
	}
	entries := begun(
		say(DecisionMade{Kind: DecisionRequestApproval, Calls: []Call{{ID: "i", Tool: "request_approval"}}}),
		say(ApprovalRequested{Digest: "d", Intent: true, Calls: []PendingCall{{ID: "i-0", Tool: "s.q", ArgumentsDigest: "args"}}}),
		ann(ApprovalGranted{Digest: "d"}), ok("i", 0), say(TurnCompleted{}),
	)
	draft := journalOf(t, entries...)
	if len(draft.State.Intents) != 1 {
		t.Fatalf("intents %v", draft.State.Intents)
	}
	if err := draft.Add(proposed(call("a", "d"), call("b", "d")).payload, Meta{Time: beginning, ActiveMillis: 1 << 40}); err == nil {
		t.Errorf("one approval serves two calls")
	}
	if err := draft.Add(proposed(call("a", "d")).payload, Meta{Time: beginning, ActiveMillis: 1 << 40}); err != nil || len(draft.State.Intents) != 0 {
		t.Errorf("error %v, intents %v", err, draft.State.Intents)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	entries := begun()
	for i := range historyLimit + 20 {
		id := fmt.Sprintf("c%d", i)
		entries = append(entries, proposed(callOf(id, ReadOnly, allowed)), ok(id, 0), say(TurnCompleted{Plan: id}))
	}
	s := journalOf(t, entries...).State
	if len(s.History) != historyLimit || s.History[0].Plan != "c20" || s.History[historyLimit-1].Plan != fmt.Sprintf("c%d", historyLimit+19) {
		t.Errorf("history of %d, from %s", len(s.History), s.History[0].Plan)
	}
}
