package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// previewBytes is how much a reduced result or argument keeps.
const previewBytes = 240

// told is what the first message says of the turns that are no longer replayed: a
// summary, then one JSON object a turn. Everything that a model or a tool said is inside
// a JSON string, so that none of it can pass for what Pawl says.
func told(state *journal.State) string {
	c := state.Context
	if c.Through == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n\n[The conversation was shortened. You have made %d turns so far; what follows tells of them and is not part of the task.", c.Through)
	if showing(state).readable {
		fmt.Fprintf(&b, " %s reads a result again that is given by its beginning.", ReadResult)
	}
	b.WriteString("]\n")
	if c.Summary != "" {
		b.WriteString(line(struct {
			Turns   string `json:"turns"`
			Summary string `json:"summary"`
		}{fmt.Sprintf("1-%d", c.Summarised), c.Summary}))
	}
	tell(&b, state, c.Summarised+1, c.Through, c.FullFrom, previewBytes)
	return b.String()
}

// tell writes turns from..through, whole from fullFrom on.
func tell(b *strings.Builder, state *journal.State, from, through, fullFrom int32, preview int) {
	limits := showing(state)
	for i := range state.Transcript {
		number, turn := int32(i)+1, &state.Transcript[i]
		if number < from || number > through {
			continue
		}
		told := toldTurn{Turn: number, Said: turn.Decision.Text, Problem: turn.Decision.Problem}
		for j := range turn.Calls {
			told.Calls = append(told.Calls, tellCall(&turn.Calls[j], number >= fullFrom, limits, preview))
		}
		for _, id := range turn.Reported {
			told.Ended = append(told.Ended, tellEnded(limits.find(id), limits))
		}
		b.WriteString(line(told))
	}
}

// toldTurn is one turn as it is told. A call always stands beside its result.
type toldTurn struct {
	Turn    int32      `json:"turn"`
	Said    string     `json:"said,omitempty"`
	Problem string     `json:"problem,omitempty"`
	Calls   []toldCall `json:"calls,omitempty"`
	// Ended are calls in the background that ended before the turn did.
	Ended []toldCall `json:"ended,omitempty"`
}

type toldCall struct {
	ID        string `json:"id"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments,omitempty"`
	// Result is the whole result, or Begins the beginning of one with Bytes and Digest.
	Result string `json:"result,omitempty"`
	Begins string `json:"begins,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
	Digest string `json:"digest,omitempty"`
}

func tellCall(call *journal.CallState, whole bool, limits show, preview int) toldCall {
	told := toldCall{ID: call.Call.ID, Tool: call.Call.Alias, Arguments: call.Call.Arguments}
	text := resultText(call, limits)
	if whole || len(text) <= preview || call.Detached {
		told.Result = text
		return told
	}
	call = limits.shown(call)
	told.Arguments = begin(told.Arguments, max(preview, previewBytes))
	told.Begins, told.Digest = text[:runeStart(text, preview)], strictjson.Digest(call.Last.Value)
	told.Bytes = sizeOf(call.Last)
	if call.Last.Artifact != nil {
		told.Digest = call.Last.Artifact.Digest
	}
	return told
}

// tellEnded tells of a call in the background what it came to.
func tellEnded(call *journal.CallState, limits show) toldCall {
	return toldCall{ID: call.Call.ID, Tool: call.Call.Alias, Result: outcomeText(call, limits)}
}

// reportText tells the model, which has answered, what its calls in the background came to.
// Each is one line of JSON, so that nothing that a tool said can pass for what Pawl says.
func reportText(turn *journal.Turn, limits show) string {
	text := "[Before this can count as your answer: calls in the background have ended, whose results you have not seen. They follow. Now answer, whole, or go on.]\n"
	for _, id := range turn.Reported {
		text += line(tellEnded(limits.find(id), limits))
	}
	return text
}

func begin(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s [%d bytes]", text[:runeStart(text, limit)], len(text))
}

// line is a value as one line of JSON, readable where encoding/json would escape.
func line(value any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "" // strings and numbers always encode
	}
	return b.String()
}
