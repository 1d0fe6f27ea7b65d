package jsonschema

import (
	"errors"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// Validate checks a value as strictjson makes it. The error is meant for a model:
// it names each property and what to change, in at most 1 KiB, and quotes at most
// about 40 characters of a value.
func (s *Schema) Validate(value any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("$: the validator fails on this value; simplify it")
		}
	}()
	parts, text := measure(value)
	if parts*s.parts > maxWork || text*s.patternSize > maxPatternWork {
		return errors.New("$: too large to check against this schema; send fewer or shorter items")
	}
	if err := s.compiled.Validate(value); err != nil {
		return errors.New(explain(err, value, s.doc, valuePlace))
	}
	return nil
}

// ValidateJSON parses data strictly and validates it.
func (s *Schema) ValidateJSON(data []byte) error {
	value, err := strictjson.Parse(data, strictjson.Limits{})
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// measure counts the values inside v and the bytes of its strings and names.
func measure(v any) (parts, text int) {
	parts = 1
	add := func(inner any) {
		p, t := measure(inner)
		parts, text = parts+p, text+t
	}
	switch v := v.(type) {
	case string:
		text = len(v)
	case []any:
		for _, item := range v {
			add(item)
		}
	case map[string]any:
		for name, member := range v {
			text += len(name)
			add(member)
		}
	}
	return parts, text
}
