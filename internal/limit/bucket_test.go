package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// TestNoMinuteHasMoreThanItsLimit takes tokens greedily by a caller that comes late at
// random, and looks at every minute.
func TestNoMinuteHasMoreThanItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int32{1, 2, 3, 7, 59, 60, 61, 119, 120, 600, 3000}).Draw(t, "limit")
		late := rapid.SampledFrom([]int64{0, int64(time.Millisecond), int64(100 * time.Millisecond), int64(5 * time.Second)}).Draw(t, "late")
		var b Bucket
		var taken []time.Time
		for now := start; now.Before(start.Add(5 * time.Minute)); {
			if at := b.Next(now, limit, 1); at.After(now) {
				now = at.Add(time.Duration(rapid.Int64Range(0, late).Draw(t, "later")))
				continue
			}
			b.Take(now, limit)
			taken = append(taken, now)
		}
		for i := range taken {
			if j := i + int(limit); j < len(taken) && taken[j].Sub(taken[i]) < time.Minute {
				t.Fatalf("%d were begun within %s, the limit is %d", limit+1, taken[j].Sub(taken[i]), limit)
			}
		}
		if floor := 5 * int(limit) * 95 / 100; late <= int64(time.Millisecond) && len(taken) < floor {
			t.Errorf("only %d were begun in five minutes, the limit is %d a minute", len(taken), limit)
		}
	})
}

func TestNextCountsThoseThatWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int32Range(1, 1000).Draw(t, "limit")
		n := rapid.IntRange(1, 50).Draw(t, "n")
		var b Bucket
		now := start
		for range rapid.IntRange(0, 20).Draw(t, "taken") {
			b.Take(now, limit)
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")))
		}
		want := b.Next(now, limit, n)
		for range n {
			now = b.Next(now, limit, 1)
			if n--; n > 0 {
				b.Take(now, limit)
			}
		}
		if !now.Equal(want) {
			t.Errorf("the last of those that wait comes %s after what it was told", now.Sub(want))
		}
	})
}

func TestARaisedLimitHoldsAtOnce(t *testing.T) {
	var b Bucket
	b.Take(start, 1)
	if at := b.Next(start, 600, 1); at.After(start.Add(time.Second)) {
		t.Errorf("waits until %s after the limit was raised", at.Sub(start))
	}
	if at := b.Next(start, 1, 1); at.Sub(start) != time.Minute {
		t.Errorf("waits %s under one a minute", at.Sub(start))
	}
	if b.Full(start.Add(59*time.Second)) || !b.Full(start.Add(time.Minute)) {
		t.Error("the bucket is full at the wrong time")
	}
}
