package jsonschema

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// lookup follows a reference such as "#/$defs/name" inside doc.
func lookup(doc any, ref string) (any, error) {
	shown := strictjson.Preview([]byte(ref), 80)
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil {
		return nil, fmt.Errorf("%q is not a valid reference", shown)
	}
	if pointer == "" {
		return doc, nil
	}
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("references to anchors are not supported; write %q as a path such as \"#/$defs/name\"", shown)
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		next, ok := step(doc, token)
		if !ok {
			return nil, fmt.Errorf("%q leads nowhere; define what it names", shown)
		}
		doc = next
	}
	return doc, nil
}

// step goes to one member or item.
func step(doc any, token string) (any, bool) {
	switch doc := doc.(type) {
	case map[string]any:
		v, ok := doc[token]
		return v, ok
	case []any:
		i, err := strconv.Atoi(token)
		if err == nil && i >= 0 && i < len(doc) {
			return doc[i], true
		}
	}
	return nil, false
}

// pointerToken escapes a member name for a place in an error, and shortens it.
func pointerToken(name string) string {
	name = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
	return strictjson.Preview([]byte(name), 40)
}

// pointerPlace renders a place in a schema.
func pointerPlace(_ any, tokens []string) string {
	var b strings.Builder
	b.WriteByte('#')
	for _, token := range tokens {
		b.WriteByte('/')
		b.WriteString(pointerToken(token))
	}
	return cut(b.String(), 200)
}

// valuePlace renders a place in a value, as in $.items[2].name. The value tells
// positions of arrays from members whose names are digits.
func valuePlace(value any, tokens []string) string {
	var b strings.Builder
	b.WriteByte('$')
	for _, token := range tokens {
		if _, isArray := value.([]any); isArray {
			b.WriteString("[" + token + "]")
		} else {
			b.WriteString("." + strictjson.Preview([]byte(token), 40))
		}
		value, _ = step(value, token)
	}
	return cut(b.String(), 200)
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
