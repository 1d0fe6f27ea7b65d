package prompt

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
)

// ReadResult is the built-in tool that gives what was cut of a result. It is named in
// the note that says so.
const ReadResult = "read_result"

// CheckCall is the built-in tool that looks at a call in the background.
const CheckCall = "check"

// show says how much of a result is shown.
type show struct {
	// find gives the call with an id, nil for none.
	find  func(id string) *journal.CallState
	limit int32
	// readable is true where the model can ask for the rest.
	readable bool
}

func showing(state *journal.State) show {
	s := show{find: state.Call, limit: state.Run.MaxToolResultBytes}
	for _, tool := range state.Run.Tools {
		s.readable = s.readable || tool.Name == ReadResult
	}
	return s
}

func resultMessage(call *journal.CallState, limits show) model.Message {
	message := model.Message{Role: model.RoleTool, CallID: wireID(call.Call), Value: json.RawMessage("null")}
	switch result := limits.shown(call).Last; {
	case call.Detached:
		message.Value = Running(call.Call.ID)
	case result != nil && result.Final && result.Class == classOK:
		message.Value = result.Value
	default:
		message.Failed = true
	}
	message.Text = resultText(call, limits)
	return message
}

// Running is what the model reads of a call that goes on in the background.
func Running(id string) json.RawMessage {
	text, err := json.Marshal(struct {
		Call  string `json:"call"`
		State string `json:"state"`
	}{id, "running"})
	if err != nil {
		return nil // two strings always encode
	}
	return text
}

// shown is the call whose result a call gives: its own, or that of the one it looked at.
func (s show) shown(call *journal.CallState) *journal.CallState {
	if result := call.Last; result != nil && result.Of != "" && len(result.Value) == 0 {
		if about := s.find(result.Of); about != nil {
			return about
		}
	}
	return call
}

// resultText is a result as the model reads it. That of a call in the background stays
// what it was, so that nothing that was said before changes.
func resultText(call *journal.CallState, limits show) string {
	if call.Detached {
		return fmt.Sprintf("%s\n[it goes on in the background; %s with call %q gives its result]", Running(call.Call.ID), CheckCall, call.Call.ID)
	}
	return outcomeText(limits.shown(call), limits)
}

// outcomeText is what a call came to.
func outcomeText(call *journal.CallState, limits show) string {
	result := call.Last
	var text string
	switch {
	case result == nil || !result.Final:
		// A request is only ever made of complete turns; this keeps the projection
		// total and the transcript valid all the same.
		return `{"error":{"class":"not_run"}}`
	case result.Class == classOK:
		text = limits.cut(call.Call, Plain(result.Value), sizeOf(result))
	default:
		text = failure(call, limits)
	}
	if result.Repeats > 1 {
		text += fmt.Sprintf("\n[note: the same call has now given the same result %d times; repeating it will end the run]", result.Repeats)
	}
	return text
}

const classOK = "ok"

// sizeOf is how long a result is as the model reads it, of which its value may be no more
// than the beginning.
func sizeOf(result *journal.CallCompleted) int {
	if result.Artifact != nil {
		return int(result.Artifact.Size)
	}
	return len(Plain(result.Value))
}

// Plain shows a JSON string as its text and everything else as JSON.
func Plain(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err == nil && len(value) > 0 && value[0] == '"' {
		return text
	}
	return string(value)
}

// failure is what the model reads of a call that did not succeed: structured, since
// not every wire has a flag for errors.
func failure(call *journal.CallState, limits show) string {
	type report struct {
		Class     string          `json:"class"`
		Message   string          `json:"message,omitempty"`
		Retryable bool            `json:"retryable"`
		Attempts  int32           `json:"attempts,omitempty"`
		Effect    string          `json:"effect,omitempty"`
		Detail    json.RawMessage `json:"detail,omitempty"`
	}
	result := call.Last
	detail := result.Value
	switch {
	case result.Artifact != nil:
		detail, _ = json.Marshal(limits.cut(call.Call, Plain(detail), sizeOf(result)))
	case len(detail) > int(limits.limit):
		detail, _ = json.Marshal(limits.cut(call.Call, string(detail), len(detail)))
	}
	text, err := json.Marshal(map[string]report{"error": {
		Class: result.Class, Message: result.Message, Retryable: result.Retryable,
		Attempts: call.Attempt, Effect: result.Effect, Detail: detail,
	}})
	if err != nil {
		return `{"error":{"class":"` + result.Class + `"}}`
	}
	return string(text)
}

// cut bounds a result of so many bytes, of which text is at least the beginning, at a rune
// boundary and says in it what is missing, and how to read the rest.
func (s show) cut(call journal.Call, text string, size int) string {
	if size <= int(s.limit) && size <= len(text) {
		return text
	}
	end := runeStart(text, int(s.limit))
	note := fmt.Sprintf("the first %d of %d bytes", end, size)
	if s.readable {
		note += fmt.Sprintf("; %s with call %q and offset %d gives more", ReadResult, call.ID, end)
	}
	return text[:end] + "\n[cut: " + note + "]"
}

// runeStart is the last place at or before end where a character begins.
func runeStart(text string, end int) int {
	if end >= len(text) {
		return len(text)
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return end
}

// Kept is the artifact that reading on in a result needs, nil for none.
func Kept(state *journal.State, id string) *journal.Artifact {
	if call := state.Call(id); call != nil && call.Last != nil && call.Last.Final {
		return call.Last.Artifact
	}
	return nil
}

// Page reads on in a result: what stands from offset on, at most as much as one result
// may show, with a line that says where it stands. Whole is the content of its artifact,
// where it has one. The problem is for the model.
func Page(state *journal.State, id string, offset int64, whole string) (page, problem string) {
	const lineBytes = 96
	call := state.Call(id)
	if call == nil || call.Last == nil || !call.Last.Final {
		return "", "there is no result of a call with that id"
	}
	text := whole
	if call.Last.Artifact == nil {
		text = Plain(call.Last.Value)
	}
	if len(text) == 0 || offset < 0 || offset >= int64(len(text)) {
		return "", fmt.Sprintf("the result has %d bytes: give an offset below that", len(text))
	}
	begin := runeStart(text, int(offset))
	length := max(int(state.Run.MaxToolResultBytes)-lineBytes, utf8.UTFMax)
	end := runeStart(text, begin+length)
	line := fmt.Sprintf("[bytes %d to %d of %d", begin, end, len(text))
	if end < len(text) {
		line += fmt.Sprintf("; go on at offset %d", end)
	}
	return line + "]\n" + text[begin:end], ""
}
