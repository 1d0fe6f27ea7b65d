package sim

import (
	"fmt"
	"maps"
	"slices"
)

// add sums up.
func (c *Counts) add(o Counts) {
	into, from := c.all(), o.all()
	for i := range into {
		*into[i] += *from[i]
	}
	if c.Troubles == nil {
		c.Troubles = map[string]int{}
	}
	for _, name := range sortedNames(o.Troubles) {
		c.Troubles[name] += o.Troubles[name]
	}
}

func sortedNames(of map[string]int) []string { return slices.Sorted(maps.Keys(of)) }

// all lists the counts.
func (c *Counts) all() []*int {
	return []*int{
		&c.Steps, &c.Runs, &c.Events, &c.Starts, &c.Crashes, &c.Pauses, &c.Handovers, &c.Partitions,
		&c.Takeovers, &c.Unknown, &c.Dispatches, &c.Requests, &c.Effects, &c.ModelCalls,
		&c.Lookups, &c.LostEvents, &c.Deleted, &c.Destroyed, &c.Damaged, &c.Stripped,
		&c.Refusals, &c.CheckpointFailed, &c.Panics, &c.Edits, &c.Namespaces, &c.Late, &c.Claims, &c.Cancelled, &c.Forced, &c.Steady, &c.AtLimit, &c.Accepted,
	}
}

// String is one line for people.
func (c Counts) String() string {
	return fmt.Sprintf("%d steps, %d runs, %d journal events, %d crashes, %d pauses, %d hand-overs, %d partitions, "+
		"%d claims, of them %d takeovers, %d unknown outcomes, %d dispatches, %d requests, %d effects, %d calls that go on outside, %d answers when nobody waited any more, "+
		"%d model calls, %d look-ups, %d lost watch events, %d edits of policies and Models, %d deletions, %d finalizers taken off, "+
		"%d namespaces ended, %d refused segments, %d journals destroyed, %d damaged, %d runs ended as CheckpointFailed",
		c.Steps, c.Runs, c.Events, c.Crashes, c.Pauses, c.Handovers, c.Partitions, c.Claims, c.Takeovers, c.Unknown,
		c.Dispatches, c.Requests, c.Effects, c.Accepted, c.Late, c.ModelCalls, c.Lookups, c.LostEvents, c.Edits, c.Deleted, c.Stripped,
		c.Namespaces, c.Refusals, c.Destroyed, c.Damaged, c.CheckpointFailed)
}
