package agentruntool

import (
	"fmt"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Phase says how a child stands.
type Phase string

// Phases of a child.
const (
	// Missing means that there is none.
	Missing Phase = "missing"
	// Foreign means that the one of that name is not the call's.
	Foreign Phase = "foreign"
	// Open means that it has not ended.
	Open Phase = "open"
	// Completed means that it gave an answer.
	Completed Phase = "completed"
	// Failed means that it ended otherwise.
	Failed Phase = "failed"
	// Lost means that it is going away and that nothing will say how it ended.
	Lost Phase = "lost"
)

// State is how a child stands.
type State struct {
	Phase Phase
	// Began is true once it may have done anything.
	Began bool
	// Answer is the whole answer; JSON is true where the child was to answer in JSON.
	Answer string
	JSON   bool
	// Reason, and Message for people, say how it ended. Words are what the model said
	// when it gave up.
	Reason, Message, Words string
	// Spent is what it has cost, nil where nobody knows.
	Spent *tool.Spent
}

// maxWords bounds what is passed on of a model's reasons to give up.
const maxWords = 2 << 10

// understand says what a child's state means for its call.
func understand(call tool.Call, handle string, state State) tool.Outcome {
	unknown := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Spent: state.Spent}
	switch state.Phase {
	case Open:
		return kind.GoesOn(handle)
	case Completed:
		value := answerOf(call, state)
		return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size, Spent: state.Spent}
	case Failed:
		return failed(call, state)
	case Foreign:
		unknown.Message = "another run has the name of the call's; nobody knows whether the call took effect"
	default:
		unknown.Message = "the call's run is gone; nobody knows what it did"
	}
	return unknown
}

// answerOf is a value where the child was to answer in JSON, else a text.
func answerOf(call tool.Call, state State) transport.Value {
	bound := transport.Bound(call)
	switch {
	case len(state.Answer) > bound:
		return transport.Beginning([]byte(state.Answer), int64(len(state.Answer)), bound)
	case state.JSON:
		return transport.ToValue([]byte(state.Answer), bound)
	default:
		return transport.TextValue(state.Answer, bound)
	}
}

// failed is the outcome of a child that did not complete.
func failed(call tool.Call, state State) tool.Outcome {
	members := map[string]any{"reason": state.Reason}
	if state.Message != "" {
		members["message"] = state.Message
	}
	if state.Words != "" {
		members["words"] = strictjson.Preview([]byte(state.Words), maxWords)
	}
	value := transport.ToValue(strictjson.Canonical(members), transport.Bound(call))
	out := tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size, Spent: state.Spent,
		Message: fmt.Sprintf("the call's run ended as %s; what it did before stays done; the value says more", state.Reason)}
	if !state.Began {
		out.Class, out.Effect = tool.ClassRejected, tool.EffectRejected
		out.Message = fmt.Sprintf("the call's run ended as %s before it began; nothing was done; the value says more", state.Reason)
	}
	return out
}
