package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Member is one member of a JSON object, its value as it was written.
type Member struct {
	// Name of the member.
	Name string
	// Value as it was written.
	Value json.RawMessage
}

// Object holds the members of a JSON object in their order, so that a message can be
// changed in one place and keep its bytes everywhere else. Names are compared
// exactly: encoding/json would take "Tool_Calls" for tool_calls.
type Object []Member

// ParseObject reads one JSON object. A member given twice is refused, since two
// readers could take different ones.
func ParseObject(data []byte) (Object, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	opening, err := decoder.Token()
	if err != nil {
		return nil, errors.New("not valid JSON")
	}
	if opening != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var members Object
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, errors.New("not valid JSON")
		}
		name, _ := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, errors.New("not valid JSON")
		}
		if seen[name] {
			return nil, errors.New("a member is given twice")
		}
		seen[name] = true
		members = append(members, Member{Name: name, Value: value})
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errors.New("not valid JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more text follows the JSON object")
	}
	return members, nil
}

// Get returns a member's value, nil for a member that is missing or null: no reader
// of this wire tells the two apart.
func (o Object) Get(name string) json.RawMessage {
	for _, m := range o {
		if m.Name == name && !IsNull(m.Value) {
			return m.Value
		}
	}
	return nil
}

// Text returns a string member; ok is false if it is there and no string.
func (o Object) Text(name string) (text string, ok bool) {
	value := o.Get(name)
	if value == nil {
		return "", true
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return "", false
	}
	return text, true
}

// With returns a copy in which the member has the value, in its old place or at the end.
func (o Object) With(name string, value json.RawMessage) Object {
	changed := append(make(Object, 0, len(o)+1), o...)
	for i := range changed {
		if changed[i].Name == name {
			changed[i].Value = value
			return changed
		}
	}
	return append(changed, Member{Name: name, Value: value})
}

// Without returns a copy that lacks the member.
func (o Object) Without(name string) Object {
	var changed Object
	for _, m := range o {
		if m.Name != name {
			changed = append(changed, m)
		}
	}
	return changed
}

// Bytes renders the object, values unchanged.
func (o Object) Bytes() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(Quote(m.Name))
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Quote renders a JSON string. Unlike json.Marshal it leaves <, > and & readable,
// as the model wrote them and as tokenizers expect them.
func Quote(s string) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		// A string always encodes.
		panic(fmt.Sprintf("encoding a string: %v", err))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// IsNull reports whether a value is JSON null.
func IsNull(value []byte) bool { return string(bytes.TrimSpace(value)) == "null" }

// IsObject reports whether text is one whole JSON object.
func IsObject(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed)
}

// M is one member, for writing an object down.
func M(name string, value json.RawMessage) Member { return Member{Name: name, Value: value} }

// Has reports whether the member is there, be it null.
func (o Object) Has(name string) bool {
	for _, m := range o {
		if m.Name == name {
			return true
		}
	}
	return false
}

// Array renders a list.
func Array(items []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
	return b.Bytes()
}

// List reads an array; ok is false for anything else. A value that is missing is empty.
func List(value json.RawMessage) (items []json.RawMessage, ok bool) {
	if len(value) == 0 || IsNull(value) {
		return nil, true
	}
	return items, json.Unmarshal(value, &items) == nil
}

// ParseSchema reads the input schema of a tool, without its white space, and gives its root
// the type that arguments have anyway: vendors refuse a tool without. No schema is one
// that accepts everything.
func ParseSchema(schema json.RawMessage) (Object, error) {
	if len(schema) == 0 {
		schema = json.RawMessage("{}")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, schema); err != nil {
		return nil, errors.New("the input schema is not valid JSON")
	}
	root, err := ParseObject(compact.Bytes())
	if err != nil {
		return nil, fmt.Errorf("the input schema: %w", err)
	}
	if root.Get("type") == nil {
		root = root.With("type", Quote("object"))
	}
	return root, nil
}
