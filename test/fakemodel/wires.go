package fakemodel

import "net/http"

// wires are all that the server speaks. A wire is a type in files of its own, and one line
// here: Chat is the pattern.
var wires = []Wire{
	Chat,
	Responses,
	Gemini,
	Messages,
}

// Wire is one provider's protocol. It keeps nothing between calls: what has to be
// remembered, such as conversations, ids and signatures, the Server remembers.
type Wire interface {
	// Name is the provider's, as in the spec of a Model.
	Name() string
	// Endpoint is what a Model is configured with, for a server at root, which has
	// neither path nor slash at its end.
	Endpoint(root string) string
	// Serves reports whether a request of this method and path is this wire's, the paths
	// of cloud platforms included.
	Serves(method, path string) bool
	// Key is the key that a request carries, empty for none.
	Key(r *http.Request) string
	// Read fills in the rest of a request from its Header, URL and Body, and checks it
	// by itself: what the strictest provider of this wire would refuse whatever was sent
	// before. It returns why it is refused, or "".
	Read(r *Request, options Options) (problem string)
	// Render says a reply in the wire's own shape. It fails for what the wire has no
	// words for, such as a pause where no provider pauses.
	Render(reply Reply, names *Names) (body []byte, err error)
	// Seals are the signed parts of a rendered or recorded reply, in order.
	Seals(body []byte) []Seal
	// Refuse says trouble as the provider does.
	Refuse(trouble Trouble) Answer
	// Garbage holds bodies that are no reply although they look like this wire's, by
	// what is wrong with them.
	Garbage() map[string][]byte
}

// Seal is a part of a reply that the provider signed, and checks when it comes back.
type Seal struct {
	// Signature is the provider's opaque text.
	Signature string
	// Content is what was signed, in any form that differs when it was altered; empty
	// where the signature is the content itself.
	Content string
}

// Piece is the smallest part of a conversation that can be added to it: a message, or a
// part of one where the wire lets a message grow.
type Piece struct {
	// Text is the piece in canonical form, for comparing. What may change from one
	// request to the next without changing the conversation, such as the place of a
	// cache mark, is left out.
	Text string
	// Turn marks the piece with which a turn of the assistant begins.
	Turn bool
	// Assistant marks a piece that the assistant said.
	Assistant bool
	// Seals that the piece holds.
	Seals []Seal
}

// wireOf finds the wire of a request, nil for none.
func wireOf(r *http.Request) Wire {
	for _, w := range wires {
		if w.Serves(r.Method, r.URL.Path) {
			return w
		}
	}
	return nil
}
