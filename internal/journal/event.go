// Package journal holds the truth about a run: typed events in a chain of digests, and
// the fold that turns them into state. It is pure: it reads no clock and does no I/O.
//
// Every other view of a run (status, conditions, the prompt, metrics) is a projection
// of the state that Fold returns.
package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// Version is the format of the events that this build writes.
const Version = 1

// Type names what an event records.
type Type string

// Types of events. Each has a payload of the same name.
const (
	TypeClaimed           Type = "Claimed"
	TypeReleased          Type = "Released"
	TypeRunStarted        Type = "RunStarted"
	TypeDecisionMade      Type = "DecisionMade"
	TypeModelFailed       Type = "ModelFailed"
	TypeContextReduced    Type = "ContextReduced"
	TypeContextSummarised Type = "ContextSummarised"
	TypeApprovalRequested Type = "ApprovalRequested"
	TypeApprovalGranted   Type = "ApprovalGranted"
	TypeApprovalDenied    Type = "ApprovalDenied"
	TypeCallDispatched    Type = "CallDispatched"
	TypeCallDeferred      Type = "CallDeferred"
	TypeCallDetached      Type = "CallDetached"
	TypeInputRequired     Type = "InputRequired"
	TypeCallContinued     Type = "CallContinued"
	TypeCallCompleted     Type = "CallCompleted"
	TypeEffectReconciled  Type = "EffectReconciled"
	TypeTurnCompleted     Type = "TurnCompleted"
	TypeQuestionAsked     Type = "QuestionAsked"
	TypeQuestionAnswered  Type = "QuestionAnswered"
	TypeSuspended         Type = "Suspended"
	TypeResumed           Type = "Resumed"
	TypeFinished          Type = "Finished"
)

// Event is one entry of a journal.
type Event struct {
	// V is the format version.
	V int `json:"v"`
	// Seq counts the events of the run, starting at 1.
	Seq int64 `json:"seq"`
	// Type says what Data holds.
	Type Type `json:"type"`
	// Time on the writer's clock. Informative: order comes from Seq.
	Time time.Time `json:"time"`
	// Epoch of the claim under which the event was written.
	Epoch int64 `json:"epoch"`
	// Turn is the number of decisions committed so far, this event included.
	Turn int32 `json:"turn"`
	// Prev is the digest of the event before, or of the run's UID for the first one.
	Prev string `json:"prev"`
	// By is the person, on verdicts, answers and settlements.
	By string `json:"by,omitempty"`
	// ActiveMillis is the time spent working since the run began, on the monotonic
	// clocks of its owners.
	ActiveMillis int64 `json:"activeMillis,omitempty"`
	// Data is the payload.
	Data json.RawMessage `json:"data"`
}

// Record is an event as it is stored.
type Record struct {
	Event Event
	// Bytes is the encoded event, the input of the digest chain.
	Bytes []byte
	// Part is the provider's own reply, kept beside a DecisionMade byte for byte and
	// bound to it by digest. Empty for every other event.
	Part []byte
}

// Size is the number of bytes that the record stores.
func (r Record) Size() int { return len(r.Bytes) + len(r.Part) }

// Genesis is the Prev of a run's first event. It binds the chain to the run, so that
// events copied from another run do not fit.
func Genesis(uid string) string {
	return strictjson.Digest([]byte("pawl.run/journal/v1\n" + uid))
}

// NewerError is an event in a format that only later builds read. Its journal is not
// broken: a newer replica, which began to write it, goes on with it.
type NewerError struct {
	// Version of the event.
	Version int
}

// Error implements error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the event has format version %d: this build reads version %d", e.Version, Version)
}

// Decode reads one stored event. It checks form only; Apply checks the chain.
func Decode(data []byte) (Event, error) {
	var format struct {
		V int `json:"v"`
	}
	if json.Unmarshal(data, &format) == nil && format.V > Version {
		return Event{}, &NewerError{Version: format.V}
	}
	var event Event
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&event); err != nil {
		return Event{}, fmt.Errorf("decoding event: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Event{}, fmt.Errorf("decoding event: more follows the value")
	}
	if event.V != Version {
		return Event{}, fmt.Errorf("event %d has format version %d: this build reads version %d", event.Seq, event.V, Version)
	}
	if event.Seq < 1 {
		return Event{}, fmt.Errorf("event has sequence number %d: numbers start at 1", event.Seq)
	}
	return event, nil
}

// encode writes JSON without escaping <, > and &, so that what is stored is as short
// and as readable as what was said.
func encode(v any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}
