package journal

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden states anew")

const testUID = "5f0c2a4e-0000-4000-8000-000000000001"

// recorded reads the journal that was recorded when format v1 was current.
func recorded(t testing.TB) []Record {
	t.Helper()
	data, err := os.ReadFile("testdata/journal-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var stored []struct {
		Event string
		Part  []byte
	}
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	var records []Record
	for _, s := range stored {
		event, err := Decode([]byte(s.Event))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, Record{Event: event, Bytes: []byte(s.Event), Part: s.Part})
	}
	return records
}

// The recorded journal folds to the state that it always folded to. A member of State
// that is new shows here, and is fine; one that reads differently is not: a run may
// wait for days across upgrades.
func TestTheRecordedJournalFoldsToTheSameState(t *testing.T) {
	state, err := Fold(testUID, recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	got := shown(t, state)
	const golden = "testdata/state-v1.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("-recorded +now:\n%s", cmp.Diff(string(want), string(got)))
	}
}

// shown is the state as JSON, without what is empty: a new member changes nothing until
// some event sets it.
func shown(t *testing.T, state *State) []byte {
	t.Helper()
	data, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	data, err = json.MarshalIndent(withoutEmpty(value), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

func withoutEmpty(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withoutEmpty(v[name])
			switch v[name] {
			case nil, "", false, 0.0, "0001-01-01T00:00:00Z":
				delete(v, name)
			}
		}
	}
	return value
}

// What this build writes of the recorded events is what was recorded, byte for byte:
// another format needs another version.
func TestTheFormatIsStable(t *testing.T) {
	draft := &Draft{State: NewState(testUID)}
	for _, record := range recorded(t) {
		event := record.Event
		payload, err := payloadOf(event)
		if err != nil {
			t.Fatal(err)
		}
		if err := draft.Add(payload, Meta{Time: event.Time, By: event.By, ActiveMillis: event.ActiveMillis, Part: record.Part}); err != nil {
			t.Fatal(err)
		}
		if got := draft.Records[len(draft.Records)-1]; !bytes.Equal(got.Bytes, record.Bytes) {
			t.Fatalf("event %d is written as\n%s\nand was recorded as\n%s", event.Seq, got.Bytes, record.Bytes)
		}
	}
}

// payloadOf decodes an event's payload into its own type.
func payloadOf(event Event) (Payload, error) {
	decode, known := map[Type]func(json.RawMessage) (Payload, error){
		TypeClaimed: as[Claimed], TypeReleased: as[Released], TypeRunStarted: as[RunStarted], TypeDecisionMade: as[DecisionMade],
		TypeModelFailed: as[ModelFailed], TypeApprovalRequested: as[ApprovalRequested], TypeApprovalGranted: as[ApprovalGranted],
		TypeApprovalDenied: as[ApprovalDenied], TypeCallDispatched: as[CallDispatched], TypeCallCompleted: as[CallCompleted],
		TypeEffectReconciled: as[EffectReconciled], TypeTurnCompleted: as[TurnCompleted], TypeQuestionAsked: as[QuestionAsked],
		TypeQuestionAnswered: as[QuestionAnswered], TypeSuspended: as[Suspended], TypeResumed: as[Resumed], TypeFinished: as[Finished],
	}[event.Type]
	if !known {
		return nil, os.ErrInvalid
	}
	return decode(event.Data)
}

func as[P Payload](data json.RawMessage) (Payload, error) {
	var payload P
	err := decodeStrict(data, &payload)
	return payload, err
}
