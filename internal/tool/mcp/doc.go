// Package mcptool calls tools of Model Context Protocol servers over streamable HTTP,
// in the current revision (2026-07-28, without sessions) and in the older ones.
//
// The MCP SDK does what differs between revisions: it finds out which one a server
// speaks, and opens and ends sessions. It is given no capability and no handler, and
// sees nothing of a server but the answers to its own handshake, within bounds.
// tools/list and tools/call are sent by this package itself, one request for one
// answer, because it has to know whether a request left, keep numbers exactly, and
// take an answer that it doesn't understand (a task, say) for what it is: the SDK
// would make an empty success of it.
//
// Not supported: tools that need input (they end as tool errors), tasks (not known),
// and the mirroring of arguments in headers that a schema asks for with x-mcp-header
// (such a server refuses the call).
package mcptool

import "time"

// Bounds of what a server may send.
const (
	// maxAnswerBytes bounds one answer with everything around it in its stream. It is
	// wider than a result may be, since images count only until they are reduced.
	maxAnswerBytes = 8 << 20
	// maxHandshakeBytes bounds one answer of the handshake.
	maxHandshakeBytes = 1 << 20
	// maxErrorBytes bounds the body of an answer that is no success.
	maxErrorBytes = 64 << 10
	// maxAnswerDepth bounds the nesting of an answer.
	maxAnswerDepth = 100

	maxPages            = 20
	maxTools            = 512
	maxDescriptionBytes = 4 << 10
	maxCursorBytes      = 4 << 10
	// maxSchemaBytes is what the schema gate accepts; larger ones are not kept.
	maxSchemaBytes = 64 << 10

	// maxResumes bounds how often one answer's stream is taken up again.
	maxResumes     = 20
	minResumeDelay = 10 * time.Millisecond
	maxResumeDelay = 30 * time.Second
	// resumeDelay holds where the server names none.
	resumeDelay = time.Second

	// cancelTimeout bounds the notification that a call was given up.
	cancelTimeout = time.Second
	// closeTimeout bounds the end of a session.
	closeTimeout = 2 * time.Second
	// idleTimeout ends a session that nobody used for so long.
	idleTimeout = 2 * time.Minute
)

// modernVersion is the first revision without sessions.
const modernVersion = "2026-07-28"
