// Package mcptool calls tools of Model Context Protocol servers over streamable HTTP: of
// the current revision (2026-07-28, in which every request stands for itself) and of the
// older ones with sessions.
//
// Which of the two a server speaks is found out by asking for its tools in the current
// revision. A refusal that no server of that revision would give means that there is a
// session to open first. What was found is remembered for the URL and the credentials,
// and found out again once it fails.
//
// The MCP SDK opens and ends sessions. It is given no capability and no handler, and sees
// nothing of a server but the answers to its own handshake, within bounds. Everything else
// is sent by this package itself, one request for one answer, because it has to know
// whether a request left, keep numbers exactly, and take an answer that it doesn't
// understand (a task that nobody asked for, say) for what it is: the SDK would make an
// empty success of it.
//
// Before a call leaves, the tool's definition is compared with the one that the model was
// shown. It comes from the server's list of tools, which is kept for as long as the server
// says, within bounds.
package mcptool

import "time"

// Bounds of what a server may send.
const (
	// maxAnswerBytes bounds one answer with everything around it in its stream. It is
	// wider than a result may be, since images count only until they are reduced.
	maxAnswerBytes = 8 << 20
	// maxAnswerValues bounds the values in an answer, which take many times their text
	// in memory.
	maxAnswerValues = 200_000
	// maxAnswerDepth bounds the nesting of an answer, maxListDepth that of a list, which is
	// wider so that a schema too deep to be used takes out its tool alone.
	maxAnswerDepth = 100
	maxListDepth   = 1000
	// maxHandshakeBytes bounds one answer of the handshake.
	maxHandshakeBytes = 1 << 20
	// maxErrorBytes bounds the body of an answer that is no success.
	maxErrorBytes = 64 << 10

	maxPages       = 20
	maxTools       = 512
	maxCursorBytes = 4 << 10
	// maxListBytes bounds all pages of a list together, maxCatalogueBytes what is kept
	// of them.
	maxListBytes      = 8 << 20
	maxCatalogueBytes = 2 << 20
	// maxDescriptionBytes cuts descriptions.
	maxDescriptionBytes = 4 << 10
	maxAnnotationBytes  = 4 << 10
	// maxSchemaBytes is what the schema gate accepts; larger ones are not kept.
	maxSchemaBytes = 64 << 10
	maxReasonBytes = 512

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
)

// How long a list of tools is taken for true: as the server says, within bounds, and a
// short while where it says nothing, as the older revisions do.
const (
	minFreshness     = time.Second
	defaultFreshness = 10 * time.Second
	maxFreshness     = 5 * time.Minute
)

const (
	// modernVersion is the first revision without sessions.
	modernVersion = "2026-07-28"
	// sessionVersion is the last one with them.
	sessionVersion = "2025-11-25"
)
