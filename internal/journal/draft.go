package journal

import (
	"fmt"
	"time"
)

// Draft collects events that are to be committed together. It applies each to its
// state at once, so that the next decision sees what it will follow; when the commit
// fails, draft and state are thrown away and the journal is folded anew.
type Draft struct {
	State   *State
	Records []Record
}

// Meta is what an event says beside its payload.
type Meta struct {
	Time         time.Time
	By           string
	ActiveMillis int64
	// Part goes with a DecisionMade.
	Part []byte
}

// Add appends one event. An error means that the turn machine proposed what can't
// follow; nothing was added.
func (d *Draft) Add(payload Payload, meta Meta) error {
	data, err := encode(payload)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", payload.Type(), err)
	}
	event := Event{
		V: Version, Seq: d.State.Events + 1, Type: payload.Type(),
		Time: meta.Time.UTC().Truncate(time.Microsecond), Epoch: d.State.Epoch, Turn: d.State.Turns,
		Prev: d.State.Head, By: meta.By, ActiveMillis: max(meta.ActiveMillis, d.State.ActiveMillis), Data: data,
	}
	switch payload.(type) {
	case Claimed:
		event.Epoch++
	case DecisionMade:
		event.Turn++
	}
	encoded, err := encode(event)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", payload.Type(), err)
	}
	record := Record{Event: event, Bytes: encoded, Part: meta.Part}
	if err := d.State.Apply(record); err != nil {
		return err
	}
	d.Records = append(d.Records, record)
	return nil
}
