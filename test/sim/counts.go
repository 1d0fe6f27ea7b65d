package sim

import "fmt"

// add sums up.
func (c *Counts) add(o Counts) {
	c.Steps += o.Steps
	c.Runs += o.Runs
	c.Events += o.Events
	c.Crashes += o.Crashes
	c.Pauses += o.Pauses
	c.Handovers += o.Handovers
	c.Partitions += o.Partitions
	c.Takeovers += o.Takeovers
	c.Unknown += o.Unknown
	c.Dispatches += o.Dispatches
	c.Requests += o.Requests
	c.Effects += o.Effects
	c.ModelCalls += o.ModelCalls
	c.Lookups += o.Lookups
	c.LostEvents += o.LostEvents
	c.Deleted += o.Deleted
	c.Destroyed += o.Destroyed
}

// String is one line for people.
func (c Counts) String() string {
	return fmt.Sprintf("%d steps, %d runs, %d journal events, %d crashes, %d pauses, %d hand-overs, %d partitions, "+
		"%d takeovers, %d unknown outcomes, %d dispatches, %d requests, %d effects, %d model calls, %d look-ups, "+
		"%d lost watch events, %d deletions, %d journals destroyed",
		c.Steps, c.Runs, c.Events, c.Crashes, c.Pauses, c.Handovers, c.Partitions, c.Takeovers, c.Unknown,
		c.Dispatches, c.Requests, c.Effects, c.ModelCalls, c.Lookups, c.LostEvents, c.Deleted, c.Destroyed)
}
