package fakemodel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// history knows every accepted request and what was signed in the replies to it, so that
// a conversation whose past was edited is noticed. It needs no notion of a conversation: a
// request is a continuation if it repeats some earlier request whole and adds at most one
// turn.
type history struct {
	// replies holds, by the digest of each accepted request, the replies to it.
	replies map[string][]signedReply
	// contents holds by signature what was signed.
	contents map[string]string
}

// signedReply is a reply as far as it was signed.
type signedReply struct {
	seals []Seal
	// whole is false for a reply that was cut off or refused: nothing of it ran, and it
	// may come back without what was signed.
	whole bool
}

func newHistory() *history {
	return &history{replies: map[string][]signedReply{}, contents: map[string]string{}}
}

func (h *history) add(r *Request) {
	at := digest(r.Head, r.Pieces)
	if _, known := h.replies[at]; !known {
		h.replies[at] = nil
	}
}

// said notes a reply to a request.
func (h *history) said(r *Request, reply signedReply) {
	for _, s := range reply.seals {
		h.contents[s.Signature] = s.Content
	}
	at := digest(r.Head, r.Pieces)
	h.replies[at] = append(h.replies[at], reply)
}

// check says what is wrong with a request that continues a conversation.
func (h *history) check(r *Request) string {
	if problem := h.checkSeals(r); problem != "" {
		return problem
	}
	turns := 0
	for end := len(r.Pieces); end > 0; end-- {
		if replies, known := h.replies[digest(r.Head, r.Pieces[:end])]; known {
			return checkReturned(r.Pieces[end:], replies)
		}
		if r.Pieces[end-1].Turn {
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

// checkSeals refuses signatures that were never given, or given for something else.
func (h *history) checkSeals(r *Request) string {
	for i, p := range r.Pieces {
		for _, s := range p.Seals {
			content, given := h.contents[s.Signature]
			switch {
			case !given:
				return fmt.Sprintf("part %d has an invalid signature: it was never given", i)
			case content != s.Content:
				return fmt.Sprintf("part %d has an invalid signature: what it signs was altered", i)
			}
		}
	}
	return ""
}

// checkReturned checks that a new turn brings back everything that a reply had signed, in
// its order.
func checkReturned(added []Piece, replies []signedReply) string {
	spoke := slices.ContainsFunc(added, func(p Piece) bool { return p.Assistant })
	if !spoke || len(replies) == 0 {
		return ""
	}
	var returned []Seal
	for _, p := range added {
		returned = append(returned, p.Seals...)
	}
	for _, reply := range replies {
		if slices.Equal(returned, reply.seals) || (len(returned) == 0 && !reply.whole) {
			return ""
		}
	}
	return "the newest turn does not bring back the signed parts of the reply: they are missing, or in another order"
}

func digest(head string, pieces []Piece) string {
	hash := sha256.New()
	write := func(text string) {
		sum := sha256.Sum256([]byte(text))
		hash.Write(sum[:])
	}
	write(head)
	for _, p := range pieces {
		write(p.Text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
