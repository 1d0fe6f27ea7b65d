package fakemodel

import (
	"bytes"
	"maps"
	"strings"
)

// Garbage holds bodies that no provider should send on a wire and some do, by what is
// wrong with them. None of them may be taken for a decision.
func Garbage(wire Wire) map[string][]byte {
	whole := Body(wire, Propose(Call{Name: "lookup", Arguments: `{"key":"profile"}`}))
	garbage := map[string][]byte{
		"no body at all":           {},
		"an HTML page":             []byte("<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"),
		"plain words":              []byte("upstream connect error or disconnect/reset before headers"),
		"JSON null":                []byte("null"),
		"a list":                   []byte("[" + string(whole) + "]"),
		"text":                     encode(string(whole)),
		"an object of nothing":     []byte("{}"),
		"cut in the middle":        whole[:len(whole)/2],
		"NUL bytes":                bytes.Replace(whole, []byte("lookup"), []byte("look\x00up"), 1),
		"bytes that are not UTF-8": bytes.Replace(whole, []byte("lookup"), []byte("look\xffup"), 1),
		"two documents":            append(append([]byte{}, whole...), whole...),
	}
	maps.Copy(garbage, wire.Garbage())
	return garbage
}

// NoReplies are the names of the garbage that no model can have meant: trouble on the way,
// after which it may be asked again.
var NoReplies = []string{"no body at all", "an HTML page", "cut in the middle"}

// endless is JSON nested deeper than any reader follows.
func endless() string { return strings.Repeat("[", 20000) + strings.Repeat("]", 20000) }
