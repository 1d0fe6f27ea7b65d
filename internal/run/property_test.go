package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/prompt"
)

func TestWhateverHappensARunKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.play(dice(t, "moves", 120))
		w.conclude()
		w.die()
		checkRequests(t, w.records)
		w.checkRecords()
	})
}

// checkRequests checks that each request that was made can be rebuilt from the journal.
func checkRequests(t tb, records []journal.Record) {
	t.Helper()
	state := journal.NewState(testUID)
	for _, record := range records {
		checkRequest(t, state, record)
		if err := state.Apply(record); err != nil {
			t.Fatalf("folding: %v", err)
		}
	}
}

func checkRequest(t tb, state *journal.State, record journal.Record) {
	t.Helper()
	var answer journal.Payload
	var digest string
	switch record.Event.Type {
	case journal.TypeDecisionMade:
		decision := decoded[journal.DecisionMade](t, record)
		answer, digest = decision, decision.RequestDigest
		if decision.Projection != max(state.Run.Projection, 1) {
			t.Fatalf("turn %d has projection %d", record.Event.Turn, decision.Projection)
		}
	case journal.TypeContextSummarised:
		summary := decoded[journal.ContextSummarised](t, record)
		answer, digest = summary, summary.RequestDigest
	default:
		return
	}
	if request, ok := prompt.Rebuild(state, answer); !ok || prompt.Digest(request) != digest {
		t.Fatalf("the request behind event %d can't be rebuilt from the journal", record.Event.Seq)
	}
}

// checkRecords checks that the journal is read in one way only: shortened, reordered
// or altered it is refused, or is the journal of an earlier moment.
func (w *world) checkRecords() {
	cut := rapid.IntRange(0, len(w.records)).Draw(w.rapid, "cut")
	prefix, err := journal.Fold(testUID, w.records[:cut])
	if err != nil || prefix.Events != int64(cut) {
		w.t.Fatalf("the first %d events: %v", cut, err)
	}
	if cut >= len(w.records)-1 {
		return
	}
	damaged := append([]journal.Record{}, w.records...)
	switch rapid.IntRange(0, 4).Draw(w.rapid, "damage") {
	case 0:
		damaged = append(damaged[:cut], damaged[cut+1:]...)
	case 1:
		damaged[cut], damaged[cut+1] = damaged[cut+1], damaged[cut]
	case 2:
		damaged = append(damaged[:cut+1], damaged[cut:]...)
	case 3:
		damaged[cut].Part = append([]byte(marker), damaged[cut].Part...)
	default:
		flipped, ok := w.flip(damaged[cut])
		if !ok {
			return
		}
		damaged[cut] = flipped
	}
	state, err := journal.Fold(testUID, damaged)
	if err == nil {
		w.t.Fatalf("a damaged journal is read as if it were whole")
	}
	// What is refused leaves no trace.
	again, _ := journal.Fold(testUID, damaged[:state.Events])
	if diff := cmp.Diff(again, state); diff != "" {
		w.t.Fatalf("a record that was refused changed the state:\n%s", diff)
	}
}

// flip changes one bit of a stored event. It is not ok where that alone is refused.
func (w *world) flip(record journal.Record) (journal.Record, bool) {
	data := append([]byte{}, record.Bytes...)
	data[rapid.IntRange(0, len(data)-1).Draw(w.rapid, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(w.rapid, "bit")
	event, err := journal.Decode(data)
	if err != nil {
		return journal.Record{}, false
	}
	return journal.Record{Event: event, Bytes: data, Part: record.Part}, true
}
