package run

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
)

var record = flag.Bool("record", false, "record the journal of the current format anew, before it is released")

// recorded is where the journal of format v1 is kept, for the test of package journal too.
var recorded = filepath.Join("..", "journal", "testdata", "journal-v1.json")

// storedEvent is one event of a recorded journal.
type storedEvent struct {
	Event string `json:"event"`
	Part  []byte `json:"part,omitempty"`
}

// everything is a run in which each type of event occurs.
func everything(t *testing.T) *stage {
	reply := proposes(called("a1:read", `{"k":"<a & b>"}`), called("a2:nothing", `{}`))
	reply.Raw = json.RawMessage(`{"role":"assistant","signature":"<kept>"}`)
	spec := asking(returning(3600))
	spec.Tools = append(slices.Clone(spec.Tools), v1alpha1.ToolProperties{Match: []string{"s.act"}, MaxCallsPerRun: 3})
	return scene{
		spec:    spec,
		started: func(r *journal.RunStarted) { r.Labels, r.CreatedBy = map[string]string{"team": "support"}, "jane" },
		acts: []act{
			breaks(model.Error{Class: model.ClassTransient, Status: 503, Sent: true}), untilThen,
			says(reply), lands("a1", notSent), untilThen, lands("a1", gave(`{"order":4711,"total":12.50}`)),
			says(invalidReply(model.CodeEmpty)),
			calls(called("q:ask", `{"question":"Which order?"}`)), passes(time.Minute), answers("the first"),
			calls(called("i:request_approval", `{"text":"May I pay?","calls":[{"tool":"pay","arguments":{"n":1}}]}`)), approves,
			pays, lands("p1", gave(`"paid"`)),
			paysLess, denies,
			calls(called("p4:pay", `{"n":4}`)), approves, restarts, settlesAs("committed"),
			wants(Suspended), passes(time.Hour), says(readsAgain(1)), wants(Active), lands("r1", toolError),
			calls(called("z:act", `{"n":9}`)), lands("z", lostReply), wants(Cancelled), settlesAs("rejected"),
		},
		wantKind: Done, wantReason: v1alpha1.ReasonCancelled,
	}.play(t)
}

// Each request of the recorded journal can still be rebuilt: another projection needs
// another version.
func TestRequestsOfTheRecordedJournalCanBeRebuilt(t *testing.T) {
	s := everything(t)
	if *record {
		writeRecorded(t, s.records)
	}
	checkRequests(t, s.records)
	checkRequests(t, readRecorded(t))
}

func writeRecorded(t *testing.T, records []journal.Record) {
	var events []storedEvent
	for _, r := range records {
		events = append(events, storedEvent{Event: string(r.Bytes), Part: r.Part})
	}
	data, err := json.MarshalIndent(events, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, append(data, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readRecorded(t *testing.T) []journal.Record {
	data, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var events []storedEvent
	if err := json.Unmarshal(data, &events); err != nil {
		t.Fatal(err)
	}
	var records []journal.Record
	for _, stored := range events {
		event, err := journal.Decode([]byte(stored.Event))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, journal.Record{Event: event, Bytes: []byte(stored.Event), Part: stored.Part})
	}
	return records
}

// Every type of event is in the recorded journal, so that none changes unnoticed.
func TestTheRecordedJournalHasEveryType(t *testing.T) {
	seen := map[journal.Type]bool{}
	for _, r := range readRecorded(t) {
		seen[r.Event.Type] = true
	}
	for _, want := range []journal.Type{
		journal.TypeClaimed, journal.TypeReleased, journal.TypeRunStarted, journal.TypeDecisionMade, journal.TypeModelFailed,
		journal.TypeApprovalRequested, journal.TypeApprovalGranted, journal.TypeApprovalDenied, journal.TypeCallDispatched, journal.TypeCallCompleted,
		journal.TypeEffectReconciled, journal.TypeTurnCompleted, journal.TypeQuestionAsked, journal.TypeQuestionAnswered,
		journal.TypeSuspended, journal.TypeResumed, journal.TypeFinished,
	} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
}

// A run that waits for days goes on under a newer build: what comes next is what the
// build that wrote the journal would have done.
func TestEveryMomentOfTheRecordedJournalHasAStep(t *testing.T) {
	records := readRecorded(t)
	for n := range len(records) + 1 {
		state, err := journal.Fold(testUID, records[:n])
		if err != nil {
			t.Fatal(err)
		}
		f := Facts{Now: beginning.Add(48 * time.Hour), State: state, Desired: Active, Policies: compiled(t, *asking(returning(3600))), Configuration: ptr.To(Configuration{Started: sampleRun()})}
		if state.Events > 0 {
			f.Now = state.LastTime
		}
		if step := Next(f); step.Kind == "" || step.Kind == Done && n < len(records)-1 && state.Finished == nil {
			t.Errorf("after event %d: %+v", n, step)
		}
	}
}
