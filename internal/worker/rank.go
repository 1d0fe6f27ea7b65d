package worker

import (
	"crypto/sha256"
	"encoding/binary"
)

// Rank is the place of a worker in a run's order of preference, 0 for the one that is
// to take it up: rendezvous hashing, so that a worker that comes or goes moves only the
// runs it would have. A worker that is not among the others ranks last.
func Rank(run, self string, workers []string) int {
	own := weight(run, self)
	rank, known := 0, false
	for _, other := range workers {
		if other == self {
			known = true
			continue
		}
		if w := weight(run, other); w > own || (w == own && other < self) {
			rank++
		}
	}
	if !known {
		return len(workers)
	}
	return rank
}

func weight(run, worker string) uint64 {
	sum := sha256.Sum256([]byte(run + "\n" + worker))
	return binary.BigEndian.Uint64(sum[:8])
}
