package journal

import (
	"encoding/json"
	"time"
)

// InputRequired says that a service wants to know something before it goes on with a
// call, and that it did nothing yet. A call that goes on outside waits for it there.
type InputRequired struct {
	ID      string `json:"id"`
	Attempt int32  `json:"attempt"`
	// Round counts how often the call has asked, from 1.
	Round int32 `json:"round"`
	// Questions to people; none means that the service only wants to be asked again.
	Questions []InputQuestion `json:"questions,omitempty"`
	// State is the service's own. It is given back exactly as it is, and shown nowhere.
	State *string `json:"state,omitempty"`
	// RetryAfterMillis is how long the service asked to wait.
	RetryAfterMillis int64 `json:"retryAfterMillis,omitempty"`
}

// InputQuestion is one of them, as the service put it.
type InputQuestion struct {
	// Key is the service's name for it.
	Key     string `json:"key"`
	Message string `json:"message"`
	// Schema of the answer, an object of plain values.
	Schema json.RawMessage `json:"schema"`
}

// CallContinued is written before a service is given what it wanted to know. It is part of
// the dispatch of the call that asked: the same attempt, under the same effect key.
type CallContinued struct {
	ID       string    `json:"id"`
	Attempt  int32     `json:"attempt"`
	Round    int32     `json:"round"`
	Deadline time.Time `json:"deadline"`
	// Refused is true where the service is told that it gets no answer, which only a call
	// that goes on outside needs to know.
	Refused bool `json:"refused,omitempty"`
}

// Type implements Payload.
func (InputRequired) Type() Type { return TypeInputRequired }

// Type implements Payload.
func (CallContinued) Type() Type { return TypeCallContinued }
