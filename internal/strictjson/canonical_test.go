package strictjson_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/strictjson"
)

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":{"d":[ ],"c":{ }}}`:         `{"a":{"c":{},"d":[]},"b":1}`,
		`9007199254740993`:                      `9007199254740993`,
		`9007199254740992`:                      `9007199254740992`,
		`1.0`:                                   `1.0`,
		`1`:                                     `1`,
		`"\u0041\u2028\u001f\u0008\f\/<>&\\\""`: "\"A\u2028\\u001f\\b\\f/<>&\\\\\\\"\"",
	} {
		got, err := strictjson.CanonicalBytes([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("CanonicalBytes(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
	if _, err := strictjson.CanonicalBytes([]byte(`{"a":1,"a":1}`)); err == nil {
		t.Error("a duplicate member has a canonical form")
	}
}

func TestCanonicalOfGoValues(t *testing.T) {
	type named struct {
		Z int `json:"z"`
		A int `json:"a"`
	}
	for _, tc := range []struct {
		in   any
		want string
	}{
		{int(-3), "-3"}, {int64(math.MaxInt64), "9223372036854775807"}, {float64(3), "3"}, {1.5, "1.5"}, {1e300, "1e+300"},
		{math.NaN(), `"NaN"`}, {math.Inf(-1), `"-Inf"`}, {uint8(7), "7"}, {named{1, 2}, `{"a":2,"z":1}`},
		{json.RawMessage(`{"b": 1, "a": 2}`), `{"a":2,"b":1}`}, {[]string{"x"}, `["x"]`}, {"\xff", "\"\ufffd\""},
		{make(chan int), `{"unsupported":"chan int"}`},
	} {
		if got := string(strictjson.Canonical(tc.in)); got != tc.want {
			t.Errorf("Canonical(%v) = %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestDigest(t *testing.T) {
	const empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := strictjson.Digest(nil); got != empty {
		t.Errorf("Digest(nil) = %s", got)
	}
}

func TestWithout(t *testing.T) {
	parse := func(s string) any {
		t.Helper()
		v, err := strictjson.Parse([]byte(s), strictjson.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tc := range []struct {
		in, want string
		paths    []string
	}{
		{`{"a":1,"time":2}`, `{"a":1}`, []string{"$.time"}},
		{`{"a":{"b":1,"c":2},"b":3}`, `{"a":{"c":2},"b":3}`, []string{"$.a.b"}},
		{`{"a":[{"b":1},{"b":2,"c":3},[{"b":4}],5]}`, `{"a":[{},{"c":3},[{}],5]}`, []string{"$.a.b"}},
		{`[{"time":1},{"x":2}]`, `[{},{"x":2}]`, []string{"$.time"}},
		{`{"a":1}`, `{"a":1}`, []string{"$.b", "$", "a", "", "$.a.b"}},
		{`{"a":{"b":1}}`, `{}`, []string{"$.a.b", "$.a"}},
		{`{"a":{"b":1}}`, `{}`, []string{"$.a", "$.a.b"}},
		{`"text"`, `"text"`, []string{"$.a"}},
	} {
		in := parse(tc.in)
		got := strictjson.Without(in, tc.paths)
		if diff := cmp.Diff(parse(tc.want), got); diff != "" {
			t.Errorf("Without(%s, %v) (-want +got):\n%s", tc.in, tc.paths, diff)
		}
		if diff := cmp.Diff(parse(tc.in), in); diff != "" {
			t.Errorf("Without changed its input:\n%s", diff)
		}
	}
}

func TestPreview(t *testing.T) {
	for _, tc := range []struct {
		in   string
		max  int
		want string
	}{
		{`{"a":"é😀"}`, 100, `{"a":"é😀"}`},
		{"a\u202eb\u200bc\u00a0d\u2028e\x00f\ufeffg", 100, `a\u202eb\u200bc\u00a0d\u2028e\u0000f\ufeffg`},
		{"\n\t\x7f\u0085", 100, `\u000a\u0009\u007f\u0085`},
		{"\U000e0041", 100, `\udb40\udc41`},
		{"x\ufe0f\u3164\u034f\u2800\u115f", 100, `x\ufe0f\u3164\u034f\u2800\u115f`},
		{"\xff", 100, `\ufffd`},
		{"abcdef", 6, "abcdef"},
		{"abcdefg", 6, "abc…"},
		{"ééééé", 8, "éé…"},
		{"\u202e\u202e", 10, `\u202e…`},
		{"abcdefg", 2, ""},
		{"ab", 2, "ab"},
		{"", 0, ""},
	} {
		if got := strictjson.Preview([]byte(tc.in), tc.max); got != tc.want {
			t.Errorf("Preview(%q, %d) = %q, want %q", tc.in, tc.max, got, tc.want)
		}
	}
}

func TestPreviewIsBoundedAndReadable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		max := rapid.IntRange(0, 64).Draw(t, "max")
		got := strictjson.Preview(data, max)
		if len(got) > max || !utf8.ValidString(got) {
			t.Fatalf("Preview(%q, %d) = %q", data, max, got)
		}
		if strings.ContainsAny(got, "\n\r\t\x00\u202e\u200b") {
			t.Fatalf("Preview(%q, %d) = %q shows an invisible character", data, max, got)
		}
	})
}
