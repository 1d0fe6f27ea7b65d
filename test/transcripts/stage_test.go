package transcripts

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/test/fakemodel"
)

const runUID = "5f0c2a4e-0000-4000-8000-000000000001"

// stage plays the controller of one run: it commits what the turn machine proposes, asks
// the model over HTTP, and has calls in the air until an act lands them.
type stage struct {
	t      *testing.T
	client model.Client
	server *fakemodel.Server

	facts   run.Facts
	draft   journal.Draft
	records []journal.Record
	workers int
	mark    time.Time
	air     []run.Sending
}

func newStage(t *testing.T, w wireUnderTest, contextTokens int64) *stage {
	t.Helper()
	server, err := fakemodel.Start(fakemodel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	client, err := w.client(server.Endpoint(w.wire))
	if err != nil {
		t.Fatal(err)
	}
	begins := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	return &stage{
		t: t, client: client, server: server, workers: 1, mark: begins,
		draft: journal.Draft{State: journal.NewState(runUID)},
		facts: run.Facts{
			Now: begins, Desired: run.Active, Policies: rules(t),
			Configuration: &run.Configuration{Started: started(w, contextTokens)},
		},
	}
}

func (s *stage) state() *journal.State { return s.draft.State }

func (s *stage) worker() string { return fmt.Sprintf("worker-%d", s.workers) }

func (s *stage) active() time.Duration {
	booked := time.Duration(s.state().ActiveMillis) * time.Millisecond
	if s.state().Owner != s.worker() {
		return booked
	}
	return booked + s.facts.Now.Sub(s.mark)
}

func (s *stage) look() run.Facts {
	f := s.facts
	f.State, f.Active, f.InFlight = s.state(), s.active(), map[string]bool{}
	for _, sending := range s.air {
		f.InFlight[sending.Call.ID] = true
	}
	return f
}

func (s *stage) append(payload journal.Payload, meta journal.Meta) {
	s.t.Helper()
	meta.Time, meta.ActiveMillis = s.facts.Now, s.active().Milliseconds()
	if err := s.draft.Add(payload, meta); err != nil {
		s.t.Fatalf("the turn machine proposed %s: %v", payload.Type(), err)
	}
	s.mark = s.facts.Now
	s.records = append(s.records, s.draft.Records...)
	s.draft.Records = nil
}

func (s *stage) add(entry run.Entry) {
	s.t.Helper()
	if s.state().Finished == nil {
		s.claim()
	}
	s.append(entry.Payload, journal.Meta{By: entry.By, Part: entry.Part})
}

// claim takes the run, and reports whether it had to.
func (s *stage) claim() bool {
	s.t.Helper()
	if s.state().Owner == s.worker() {
		return false
	}
	claimed := journal.Claimed{Worker: s.worker(), Previous: s.state().Owner}
	if s.state().Owner != "" && s.state().DecisionDue() {
		lost := run.Lost(s.state())
		claimed.Lost = &lost
	}
	s.append(claimed, journal.Meta{})
	return true
}

// drive takes steps until the run waits for something: an answer of the model that is not
// queued, a call in the air, people, or time.
func (s *stage) drive() run.Step {
	s.t.Helper()
	for range 64 {
		step := run.Next(s.look())
		for _, entry := range step.Events {
			s.add(entry)
		}
		switch step.Kind {
		case run.Commit:
		case run.Send:
			s.air = append(s.air, step.Calls...)
		case run.AskModel:
			if s.server.Queued() == 0 {
				return step
			}
			if !s.claim() {
				s.ask(step)
			}
		case run.Stop:
			s.stop()
		case run.Await:
			if !s.claim() {
				return step
			}
		case run.Rest:
			if s.state().Owner == s.worker() && s.state().Finished == nil {
				s.append(journal.Released{Worker: s.worker(), Waiting: step.Waiting}, journal.Meta{})
			}
			return step
		default:
			return step
		}
	}
	s.t.Fatal("no end after 64 steps")
	return run.Step{}
}

// ask sends the request and records what comes of it.
func (s *stage) ask(step run.Step) {
	s.t.Helper()
	asked := run.Asking(step)
	reply, err := s.client.Decide(s.t.Context(), step.Request)
	s.accepted()
	var failure *model.Error
	switch {
	case errors.As(err, &failure):
		s.add(run.RecordFailure(s.look(), asked, failure))
	case err != nil:
		s.t.Fatalf("an error of another kind: %v", err)
	case asked.Through > 0:
		s.add(run.RecordSummary(s.look(), asked, reply))
	default:
		s.add(run.RecordReply(s.look(), asked, reply))
	}
}

// accepted checks that the provider has refused nothing.
func (s *stage) accepted() {
	s.t.Helper()
	if refusals := s.server.Refusals(); len(refusals) > 0 {
		requests := s.server.Requests()
		s.t.Fatalf("the provider refused %v\n%s", refusals, requests[len(requests)-1].Body)
	}
}

// stop ends what is in the air, as a cancelled call ends that got no answer.
func (s *stage) stop() {
	s.t.Helper()
	for len(s.air) > 0 {
		s.land(s.air[0].Call.Alias, tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Message: "it was stopped"})
	}
}

// land ends the first call of a tool that is in the air.
func (s *stage) land(alias string, outcome tool.Outcome) {
	s.t.Helper()
	for i, sending := range s.air {
		if sending.Call.Alias != alias {
			continue
		}
		entry, wanted := run.RecordOutcome(s.look(), sending.Call.ID, sending.Attempt, outcome, time.Second)
		if !wanted {
			s.t.Fatalf("the outcome of %s is not wanted", alias)
		}
		s.air = append(s.air[:i:i], s.air[i+1:]...)
		s.add(entry)
		return
	}
	s.t.Fatalf("no call of %s is in the air", alias)
}

// learn ends the first call of a tool that goes on outside.
func (s *stage) learn(alias string, outcome tool.Outcome) {
	s.t.Helper()
	for _, call := range s.state().Outside() {
		if call.Call.Alias != alias {
			continue
		}
		entry, wanted := run.RecordAnswer(s.look(), call.Call.ID, call.Attempt, outcome)
		if !wanted {
			s.t.Fatalf("what became of %s is not wanted", alias)
		}
		s.add(entry)
		return
	}
	s.t.Fatalf("no call of %s goes on outside", alias)
}

// restart loses everything that is not in the journal.
func (s *stage) restart() {
	s.t.Helper()
	s.workers++
	s.air = nil
	state, err := journal.Fold(runUID, s.records)
	if err != nil {
		s.t.Fatalf("folding what was committed: %v", err)
	}
	s.draft = journal.Draft{State: state}
}

// final sends the conversation as it stands now, whether or not the run would, and gives
// the request as the provider has read it.
func (s *stage) final() fakemodel.Request {
	s.t.Helper()
	s.server.Enqueue(fakemodel.Text("Done."))
	last := s.drive()
	if s.server.Queued() > 0 {
		if s.state().Finished == nil {
			s.t.Fatalf("the run still waits: %s %s %s", last.Kind, last.Waiting, last.Message)
		}
		if _, err := s.client.Decide(s.t.Context(), prompt.Project(s.state())); err != nil {
			s.accepted()
			s.t.Fatal(err)
		}
		s.accepted()
	}
	requests := s.server.Requests()
	return requests[len(requests)-1]
}
