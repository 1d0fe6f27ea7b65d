package mcptool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// markName is the keyword by which a schema asks for a header with the argument's value.
const markName = "x-mcp-header"

// mark is an argument that is mirrored in a header.
type mark struct {
	// path of member names from the arguments to the value.
	path   []string
	header string
}

// readMarks finds the marks in an input schema. An error means that the tool must not be
// offered: the revision says what a mark may look like, and where it may stand.
func readMarks(schema any) ([]mark, error) {
	m := &marker{used: map[string]bool{}}
	if err := m.object(schema, nil); err != nil {
		return nil, err
	}
	if n := countMarks(schema); n != len(m.marks) {
		return nil, errors.New("its input schema has an " + markName + " that is not reached through properties alone: move it there, or remove it")
	}
	return m.marks, nil
}

type marker struct {
	marks []mark
	used  map[string]bool
}

// object looks at the properties of one object schema.
func (m *marker) object(schema any, path []string) error {
	members, _ := schema.(map[string]any)
	properties, _ := members["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, _ := properties[name].(map[string]any)
		at := append(slices.Clone(path), name)
		if given, ok := property[markName]; ok {
			if err := m.add(given, property["type"], at); err != nil {
				return err
			}
		}
		if err := m.object(property, at); err != nil {
			return err
		}
	}
	return nil
}

func (m *marker) add(given, kind any, path []string) error {
	place := strictjson.Preview([]byte(strings.Join(path, ".")), 80)
	header, _ := given.(string)
	if header == "" || strings.ContainsFunc(header, func(c rune) bool { return !isTokenRune(c) }) {
		return fmt.Errorf("the %s of its argument %s is not the name of a header: use letters, digits and -", markName, place)
	}
	if kind != "string" && kind != "integer" && kind != "boolean" {
		return fmt.Errorf("the %s of its argument %s needs the type string, integer or boolean: remove it", markName, place)
	}
	lower := strings.ToLower(header)
	if m.used[lower] {
		return fmt.Errorf("the %s of its argument %s is used twice: give each argument its own", markName, place)
	}
	m.used[lower] = true
	m.marks = append(m.marks, mark{path: path, header: "Mcp-Param-" + header})
	return nil
}

// countMarks counts them wherever they stand: as a keyword, and not as a member called so.
func countMarks(schema any) int {
	count := 0
	switch v := schema.(type) {
	case []any:
		for _, item := range v {
			count += countMarks(item)
		}
	case map[string]any:
		for name, member := range v {
			switch name {
			case markName:
				count++
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				named, _ := member.(map[string]any)
				for _, inner := range named {
					count += countMarks(inner)
				}
			case "const", "enum", "default", "examples":
			default:
				count += countMarks(member)
			}
		}
	}
	return count
}

// isTokenRune is true for what the name of a header may consist of.
func isTokenRune(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// mirror gives the headers that the marks ask for. What is not there, or null, has none.
// An integer that a header can't carry exactly keeps the call from being sent.
func mirror(marks []mark, arguments json.RawMessage) (http.Header, error) {
	if len(marks) == 0 {
		return nil, nil
	}
	root, err := strictjson.Object(arguments, strictjson.Limits{MaxBytes: len(arguments) + 1})
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for _, m := range marks {
		var value any = root
		for _, name := range m.path {
			members, _ := value.(map[string]any)
			value = members[name]
		}
		switch value := value.(type) {
		case string:
			header.Set(m.header, headerValue(value))
		case bool:
			header.Set(m.header, fmt.Sprint(value))
		case json.Number:
			text, ok := safeInteger(value)
			if !ok {
				return nil, fmt.Errorf("the argument %s goes into a header and must be an integer between -(2^53-1) and 2^53-1", strings.Join(m.path, "."))
			}
			header.Set(m.header, text)
		}
	}
	return header, nil
}

// safeInteger writes an integer that every reader reads alike.
func safeInteger(number json.Number) (string, bool) {
	value, ok := new(big.Rat).SetString(number.String())
	if !ok || !value.IsInt() || value.Num().BitLen() > 53 {
		return "", false
	}
	return value.Num().String(), true
}

const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// headerValue writes a value so that it survives a header: as it is, or encoded where
// white space at an end, anything but printable ASCII, or the look of an encoded one
// would not.
func headerValue(value string) string {
	plain := strings.TrimSpace(value) == value && !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
	encoded := strings.HasPrefix(value, encodedPrefix) && strings.HasSuffix(value, encodedSuffix)
	if plain && !encoded {
		return value
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(value)) + encodedSuffix
}
