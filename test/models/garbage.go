package models

import (
	"bytes"
	"strings"
)

// Garbage holds bodies that no provider should send and some do, by what is wrong
// with them. None of them may be taken for a decision.
func Garbage() map[string][]byte {
	nested := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	whole := Propose(Call{Name: "lookup", Arguments: `{"key":"profile"}`}).named(func() string { return "call_garbage" }).Body
	return map[string][]byte{
		"no body at all":                 {},
		"an HTML page":                   []byte("<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"),
		"plain words":                    []byte("upstream connect error or disconnect/reset before headers"),
		"JSON null":                      []byte("null"),
		"a list":                         []byte(`[{"choices":[]}]`),
		"an event stream":                []byte("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n"),
		"cut in the middle":              whole[:len(whole)/2],
		"NUL bytes":                      bytes.Replace(whole, []byte("lookup"), []byte("look\x00up"), 1),
		"bytes that are not UTF-8":       bytes.Replace(whole, []byte("lookup"), []byte("look\xffup"), 1),
		"nesting without end":            []byte(`{"choices":` + nested + `}`),
		"members of the wrong type":      []byte(`{"choices":{"0":{"message":"hello"}},"usage":"none"}`),
		"two documents":                  append(append([]byte{}, whole...), whole...),
		"no choices":                     []byte(`{"id":"chatcmpl-1","choices":[]}`),
		"a choice without a message":     []byte(`{"choices":[{"index":0,"finish_reason":"stop"}]}`),
		"a message that is no object":    []byte(`{"choices":[{"message":["hello"],"finish_reason":"stop"}]}`),
		"a stop reason that is a number": []byte(`{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":1}]}`),
	}
}
