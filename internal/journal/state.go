package journal

import (
	"encoding/json"
	"time"
)

// State is what a journal says about its run. The zero value with a UID is a run whose
// journal has not begun. Only Apply changes it.
type State struct {
	// UID of the run; the chain starts from it.
	UID string
	// Events, Bytes and Head describe the journal itself.
	Events int64
	Bytes  int64
	Head   string

	// StartTime is the time of the first event, LastTime that of the newest.
	StartTime time.Time
	LastTime  time.Time
	// Epoch is the number of claims so far.
	Epoch int64
	// Owner is the worker of the last claim until it releases, else empty.
	Owner string
	// Waiting is what the last release said, empty while owned.
	Waiting string

	// Run is what RunStarted froze, nil before.
	Run *RunStarted
	// Turns and ToolCalls count decisions and first dispatches.
	Turns     int32
	ToolCalls int32
	Usage     Usage
	// Children is what child runs have spent whose calls have their results.
	Children Spent `json:",omitzero"`
	// ActiveMillis is the time spent working.
	ActiveMillis int64
	// ArtifactBytes is what results take that are kept beside the journal, each content
	// once; Artifacts has the digests of those.
	ArtifactBytes int64
	Artifacts     map[string]bool

	// ModelAttempts counts the requests lost or failed since the last decision, and since
	// the last that was too long;
	// ModelFailure is the newest of them and FailedAt its time.
	ModelAttempts int32
	ModelFailure  *ModelFailed
	FailedAt      time.Time
	// Context is how the conversation was shortened, TooLong the estimate of the newest
	// request that the provider found too long, 0 for none.
	Context Shortened
	TooLong int64
	// InputPerMille corrects estimates of requests by what the provider last counted, in
	// thousandths; 0 while nothing was counted.
	InputPerMille int64
	// InvalidInRow and FailuresInRow count invalid decisions, and turns whose every
	// call failed, since the last that was not.
	InvalidInRow  int32
	FailuresInRow int32
	// UnchangedTurns counts executed turns that left Progress as it was.
	UnchangedTurns int32
	Progress       string

	// Transcript holds every turn, oldest first. The last one is open while Open.
	Transcript []Turn
	// Open is true from a decision until its TurnCompleted.
	Open bool
	// History holds the newest executed turns, for recognising repetition.
	History []TurnCompleted
	// CallsByTool counts first dispatches by full name.
	CallsByTool map[string]int32

	// Approval and Question wait for people.
	Approval *ApprovalRequested
	Question *QuestionAsked
	// Intents were approved at the model's request and not used yet.
	Intents []Intent
	// Refused holds the plan digests of calls that a person denied.
	Refused map[string]bool

	Suspended bool
	// Unknown lists the calls whose effect nobody knows, oldest first.
	Unknown []UnknownEffect
	// Finished is the ending, nil while the run is open.
	Finished   *Finished
	FinishedAt time.Time
}

// Shortened says how the conversation is told: turns up to Summarised by Summary, after
// them turns before FullFrom with the beginnings of their results, after them turns up to
// Through whole, all of these in the first message; later turns as they were.
type Shortened struct {
	Through, FullFrom, Summarised int32
	Summary                       string
	// Refused counts the summaries in a row that the model did not write. Clipped and
	// CostClipped are true if the newest of them was cut off by a budget.
	Refused              int32
	Clipped, CostClipped bool
}

// UnknownEffect is a call of which nobody knows whether it took effect.
type UnknownEffect struct {
	CallID    string
	EffectKey string
	Tool      string
	// Reconcile is where it can be looked up, empty for nowhere.
	Reconcile string
	// MaxResultBytes bounds its result, 0 for the default.
	MaxResultBytes int32
	Since          time.Time
	// NotedAt is when the journal said so.
	NotedAt time.Time
}

// Gate says whether a turn's calls wait for approval.
type Gate string

// Gates of a turn.
const (
	// GateNone means that nobody was asked.
	GateNone Gate = ""
	// GatePending means that a request for approval is open.
	GatePending Gate = "Pending"
	// GateGranted means that it was granted.
	GateGranted Gate = "Granted"
	// GateDenied means that it was denied or lapsed.
	GateDenied Gate = "Denied"
)

// Turn is one decision and what became of it.
type Turn struct {
	Number   int32
	Decision DecisionMade
	// Part is the provider's own reply.
	Part json.RawMessage
	// Calls in the decision's order.
	Calls []CallState
	Gate  Gate
	// Granted is the request that was granted, Denied the refusal.
	Granted *ApprovalRequested
	Denied  *ApprovalDenied
	// Answer is what a person answered to the turn's question.
	Answer *QuestionAnswered
	// Reported are the calls in the background of which the model is told after this turn.
	Reported []string
	// Dispatched is true once any call was sent.
	Dispatched bool
	Completed  bool
}

// Phase is where a call stands.
type Phase string

