package policy

import "strings"

// glob matches full tool names: * stands for any characters, dots too, and for none.
// Nothing else is special.
type glob struct {
	// parts are the texts between the stars; one part means that there is no star.
	parts []string
}

func newGlob(pattern string) glob {
	return glob{parts: strings.Split(pattern, "*")}
}

// matches takes time linear in the lengths of pattern and name: a part is best found
// as early as possible, so there is nothing to come back to.
func (g glob) matches(name string) bool {
	if len(g.parts) == 1 {
		return name == g.parts[0]
	}
	first, middle, last := g.parts[0], g.parts[1:len(g.parts)-1], g.parts[len(g.parts)-1]
	rest, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	for _, part := range middle {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, last)
}

// mayMatch is true when some name that starts with prefix, and goes on, matches.
func (g glob) mayMatch(prefix string) bool {
	first := g.parts[0]
	if len(g.parts) == 1 {
		return len(first) > len(prefix) && strings.HasPrefix(first, prefix)
	}
	// Behind the first star everything can still follow the prefix.
	return strings.HasPrefix(first, prefix) || strings.HasPrefix(prefix, first)
}

// oddities are what other pattern languages give a meaning and no tool's name has.
// Taken as it stands, such a pattern matches nothing, and a rule that was meant to
// deny would quietly not apply.
const oddities = "?[]{}()|^$+\\!,; \t\r\n\"'"

func hasOddity(pattern string) bool { return strings.ContainsAny(pattern, oddities) }

func matchesAny(globs []glob, name string) bool {
	for _, g := range globs {
		if g.matches(name) {
			return true
		}
	}
	return false
}
