package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-run/pawl/internal/model"
)

// Answer is what the server does with an accepted request, whichever the wire. One of
// Reply, Trouble and Body is what it answers.
type Answer struct {
	// Reply is said in the shape of the request's wire.
	Reply *Reply
	// Trouble is said in the shape of the request's wire.
	Trouble *Trouble
	// Body is the response body as it is, for a nil Reply and Trouble.
	Body []byte
	// Status is the HTTP status; 0 stands for the usual one.
	Status int
	// Header is added to the response.
	Header http.Header
	// Delay passes before the answer begins.
	Delay time.Duration
	// Pause passes after each byte of the body.
	Pause time.Duration
	// Hang never answers.
	Hang bool
	// Cut closes the connection in place of an answer, after the request was read.
	Cut bool
	// CutAfter closes the connection after so many bytes of the body.
	CutAfter int
}

// Reply is what the model says.
type Reply struct {
	// Thoughts come before everything else.
	Thoughts []Thought
	// Text is the answer, or what is said before the calls.
	Text string
	// Calls whose ids the server chooses.
	Calls []Call
	// Stop says why the reply ends.
	Stop Stop
	// StopReason is a word of the wire's own, in place of the one for Stop.
	StopReason string
	// Usage is reported by the wire's own arithmetic. Nil for one that grows with the
	// reply; one that is not Reported is left out.
	Usage *model.Usage
}

// Thought is reasoning that the provider signs, where the wire has that.
type Thought struct {
	Text string
	// Redacted is reasoning that nobody may read.
	Redacted bool
}

// Call is a tool call that the model proposes.
type Call struct {
	// ID is chosen by the server in replies.
	ID string
	// Name is the alias.
	Name string
	// Arguments is the text of the arguments; empty for {}.
	Arguments string
}

// Stop says why a reply ends.
type Stop string

// Reasons why a reply ends.
const (
	// StopDone is an answer, or a batch of calls.
	StopDone Stop = ""
	// StopCutOff is the output limit.
	StopCutOff Stop = "cut off"
	// StopFull is a conversation that has filled the model's context.
	StopFull Stop = "full"
	// StopRefused is the model's refusal; Text is its explanation.
	StopRefused Stop = "refused"
	// StopFiltered is a content filter.
	StopFiltered Stop = "filtered"
	// StopPaused is a provider that wants to be asked to go on.
	StopPaused Stop = "paused"
)

// whole reports whether the reply can be taken as it is.
func (r *Reply) whole() bool {
	return r.StopReason == "" && (r.Stop == StopDone || r.Stop == StopPaused)
}

// Text answers with a final answer.
func Text(text string) Answer { return Answer{Reply: &Reply{Text: text}} }

// Propose answers with tool calls.
func Propose(calls ...Call) Answer { return Answer{Reply: &Reply{Calls: calls}} }

// CutOff answers with a text that hit the output limit.
func CutOff(text string) Answer { return Answer{Reply: &Reply{Text: text, Stop: StopCutOff}} }

// Refusal answers with the model's refusal.
func Refusal(text string) Answer { return Answer{Reply: &Reply{Text: text, Stop: StopRefused}} }

// Paused answers with a text in the middle of which the provider wants to be asked to go on.
func Paused(text string) Answer { return Answer{Reply: &Reply{Text: text, Stop: StopPaused}} }

// Thinking puts thoughts before what an answer says.
func Thinking(answer Answer, thoughts ...string) Answer {
	reply := *answer.Reply
	for _, text := range thoughts {
		reply.Thoughts = append(reply.Thoughts, Thought{Text: text})
	}
	answer.Reply = &reply
	return answer
}

// Raw answers with a body as it is.
func Raw(body []byte) Answer { return Answer{Body: body} }

// Hang never answers.
func Hang() Answer { return Answer{Hang: true} }

// Cut reads the request and closes the connection.
func Cut() Answer { return Answer{Cut: true} }

// CutAfter closes the connection after so many bytes of an answer's body.
func CutAfter(answer Answer, n int) Answer {
	answer.CutAfter = n
	return answer
}

// Slow delays an answer.
func Slow(answer Answer, delay time.Duration) Answer {
	answer.Delay = delay
	return answer
}

// Drip pauses after each byte of an answer's body.
func Drip(answer Answer, pause time.Duration) Answer {
	answer.Pause = pause
	return answer
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a test answer: %v", err))
	}
	return data
}

// usageOf is what a reply says it has cost: what the test said, else a guess that grows
// with what was rendered of it.
func usageOf(reply Reply, rendered any) *model.Usage {
	if reply.Usage != nil {
		return reply.Usage
	}
	return &model.Usage{InputTokens: 100, OutputTokens: int64(len(encode(rendered)) / 4), Reported: true}
}
