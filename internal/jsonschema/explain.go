package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	santhosh "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/pawl-run/pawl/internal/strictjson"
)

const (
	// maxFindings bounds the findings in one error.
	maxFindings = 8
	// maxListed bounds the names or values listed in one finding.
	maxListed = 12
)

// finding is one thing to change.
type finding struct {
	path []string
	text string
	// undeclared is set for members that closeObjects made refused.
	undeclared bool
}

// explainer turns the library's error tree into a few lines for a reader who can
// change the value and has never seen the schema's innards.
type explainer struct {
	value any
	// schema is the copy that was compiled, nil when a schema itself is checked.
	schema any
	place  func(value any, path []string) string
}

// explain renders err, deterministic and bounded.
func explain(err error, value, schema any, place func(any, []string) string) string {
	var tree *santhosh.ValidationError
	if !errors.As(err, &tree) {
		return cut(err.Error(), maxErrorBytes)
	}
	x := explainer{value: value, schema: schema, place: place}
	lines := x.lines(x.collect(tree, nil))
	if len(lines) > maxFindings {
		lines = append(lines[:maxFindings], fmt.Sprintf("and %d more", len(lines)-maxFindings))
	}
	return cut(strings.Join(lines, "; "), maxErrorBytes)
}

// lines renders findings. A branch that fails declares nothing, so members that it
// names look undeclared besides; those are left out where there is something else.
func (x explainer) lines(findings []finding) []string {
	real := slices.ContainsFunc(findings, func(f finding) bool { return !f.undeclared })
	var lines []string
	for _, f := range findings {
		if f.undeclared && real && f.text == "" {
			continue
		}
		if f.text == "" {
			f.text = "doesn't fit the alternatives of the schema; change or remove it"
		}
		lines = append(lines, x.place(x.value, f.path)+": "+f.text)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func (x explainer) collect(err *santhosh.ValidationError, out []finding) []finding {
	switch k := err.ErrorKind.(type) {
	case *kind.AnyOf:
		return append(out, x.alternatives(err)...)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			return append(out, x.alternatives(err)...)
		}
	case *kind.PropertyNames:
		return append(out, finding{path: err.InstanceLocation, text: fmt.Sprintf("the member name %q is not allowed; rename or remove it", strictjson.Preview([]byte(k.Property), 40))})
	case *kind.Contains, *kind.MinContains:
		return append(out, x.leaf(err))
	}
	if len(err.Causes) == 0 {
		return append(out, x.leaf(err))
	}
	for _, cause := range err.Causes {
		out = x.collect(cause, out)
	}
	return out
}

// alternatives explains that none of several sub-schemas holds. Those that want
// another type altogether are left out where some want the type given.
func (x explainer) alternatives(err *santhosh.ValidationError) []finding {
	var sameType [][]finding
	var wanted []string
	for _, cause := range err.Causes {
		if t, ok := typeMismatch(cause, len(err.InstanceLocation)); ok {
			wanted = append(wanted, t...)
			continue
		}
		sameType = append(sameType, x.collect(cause, nil))
	}
	switch len(sameType) {
	case 0:
		got, _ := walk(x.value, err.InstanceLocation)
		return []finding{{path: err.InstanceLocation, text: mustBe(wanted, typeName(got))}}
	case 1:
		return sameType[0]
	}
	var texts []string
	for _, findings := range sameType[:min(len(sameType), 4)] {
		if lines := x.lines(findings); len(lines) > 0 {
			texts = append(texts, "("+lines[0]+")")
		}
	}
	text := fmt.Sprintf("fits none of %d alternatives; make one of them true: %s", len(err.Causes), strings.Join(texts, " or "))
	return []finding{{path: err.InstanceLocation, text: text}}
}

// typeMismatch recognises a branch that fails at once by the type it wants.
func typeMismatch(err *santhosh.ValidationError, depth int) ([]string, bool) {
	if k, ok := err.ErrorKind.(*kind.Type); ok && len(err.InstanceLocation) == depth {
		return k.Want, true
	}
	if _, ok := err.ErrorKind.(*kind.AllOf); ok && len(err.Causes) == 1 {
		return typeMismatch(err.Causes[0], depth)
	}
	return nil, false
}

func mustBe(types []string, got string) string {
	slices.Sort(types)
	return fmt.Sprintf("must be %s, got %s", strings.Join(slices.Compact(types), " or "), got)
}

// leaf explains one keyword that failed.
func (x explainer) leaf(err *santhosh.ValidationError) finding {
	f := finding{path: err.InstanceLocation}
	switch k := err.ErrorKind.(type) {
	case *kind.Type:
		f.text = mustBe(slices.Clone(k.Want), k.Got)
	case *kind.Enum:
		f.text = "must be one of " + listValues(k.Want)
	case *kind.Const:
		f.text = "must be " + listValues([]any{k.Want})
	case *kind.Required:
		f.text = "required but missing: " + listNames(k.Missing) + "; add it"
	case *kind.DependentRequired:
		f.text = fmt.Sprintf("%s is required where %s is given; add it", listNames(k.Missing), listNames([]string{k.Prop}))
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		f.text = "not allowed here: " + listNames(k.Properties) + "; remove it"
	case *kind.FalseSchema:
		return x.refusedMember(err)
	case *kind.Pattern:
		f.text = "must match the pattern " + strictjson.Preview([]byte(k.Want), 80)
	case *kind.Not:
		f.text = "has a form that the schema excludes; change it"
	case *kind.OneOf:
		f.text = "fits more than one of the alternatives; make exactly one of them true"
	default:
		f.text = bound(err.ErrorKind)
	}
	return f
}

// refusedMember explains a value that may not be there. Where closeObjects is the
// reason it names what may.
func (x explainer) refusedMember(err *santhosh.ValidationError) finding {
	f := finding{path: err.InstanceLocation, text: "not allowed here; remove it"}
	pointer, ok := strings.CutSuffix(err.SchemaURL, "/unevaluatedProperties")
	if !ok || x.schema == nil || len(f.path) == 0 {
		return f
	}
	parent, lookupErr := lookup(x.schema, strings.TrimPrefix(pointer, location))
	schema, isObject := parent.(map[string]any)
	if lookupErr != nil || !isObject {
		return f
	}
	f.undeclared = true
	names := declaredNames(schema)
	if slices.Contains(names, f.path[len(f.path)-1]) {
		f.text = ""
		return f
	}
	f.text = "not declared by the schema; remove it"
	if len(names) > 0 {
		f.text += " (declared: " + listNames(names) + ")"
	}
	return f
}

// bound explains the keywords that compare numbers.
func bound(k santhosh.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	}
	return size(k)
}

