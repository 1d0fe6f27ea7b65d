package journal

import (
	"strings"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// ArtifactPieceBytes bounds what one object holds of an artifact.
const ArtifactPieceBytes = 512 << 10

// NewArtifact names a text, which must be valid UTF-8.
func NewArtifact(text string) Artifact {
	return Artifact{Digest: strictjson.Digest([]byte(text)), Size: int64(len(text)), Pieces: int32(len(ArtifactPieces(text)))} //nolint:gosec // a result is no longer than a few pieces
}

// Holds says whether a text is the artifact's.
func (a Artifact) Holds(text string) bool {
	return int64(len(text)) == a.Size && strictjson.Digest([]byte(text)) == a.Digest
}

// ArtifactPieces cuts a text, at characters, into what its objects hold.
func ArtifactPieces(text string) []string {
	var pieces []string
	for len(text) > ArtifactPieceBytes {
		end := ArtifactPieceBytes
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		pieces = append(pieces, strings.Clone(text[:end]))
		text = text[end:]
	}
	return append(pieces, text)
}

// noteArtifact counts what is kept of a run's results beside its journal.
func (s *State) noteArtifact(a *Artifact) {
	if a == nil || s.Artifacts[a.Digest] {
		return
	}
	if s.Artifacts == nil {
		s.Artifacts = map[string]bool{}
	}
	s.Artifacts[a.Digest] = true
	s.ArtifactBytes += a.Size
}
