package sim

import (
	"testing"
	"time"
)

// TestReadings holds the simulated clocks to what package time promises of its own.
func TestReadings(t *testing.T) {
	early := reading(begin, time.Hour)
	late := reading(begin.Add(-time.Minute), time.Hour+time.Second) // set back by 61 s meanwhile
	if got := late.Sub(early); got != time.Second || !late.After(early) || !early.Add(2*time.Second).After(late) {
		t.Errorf("the monotonic difference is %s", got)
	}
	if !early.Round(0).Equal(begin) || !late.UTC().Round(0).Equal(begin.Add(-time.Minute)) {
		t.Errorf("the wall clocks say %s and %s", early, late)
	}
	if got := late.Round(0).Sub(early.Round(0)); got != -time.Minute {
		t.Errorf("the difference on the wall is %s", got)
	}
	if sum := early.Add(90 * time.Second); sum.Sub(early) != 90*time.Second || !sum.Round(0).Equal(begin.Add(90*time.Second)) {
		t.Errorf("90 s later it is %s", sum)
	}
}
