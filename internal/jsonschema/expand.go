package jsonschema

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// draft is a dialect that is understood.
type draft int

const (
	draft2020 draft = iota
	draft2019
	draft07
)

// The keywords that hold one sub-schema, a list of them, or a map of them. Others
// are copied if they assert something and dropped if they don't.
var (
	oneSchema    = []string{"not", "if", "then", "else", "contains", "propertyNames", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"}
	schemaLists  = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMaps   = []string{"properties", "patternProperties", "dependentSchemas"}
	assertions   = []string{"type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required", "dependentRequired"}
	unsupported  = []string{"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor"}
	knownDialect = map[string]draft{
		"json-schema.org/schema":               draft2020,
		"json-schema.org/draft/2020-12/schema": draft2020,
		"json-schema.org/draft/2019-09/schema": draft2019,
		"json-schema.org/draft-07/schema":      draft07,
		"json-schema.org/draft-06/schema":      draft07,
	}
)

// expander copies a schema into plain 2020-12: every reference replaced by what it
// refers to, older spellings by newer ones, and only the keywords that assert
// something. What is left can neither recurse nor refer anywhere.
type expander struct {
	root  any
	draft draft
	// following are the references being replaced right now.
	following []string
	depth     int
	// subschemas and parts grow with what is copied.
	subschemas, parts, patternSize int
}

func (e *expander) expandRoot(doc any) (any, error) {
	e.root = doc
	if root, ok := doc.(map[string]any); ok {
		if err := e.dialect(root["$schema"]); err != nil {
			return nil, err
		}
	}
	return e.schema(doc, "#")
}

func (e *expander) dialect(v any) error {
	if v == nil {
		return nil
	}
	name, _ := v.(string)
	name = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://"), "#")
	d, ok := knownDialect[name]
	if !ok {
		return unusable("at #/$schema: unknown dialect; use https://json-schema.org/draft/2020-12/schema or remove it")
	}
	e.draft = d
	return nil
}

// schema copies one sub-schema; at is its place in the author's document.
func (e *expander) schema(v any, at string) (any, error) {
	e.subschemas++
	e.parts++
	if e.subschemas > maxSubschemas {
		return nil, unusable("more than %d sub-schemas with references expanded: simplify it", maxSubschemas)
	}
	if e.depth >= maxSchemaDepth {
		return nil, unusable("at %s: sub-schemas nested deeper than %d with references expanded: make it flatter", at, maxSchemaDepth)
	}
	e.depth++
	defer func() { e.depth-- }()
	switch v := v.(type) {
	case bool:
		return v, nil
	case map[string]any:
		return e.object(v, at)
	}
	return nil, unusable("at %s: must be a schema, that is an object, true or false", at)
}

func (e *expander) object(in map[string]any, at string) (any, error) {
	if err := e.refuse(in, at); err != nil {
		return nil, err
	}
	out := map[string]any{}
	target, err := e.reference(in, at)
	if err != nil {
		return nil, err
	}
	if target != nil && e.draft == draft07 {
		return target, nil // there, whatever stands beside $ref means nothing
	}
	if err := e.assertions(in, out, at); err != nil {
		return nil, err
	}
	if err := e.applicators(in, out, at); err != nil {
		return nil, err
	}
	if err := e.olderSpellings(in, out, at); err != nil {
		return nil, err
	}
	if target != nil {
		all, _ := out["allOf"].([]any)
		out["allOf"] = append(slices.Clone(all), target)
	}
	return out, nil
}

// refuse names what can't be expanded.
func (e *expander) refuse(in map[string]any, at string) error {
	for _, keyword := range unsupported {
		if _, ok := in[keyword]; ok {
			return unusable("at %s: %s is not supported; use $ref to a place in this schema", at, keyword)
		}
	}
	if id, ok := in["$id"].(string); ok && at != "#" && !strings.HasPrefix(id, "#") {
		return unusable("at %s: a nested $id is not supported; remove it", at)
	}
	return nil
}

// reference expands $ref; nil means that there is none.
func (e *expander) reference(in map[string]any, at string) (any, error) {
	v, ok := in["$ref"]
	if !ok {
		return nil, nil
	}
	ref, ok := v.(string)
	if !ok || !strings.HasPrefix(ref, "#") {
		return nil, unusable("at %s/$ref: only references inside this schema are supported, such as \"#/$defs/name\"", at)
	}
	if slices.Contains(e.following, ref) {
		return nil, unusable("at %s/$ref: %q leads back to itself; schemas that contain themselves are not supported", at, strictjson.Preview([]byte(ref), 80))
	}
	target, err := lookup(e.root, ref)
	if err != nil {
		return nil, unusable("at %s/$ref: %v", at, err)
	}
	e.following = append(e.following, ref)
	defer func() { e.following = e.following[:len(e.following)-1] }()
	return e.schema(target, ref)
}

func (e *expander) assertions(in, out map[string]any, at string) error {
	for _, keyword := range assertions {
		v, ok := in[keyword]
		if !ok {
			continue
		}
		if keyword == "pattern" {
			text, _ := v.(string)
			if err := e.pattern(text, at+"/pattern"); err != nil {
				return err
			}
		}
		e.parts += countParts(v)
		out[keyword] = v
	}
	return nil
}

// pattern checks a regular expression and its size.
func (e *expander) pattern(text, at string) error {
	shown := strictjson.Preview([]byte(text), 80)
	if len(text) > maxPatternBytes {
		return unusable("at %s: the pattern %s has more than %d bytes; shorten it", cut(at, 300), shown, maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil {
		_, err = regexp.Compile(text)
	}
	if err != nil {
		return unusable("at %s: the pattern %s is not supported (%s); look-around and back-references are not", cut(at, 300), shown, cut(err.Error(), 200))
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxPatternSize {
		return unusable("at %s: the pattern %s is too large; use smaller repetitions", cut(at, 300), shown)
	}
	e.patternSize += len(program.Inst)
	if e.patternSize > maxPatternsSize {
		return unusable("at %s: the patterns of this schema are too large together; use fewer or smaller ones", cut(at, 300))
	}
	return nil
}

func (e *expander) applicators(in, out map[string]any, at string) error {
	for _, keyword := range oneSchema {
		v, ok := in[keyword]
		if !ok {
			continue
		}
		copied, err := e.schema(v, at+"/"+keyword)
		if err != nil {
			return err
		}
		out[keyword] = copied
	}
	for _, keyword := range schemaLists {
		v, ok := in[keyword]
		if !ok {
			continue
		}
		copied, err := e.list(v, at+"/"+keyword)
		if err != nil {
			return err
		}
		out[keyword] = copied
	}
	for _, keyword := range schemaMaps {
		v, ok := in[keyword]
		if !ok {
			continue
		}
		copied, err := e.members(v, at+"/"+keyword, keyword == "patternProperties")
		if err != nil {
			return err
		}
		out[keyword] = copied
	}
	return nil
}

func (e *expander) list(v any, at string) (any, error) {
	items, ok := v.([]any)
	if !ok {
		return nil, unusable("at %s: must be an array of schemas", at)
	}
	out := make([]any, len(items))
	for i, item := range items {
		copied, err := e.schema(item, at+"/"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		out[i] = copied
	}
	return out, nil
}

func (e *expander) members(v any, at string, patterns bool) (any, error) {
	in, ok := v.(map[string]any)
	if !ok {
		return nil, unusable("at %s: must be an object of schemas", at)
	}
	out := make(map[string]any, len(in))
	for _, name := range sortedNames(in) {
		place := at + "/" + pointerToken(name)
		if patterns {
			if err := e.pattern(name, place); err != nil {
				return nil, err
			}
		}
		copied, err := e.schema(in[name], place)
		if err != nil {
			return nil, err
		}
		out[name] = copied
	}
	return out, nil
}

// olderSpellings copies items and dependencies, which changed between drafts.
func (e *expander) olderSpellings(in, out map[string]any, at string) error {
	if v, ok := in["items"]; ok {
		if err := e.items(v, in["additionalItems"], out, at); err != nil {
			return err
		}
	}
	dependencies, _ := in["dependencies"].(map[string]any)
	for _, name := range sortedNames(dependencies) {
		keyword, copied := "dependentRequired", dependencies[name]
		if _, isList := copied.([]any); !isList {
			keyword = "dependentSchemas"
			var err error
			if copied, err = e.schema(copied, at+"/dependencies/"+pointerToken(name)); err != nil {
				return err
			}
		}
		merged := map[string]any{name: copied}
		if before, ok := out[keyword].(map[string]any); ok {
			for other, value := range before {
				merged[other] = value
			}
		}
		out[keyword] = merged
	}
	return nil
}

func (e *expander) items(v, additional any, out map[string]any, at string) error {
	list, isList := v.([]any)
	if !isList {
		copied, err := e.schema(v, at+"/items")
		out["items"] = copied
		return err
	}
	if e.draft == draft2020 {
		return unusable("at %s/items: must be a schema; for one schema per position use prefixItems", at)
	}
	copied, err := e.list(list, at+"/items")
	if err != nil {
		return err
	}
	out["prefixItems"] = copied
	if additional != nil {
		out["items"], err = e.schema(additional, at+"/additionalItems")
	}
	return err
}

// countParts counts the values inside v, itself included.
func countParts(v any) int {
	count := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			count += countParts(item)
		}
	case map[string]any:
		for _, member := range v {
			count += countParts(member)
		}
	}
	return count
}