// Phases of a call.
const (
	PhasePrepared   Phase = "Prepared"   // not sent yet
	PhaseDispatched Phase = "Dispatched" // an attempt is under way, or was lost
	PhaseDeferred   Phase = "Deferred"   // an attempt goes on outside
	PhaseInput      Phase = "Input"      // its service wants to know something first
	PhaseRetrying   Phase = "Retrying"   // an attempt ended and another follows
	PhaseUnknown    Phase = "Unknown"    // nobody knows whether it took effect
	PhaseDone       Phase = "Done"       // has its one result
)

// CallState is a call and what became of it.
type CallState struct {
	Call    Call
	Phase   Phase
	Attempt int32
	// Deadline of the newest attempt, FirstSent and LastSent when attempts were
	// committed, EndedAt when the newest attempt ended.
	Deadline  time.Time
	FirstSent time.Time
	LastSent  time.Time
	EndedAt   time.Time
	// Deferred is what the newest attempt waits for outside, since DeferredAt; nil once it
	// has ended.
	Deferred   *CallDeferred
	DeferredAt time.Time
	// Inputs are what its service wanted to know, by round.
	Inputs []CallInput
	// Detached is true once the model works on while the call goes on: its result in its own
	// turn is that it runs. Looks counts how often the model has looked at it since, Told is
	// true once it has read what came of it.
	Detached, Told bool
	Looks          int32
	// Last is the newest CallCompleted; with PhaseDone it is the result.
	Last *CallCompleted
	// Doubtful is true once some attempt may have taken effect without anybody
	// knowing: a later attempt that was not sent says nothing of the earlier one.
	Doubtful bool
	// Budget is what was reserved for the call's child run when it was first sent, nil for
	// calls that are none; Charged is true once what it spent was added.
	Budget  *Budget
	Charged bool
	// Settled is what became of an effect that was unknown, nil while nobody said.
	Settled *EffectReconciled
}

// OpenTurn is the turn whose calls still need results, nil when a decision is due.
func (s *State) OpenTurn() *Turn {
	if !s.Open || len(s.Transcript) == 0 {
		return nil
	}
	return &s.Transcript[len(s.Transcript)-1]
}

// DecisionDue is true when the model is to be asked next.
func (s *State) DecisionDue() bool {
	return s.Run != nil && s.Finished == nil && !s.Open
}

// EffectsOpen is true while some call that may have an effect is under way, or nobody
// knows what became of it. The segment that records it must not go away meanwhile.
func (s *State) EffectsOpen() bool {
	return len(s.Unknown) > 0 || len(s.UnderWay()) > 0
}

// UnderWay lists the calls that were sent, may have an effect, and have no outcome yet, in
// the background too. One whose next attempt is due belongs to them where an earlier one may
// have taken effect.
func (s *State) UnderWay() []*CallState {
	return s.calls(func(c *CallState) bool {
		out := c.Phase == PhaseDispatched || c.Phase == PhaseDeferred
		waits := c.Phase == PhaseRetrying || c.Phase == PhaseInput
		return c.Call.Effect != ReadOnly && (out || waits && c.Doubtful)
	})
}

// Parked is how long a run has worked without a worker by now: what goes on outside is
// work too.
func (s *State) Parked(now time.Time) time.Duration {
	if s.Owner != "" || s.Waiting != WaitingForTool || s.Finished != nil {
		return 0
	}
	return max(now.Sub(s.LastTime), 0)
}

// WaitingForTool is what a run was released for that waits for calls outside.
const WaitingForTool = "WaitingForTool"

// Call finds a call of any turn by id, nil for none.
func (s *State) Call(id string) *CallState {
	for i := range s.Transcript {
		if call := s.Transcript[i].call(id); call != nil {
			return call
		}
	}
	return nil
}

// Effect finds the call that an effect key belongs to, nil for none.
func (s *State) Effect(key string) *CallState {
	for i := range s.Transcript {
		for j := range s.Transcript[i].Calls {
			if call := &s.Transcript[i].Calls[j]; call.Call.EffectKey == key {
				return call
			}
		}
	}
	return nil
}

// call finds a call of the turn by id.
func (t *Turn) call(id string) *CallState {
	for i := range t.Calls {
		if t.Calls[i].Call.ID == id {
			return &t.Calls[i]
		}
	}
	return nil
}

// AllDone is true when every call has its result, which may be that it runs.
func (t *Turn) AllDone() bool {
	for i := range t.Calls {
		if t.Calls[i].Phase != PhaseDone && !t.Calls[i].Detached {
			return false
		}
	}
	return true
}

// Asks is true when some call may run only after approval.
func (t *Turn) Asks() bool {
	for i := range t.Calls {
		if v := t.Calls[i].Call.Verdict; v != nil && v.Action == ActionAsk && v.ApprovedBy == "" && t.Calls[i].Phase != PhaseDone {
			return true
		}
	}
	return false
}

// Actions of a Verdict.
const (
	ActionAllow = "Allow"
	ActionAsk   = "Ask"
	ActionDeny  = "Deny"
)

// Effects of a Call.
const (
	ReadOnly      = "ReadOnly"
	Idempotent    = "Idempotent"
	NonIdempotent = "NonIdempotent"
)

// States of an effect, in CallCompleted and EffectReconciled.
const (
	EffectCommitted = "committed"
	EffectRejected  = "rejected"
	EffectUnknown   = "unknown"
)
