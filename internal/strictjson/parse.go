package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse reads exactly one JSON value. Objects become map[string]any, arrays []any,
// numbers json.Number with their exact text. The error names the place and what to
// change, and quotes at most about 40 characters of what was given.
func Parse(data []byte, limits Limits) (any, error) {
	limits = limits.withDefaults()
	if len(data) > limits.MaxBytes {
		return nil, fmt.Errorf("the JSON text has %d bytes, more than the %d allowed: make it shorter", len(data), limits.MaxBytes)
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, fmt.Errorf("the JSON text starts with a byte order mark: remove it")
	}
	p := &parser{data: data, maxDepth: limits.MaxDepth, left: limits.MaxValues}
	p.space()
	if p.pos == len(p.data) {
		return nil, fmt.Errorf("the JSON text is empty: give one JSON value")
	}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos != len(p.data) {
		p.path = nil
		return nil, p.fail("more text follows the JSON value: give exactly one value")
	}
	return v, nil
}

// Object is Parse for documents whose root must be an object.
func Object(data []byte, limits Limits) (map[string]any, error) {
	v, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the JSON value is %s: give an object, such as {\"name\": \"value\"}", kind(v))
	}
	return object, nil
}

// parser is a recursive descent over the text. It exists because encoding/json
// repairs what has to be refused here: members given twice, invalid UTF-8 and
// halves of surrogate pairs.
type parser struct {
	data     []byte
	pos      int
	maxDepth int
	// left is how many more values there may be.
	left int
	path []string
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("invalid JSON at %s (byte %d): %s", p.place(), p.pos, fmt.Sprintf(format, args...))
}

// place renders where the parser is, keeping the end of a long path.
func (p *parser) place() string {
	place := strings.Join(p.path, "")
	if len(place) > maxPlaceBytes {
		cut := len(place) - maxPlaceBytes
		for cut < len(place) && !utf8.RuneStart(place[cut]) {
			cut++
		}
		return "$…" + place[cut:]
	}
	return "$" + place
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek gives the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *parser) value(depth int) (any, error) {
	if p.left--; p.left < 0 {
		return nil, fmt.Errorf("invalid JSON at %s (byte %d): %w: make it smaller", p.place(), p.pos, ErrTooManyValues)
	}
	switch c := p.peek(); {
	case c == '{' || c == '[':
		if depth >= p.maxDepth {
			return nil, p.fail("nested deeper than %d levels: make it flatter", p.maxDepth)
		}
		if c == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, literal := range []struct {
		text  string
		value any
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if bytes.HasPrefix(p.data[p.pos:], []byte(literal.text)) {
			p.pos += len(literal.text)
			return literal.value, nil
		}
	}
	return nil, p.unexpected("a JSON value")
}

func (p *parser) unexpected(want string) error {
	if p.pos >= len(p.data) {
		return p.fail("the text ends where %s is expected: complete it", want)
	}
	r, size := utf8.DecodeRune(p.data[p.pos:])
	if r == utf8.RuneError && size == 1 {
		return p.fail("invalid UTF-8: encode the text as UTF-8")
	}
	return p.fail("found %s where %s is expected", Preview(p.data[p.pos:p.pos+size], 16), want)
}

func (p *parser) array(depth int) (any, error) {
	p.pos++
	items := []any{}
	p.space()
	if p.peek() == ']' {
		p.pos++
		return items, nil
	}
	for {
		p.path = append(p.path, "["+strconv.Itoa(len(items))+"]")
		item, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		items = append(items, item)
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
			p.space()
		case ']':
			p.pos++
			return items, nil
		default:
			return nil, p.unexpected("a comma or ]")
		}
	}
}

func (p *parser) object(depth int) (any, error) {
	p.pos++
	members := map[string]any{}
	p.space()
	if p.peek() == '}' {
		p.pos++
		return members, nil
	}
	for {
		if err := p.member(members, depth); err != nil {
			return nil, err
		}
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
			p.space()
		case '}':
			p.pos++
			return members, nil
		default:
			return nil, p.unexpected("a comma or }")
		}
	}
}

// member reads one name and value into members.
func (p *parser) member(members map[string]any, depth int) error {
	if p.peek() != '"' {
		return p.unexpected("a member name in double quotes")
	}
	name, err := p.str()
	if err != nil {
		return err
	}
	if _, ok := members[name]; ok {
		return p.fail("member %q is given twice: give each member once", Preview([]byte(name), 40))
	}
	p.path = append(p.path, "."+Preview([]byte(name), 40))
	p.space()
	if p.peek() != ':' {
		return p.unexpected("a colon")
	}
	p.pos++
	p.space()
	value, err := p.value(depth)
	if err != nil {
		return err
	}
	p.path = p.path[:len(p.path)-1]
	members[name] = value
	return nil
}

// kind names the JSON type of v with its article.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "a number"
}
