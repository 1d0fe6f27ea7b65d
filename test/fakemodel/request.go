package fakemodel

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
)

// Request is a request as it arrived, and what it says whichever the wire.
type Request struct {
	// Number counts the server's requests, starting at 1.
	Number int
	// Wire it came on, nil for a path that no wire has.
	Wire   Wire
	URL    *url.URL
	Header http.Header
	Body   []byte
	// Refusal says why the request was refused; empty for an accepted one.
	Refusal string

	// Model, System, Messages and Tools are read from the request by its wire.
	Model    string
	System   string
	Messages []Message
	Tools    []Tool

	// Head is what a conversation may not change once it has begun, in canonical form:
	// its tools, and whatever else the provider takes for a part of the prefix.
	Head string
	// Pieces are the conversation, instructions included where Head has none.
	Pieces []Piece
}

// Message is what one side says: a turn of the user or the assistant, or the result of
// one call.
type Message struct {
	// Role is user, assistant or tool.
	Role  string
	Text  string
	Calls []Call
	// CallID of a result; on a wire without ids, empty.
	CallID string
	// Failed is true for a result that the wire marks as a failure.
	Failed bool
}

// Tool is an offered tool.
type Tool struct {
	Name, Description string
	// Schema of the arguments.
	Schema json.RawMessage
}

// Last is the newest message.
func (r Request) Last() Message {
	if len(r.Messages) == 0 {
		return Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// canonical renders JSON with sorted members, numbers as they were written.
func canonical(raw []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return string(raw)
	}
	return string(encode(v))
}
