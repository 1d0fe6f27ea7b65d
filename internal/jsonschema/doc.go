// Package jsonschema is the gate that every JSON Schema passes before anything else
// looks at it. Schemas come from tool servers and are untrusted: they are bounded in
// size, depth, sub-schemas and references before a library compiles them, nothing is
// ever loaded for them, and what the library is given is our own copy without
// references.
//
// The dialect is JSON Schema 2020-12; a $schema of 2019-09, draft-07 or draft-06 is
// honoured. Left out are references to other documents, to anchors or to themselves
// ($ref cycles), $dynamicRef, $recursiveRef, nested $id, and patterns that Go's
// regexp package doesn't know. format and content keywords only annotate.
package jsonschema

// Bounds of a schema.
const (
	maxSchemaBytes = 64 << 10
	maxSchemaDepth = 64
	// maxSubschemas counts with every reference replaced by what it refers to.
	maxSubschemas = 2000
	// maxErrorBytes bounds the text of every error of this package.
	maxErrorBytes = 1 << 10
	// maxPatternBytes bounds the text of one pattern, maxPatternSize the instructions
	// that it compiles to and maxPatternsSize those of all patterns together.
	maxPatternBytes = 1 << 10
	maxPatternSize  = 5_000
	maxPatternsSize = 100_000
)

// Bounds of one validation. The library takes no context, so the work is estimated
// before it starts.
const (
	// maxWork bounds parts of the value times parts of the schema; the library
	// allocates an error for each pair in the worst case.
	maxWork = 2_000_000
	// maxPatternWork bounds bytes of text times instructions of patterns.
	maxPatternWork = 500_000_000
)
