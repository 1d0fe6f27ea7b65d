package strictjson

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// canonicalLimits are wide: what is made canonical was accepted before, maybe as
// part of something larger.
var canonicalLimits = Limits{MaxBytes: 16 << 20, MaxDepth: 256}

// Canonical writes v in one form: members sorted by the bytes of their names, no
// white space, the shortest escapes, numbers with their exact text. So integers
// beyond 2^53 stay apart, and so do 1, 1.0 and 1e0, which RFC 8785 would make equal.
//
// Values that Parse doesn't make are accepted where they have a plain meaning: Go
// numbers, json.RawMessage, and whatever encoding/json can marshal. What it can't
// marshal becomes an object that names the Go type.
func Canonical(v any) []byte {
	return appendCanonical(nil, v)
}

// CanonicalBytes is Canonical for JSON text.
func CanonicalBytes(data []byte) ([]byte, error) {
	v, err := Parse(data, canonicalLimits)
	if err != nil {
		return nil, err
	}
	return Canonical(v), nil
}

// Digest names exactly these bytes: "sha256:" and 64 hexadecimal digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func appendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendString(b, v)
	case json.Number:
		return append(b, v...)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return appendFloat(b, v)
	case []any:
		return appendArray(b, v)
	case map[string]any:
		return appendObject(b, v)
	}
	return appendOther(b, v)
}

func appendArray(b []byte, items []any) []byte {
	b = append(b, '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCanonical(b, item)
	}
	return append(b, ']')
}

func appendObject(b []byte, members map[string]any) []byte {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = appendCanonical(b, members[name])
	}
	return append(b, '}')
}

// appendOther takes the way through encoding/json for types of other packages.
func appendOther(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err == nil {
		var parsed any
		if parsed, err = Parse(text, canonicalLimits); err == nil {
			return appendCanonical(b, parsed)
		}
	}
	return appendObject(b, map[string]any{"unsupported": fmt.Sprintf("%T", v)})
}

// appendFloat writes integers without exponent; what is not a number in JSON
// becomes a string, so that it still differs from everything else.
func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendString(b, strconv.FormatFloat(f, 'g', -1, 64))
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

const hexDigits = "0123456789abcdef"

// appendString escapes only what JSON demands. Invalid UTF-8, which Parse never
// yields, becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&0xf])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
