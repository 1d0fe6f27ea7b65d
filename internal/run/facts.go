// Package run is the turn machine: from the facts about a run it derives the next step.
// It is pure. It has no context, clock, client, log or goroutine; time reaches it as a
// value, and whoever acts on a step feeds what came of it back as events.
//
//	              +---------- Resolve ----------+
//	              v                             |
//	(start) -> Commit RunStarted -> AskModel -> Commit DecisionMade
//	                                   ^               |
//	                                   |     +---------+----------+
//	                                   |     v         v          v
//	           Commit TurnCompleted ---+   Send      Rest      Commit Finished
//	                   ^                     |     (people)       |
//	                   |                     v                    v
//	                   +--- Commit CallCompleted                Done
//
// Next is asked again after every commit; it never needs to know what it said before.
package run

import (
	"encoding/json"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/policy"
)

// Desired is what people want of the run.
type Desired string

// What people may want of a run.
const (
	Active    Desired = "Active"
	Suspended Desired = "Suspended"
	Cancelled Desired = "Cancelled"
)

// Facts are everything that the next step depends on.
type Facts struct {
	Now     time.Time
	State   *journal.State
	Desired Desired
	// Because says why, where that is not the run's own spec.
	Because string
	// Verdicts that people gave, as they stand on the object now.
	Verdicts Verdicts
	// Configuration is what resolving the references came to, nil when nobody tried
	// yet. It matters only before the run has started.
	Configuration *Configuration
	// Policies are the live rules, nil while some policy is missing or not ready;
	// PoliciesProblem then says why.
	Policies        *policy.Set
	PoliciesProblem string
	// Active is the time spent working so far, this very moment included.
	Active time.Duration
	// Checked says when this process last looked an unknown effect up, by call id, and
	// Checking which look-ups are under way.
	Checked  map[string]time.Time
	Checking map[string]bool
	// Polled says when this process last asked about a call that goes on outside, by call
	// id, Polling which it asks about now, and Recalled when it has called off which.
	Polled   map[string]time.Time
	Polling  map[string]bool
	Recalled map[string]time.Time
	// ChildWaits says, by call id, which child runs wait for people.
	ChildWaits map[string]ChildWait
	// Stirred is true when something was heard of what goes on outside since it was last
	// asked about.
	Stirred bool
	// ModelInFlight and InFlight say what this process itself has under way: a
	// request to the model, and calls by id.
	ModelInFlight bool
	InFlight      map[string]bool
	// Fetched are the artifacts that Fetch has asked for, by digest.
	Fetched map[string]Fetched
	// Closed is true for a run that has ended in status alone: its journal may be written
	// again, but all that may still be recorded is what became of its effects.
	Closed bool
	// Throttled says, by call id, from when on the rate of its tool lets a call be sent.
	// Calls that are not in it need not wait.
	Throttled map[string]time.Time
}

// Fetched is the content of an artifact, or the problem with it.
type Fetched struct{ Text, Problem string }

// Verdicts are what people said by annotation. A verdict without a name never acts.
type Verdicts struct {
	Approve, ApproveBy       string
	Deny, DenyBy, DenyReason string
	Answers                  map[string]string
	AnswerBy                 string
	Settlements              map[string]string
	SettleBy                 string
	// Completions are results of calls that wait for an event outside, by call id.
	Completions map[string]json.RawMessage
	CompleteBy  string
	// AnswersBroken and the like are true for a value that can't be read.
	AnswersBroken, SettlementsBroken, CompletionsBroken bool
}

// Configuration is what resolving a run's references came to. Exactly one member is set.
type Configuration struct {
	// Started freezes what was found.
	Started *journal.RunStarted
	// NotReady says what is missing; it may heal.
	NotReady string
	// Invalid says what is wrong for good.
	Invalid string
}

// Kind says what a step asks for.
type Kind string

// Kinds of a step.
const (
	// Commit asks for the events to be committed and Next to be asked again.
	Commit Kind = "Commit"
	// Resolve asks for the run's references to be resolved.
	Resolve Kind = "Resolve"
	// AskModel asks for Request to be sent, once everything before is committed.
	AskModel Kind = "AskModel"
	// Send asks for Calls to be sent, once the events, which announce them, are committed.
	Send Kind = "Send"
	// Fetch asks for Artifacts to be read, and Next to be asked again.
	Fetch Kind = "Fetch"
	// Check asks for Unknown effects to be looked up. It needs no claim: nothing is done.
	Check Kind = "Check"
	// Poll asks about Calls that go on outside. Like Check it needs no claim.
	Poll Kind = "Poll"
	// Recall asks for Calls that go on outside to be called off.
	Recall Kind = "Recall"
	// Stop asks for everything in flight to be stopped and its outcome fed back.
	Stop Kind = "Stop"
	// Await keeps the run: something is in flight, or due at Until.
	Await Kind = "Await"
	// Rest lets go of the run until people, the cluster or Until wake it.
	Rest Kind = "Rest"
	// Done says that the run has ended and nothing is left to do.
	Done Kind = "Done"
)

// Step is what is to be done next.
type Step struct {
	Kind Kind
	// Events to commit first.
	Events []Entry
	// Request of AskModel; Clipped or CostClipped is true when a budget lowered its output
	// limit. Through is the last turn that a summary is to cover, 0 for a decision.
	Request              model.Request
	Clipped, CostClipped bool
	Through              int32
	// Calls of Send, Poll and Recall.
	Calls []Sending
	// Artifacts of Fetch.
	Artifacts []journal.Artifact
	// Unknown effects of Check.
	Unknown []journal.UnknownEffect
	// Until is when to look again, zero for when something happens.
	Until time.Time
	// Waiting is a reason of the condition Succeeded, with a Message for people.
	Waiting string
	Message string
	// Anew is true for a Rest that is to be recorded although nobody has the run.
	Anew bool
}

// Entry is one event to commit.
type Entry struct {
	Payload journal.Payload
	By      string
	Part    []byte
	// Content is what the event's artifact holds, to be stored before the event.
	Content string
}

// Sending is one attempt at one call.
type Sending struct {
	Call    journal.Call
	Attempt int32
	Timeout time.Duration
	// Budget of the call's child run, nil for calls that are none.
	Budget *journal.Budget
	// Deferred is what goes on outside, for Poll and Recall.
	Deferred *journal.CallDeferred
	// Continues is what the call's service asked for and gets with it, nil for nothing.
	Continues *Continuation
}

func commit(payloads ...journal.Payload) Step {
	step := Step{Kind: Commit}
	for _, payload := range payloads {
		step.Events = append(step.Events, Entry{Payload: payload})
	}
	return step
}

func commitBy(by string, payload journal.Payload, rest ...journal.Payload) Step {
	step := commit(rest...)
	step.Events = append([]Entry{{Payload: payload, By: by}}, step.Events...)
	return step
}

func rest(reason, message string, until time.Time) Step {
	return Step{Kind: Rest, Waiting: reason, Message: message, Until: until}
}
