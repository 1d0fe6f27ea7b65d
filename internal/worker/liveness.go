// Package worker is membership: which replicas there are, which of them still live, and
// which of them is to take up a run.
//
// A worker is a name plus a random incarnation, so that a restart is a new worker. Each
// keeps one Lease; its cost grows with replicas, not with runs. A Lease never fences
// anything by itself: what keeps two workers apart is the journal, where a claim is an
// append with a new epoch. Leases only say when a claim may be tried.
package worker

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/canary"
)

// maxGap is the longest pause between two ticks that still counts as having watched.
// A worker that slept longer knows nothing about the time it slept through.
const maxGap = time.Second

// Seen is one Lease as a live read showed it.
type Seen struct {
	// Name of the worker, Holder its identity, empty once released.
	Name, Holder string
	// Draining is true for a worker that hands its runs over: it lives, but takes up none.
	Draining bool
	// UID and Version change when the Lease is replaced or renewed.
	UID, Version string
}

// Observer decides which workers are dead. It is pure: it is fed ticks and live reads,
// and its times are those of this worker's own monotonic clock, so no two clocks are
// ever compared.
type Observer struct {
	lease    time.Duration
	lastTick time.Time
	seen     map[string]observation
}

type observation struct {
	Seen
	// since is when this version was first seen, with no gap in the watch since.
	since time.Time
	dead  bool
}

// NewObserver returns an Observer for leases of a duration.
func NewObserver(lease time.Duration) *Observer {
	return &Observer{lease: lease, seen: map[string]observation{}}
}

// Tick notes that this worker is awake, and whether it could renew its own lease
// lately. After a gap, or without a lease of one's own, watching starts again: a
// replica that slept, or an API server that was away, must not make the others look dead.
func (o *Observer) Tick(now time.Time, fresh bool) {
	watched := canary.Is(canary.PauseBlind) || fresh && !o.lastTick.IsZero() && now.Sub(o.lastTick) <= maxGap
	o.lastTick = now
	if watched {
		return
	}
	for name, observed := range o.seen {
		observed.since, observed.dead = now, false
		o.seen[name] = observed
	}
}

// Observe takes a live read of every Lease. What the read does not show is gone.
func (o *Observer) Observe(now time.Time, leases []Seen) {
	current := map[string]observation{}
	for _, lease := range leases {
		old, known := o.seen[lease.Name]
		if !known || old.Seen != lease {
			current[lease.Name] = observation{Seen: lease, since: now}
			continue
		}
		old.dead = old.dead || now.Sub(old.since) >= o.lease
		current[lease.Name] = old
	}
	o.seen = current
}

// LongDead lists the Leases that did not change for so long while this worker watched:
// nobody will come back for them.
func (o *Observer) LongDead(now time.Time, age time.Duration) []Seen {
	var out []Seen
	for _, observed := range o.seen {
		if observed.dead && now.Sub(observed.since) >= age {
			out = append(out, observed.Seen)
		}
	}
	slices.SortFunc(out, func(a, b Seen) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// State is what is known of a worker.
type State string

// States of a worker.
const (
	// Live means that its lease is held, as far as one can tell.
	Live State = "Live"
	// Dead means that its lease was not renewed for a whole duration of watching, that a
	// later incarnation has it, or that it was released or deleted.
	Dead State = "Dead"
)

// State says whether a worker, by its identity, lives. It must be asked only after a
// live read.
func (o *Observer) State(identity string) State {
	for _, observed := range o.seen {
		if observed.Holder == identity && !observed.dead && !canary.Is(canary.LeaseIgnored) {
			return Live
		}
	}
	return Dead
}

// Workers lists the identities that live and take up runs, sorted.
func (o *Observer) Workers() []string {
	return o.identities(func(observed observation) bool { return !observed.Draining })
}

// Sharers lists the identities that live, sorted: what a worker that hands its runs over
// has under way still counts against what all may do together.
func (o *Observer) Sharers() []string {
	return o.identities(func(observation) bool { return true })
}

func (o *Observer) identities(counts func(observation) bool) []string {
	live := map[string]bool{}
	for _, observed := range o.seen {
		if observed.Holder != "" && !observed.dead && counts(observed) {
			live[observed.Holder] = true
		}
	}
	return slices.Sorted(maps.Keys(live))
}
