package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever a stored event holds, reading it is an error or a step of the state, and an
// error changes nothing. The event is read after the first n of the recorded journal.
func FuzzDecodeAndApply(f *testing.F) {
	records := recorded(f)
	for i, record := range records {
		f.Add(i, record.Bytes, record.Part)
	}
	f.Add(0, []byte(`{"v":1,"seq":1,"type":"Claimed","data":null}`), []byte(nil))
	f.Add(3, []byte(`{"v":1,"seq":4,"type":"DecisionMade","data":{"kind":"ToolCalls"}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, after int, data, part []byte) {
		if after < 0 || after > len(records) {
			return
		}
		event, err := Decode(data)
		if err != nil {
			return
		}
		state, err := Fold(testUID, records[:after])
		if err != nil {
			t.Fatal(err)
		}
		// Most of what a fuzzer finds does not fit the chain; what does is of interest.
		event.Seq, event.Prev, event.Epoch = state.Events+1, state.Head, max(state.Epoch, min(event.Epoch, state.Epoch+1))
		before, _ := Fold(testUID, records[:after])
		if err := state.Apply(Record{Event: event, Bytes: data, Part: part}); err != nil {
			if diff := cmp.Diff(before, state); diff != "" {
				t.Fatalf("refused (%v), and changed the state:\n%s", err, diff)
			}
			return
		}
		if state.Events != before.Events+1 || state.Epoch < before.Epoch || state.Turns < before.Turns {
			t.Fatalf("the state went back: %+v", state)
		}
	})
}
