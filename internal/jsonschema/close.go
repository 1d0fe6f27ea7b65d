package jsonschema

import "slices"

// closeObjects makes plain refuse undeclared members, in place. It works with
// unevaluatedProperties, which sees members declared in any branch of allOf, anyOf,
// oneOf or if, and only where no part of the schema for the same object speaks of
// undeclared members itself.
//
// Where two parts describe the same nested value (both branches of an allOf declare
// the property a, say), closing either would refuse what the other declares, so such
// values stay open, as do those under patternProperties, not, if and contains.
func closeObjects(plain any) {
	closeLocation(plain, true)
}

// closeLocation closes the schema of one place in the value.
func closeLocation(v any, isRoot bool) {
	schema, ok := v.(map[string]any)
	if !ok {
		return
	}
	parts := inPlace(schema, false, nil)
	seen := survey(parts)
	for _, part := range parts {
		if !part.asks {
			seen.closeChildren(part.schema)
		}
	}
	if !seen.open && (isRoot || len(seen.declared) > 0) {
		schema["unevaluatedProperties"] = false
	}
}

// part is a sub-schema that speaks of the same value as others. What stands under
// if only asks; closing inside it would change the answer.
type part struct {
	schema map[string]any
	asks   bool
}

// inPlace lists schema and the sub-schemas that speak of the same value.
func inPlace(schema map[string]any, asks bool, parts []part) []part {
	parts = append(parts, part{schema, asks})
	add := func(v any, asks bool) {
		if sub, ok := v.(map[string]any); ok {
			parts = inPlace(sub, asks, parts)
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := schema[keyword].([]any)
		for _, v := range list {
			add(v, asks)
		}
	}
	add(schema["if"], true)
	add(schema["then"], asks)
	add(schema["else"], asks)
	dependent, _ := schema["dependentSchemas"].(map[string]any)
	for _, name := range sortedNames(dependent) {
		add(dependent[name], asks)
	}
	return parts
}

// overview says who speaks of what at one place.
type overview struct {
	// open is true where the schema itself speaks of undeclared members.
	open bool
	// declared counts the parts that declare each property.
	declared map[string]int
	// patterns, rest and arrays count the parts with patternProperties, with a
	// schema for additionalProperties, and with schemas of items.
	patterns, rest, arrays int
	// objects counts the parts that speak of members at all.
	objects int
}

func survey(parts []part) overview {
	seen := overview{declared: map[string]int{}}
	for _, part := range parts {
		has := func(keyword string) bool {
			_, ok := part.schema[keyword]
			return ok
		}
		properties, _ := part.schema["properties"].(map[string]any)
		for name := range properties {
			seen.declared[name]++
		}
		if has("additionalProperties") || has("unevaluatedProperties") || has("patternProperties") {
			seen.open = true
		}
		if has("patternProperties") {
			seen.patterns++
		}
		if _, ok := part.schema["additionalProperties"].(map[string]any); ok {
			seen.rest++
		}
		if has("items") || has("prefixItems") || has("unevaluatedItems") {
			seen.arrays++
		}
		if has("properties") || has("patternProperties") || has("additionalProperties") || has("unevaluatedProperties") {
			seen.objects++
		}
	}
	return seen
}

// closeChildren closes what schema alone says of the values inside.
func (seen overview) closeChildren(schema map[string]any) {
	_, ownRest := schema["additionalProperties"].(map[string]any)
	othersRest := seen.rest > 1 || seen.rest == 1 && !ownRest
	properties, _ := schema["properties"].(map[string]any)
	for name, child := range properties {
		if seen.declared[name] == 1 && seen.patterns == 0 && !othersRest {
			closeLocation(child, false)
		}
	}
	if seen.objects == 1 {
		closeLocation(schema["additionalProperties"], false)
	}
	if seen.arrays == 1 {
		closeLocation(schema["items"], false)
		prefix, _ := schema["prefixItems"].([]any)
		for _, child := range prefix {
			closeLocation(child, false)
		}
	}
}

// declaredNames lists the properties that schema declares in place.
func declaredNames(schema map[string]any) []string {
	var names []string
	for _, part := range inPlace(schema, false, nil) {
		properties, _ := part.schema["properties"].(map[string]any)
		names = append(names, sortedNames(properties)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
