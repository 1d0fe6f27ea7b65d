package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// member is one member of a JSON object, its value as it was written.
type member struct {
	name  string
	value json.RawMessage
}

// object holds the members of a JSON object in their order, so that a message can be
// changed in one place and keep its bytes everywhere else. Names are compared
// exactly: encoding/json would take "Tool_Calls" for tool_calls.
type object []member

// parseObject reads one JSON object. A member given twice is refused, since two
// readers could take different ones.
func parseObject(data []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	opening, err := decoder.Token()
	if err != nil {
		return nil, errors.New("not valid JSON")
	}
	if opening != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var members object
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
		members = append(members, member{name: name, value: value})
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errors.New("not valid JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more text follows the JSON object")
	}
	return members, nil
}

// get returns a member's value, nil for a member that is missing or null: no reader
// of this wire tells the two apart.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name && !isNull(m.value) {
			return m.value
		}
	}
	return nil
}

// text returns a string member; ok is false if it is there and no string.
func (o object) text(name string) (text string, ok bool) {
	value := o.get(name)
	if value == nil {
		return "", true
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return "", false
	}
	return text, true
}

// with returns a copy in which the member has the value, in its old place or at the end.
func (o object) with(name string, value json.RawMessage) object {
	changed := append(make(object, 0, len(o)+1), o...)
	for i := range changed {
		if changed[i].name == name {
			changed[i].value = value
			return changed
		}
	}
	return append(changed, member{name: name, value: value})
}

// without returns a copy that lacks the member.
func (o object) without(name string) object {
	var changed object
	for _, m := range o {
		if m.name != name {
			changed = append(changed, m)
		}
	}
	return changed
}

// bytes renders the object, values unchanged.
func (o object) bytes() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// quote renders a JSON string. Unlike json.Marshal it leaves <, > and & readable,
// as the model wrote them and as tokenizers expect them.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		// A string always encodes.
		panic(fmt.Sprintf("encoding a string: %v", err))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func isNull(value []byte) bool { return string(bytes.TrimSpace(value)) == "null" }

// isObject reports whether text is one whole JSON object.
func isObject(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed)
}
