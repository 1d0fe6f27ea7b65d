package wire

import (
	"slices"
	"strings"
)

// Transient reports whether a status that says nothing else may be another one the next
// time. 424 is Bedrock's for trouble behind it, 499 Google's for a call that it gave up.
func Transient(status int) bool {
	return status >= 500 || slices.Contains([]int{408, 409, 424, 425, 499}, status)
}

// tooLong are the words, in lower case, in which servers say that a conversation is too
// long. Few have a code for it, and many have each other's models behind them, so that
// every wire looks for all of them. Tests name who says what.
var tooLong = []string{
	"maximum context length", "context length exceeded", "exceed context limit",
	"longer than the model's context length", "greater than the context length", "loaded with context length of only",
	"exceeded max context length", "exceeded context length", "maximum allowed input length",
	"exceeds the available context size", "exceeds the context window", "context window exceeds limit",
	"maximum prompt length", "prompt is too long", "prompt token count of", "exceeded model token limit",
	"input token count", "input context is too long", "input is too long for requested model",
	"exceeds the maximum number of tokens", "range of input length should be",
	"`inputs` tokens + `max_new_tokens` must be", "`inputs` must have less than",
	"reduce the length of the messages", "number of tokens in the prompt cannot exceed", "request payload size exceeds",
}

// TellsTooLong reports whether an error with this status and message is about a
// conversation that is too long. 413 says it by itself.
func TellsTooLong(status int, message string) bool {
	if status == 413 {
		return true
	}
	if status != 400 && status != 422 {
		return false
	}
	message = strings.ToLower(message)
	return slices.ContainsFunc(tooLong, func(p string) bool { return strings.Contains(message, p) })
}
