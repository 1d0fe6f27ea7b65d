// Package transcripts checks what a model reads after everything that can befall a call:
// on each wire, the turn machine leads a run through it, the projection of its journal is
// sent by the wire's client, and the strict fake provider has to accept every request. It
// needs no control plane.
package transcripts
