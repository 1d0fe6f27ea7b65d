package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// Set is what the policies of one run say together. Their order means nothing: each
// speaks of its own servers only.
type Set struct {
	owners map[string]*Policy
}

// DuplicateServerError means that two policies of one run declare the same server, so
// that nobody can say whose rules hold. It can't heal by itself: the run has reason
// InvalidConfiguration.
type DuplicateServerError struct {
	// Server that is declared twice.
	Server string
	// Policies that declare it, by name.
	Policies [2]string
}

// Error implements error.
func (e *DuplicateServerError) Error() string {
	return fmt.Sprintf("server %q is declared by the policies %q and %q: rename it in one of them, or refer to one of them only",
		e.Server, e.Policies[0], e.Policies[1])
}

// NewSet joins policies. The error is a *DuplicateServerError, the same one in
// whatever order the policies come.
func NewSet(policies []*Policy) (*Set, error) {
	sorted := slices.Clone(policies)
	slices.SortFunc(sorted, func(a, b *Policy) int { return strings.Compare(a.name, b.name) })
	set := &Set{owners: map[string]*Policy{}}
	var duplicate *DuplicateServerError
	for _, p := range sorted {
		for _, s := range p.servers {
			name := s.spec.Name
			owner, taken := set.owners[name]
			if !taken {
				set.owners[name] = p
				continue
			}
			if duplicate == nil || name < duplicate.Server {
				duplicate = &DuplicateServerError{Server: name, Policies: [2]string{owner.name, p.name}}
			}
		}
	}
	if duplicate != nil {
		return nil, duplicate
	}
	return set, nil
}

// Servers lists the servers of all policies by name.
func (s *Set) Servers() []v1alpha1.ToolServer {
	servers := make([]v1alpha1.ToolServer, 0, len(s.owners))
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		spec := s.owners[name].server(name).spec
		servers = append(servers, *spec.DeepCopy())
	}
	return servers
}

// Properties are what applies to a tool. A tool that no policy knows gets the
// defaults, which are the careful ones.
func (s *Set) Properties(fullName string) Properties {
	properties := s.entryOf(fullName).resolved
	properties.IgnoreForProgress = slices.Clone(properties.IgnoreForProgress)
	properties.Redact = slices.Clone(properties.Redact)
	return properties
}

// Owner names the policy that declares a tool's server, empty when none does.
func (s *Set) Owner(fullName string) string {
	if owner := s.owner(fullName); owner != nil {
		return owner.name
	}
	return ""
}

// IsJob says whether a tool's calls are Jobs.
func (s *Set) IsJob(fullName string) bool {
	return s.serverOf(fullName).spec.Job != nil
}

// Child is what is declared of a tool whose calls are child runs, nil for every other tool.
func (s *Set) Child(fullName string) *Child {
	_, name, _ := strings.Cut(fullName, ".")
	return s.serverOf(fullName).children[name]
}

// serverOf finds the server of a tool; the zero value when there is none.
func (s *Set) serverOf(fullName string) server {
	owner := s.owner(fullName)
	if owner == nil {
		return server{}
	}
	name, _, _ := strings.Cut(fullName, ".")
	return owner.server(name)
}

// maxConflictKey is how long a conflict key may be before its digest takes its place.
const maxConflictKey = 128

// ConflictKey gives the value that two calls must not share to run at the same time,
// and false when the tool has none. With an error nobody knows what the call
// conflicts with: it must run alone. Numbers of equal value are equal keys, however
// they are written.
func (s *Set) ConflictKey(fullName string, args map[string]any) (string, bool, error) {
	program := s.entryOf(fullName).conflictKey
	if program == nil {
		return "", false, nil
	}
	value, err := program.Eval(map[string]any{"args": args})
	if err != nil {
		return "", true, fmt.Errorf("evaluating the conflict key of %s: %w", fullName, err)
	}
	key := strictjson.Canonical(wholeNumbers(value))
	if len(key) > maxConflictKey {
		return strictjson.Digest(key), true, nil
	}
	return string(key), true, nil
}

// wholeNumbers writes 1.0 as 1, because rules compare numbers by value too. It works
// in place: the value is nobody else's.
func wholeNumbers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = wholeNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = wholeNumbers(v[name])
		}
	}
	return v
}

// owner is the policy that declares a tool's server, nil when none does.
func (s *Set) owner(fullName string) *Policy {
	name, _, ok := strings.Cut(fullName, ".")
	if !ok {
		return nil
	}
	return s.owners[name]
}

func (s *Set) entryOf(fullName string) entry {
	if owner := s.owner(fullName); owner != nil {
		return owner.propertiesOf(fullName)
	}
	return (&Policy{}).propertiesOf(fullName)
}

// server finds a declared server; the zero value when there is none.
func (p *Policy) server(name string) server {
	for _, s := range p.servers {
		if s.spec.Name == name {
			return s
		}
	}
	return server{}
}
