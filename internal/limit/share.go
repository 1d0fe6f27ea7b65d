// Package limit divides what all replicas together may do among the workers that live,
// and says who is next of those that wait in one worker.
//
// Limits are cut into whole slots, and each slot belongs to exactly one worker by
// rendezvous hashing, so that the shares add up to the limit and a worker that comes or
// goes moves only the slots it gets or had. Nobody is asked and nothing is written:
// workers that see the same members come to the same shares.
//
// The package is pure: time reaches it as a value, and a Gate is used by one caller at a
// time.
package limit

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Limits of one thing, such as a Model, for all workers together. Zero is no limit.
type Limits struct {
	// Concurrent bounds what is under way at once.
	Concurrent int32
	// PerMinute bounds what is begun in a minute.
	PerMinute int32
}

// None says whether nothing is bounded.
func (l Limits) None() bool { return l.Concurrent <= 0 && l.PerMinute <= 0 }

// slots is what the limits are cut into: places where those are counted, otherwise the
// beginnings of a minute.
func (l Limits) slots() int64 {
	if l.Concurrent > 0 {
		return int64(l.Concurrent)
	}
	return int64(max(l.PerMinute, 0))
}

// beginnings is how many of a minute go with one slot.
func (l Limits) beginnings(slot int64) int32 {
	n, slots := int64(max(l.PerMinute, 0)), l.slots()
	return int32((slot+1)*n/slots - slot*n/slots)
}

// Unbounded in a Share means that there is no limit.
const Unbounded = -1

// Share is one worker's part of Limits. The zero Share is nothing.
type Share struct {
	// Concurrent and PerMinute are counts, or Unbounded.
	Concurrent, PerMinute int32
}

// Free is the share of who is not limited.
var Free = Share{Concurrent: Unbounded, PerMinute: Unbounded}

// Nothing says whether the share lets nothing begin.
func (s Share) Nothing() bool { return s.Concurrent == 0 || s.PerMinute == 0 }

// Weight says how much a worker can take on, compared with others that share the same
// limits; 0 for nothing.
func (s Share) Weight() int32 {
	switch {
	case s.Nothing():
		return 0
	case s.Concurrent > 0:
		return s.Concurrent
	case s.PerMinute > 0:
		return s.PerMinute
	default:
		return 1
	}
}

// Divide cuts limits into one share for each member, in their order. The name tells the
// thing that is limited from others, so that different workers get the odd slots.
func Divide(name string, limits Limits, members []string) []Share {
	shares := make([]Share, len(members))
	if limits.None() {
		for i := range shares {
			shares[i] = Free
		}
		return shares
	}
	for i := range shares {
		if limits.Concurrent <= 0 {
			shares[i].Concurrent = Unbounded
		}
		if limits.PerMinute <= 0 {
			shares[i].PerMinute = Unbounded
		}
	}
	for slot, owner := range owners(name, limits.slots(), members) {
		if limits.Concurrent > 0 {
			shares[owner].Concurrent++
		}
		if limits.PerMinute > 0 {
			shares[owner].PerMinute += limits.beginnings(int64(slot))
		}
	}
	return shares
}

// owners gives for each slot the index of the member that has it.
func owners(name string, slots int64, members []string) []int {
	if len(members) == 0 {
		return nil
	}
	seeds := make([]uint64, len(members))
	for i, member := range members {
		seeds[i] = hash(name, member)
	}
	out := make([]int, slots)
	for slot := range out {
		best, bestWeight := 0, uint64(0)
		for i, seed := range seeds {
			weight := scramble(seed, uint64(slot))
			if i == 0 || weight > bestWeight || (weight == bestWeight && members[i] < members[best]) {
				best, bestWeight = i, weight
			}
		}
		out[slot] = best
	}
	return out
}

func hash(parts ...string) uint64 {
	digest := sha256.New()
	for _, part := range parts {
		digest.Write([]byte(part))
		digest.Write([]byte{'\n'})
	}
	return binary.BigEndian.Uint64(digest.Sum(nil)[:8])
}

// scramble is the n-th number of the splitmix64 sequence that begins at a seed: a slot
// costs no cryptographic hash, since there may be a hundred thousand.
func scramble(seed, n uint64) uint64 {
	x := seed + (n+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Rank is how many of the members come before one of them in a run's order of
// preference: rendezvous hashing by weight, so that each is first for a part of all runs
// that is as large as its share. Members of weight 0 come before nobody.
func Rank(run, self string, members []string, weights []int32) int {
	own := math.Inf(1)
	for i, member := range members {
		if member == self {
			own = lateness(run, member, weights[i])
		}
	}
	rank := 0
	for i, member := range members {
		if member == self || weights[i] <= 0 {
			continue
		}
		if other := lateness(run, member, weights[i]); other < own || (other == own && member < self) {
			rank++
		}
	}
	return rank
}

// lateness is an exponentially distributed number whose rate is the weight: the chance
// of being the earliest is in proportion to it.
func lateness(run, member string, weight int32) float64 {
	if weight <= 0 {
		return math.Inf(1)
	}
	uniform := (float64(hash(run, member)>>11) + 0.5) / (1 << 53)
	return -math.Log(uniform) / float64(weight)
}
