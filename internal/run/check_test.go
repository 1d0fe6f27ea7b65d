package run

import (
	"testing"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// TestLateRejection checks that an attempt which did nothing settles only a call that had
// no other: an earlier one may have taken effect.
func TestLateRejection(t *testing.T) {
	for name, test := range map[string]struct {
		attempts int32
		effect   string
		want     bool
	}{
		"the only attempt did nothing":    {1, journal.EffectRejected, true},
		"the second attempt did nothing":  {2, journal.EffectRejected, false},
		"the second attempt took effect":  {2, journal.EffectCommitted, true},
		"the only attempt is not decided": {1, journal.EffectUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			state := &journal.State{
				Transcript: []journal.Turn{{Calls: []journal.CallState{{Call: journal.Call{ID: "a"}, Attempt: test.attempts}}}},
				Unknown:    []journal.UnknownEffect{{CallID: "a", EffectKey: "key"}},
			}
			if _, fits := RecordLate(Facts{State: state}, "a", 1, tool.Outcome{Effect: tool.EffectState(test.effect)}); fits != test.want {
				t.Errorf("taken as evidence: %v, want %v", fits, test.want)
			}
		})
	}
}
