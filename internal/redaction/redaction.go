// Package redaction leaves out of tool results what a policy doesn't want stored or shown.
// It is pure: no I/O, clock or global state.
//
// What it can't look into it withholds as a whole: a policy that names members counts on
// their being found wherever they stand.
package redaction

import (
	"encoding/json"
	"strings"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"

	"github.com/pawl-run/pawl/internal/strictjson"
)

const (
	// Mask stands where a value was.
	Mask = "[redacted]"
	// Withheld stands for a text that can't be looked into.
	Withheld = "[withheld: parts of this tool's results are redacted, and this is not JSON of a size that can be looked into]"

	// maxNested bounds how often JSON may stand as a text in JSON.
	maxNested = 3
	// maxValues bounds a document: located nodes take many times their text in memory.
	maxValues = 64 << 10
	maxBytes  = 16 << 20
)

// Paths are what is left out, compiled.
type Paths struct {
	paths []*jsonpath.Path
	// broken is true where some path can't be read, so that nothing may be shown.
	broken bool
}

// New compiles paths that Check has found good. With one that it would not, everything is
// withheld.
func New(texts []string) Paths {
	var p Paths
	for _, text := range texts {
		path, err := compile(text)
		if err != nil {
			return Paths{broken: true}
		}
		p.paths = append(p.paths, path)
	}
	return p
}

// None is true where nothing is left out.
func (p Paths) None() bool { return len(p.paths) == 0 && !p.broken }

// Apply leaves out of a value what the paths name. A text is taken for JSON that stands in
// one, and withheld where it is none. Embedded names members, of the value or of each
// element of a list, which hold a tool's own words in a form that is not the tool's: each
// is a document for itself. A dot in a name leads into a member.
func (p Paths) Apply(value json.RawMessage, embedded []string) json.RawMessage {
	if p.None() || len(value) == 0 {
		return value
	}
	parsed, err := strictjson.Parse(value, strictjson.Limits{MaxBytes: maxBytes, MaxValues: maxValues})
	if err != nil || p.broken {
		return p.Nothing()
	}
	if len(embedded) > 0 {
		p.unwrap(parsed, embedded)
	}
	return strictjson.Canonical(p.document(parsed, 0))
}

// Nothing is what stands for a value that is not whole.
func (Paths) Nothing() json.RawMessage { return strictjson.Canonical(Withheld) }

// unwrap treats the named members, in place.
func (p Paths) unwrap(value any, names []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if members, ok := item.(map[string]any); ok {
				p.unwrap(members, names)
			}
		}
	case map[string]any:
		for _, name := range names {
			first, rest, further := strings.Cut(name, ".")
			switch inner, ok := value[first]; {
			case ok && further:
				p.unwrap(inner, []string{rest})
			case ok:
				value[first] = p.document(inner, 0)
			}
		}
	}
}

// document is a value less what the paths name.
func (p Paths) document(value any, nested int) any {
	if text, ok := value.(string); ok {
		return p.text(text, nested)
	}
	var places []spec.NormalizedPath
	for _, path := range p.paths {
		for place := range path.SelectLocated(value).Paths() {
			places = append(places, place)
		}
	}
	for _, place := range places {
		value = masked(value, place)
	}
	return value
}

// text is JSON in a text, or nothing of it.
func (p Paths) text(text string, nested int) any {
	if text == Mask || text == Withheld || text == "" {
		return text
	}
	inner, err := strictjson.Parse([]byte(text), strictjson.Limits{MaxBytes: maxBytes, MaxValues: maxValues})
	if err != nil || nested == maxNested {
		return Withheld
	}
	return string(strictjson.Canonical(p.document(inner, nested+1)))
}

// masked puts the mask at a place, in place. A place below one that has its mask already
// is gone.
func masked(value any, place spec.NormalizedPath) any {
	if len(place) == 0 {
		return Mask
	}
	switch at := place[0].(type) {
	case spec.Name:
		if members, ok := value.(map[string]any); ok {
			if inner, has := members[string(at)]; has {
				members[string(at)] = masked(inner, place[1:])
			}
		}
	case spec.Index:
		if items, ok := value.([]any); ok && int(at) >= 0 && int(at) < len(items) {
			items[at] = masked(items[at], place[1:])
		}
	}
	return value
}
