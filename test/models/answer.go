package models

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Answer is what the server does with an accepted request.
type Answer struct {
	// Status is the HTTP status; 0 stands for 200.
	Status int
	// Header is added to the response.
	Header http.Header
	// Body is the response body.
	Body []byte
	// Calls are turned into a reply with calls, whose ids the server chooses.
	Calls []Call
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

// Call is a tool call that the model proposes.
type Call struct {
	// Name is the alias.
	Name string
	// Arguments is the text of the arguments; empty for {}.
	Arguments string
}

// Text answers with a final answer.
func Text(text string) Answer {
	return Answer{Body: completion(map[string]any{"role": "assistant", "content": text, "refusal": nil}, "stop")}
}

// Propose answers with tool calls.
func Propose(calls ...Call) Answer { return Answer{Calls: calls} }

// CutOff answers with a text that hit the output limit.
func CutOff(text string) Answer {
	return Answer{Body: completion(map[string]any{"role": "assistant", "content": text, "refusal": nil}, "length")}
}

// Refusal answers with the model's refusal.
func Refusal(text string) Answer {
	return Answer{Body: completion(map[string]any{"role": "assistant", "content": nil, "refusal": text}, "stop")}
}

// Message answers with a whole assistant message and a stop reason; stop "" leaves it out.
func Message(message map[string]any, stop string) Answer {
	return Answer{Body: completion(message, stop)}
}

// Raw answers with a body as it is.
func Raw(body []byte) Answer { return Answer{Body: body} }

// Refuse answers with an error of the vendor's shape.
func Refuse(status int, code, message string) Answer {
	return Answer{Status: status, Body: encode(map[string]any{"error": map[string]any{
		"message": message, "type": "invalid_request_error", "param": nil, "code": code,
	}})}
}

// Throttled answers 429 and asks to wait.
func Throttled(wait time.Duration) Answer {
	a := Refuse(http.StatusTooManyRequests, "rate_limit_exceeded", "too many requests")
	a.Header = http.Header{"Retry-After": {strconv.Itoa(int(wait.Seconds()))}}
	return a
}

// ServerError answers with a status of 500 and above, and no JSON.
func ServerError(status int) Answer {
	return Answer{Status: status, Body: []byte("upstream trouble")}
}

// Hang never answers.
func Hang() Answer { return Answer{Hang: true} }

// Cut reads the request and closes the connection.
func Cut() Answer { return Answer{Cut: true} }

// Slow delays an answer.
func Slow(answer Answer, delay time.Duration) Answer {
	answer.Delay = delay
	return answer
}

// named gives ids to the calls.
func (a Answer) named(id func() string) Answer {
	if len(a.Calls) == 0 {
		return a
	}
	var list []any
	for _, c := range a.Calls {
		arguments := c.Arguments
		if arguments == "" {
			arguments = "{}"
		}
		list = append(list, map[string]any{
			"id": id(), "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": arguments},
		})
	}
	message := map[string]any{"role": "assistant", "content": nil, "refusal": nil, "annotations": []any{}, "tool_calls": list}
	a.Body = completion(message, "tool_calls")
	return a
}

func (a Answer) write(ctx context.Context, w http.ResponseWriter) {
	if a.Hang {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
	pause(ctx, a.Delay)
	if a.Cut {
		panic(http.ErrAbortHandler)
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(max(a.Status, http.StatusOK))
	a.writeBody(ctx, w)
}

func (a Answer) writeBody(ctx context.Context, w http.ResponseWriter) {
	body := a.Body
	if a.CutAfter > 0 {
		body = body[:min(a.CutAfter, len(body))]
	}
	if a.Pause == 0 {
		_, _ = w.Write(body)
	} else {
		for i := range body {
			_, _ = w.Write(body[i : i+1])
			_ = http.NewResponseController(w).Flush()
			pause(ctx, a.Pause)
		}
	}
	if len(body) < len(a.Body) {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// completion wraps a message as the vendor does, with a usage that grows with it.
func completion(message map[string]any, stop string) []byte {
	choice := map[string]any{"index": 0, "message": message, "logprobs": nil}
	if stop != "" {
		choice["finish_reason"] = stop
	}
	written := len(encode(message)) / 4
	return encode(map[string]any{
		"id": "chatcmpl-test", "object": "chat.completion", "created": 1790000000, "model": "test-model",
		"choices": []any{choice},
		"usage": map[string]any{
			"prompt_tokens": 100, "completion_tokens": written, "total_tokens": 100 + written,
			"prompt_tokens_details":     map[string]any{"cached_tokens": 0},
			"completion_tokens_details": map[string]any{"reasoning_tokens": 0},
		},
	})
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a test answer: %v", err))
	}
	return data
}
