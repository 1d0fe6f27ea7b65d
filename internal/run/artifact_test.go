package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// paged reads a result from offset on to its end, as the model would.
func paged(s *stage, id string, offset int) string {
	var read strings.Builder
	for n := 0; ; n++ {
		reading := fmt.Sprintf("%s-page%d", id, n)
		s.answer(proposes(called(reading+":read_result", fmt.Sprintf(`{"call":%q,"offset":%d}`, id, offset))))
		s.drive()
		var page string
		if err := json.Unmarshal(s.call(reading).Last.Value, &page); err != nil {
			s.t.Fatalf("no page at %d: %+v", offset, s.call(reading).Last)
		}
		place, text, _ := strings.Cut(page, "]\n")
		read.WriteString(text)
		var begin, end, of int
		_, _ = fmt.Sscanf(place, "[bytes %d to %d of %d; go on at offset %d", &begin, &end, &of, &offset)
		if end == of {
			return read.String()
		}
	}
}

func patientReader(r *journal.RunStarted) {
	r.MaxToolResultBytes, r.ContextTokens = 64<<10, 0
	r.Limits.MaxTurns, r.Limits.MaxToolCalls, r.Limits.MaxTokens = 200, 200, 1_000_000_000
}

func TestLargeResultsAreArtifacts(t *testing.T) {
	long := strings.Repeat("höher ", 40_000)
	list := "[" + strings.Repeat("12345,", 20_000) + "0]"
	for name, tc := range map[string]struct{ value, text string }{
		"text": {string(strictjson.Canonical(long)), long},
		"JSON": {list, list},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{started: patientReader, acts: []act{calls(called("a:read", `{}`)), lands("a", gave(tc.value))}}.play(t)
			last := s.state().Call("a").Last
			if last.Artifact == nil || last.Artifact.Size != int64(len(tc.text)) || !last.Artifact.Holds(tc.text) || len(last.Value) > 70<<10 {
				t.Fatalf("the result is stored as %d bytes with artifact %+v", len(last.Value), last.Artifact)
			}
			for _, record := range s.records {
				if len(record.Bytes) > 80<<10 {
					t.Errorf("an event of %d bytes", len(record.Bytes))
				}
			}
			shown := s.asked.Request.Messages[len(s.asked.Request.Messages)-1].Text
			var offset, size int
			_, note, _ := strings.Cut(shown, "\n[cut: ")
			if _, err := fmt.Sscanf(note, "the first %d of %d bytes; read_result", &offset, &size); err != nil || size != len(tc.text) {
				t.Fatalf("the model is told %q: %v", note, err)
			}
			if got := shown[:offset] + paged(s, "a", offset); got != tc.text {
				t.Errorf("what was shown and what was read are %d bytes, want %d", len(got), len(tc.text))
			}
			s.restart()
			if s.state().ArtifactBytes != int64(len(tc.text)) {
				t.Errorf("%d bytes are counted", s.state().ArtifactBytes)
			}
		})
	}
}

func TestArtifactsHoweverTheResultComes(t *testing.T) {
	long := `"` + strings.Repeat("x", 100_000) + `"`
	unknown := func(more act) []act { return []act{calls(called("c:act", `{}`)), lands("c", lostReply), more} }
	failed := toolError
	failed.Value = []byte(long)
	for name, acts := range map[string][]act{
		"a failure":                {calls(called("c:read", `{}`)), lands("c", failed)},
		"what was looked up":       unknown(settledBy(long)),
		"what a late worker says":  unknown(testifies(gave(long))),
		"what people have brought": {calls(called("c:act", `{}`)), lands("c", goesOn), delivers("c", long, "ann")},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{spec: patient(600), started: patientReader, acts: acts}.play(t)
			last := s.state().Call("c").Last
			if last.Artifact == nil || s.artifacts[last.Artifact.Digest] != strings.Trim(long, `"`) {
				t.Fatalf("the result is %+v", last)
			}
			if got := paged(s, "c", 0); got != strings.Trim(long, `"`) {
				t.Errorf("%d bytes were read", len(got))
			}
		})
	}
}

func TestArtifactsThatCannotBeRead(t *testing.T) {
	s := scene{started: patientReader, acts: []act{calls(called("a:read", `{}`)), lands("a", gave(`"`+strings.Repeat("x", 100_000)+`"`))}}.play(t)
	s.problem = "it is gone"
	s.answer(proposes(called("p:read_result", `{"call":"a","offset":70000}`)))
	s.drive()
	if last := s.call("p").Last; last.Class != "tool_error" || last.Message != "it is gone" {
		t.Errorf("the model reads %+v", last)
	}
}

// What a run may keep of large results is bounded; the same content counts once.
func TestArtifactsOfARunAreBounded(t *testing.T) {
	s := scene{started: patientReader}.play(t)
	call := func(n int, value string) *journal.CallCompleted {
		id := fmt.Sprintf("c%d", n)
		s.answer(proposes(called(id+":read", fmt.Sprintf(`{"n":%d}`, n))))
		s.drive()
		s.land(id, gave(value))
		s.drive()
		return s.call(id).Last
	}
	filled := func(n int) string { return fmt.Sprintf(`"%d %s"`, n, strings.Repeat("x", 1<<20-1024)) }
	for n := range 16 {
		if call(n, filled(n)).Artifact == nil {
			t.Fatalf("result %d was not kept", n)
		}
	}
	if call(16, filled(3)).Artifact == nil {
		t.Error("what is kept already was not kept")
	}
	last := call(17, filled(17))
	if last.Artifact != nil || !last.Truncated || last.Size < 1<<20-1024 || !strings.Contains(string(last.Value), "[cut here: the first ") {
		t.Errorf("beyond the bound: artifact %v, truncated %v, size %d", last.Artifact, last.Truncated, last.Size)
	}
	if s.state().ArtifactBytes > maxArtifactBytes {
		t.Errorf("%d bytes are kept", s.state().ArtifactBytes)
	}
}
