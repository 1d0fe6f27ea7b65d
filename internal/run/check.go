package run

import (
	"encoding/json"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// Bounds of the back-off between two look-ups of one effect.
const (
	minCheckInterval = time.Second
	maxCheckInterval = 5 * time.Minute
)

// Found is what a service says became of an effect.
type Found struct {
	// State is committed or rejected; anything else leaves the effect unknown. That the
	// service does not know the key proves nothing: the request may still be on its way.
	State string
	Value json.RawMessage
	// Truncated and Embedded are as in an outcome.
	Truncated bool
	Embedded  []string
}

// RecordFound settles an unknown effect when the service knows what became of it.
func RecordFound(f Facts, id string, found Found) (Entry, bool) {
	if found.State != journal.EffectCommitted && found.State != journal.EffectRejected {
		return Entry{}, false
	}
	for _, unknown := range f.State.Unknown {
		if unknown.CallID == id {
			k := keep(f.State, foundValue(f, id, found))
			return Entry{Payload: journal.EffectReconciled{
				ID: id, EffectKey: unknown.EffectKey, Effect: found.State, Source: journal.SourceService, Value: k.value, Artifact: k.artifact,
			}, Content: k.content}, true
		}
	}
	return Entry{}, false
}

// foundValue is what may be stored of a value that comes after the call's own answer.
func foundValue(f Facts, id string, found Found) json.RawMessage {
	if call := f.State.Call(id); call != nil {
		return redacted(f, call.Call, tool.Outcome{Value: found.Value, Truncated: found.Truncated, Embedded: found.Embedded}).Value
	}
	return found.Value
}

// checkAt is when an unknown effect is to be looked up next: at once, then at intervals
// that double with the time that it has been unknown.
func checkAt(f Facts, unknown journal.UnknownEffect) time.Time {
	last, checked := f.Checked[unknown.CallID]
	if !checked {
		return unknown.NotedAt
	}
	interval := min(max(last.Sub(unknown.NotedAt), minCheckInterval), maxCheckInterval)
	return last.Add(interval)
}

// checksDue lists the unknown effects that can be looked up now.
func checksDue(f Facts) []journal.UnknownEffect {
	var due []journal.UnknownEffect
	for _, unknown := range f.State.Unknown {
		if unknown.Reconcile != "" && !f.Checking[unknown.CallID] && !f.Now.Before(checkAt(f, unknown)) {
			due = append(due, unknown)
		}
	}
	return due
}

// nextCheck is the earliest time of a look-up, zero for none.
func nextCheck(f Facts) time.Time {
	var next time.Time
	for _, unknown := range f.State.Unknown {
		if unknown.Reconcile != "" && !f.Checking[unknown.CallID] {
			next = earliest(next, checkAt(f, unknown))
		}
	}
	return next
}

// lastCheck looks up once, before a run ends, what became of its unknown effects.
func lastCheck(f Facts) (Step, bool) {
	var due []journal.UnknownEffect
	for _, unknown := range f.State.Unknown {
		if unknown.Reconcile == "" {
			continue
		}
		if f.Checking[unknown.CallID] {
			return Step{Kind: Await, Waiting: "OutcomeUnknown"}, true
		}
		if _, checked := f.Checked[unknown.CallID]; !checked {
			due = append(due, unknown)
		}
	}
	return Step{Kind: Check, Unknown: due}, len(due) > 0
}

// RecordLate is the outcome of a call whose sender lost the run meanwhile: evidence for
// an effect that is unknown, and nothing else. That one attempt did nothing proves nothing
// where there were others.
func RecordLate(f Facts, id string, epoch int64, outcome tool.Outcome) (Entry, bool) {
	effect := string(outcome.Effect)
	if effect == journal.EffectRejected && attemptsAt(f.State, id) > 1 {
		return Entry{}, false
	}
	entry, fits := RecordFound(f, id, Found{State: effect, Value: outcome.Value, Truncated: outcome.Truncated, Embedded: outcome.Embedded})
	if !fits {
		return Entry{}, false
	}
	settled, _ := entry.Payload.(journal.EffectReconciled)
	settled.Source, settled.Epoch, settled.Receipt = journal.SourceWorker, epoch, bounded(outcome.Receipt, 256)
	entry.Payload = settled
	return entry, true
}

// attemptsAt counts the attempts at a call of any turn.
func attemptsAt(s *journal.State, id string) int32 {
	for i := range s.Transcript {
		for j := range s.Transcript[i].Calls {
			if call := &s.Transcript[i].Calls[j]; call.Call.ID == id {
				return call.Attempt
			}
		}
	}
	return 0
}

// Undecided says whether the journal does not say yet how a call ends. What its sender
// knows is then no evidence, but may become some.
func Undecided(s *journal.State, id string) bool {
	call := openCall(s, id)
	return call != nil && (call.Phase == journal.PhaseDispatched || call.Phase == journal.PhaseRetrying)
}
