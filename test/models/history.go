package models

import (
	"crypto/sha256"
	"encoding/hex"
)

// history knows every accepted request, so that a conversation whose past was edited
// is noticed. It needs no notion of a conversation: a request is a continuation if it
// repeats some earlier request whole and adds at most one turn.
type history map[string]bool

func (h history) add(r *Request) { h[digest(r.rawTools, r.rawMessages)] = true }

// check says what is wrong with a request that continues a conversation.
func (h history) check(r *Request) string {
	turns := 0
	for end := len(r.rawMessages); end > 0; end-- {
		if h[digest(r.rawTools, r.rawMessages[:end])] {
			return ""
		}
		if r.Messages[end-1].Role == "assistant" {
			if turns++; turns > 1 {
				break
			}
		}
	}
	if turns == 0 {
		return ""
	}
	return "the conversation does not repeat an earlier request unchanged: its tools or earlier messages were edited, or a turn is missing"
}

func digest(tools string, messages []string) string {
	hash := sha256.New()
	write := func(text string) {
		sum := sha256.Sum256([]byte(text))
		hash.Write(sum[:])
	}
	write(tools)
	for _, m := range messages {
		write(m)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
