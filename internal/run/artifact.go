package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/prompt"
)

const (
	// maxPieceBytes bounds a value in an event: 64 KiB, and a sentence on what was cut.
	maxPieceBytes = 65 << 10
	// maxBeginningBytes bounds what an event keeps of a value that is an artifact.
	maxBeginningBytes = 64 << 10
	// maxArtifactBytes bounds what a run keeps in artifacts.
	maxArtifactBytes = 16 << 20
)

// kept is a value as an event holds it.
type kept struct {
	value    json.RawMessage
	artifact *journal.Artifact
	content  string
	// cut is true where there is no room for the whole, whose size is then known.
	cut  bool
	size int64
}

// keep sets a value aside that is larger than an event may hold, and leaves of it what the
// model is shown at first.
func keep(s *journal.State, value json.RawMessage) kept {
	if len(value) <= maxPieceBytes || s.Run == nil {
		return kept{value: value}
	}
	text := strings.ToValidUTF8(prompt.Plain(value), "\ufffd")
	begins := bounded(text, min(int(s.Run.MaxToolResultBytes), maxBeginningBytes))
	artifact := journal.NewArtifact(text)
	if !s.Artifacts[artifact.Digest] && s.ArtifactBytes+artifact.Size > maxArtifactBytes {
		note := fmt.Sprintf("\n[cut here: the first %d of %d bytes; the run has kept %d MiB of large results, which is all that it may]", len(begins), len(text), maxArtifactBytes>>20)
		return kept{value: jsonString(begins + note), cut: true, size: artifact.Size}
	}
	return kept{value: jsonString(begins), artifact: &artifact, content: text}
}

// missing lists the artifacts that calls of read_result need and nobody has read yet.
func missing(f Facts, turn *journal.Turn) []journal.Artifact {
	var artifacts []journal.Artifact
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if !readsResult(call) {
			continue
		}
		input, ok := pageInput(call)
		if !ok {
			continue
		}
		if artifact := prompt.Kept(f.State, input.Call); artifact != nil {
			if _, known := f.Fetched[artifact.Digest]; !known {
				artifacts = append(artifacts, *artifact)
			}
		}
	}
	return artifacts
}
