package limit

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawMembers(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]{1,4}`), 1, 8, rapid.ID[string]).Draw(t, "members")
}

func drawLimits(t *rapid.T) Limits {
	return Limits{
		Concurrent: rapid.SampledFrom([]int32{0, 1, 2, 3, 4, 7, 64, 1000}).Draw(t, "concurrent"),
		PerMinute:  rapid.SampledFrom([]int32{0, 1, 2, 5, 30, 600, 5000}).Draw(t, "perMinute"),
	}
}

func TestSharesAddUpToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, limits := drawMembers(t), drawLimits(t)
		name := rapid.StringMatching(`[a-z/]{1,8}`).Draw(t, "name")
		var concurrent, perMinute int32
		able := 0
		for _, share := range Divide(name, limits, members) {
			concurrent += share.Concurrent
			perMinute += share.PerMinute
			if share.Weight() > 0 {
				able++
			}
			if share.Nothing() != (share.Weight() == 0) {
				t.Fatalf("%+v weighs %d", share, share.Weight())
			}
		}
		n := int32(len(members))
		if want := limits.Concurrent; concurrent != want && (want != 0 || concurrent != Unbounded*n) {
			t.Errorf("places add up to %d, want %d", concurrent, want)
		}
		if want := limits.PerMinute; perMinute != want && (want != 0 || perMinute != Unbounded*n) {
			t.Errorf("beginnings of a minute add up to %d, want %d", perMinute, want)
		}
		if able == 0 {
			t.Error("nobody may begin anything")
		}
	})
}

func TestSharesDependOnMembersAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, limits := drawMembers(t), drawLimits(t)
		shuffled := rapid.Permutation(members).Draw(t, "shuffled")
		one, other := Divide("m", limits, members), Divide("m", limits, shuffled)
		for i, member := range members {
			if j := slices.Index(shuffled, member); one[i] != other[j] {
				t.Errorf("%s has %+v or %+v, by the order of the others", member, one[i], other[j])
			}
		}
	})
}

// TestLittleMovesWhenAMemberComesOrGoes reads one change in both directions.
func TestLittleMovesWhenAMemberComesOrGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		slots := rapid.Int64Range(1, 200).Draw(t, "slots")
		newcomer := "newcomer"
		before := owners("m", slots, members)
		after := owners("m", slots, append(slices.Clone(members), newcomer))
		if len(before) != int(slots) || len(after) != int(slots) {
			t.Fatalf("%d and %d of %d slots have an owner", len(before), len(after), slots)
		}
		for slot := range before {
			if after[slot] != len(members) && after[slot] != before[slot] {
				t.Errorf("slot %d went from %s to %s when another came", slot, members[before[slot]], members[after[slot]])
			}
		}
	})
}

func TestSlotsAreSpreadEvenly(t *testing.T) {
	members := []string{"a-1", "b-1", "c-1", "d-1"}
	for i, share := range Divide("ns/model", Limits{Concurrent: 10000}, members) {
		if share.Concurrent < 2300 || share.Concurrent > 2700 {
			t.Errorf("%s has %d of 10000 slots", members[i], share.Concurrent)
		}
	}
}

func TestRunsFollowSlots(t *testing.T) {
	members, weights := []string{"a", "b", "c", "d"}, []int32{3, 1, 0, 4}
	const runs = 8000
	first := make([]int, len(members))
	for i := range runs {
		run := fmt.Sprint("run-", i)
		ranks := map[int]int{}
		for j, member := range members {
			ranks[Rank(run, member, members, weights)] = j
		}
		if len(ranks) != len(members) || ranks[3] != 2 {
			t.Fatalf("%s: ranks are no order that ends with who has nothing: %v", run, ranks)
		}
		first[ranks[0]]++
		others := []string{"a", "b", "d"}
		if ranks[0] != 0 && Rank(run, members[ranks[0]], others[1:], []int32{1, 4}) != 0 {
			t.Errorf("%s moved when another worker left", run)
		}
	}
	for i, n := range first {
		want := runs * int(weights[i]) / 8
		if n < want*9/10 || n > want*11/10 {
			t.Errorf("%s is first for %d of %d runs, want about %d", members[i], n, runs, want)
		}
	}
	if got := Rank("run", "z", members, weights); got != 3 {
		t.Errorf("who is no member ranks %d", got)
	}
}
