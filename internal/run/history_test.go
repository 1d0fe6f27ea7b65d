package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/journal"
)

// TestAHundredCallsOfFiveKilobytes makes the run that an engine which records whole
// conversations ended at its 53rd model call: a hundred calls, five kilobytes each. The
// journal holds each result once, so it grows as the run does and stays below two mebibytes.
func TestAHundredCallsOfFiveKilobytes(t *testing.T) {
	const turns = 100
	s := newStage(t, sampleRun(func(r *journal.RunStarted) {
		r.Limits.MaxTurns, r.Limits.MaxToolCalls, r.Limits.MaxTokens = turns+1, turns, 1_000_000_000
		r.MaxToolResultBytes = 8 << 10
	}))
	s.facts.Policies = compiled(t, sampleSpec())
	s.drive()
	var half int64
	for n := range turns {
		s.answer(readsAgain(n))
		s.drive()
		s.land(fmt.Sprintf("r%d", n), gave(fmt.Sprintf("%q", fmt.Sprint(n)+strings.Repeat("x", 5<<10))))
		s.drive()
		if n+1 == turns/2 {
			half = s.state().Bytes
		}
	}
	s.answer(finalAnswer("done"))
	s.drive()
	if s.reason() != "Completed" || s.state().ToolCalls != turns {
		t.Fatalf("ended as %q after %d calls", s.reason(), s.state().ToolCalls)
	}
	whole := s.state().Bytes
	if whole > 2<<20 || whole > half*21/10 {
		t.Errorf("the journal has %d bytes, %d at half way", whole, half)
	}
	t.Logf("%d bytes for %d calls", whole, turns)
}
