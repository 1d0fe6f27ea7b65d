package jobtool

import (
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Phase says how a job stands.
type Phase string

// Phases of a job.
const (
	// Missing means that there is none.
	Missing Phase = "missing"
	// Foreign means that the one of that name is not the call's.
	Foreign Phase = "foreign"
	// Running means that it has not ended, or not begun.
	Running Phase = "running"
	// NoImage means that it has not begun, since its image can't be pulled.
	NoImage Phase = "noImage"
	// Succeeded means that it ended well.
	Succeeded Phase = "succeeded"
	// Exited means that its first container has ended, and the whole otherwise than well.
	Exited Phase = "exited"
	// Deadline means that its time was over.
	Deadline Phase = "deadline"
	// Lost means that it has ended and that nothing says how.
	Lost Phase = "lost"
)

// Reasons of a job that exited.
const (
	// ReasonOutOfMemory means that it took more memory than it may.
	ReasonOutOfMemory = "OOMKilled"
	// ReasonEvicted means that its node had no room for it any more.
	ReasonEvicted = "Evicted"
)

// State is how a job stands.
type State struct {
	Phase Phase
	// Started is true once something of it may have run.
	Started bool
	// Message is the first container's termination message; Read is true where its
	// container was there to be read.
	Message []byte
	Read    bool
	// ExitCode of the first container, and Reason in one word, for Exited and Lost.
	ExitCode int32
	Reason   string
	// Logs are the last of what a job wrote that did not end well.
	Logs []byte
}

// maxLogBytes bounds the end of the logs in a value.
const maxLogBytes = 2 << 10

// leftBehind are the members of valueOf that hold a job's own words.
func leftBehind() []string { return []string{"message", "logs"} }

// understand says what a job's state means for its call.
func understand(call tool.Call, handle string, state State) tool.Outcome {
	unknown := tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown}
	switch state.Phase {
	case Running, NoImage:
		return kind.GoesOn(handle)
	case Succeeded:
		return result(call, state)
	case Exited:
		return exited(call, state)
	case Deadline:
		unknown.Class = tool.ClassTimeout
		unknown.Message = "the call's job took longer than timeoutSeconds and was ended; nobody knows how far it came"
		unknown.Value, unknown.Embedded = valueOf(call, state).JSON, leftBehind()
	case Foreign:
		unknown.Message = "another job has the name of the call's; nobody knows whether the call took effect"
	case Lost:
		unknown.Message = "the call's job ended without a word on how; nobody knows whether it took effect"
		if state.Reason == ReasonEvicted {
			unknown.Message = "the call's job was evicted from its node; nobody knows how far it came"
		}
		unknown.Value, unknown.Embedded = valueOf(call, state).JSON, leftBehind()
	default:
		unknown.Message = "the call's job is gone; nobody knows whether the call took effect"
	}
	return unknown
}

func result(call tool.Call, state State) tool.Outcome {
	if !state.Read {
		return tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted,
			Message: "the call's job succeeded, but its pod was removed before its result was read; what it was to do is done"}
	}
	value := valueWithin(state.Message, transport.Bound(call))
	return tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size}
}

// exited is the outcome of a job that ran and failed.
func exited(call tool.Call, state State) tool.Outcome {
	value := valueOf(call, state)
	out := tool.Outcome{Class: tool.ClassToolError, Effect: tool.EffectCommitted, Value: value.JSON, Truncated: value.Truncated, Size: value.Size,
		Embedded: leftBehind()}
	switch {
	case state.Reason == ReasonOutOfMemory:
		out.Message = "the call's job was ended since it took more memory than it may; what it did before stays done; ask for less at once, or have its limit raised"
	case state.Reason == ReasonEvicted:
		out.Message = "the call's job was evicted from its node; what it did before stays done"
	case state.ExitCode == 0:
		out.Message = "the call's job failed although its first container ended well: another of its containers did not"
	default:
		out.Message = fmt.Sprintf("the call's job ended with exit code %d; what it did before stays done; the value says more", state.ExitCode)
	}
	return out
}

// valueOf collects what a failed job left behind.
func valueOf(call tool.Call, state State) transport.Value {
	members := map[string]any{}
	if state.Phase == Exited {
		members["exitCode"] = int64(state.ExitCode)
	}
	for name, value := range map[string]string{"reason": state.Reason, "message": text(state.Message), "logs": text(tail(state.Logs))} {
		if value != "" {
			members[name] = value
		}
	}
	if len(members) == 0 {
		return transport.Value{}
	}
	return valueWithin(strictjson.Canonical(members), transport.Bound(call))
}

// valueWithin makes a value of a whole text, of which only the beginning is kept where it
// is longer than bound.
func valueWithin(body []byte, bound int) transport.Value {
	if len(body) > bound {
		return transport.Beginning(body, int64(len(body)), bound)
	}
	return transport.ToValue(body, bound)
}

// tail is the end of the logs, from a whole line on where one fits.
func tail(logs []byte) []byte {
	if len(logs) <= maxLogBytes {
		return logs
	}
	logs = logs[len(logs)-maxLogBytes:]
	if i := strings.IndexByte(string(logs), '\n'); i >= 0 && i+1 < len(logs) {
		return logs[i+1:]
	}
	return logs
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }
