package run

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
)

// tb is what tests and property checks have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// beginning is when every run of these tests begins.
var beginning = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// stage plays the controller: it commits what the turn machine proposes, in order and
// under claims, and keeps what is in the air in memory that a restart loses.
type stage struct {
	t       tb
	facts   Facts
	draft   journal.Draft
	records []journal.Record
	// workers counts the incarnations, the newest being the one at work.
	workers int
	// mark is when active time was last booked.
	mark time.Time
	// artifacts are what was stored before the events that name it, by digest; problem is
	// what fetching them comes to instead, where set.
	artifacts map[string]string
	problem   string
	fetched   map[string]Fetched
	// asked is the request that the model has, calls what tools have.
	asked *Asked
	calls map[string]Sending
	// inquiries are questions in the air about calls that go on outside, by call, polled and
	// recalled what this process remembers of them.
	inquiries map[string]Sending
	polled    map[string]time.Time
	recalled  map[string]time.Time
	// committed, where set, sees each record once it is part of the journal.
	committed func(journal.Record)
}

const testUID = "5f0c2a4e-0000-4000-8000-000000000001"

func newStage(t tb, started *journal.RunStarted) *stage {
	s := &stage{
		t: t, workers: 1, mark: beginning, calls: map[string]Sending{},
		inquiries: map[string]Sending{}, polled: map[string]time.Time{}, recalled: map[string]time.Time{},
		artifacts: map[string]string{}, fetched: map[string]Fetched{},
		draft: journal.Draft{State: journal.NewState(testUID)},
		facts: Facts{Now: beginning, Desired: Active},
	}
	if started != nil {
		s.facts.Configuration = &Configuration{Started: started}
	}
	return s
}

func (s *stage) state() *journal.State { return s.draft.State }

func (s *stage) worker() string { return fmt.Sprintf("worker-%d", s.workers) }

// look gives the facts as they are now.
func (s *stage) look() Facts {
	f := s.facts
	f.State, f.Active = s.state(), s.active()
	f.ModelInFlight = s.asked != nil
	f.Polled, f.Recalled, f.Polling = s.polled, s.recalled, map[string]bool{}
	for id := range s.inquiries {
		f.Polling[id] = true
	}
	f.Fetched = s.fetched
	f.InFlight = map[string]bool{}
	for id := range s.calls {
		f.InFlight[id] = true
	}
	return f
}

func (s *stage) active() time.Duration {
	booked := time.Duration(s.state().ActiveMillis) * time.Millisecond
	if s.state().Owner != s.worker() {
		return booked + s.state().Parked(s.facts.Now)
	}
	return booked + s.facts.Now.Sub(s.mark)
}

// add commits one event, under a claim.
func (s *stage) add(entry Entry) {
	s.t.Helper()
	if _, settles := entry.Payload.(journal.EffectReconciled); !settles || s.state().Finished == nil {
		s.claim()
	}
	if entry.Content != "" {
		s.artifacts[journal.NewArtifact(entry.Content).Digest] = entry.Content
	}
	s.append(entry.Payload, journal.Meta{By: entry.By, Part: entry.Part})
}

func (s *stage) claim() {
	s.t.Helper()
	state := s.state()
	if state.Owner == s.worker() {
		return
	}
	claimed := journal.Claimed{Worker: s.worker(), Previous: state.Owner}
	if state.Owner != "" && state.DecisionDue() {
		lost := Lost(state)
		claimed.Lost = &lost
	}
	s.append(claimed, journal.Meta{})
}

func (s *stage) append(payload journal.Payload, meta journal.Meta) {
	s.t.Helper()
	meta.Time, meta.ActiveMillis = s.facts.Now, s.active().Milliseconds()
	if err := s.draft.Add(payload, meta); err != nil {
		s.t.Fatalf("the turn machine proposed %s: %v", payload.Type(), err)
	}
	s.mark = s.facts.Now
	record := s.draft.Records[0]
	s.draft.Records = nil
	s.records = append(s.records, record)
	if s.committed != nil {
		s.committed(record)
	}
}

