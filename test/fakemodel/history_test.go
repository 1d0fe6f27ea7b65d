package fakemodel

import (
	"strings"
	"testing"
)

// TestSeals checks what a conversation with signed parts may look like when it goes on.
func TestSeals(t *testing.T) {
	user := Piece{Text: "Go."}
	thought := func(signature, content string) Piece {
		return Piece{Text: signature + content, Turn: true, Assistant: true, Seals: []Seal{{signature, content}}}
	}
	more := func(p Piece) Piece { p.Turn = false; return p }
	call := Piece{Text: "call", Assistant: true}
	result := Piece{Text: "result"}
	first, second := thought("s1", "hm"), more(thought("s2", "so"))
	tests := map[string]struct {
		pieces []Piece
		// want is part of the reason; "" for an accepted request.
		want string
	}{
		"as it was said":          {[]Piece{user, first, second, call, result}, ""},
		"the reply of another go": {[]Piece{user, thought("s3", "ah"), call, result}, ""},
		"nothing said yet":        {[]Piece{user}, ""},
		"a signature left out":    {[]Piece{user, {Text: "call", Turn: true, Assistant: true}, result}, "bring back"},
		"one of two left out":     {[]Piece{user, first, call, result}, "bring back"},
		"in another order":        {[]Piece{user, thought("s2", "so"), more(first), call, result}, "bring back"},
		"twice":                   {[]Piece{user, first, second, more(first), call, result}, "bring back"},
		"altered":                 {[]Piece{user, thought("s1", "hmm"), second, call, result}, "altered"},
		"invented":                {[]Piece{user, thought("s9", "hm"), call, result}, "never given"},
		"moved to another prefix": {[]Piece{{Text: "Stop."}, first, second, call, result}, "unchanged"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			begun := &Request{Pieces: []Piece{user}}
			h.add(begun)
			h.said(begun, signedReply{[]Seal{{"s1", "hm"}, {"s2", "so"}}, true})
			h.said(begun, signedReply{[]Seal{{"s3", "ah"}}, true})
			got := h.check(&Request{Pieces: test.pieces})
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestSealsLater checks that a turn that was brought back once stays as it is.
func TestSealsLater(t *testing.T) {
	h := newHistory()
	turn := []Piece{{Text: "Go."}, {Text: "s1", Turn: true, Assistant: true, Seals: []Seal{{"s1", ""}}}, {Text: "result"}}
	for n := range turn {
		if n == 1 {
			continue
		}
		r := &Request{Pieces: turn[:n+1]}
		if problem := h.check(r); problem != "" {
			t.Fatal(problem)
		}
		h.add(r)
		h.said(r, signedReply{[]Seal{{"s" + string(rune('1'+n)), ""}}, true})
	}
	next := Piece{Text: "s3", Turn: true, Assistant: true, Seals: []Seal{{"s3", ""}}}
	if problem := h.check(&Request{Pieces: append(turn[:3:3], next, Piece{Text: "result"})}); problem != "" {
		t.Error(problem)
	}
	bare := Piece{Text: "", Turn: true, Assistant: true}
	if h.check(&Request{Pieces: []Piece{turn[0], bare, turn[2], next}}) == "" {
		t.Error("an old signature was left out and nobody noticed")
	}
}

// TestSealsOfNoReply checks that a reply which was cut off may lose what was signed, and
// may not have it altered.
func TestSealsOfNoReply(t *testing.T) {
	h := newHistory()
	begun := &Request{Pieces: []Piece{{Text: "Go."}}}
	h.add(begun)
	h.said(begun, signedReply{[]Seal{{"s1", "hm"}, {"s2", ""}}, false})
	for text, test := range map[string]struct {
		seals []Seal
		want  bool
	}{
		"none": {nil, true}, "both": {[]Seal{{"s1", "hm"}, {"s2", ""}}, true}, "one": {[]Seal{{"s1", "hm"}}, false},
		"altered": {[]Seal{{"s1", "so"}, {"s2", ""}}, false},
	} {
		pieces := append(begun.Pieces[:1:1], Piece{Text: "the ans", Turn: true, Assistant: true, Seals: test.seals}, Piece{Text: "It was cut off."})
		if got := h.check(&Request{Pieces: pieces}); (got == "") != test.want {
			t.Errorf("%s: got %q", text, got)
		}
	}
}
