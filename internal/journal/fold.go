package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// historyLimit bounds State.History. No limit on repetition looks further back:
// maxRepeatedPlans is at most 100 and cycles are at most four plans long.
const historyLimit = 400

// NewState is the state of a run whose journal has not begun.
func NewState(uid string) *State {
	return &State{UID: uid, Head: Genesis(uid), CallsByTool: map[string]int32{}, Refused: map[string]bool{}}
}

// Fold reads a whole journal. It is total: whatever the records hold, it returns the
// state up to the first record that does not fit, and an error that names it.
func Fold(uid string, records []Record) (*State, error) {
	state := NewState(uid)
	for _, record := range records {
		if err := state.Apply(record); err != nil {
			return state, err
		}
	}
	return state, nil
}

// Apply moves the state by one record. An error means that the record can't follow
// what came before; the state is then as it was.
func (s *State) Apply(record Record) error {
	event := record.Event
	if err := s.checkChain(event); err != nil {
		return fmt.Errorf("event %d (%s): %w", event.Seq, event.Type, err)
	}
	if len(record.Part) > 0 && event.Type != TypeDecisionMade {
		return fmt.Errorf("event %d (%s): it has a part, which only decisions have", event.Seq, event.Type)
	}
	if err := s.applyPayload(record); err != nil {
		return fmt.Errorf("event %d (%s): %w", event.Seq, event.Type, err)
	}
	if s.Events == 0 {
		s.StartTime = event.Time
	}
	s.Events++
	s.Bytes += int64(record.Size())
	s.Head = strictjson.Digest(record.Bytes)
	s.LastTime = event.Time
	s.ActiveMillis = event.ActiveMillis
	return nil
}

func (s *State) checkChain(event Event) error {
	switch {
	case event.V != Version:
		return fmt.Errorf("format version %d is not known", event.V)
	case event.Seq != s.Events+1:
		return fmt.Errorf("sequence number does not follow %d", s.Events)
	case event.Prev != s.Head:
		return fmt.Errorf("the chain is broken: prev does not name the event before")
	case event.ActiveMillis < s.ActiveMillis:
		return fmt.Errorf("active time goes back")
	case s.Finished != nil && event.Type != TypeEffectReconciled:
		return fmt.Errorf("the run has ended")
	case event.Type == TypeClaimed:
		if event.Epoch != s.Epoch+1 {
			return fmt.Errorf("claim has epoch %d after %d", event.Epoch, s.Epoch)
		}
	case event.Epoch != s.Epoch:
		return fmt.Errorf("epoch %d is not the current %d", event.Epoch, s.Epoch)
	case s.Owner == "" && s.Finished == nil:
		return fmt.Errorf("nobody owns the run")
	}
	turn := s.Turns
	if event.Type == TypeDecisionMade {
		turn++
	}
	if event.Turn != turn {
		return fmt.Errorf("turn %d is not the current %d", event.Turn, turn)
	}
	return nil
}

// steps says how each type of event changes the state. Each step decodes its payload
// strictly, and checks before it changes anything.
var steps = map[Type]func(*State, Record) error{
	TypeClaimed:           step((*State).applyClaimed),
	TypeReleased:          step((*State).applyReleased),
	TypeRunStarted:        step((*State).applyRunStarted),
	TypeDecisionMade:      step((*State).applyDecisionMade),
	TypeModelFailed:       step((*State).applyModelFailed),
	TypeContextReduced:    step((*State).applyContextReduced),
	TypeContextSummarised: step((*State).applyContextSummarised),
	TypeApprovalRequested: step((*State).applyApprovalRequested),
	TypeApprovalGranted:   step((*State).applyApprovalGranted),
	TypeApprovalDenied:    step((*State).applyApprovalDenied),
	TypeCallDispatched:    step((*State).applyCallDispatched),
	TypeCallDeferred:      step((*State).applyCallDeferred),
	TypeCallDetached:      step((*State).applyCallDetached),
	TypeInputRequired:     step((*State).applyInputRequired),
	TypeCallContinued:     step((*State).applyCallContinued),
	TypeCallCompleted:     step((*State).applyCallCompleted),
	TypeEffectReconciled:  step((*State).applyEffectReconciled),
	TypeTurnCompleted:     step((*State).applyTurnCompleted),
	TypeQuestionAsked:     step((*State).applyQuestionAsked),
	TypeQuestionAnswered:  step((*State).applyQuestionAnswered),
	TypeSuspended:         step((*State).applySuspended),
	TypeResumed:           step((*State).applyResumed),
	TypeFinished:          step((*State).applyFinished),
}

func step[P Payload](apply func(*State, Record, P) error) func(*State, Record) error {
	return func(s *State, record Record) error {
		var payload P
		if err := decodeStrict(record.Event.Data, &payload); err != nil {
			return fmt.Errorf("decoding data: %w", err)
		}
		return apply(s, record, payload)
	}
}

func (s *State) applyPayload(record Record) error {
	apply, known := steps[record.Event.Type]
	if !known {
		return fmt.Errorf("type is not known")
	}
	return apply(s, record)
}

