package agentrun

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/tool"
)

// withhold notes the attempts in records whose append failed. It may have been executed all
// the same, and then the journal announces what only this process knows was not sent.
func (f *Flights) withhold(uid types.UID, records []journal.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, record := range records {
		var dispatched journal.CallDispatched
		if record.Event.Type != journal.TypeCallDispatched || json.Unmarshal(record.Event.Data, &dispatched) != nil {
			continue
		}
		for _, call := range dispatched.Calls {
			f.byRun[uid] = append(f.byRun[uid], &flight{
				call: call.ID, attempt: call.Attempt, epoch: record.Event.Epoch, withheld: true,
				cancel: func() {}, started: f.clock.Now(), done: true,
				outcome: tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: true,
					Message: "the call was not sent, since the API server did not confirm that it was announced"},
			})
		}
	}
}

// stale says whether what was withheld is not what the journal announces: somebody has
// claimed the run since, and may have announced an attempt of the same number.
func (f *flight) stale(state *journal.State, worker string) bool {
	return f.withheld && (state.Owner != worker || state.Epoch != f.epoch)
}
