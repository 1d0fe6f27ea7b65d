// Package transcripts checks what a model reads after everything that can befall a call:
// on each wire, the turn machine leads a run through it, the projection of its journal is
// sent by the wire's client, and the strict fake provider has to accept every request. And
// whatever form calls have on each wire, the service behind a tool gets what the model wrote,
// or nothing where it does not fit. It needs no control plane.
package transcripts
