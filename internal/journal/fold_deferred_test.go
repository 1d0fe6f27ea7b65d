package journal

import (
	"strings"
	"testing"
	"time"
)

func deferredEntry(id string, attempt int32, handle string) Payload {
	return CallDeferred{ID: id, Attempt: attempt, Handle: handle, Until: beginning.Add(time.Hour)}
}

func TestDeferredCalls(t *testing.T) {
	sent := begun(proposed(callOf("a", NonIdempotent, allowed)), dispatched(1, "a"))
	waits := append(sent[:4:4], say(deferredEntry("a", 1, "task")))
	s := journalOf(t, waits...).State
	if call := s.OpenTurn().Calls[0]; call.Phase != PhaseDeferred || call.Deferred == nil || !s.EffectsOpen() {
		t.Errorf("call %+v, effects open %v", call, s.EffectsOpen())
	}
	s = journalOf(t, append(waits[:5:5], ok("a", 1))...).State
	if call := s.OpenTurn().Calls[0]; call.Phase != PhaseDone || call.Deferred != nil || s.EffectsOpen() {
		t.Errorf("call %+v, effects open %v", call, s.EffectsOpen())
	}
	for name, test := range map[string]struct {
		entries []entry
		then    Payload
		want    string
	}{
		"before it was sent":   {begun(proposed(callOf("a", NonIdempotent, allowed))), deferredEntry("a", 0, "task"), "was not under way"},
		"another attempt":      {sent, deferredEntry("a", 2, "task"), "has attempt 1, not 2"},
		"another call":         {sent, deferredEntry("b", 1, "task"), "no turn has call"},
		"without a handle":     {sent, deferredEntry("a", 1, ""), "without a handle"},
		"no turn":              {begun(), deferredEntry("a", 1, "task"), "no turn has call"},
		"a second dispatch":    {waits, CallDispatched{Calls: []Dispatch{{ID: "a", Attempt: 2}}}, "is Deferred"},
		"once it has a result": {append(waits[:5:5], ok("a", 1)), deferredEntry("a", 1, "task"), "was not under way"},
	} {
		t.Run(name, func(t *testing.T) {
			draft := journalOf(t, test.entries...)
			if err := draft.Add(test.then, Meta{Time: beginning, ActiveMillis: 1 << 40}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestParkedTimeIsWork(t *testing.T) {
	waits := journalOf(t, begun(proposed(callOf("a", ReadOnly, allowed)), dispatched(1, "a"), say(deferredEntry("a", 1, "task")),
		say(Released{Worker: "a", Waiting: WaitingForTool}))...).State
	if got := waits.Parked(waits.LastTime.Add(time.Minute)); got != time.Minute {
		t.Errorf("a run that waits for a tool has worked %s in a minute", got)
	}
	people := journalOf(t, begun(say(Released{Worker: "a", Waiting: "ApprovalRequired"}))...).State
	if got := people.Parked(people.LastTime.Add(time.Minute)); got != 0 {
		t.Errorf("a run that waits for people has worked %s", got)
	}
}