// size explains the keywords that count.
func size(k santhosh.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters, has %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters, has %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items, has %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items, has %d", k.Want, k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members, has %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d members, has %d", k.Want, k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("items %d and %d are equal; make every item different", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "must have an item of the kind that the schema demands; add one"
	case *kind.MinContains:
		return fmt.Sprintf("must have at least %d items of the kind that the schema demands; add some", k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("must have at most %d items of the kind that the schema bounds; remove some", k.Want)
	}
	if k == nil {
		return "doesn't satisfy the schema; change it"
	}
	return fmt.Sprintf("doesn't satisfy the keyword %s; change it", strings.Join(k.KeywordPath(), "/"))
}

// number renders a bound; exactly where it is an integer of reasonable size.
func number(r *big.Rat) string {
	if r.IsInt() && r.Num().BitLen() < 128 {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return fmt.Sprintf("%v", f)
}

func listNames(names []string) string {
	values := make([]any, len(names))
	for i, name := range names {
		values[i] = name
	}
	return listValues(values)
}

func listValues(values []any) string {
	var shown []string
	for _, v := range values[:min(len(values), maxListed)] {
		shown = append(shown, strictjson.Preview(strictjson.Canonical(v), 42))
	}
	if len(values) > maxListed {
		shown = append(shown, fmt.Sprintf("… (%d in all)", len(values)))
	}
	return strings.Join(shown, ", ")
}

func walk(value any, path []string) (any, bool) {
	for _, token := range path {
		next, ok := step(value, token)
		if !ok {
			return nil, false
		}
		value = next
	}
	return value, true
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number, float64, int, int64:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