// take acts on a step and says whether Next is to be asked again at once.
func (s *stage) take(step Step) (again bool) {
	s.t.Helper()
	for _, entry := range step.Events {
		s.add(entry)
	}
	switch step.Kind {
	case Commit:
		return true
	case Send:
		for _, sending := range step.Calls {
			s.calls[sending.Call.ID] = sending
		}
		return true
	case Fetch:
		s.fetch(step.Artifacts)
		return true
	case Poll, Recall:
		s.inquire(step)
		return true
	case AskModel:
		if s.state().Owner != s.worker() {
			// A claim may charge what the owner before lost, so the limits are looked
			// at once more before anything is asked.
			s.claim()
			return true
		}
		asked := Asking(step)
		s.asked = &asked
		return true
	case Await:
		// To await is to work, which only an owner does, or its time would not count.
		again = s.state().Owner != s.worker()
		s.claim()
		return again
	case Rest:
		if step.Anew {
			s.claim()
		}
		if s.state().Owner == s.worker() && s.state().Finished == nil {
			s.append(journal.Released{Worker: s.worker(), Waiting: step.Waiting}, journal.Meta{})
		}
		return false
	default:
		return false
	}
}

// inquire puts questions about calls that go on outside in the air.
func (s *stage) inquire(step Step) {
	for _, sending := range step.Calls {
		s.inquiries[sending.Call.ID] = sending
		if step.Kind == Recall {
			s.recalled[sending.Call.ID] = s.facts.Now
		}
	}
}

// fetch reads what was stored beside the journal.
func (s *stage) fetch(artifacts []journal.Artifact) {
	for _, artifact := range artifacts {
		s.fetched[artifact.Digest] = Fetched{Text: s.artifacts[artifact.Digest], Problem: s.problem}
	}
}

// drive takes steps until the run has to wait, and returns the step that says so.
func (s *stage) drive() Step {
	s.t.Helper()
	for range 64 {
		step := Next(s.look())
		if !s.take(step) {
			return step
		}
	}
	s.t.Fatalf("no end after 64 steps")
	return Step{}
}

// restart loses everything that is not in the journal.
func (s *stage) restart() {
	s.t.Helper()
	s.workers++
	s.asked, s.calls, s.inquiries = nil, map[string]Sending{}, map[string]Sending{}
	s.polled, s.recalled, s.fetched = map[string]time.Time{}, map[string]time.Time{}, map[string]Fetched{}
	state, err := journal.Fold(testUID, s.records)
	if err != nil {
		s.t.Fatalf("folding what was committed: %v", err)
	}
	s.draft = journal.Draft{State: state}
}

// answer gives the model's reply to the request in the air.
func (s *stage) answer(reply model.Reply) {
	s.t.Helper()
	if s.asked == nil {
		s.t.Fatalf("nobody asked the model")
	}
	entry := RecordReply(s.look(), *s.asked, reply)
	if s.asked.Through > 0 {
		entry = RecordSummary(s.look(), *s.asked, reply)
	}
	s.asked = nil
	s.add(entry)
}

// fail ends the request in the air without a decision.
func (s *stage) fail(failure *model.Error) {
	s.t.Helper()
	if s.asked == nil {
		s.t.Fatalf("nobody asked the model")
	}
	entry := RecordFailure(s.look(), *s.asked, failure)
	s.asked = nil
	s.add(entry)
}

// land ends a call in the air.
func (s *stage) land(id string, outcome tool.Outcome) {
	s.t.Helper()
	sending, flies := s.calls[id]
	if !flies {
		s.t.Fatalf("call %s is not under way", id)
	}
	entry, wanted := RecordOutcome(s.look(), id, sending.Attempt, outcome, time.Second)
	delete(s.calls, id)
	if !wanted {
		s.t.Fatalf("the outcome of call %s is not wanted", id)
	}
	s.add(entry)
}

// learn ends an inquiry in the air.
func (s *stage) learn(id string, outcome tool.Outcome) {
	s.t.Helper()
	sending, flies := s.inquiries[id]
	if !flies {
		s.t.Fatalf("nobody asks about call %s", id)
	}
	delete(s.inquiries, id)
	s.polled[id] = s.facts.Now
	if entry, wanted := RecordAnswer(s.look(), id, sending.Attempt, outcome); wanted {
		s.add(entry)
	}
}

// call finds a call anywhere in the run.
func (s *stage) call(id string) *journal.CallState {
	for i := range s.state().Transcript {
		for j := range s.state().Transcript[i].Calls {
			if call := &s.state().Transcript[i].Calls[j]; call.Call.ID == id {
				return call
			}
		}
	}
	return nil
}

// classes gives the class of each call's one result, by id.
func (s *stage) classes() map[string]string {
	classes := map[string]string{}
	for i := range s.state().Transcript {
		for _, call := range s.state().Transcript[i].Calls {
			if call.Phase == journal.PhaseDone {
				classes[call.Call.ID] = call.Last.Class
			}
		}
	}
	return classes
}

// reason is the reason of the ending, empty while the run is open.
func (s *stage) reason() string {
	if s.state().Finished == nil {
		return ""
	}
	return cmp.Or(s.state().Finished.Reason, "?")
}