func decodeStrict(data json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (s *State) applyClaimed(_ Record, p Claimed) error {
	if p.Worker == "" {
		return fmt.Errorf("claim names no worker")
	}
	if p.Previous != s.Owner {
		return fmt.Errorf("claim takes over from %q, the owner is %q", p.Previous, s.Owner)
	}
	s.Epoch++
	s.Owner, s.Waiting = p.Worker, ""
	if p.Lost != nil {
		s.ModelAttempts++
		s.Usage = s.Usage.Add(*p.Lost)
	}
	return nil
}

func (s *State) applyReleased(_ Record, p Released) error {
	if p.Worker != s.Owner {
		return fmt.Errorf("%q releases, the owner is %q", p.Worker, s.Owner)
	}
	s.Owner, s.Waiting = "", p.Waiting
	return nil
}

func (s *State) applyRunStarted(_ Record, p RunStarted) error {
	if s.Run != nil {
		return fmt.Errorf("the run has started before")
	}
	s.Run = &p
	return nil
}

func (s *State) applyDecisionMade(r Record, p DecisionMade) error {
	if !s.DecisionDue() {
		return fmt.Errorf("no decision is due")
	}
	if (p.Part != "" || len(r.Part) > 0) && p.Part != strictjson.Digest(r.Part) {
		return fmt.Errorf("the provider's reply does not have the digest recorded for it")
	}
	if err := p.check(); err != nil {
		return err
	}
	turn := Turn{Number: s.Turns + 1, Decision: p, Part: r.Part}
	seen := map[string]bool{}
	for _, call := range p.Calls {
		if call.ID == "" || seen[call.ID] || s.Call(call.ID) != nil {
			return fmt.Errorf("call id %q is empty or used before", call.ID)
		}
		seen[call.ID] = true
		turn.Calls = append(turn.Calls, CallState{Call: call, Phase: PhasePrepared})
	}
	intents, err := useIntents(s.Intents, p.Calls)
	if err != nil {
		return err
	}
	s.Intents = intents
	s.Turns++
	s.Usage = s.Usage.Add(p.Usage)
	s.ModelAttempts, s.ModelFailure = 0, nil
	s.calibrate(p)
	if p.Kind == DecisionInvalid {
		s.InvalidInRow++
	} else {
		s.InvalidInRow = 0
	}
	s.Transcript = append(s.Transcript, turn)
	s.Open = true
	return nil
}

// check refuses decisions that the turn machine could not act on.
func (p DecisionMade) check() error {
	switch p.Kind {
	case DecisionToolCalls, DecisionInvalid:
		for _, call := range p.Calls {
			if call.Invalid == "" && (call.Verdict == nil || p.Kind == DecisionInvalid) {
				return fmt.Errorf("call %s is neither invalid nor judged", call.ID)
			}
		}
		if p.Kind == DecisionToolCalls && len(p.Calls) == 0 {
			return fmt.Errorf("a decision to call tools has no calls")
		}
	case DecisionQuestion, DecisionRequestApproval, DecisionCannotContinue:
		if len(p.Calls) != 1 {
			return fmt.Errorf("a decision of kind %s has %d calls", p.Kind, len(p.Calls))
		}
	case DecisionFinal, DecisionRefused, DecisionOverflow, DecisionPaused:
		if len(p.Calls) > 0 {
			return fmt.Errorf("a decision of kind %s has calls", p.Kind)
		}
	default:
		return fmt.Errorf("a decision of kind %q is not known", p.Kind)
	}
	return nil
}

// useIntents takes the approved intents that cover calls out of the list, so that one
// approval never serves two calls.
func useIntents(intents []Intent, calls []Call) ([]Intent, error) {
	left := slices.Clone(intents)
	for _, call := range calls {
		if call.Verdict == nil || call.Verdict.ApprovedBy == "" {
			continue
		}
		i := slices.IndexFunc(left, func(intent Intent) bool {
			return intent.Approval == call.Verdict.ApprovedBy && intent.Tool == call.Tool && intent.ArgumentsDigest == call.ArgumentsDigest
		})
		if i < 0 {
			return nil, fmt.Errorf("call %s claims an approval that was not given for it", call.ID)
		}
		left = slices.Delete(left, i, i+1)
	}
	return left, nil
}

func (s *State) applyTurnCompleted(_ Record, p TurnCompleted) error {
	turn := s.OpenTurn()
	if turn == nil {
		return fmt.Errorf("no turn is open")
	}
	if !turn.AllDone() {
		return fmt.Errorf("turn %d has calls without results", turn.Number)
	}
	if err := s.report(p.Reported); err != nil {
		return err
	}
	turn.Completed, turn.Reported = true, p.Reported
	s.Open = false
	if p.Failed {
		s.FailuresInRow++
	} else if len(turn.Calls) > 0 && turn.Decision.Kind != DecisionInvalid {
		s.FailuresInRow = 0
	}
	if p.Plan == "" {
		return nil
	}
	if len(s.History) == historyLimit {
		s.History = s.History[1:]
	}
	s.History = append(s.History, p)
	if p.Progress != "" && p.Progress == s.Progress {
		s.UnchangedTurns++
	} else {
		s.Progress, s.UnchangedTurns = p.Progress, 0
	}
	return nil
}

func (s *State) applySuspended(Record, Suspended) error {
	if s.Suspended {
		return fmt.Errorf("the run is suspended already")
	}
	s.Suspended = true
	return nil
}

func (s *State) applyResumed(Record, Resumed) error {
	if !s.Suspended {
		return fmt.Errorf("the run is not suspended")
	}
	s.Suspended = false
	return nil
}

func (s *State) applyFinished(r Record, p Finished) error {
	if p.Reason == "" {
		return fmt.Errorf("the ending has no reason")
	}
	if turn := s.OpenTurn(); turn != nil && !turn.AllDone() {
		return fmt.Errorf("turn %d has calls without results", turn.Number)
	}
	if handles := s.Handles(); len(handles) > 0 {
		return fmt.Errorf("call %s goes on in the background", handles[0].Call.ID)
	}
	s.Finished, s.FinishedAt = &p, r.Event.Time
	s.Owner, s.Waiting = "", ""
	s.Approval, s.Question = nil, nil
	s.Open = false
	return nil
}
