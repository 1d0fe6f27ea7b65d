package strictjson_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/strictjson"
)

func TestParse(t *testing.T) {
	got, err := strictjson.Parse([]byte(" {\"a\":[1,2.50,-0,1e2,true,false,null],\"b\\u0041\":\"\\ud83d\\ude00\\n\\/é\",\"big\":9007199254740993} "), strictjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a":   []any{json.Number("1"), json.Number("2.50"), json.Number("-0"), json.Number("1e2"), true, false, nil},
		"bA":  "😀\n/é",
		"big": json.Number("9007199254740993"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for name, tc := range map[string]struct{ in, want string }{
		"empty":                {"", "empty"},
		"blank":                {" \n", "empty"},
		"two values":           {`{} {}`, "exactly one value"},
		"duplicate":            {`{"a":1,"a":1}`, `member "a" is given twice`},
		"duplicate by escape":  {`{"a":1,"\u0061":2}`, `member "a" is given twice`},
		"nested duplicate":     {`{"x":[{"k":1,"k":2}]}`, "$.x[0]"},
		"deep":                 {deep, "deeper than 64"},
		"invalid utf-8":        {"\"\xff\"", "UTF-8"},
		"overlong utf-8":       {"\"\xc0\x80\"", "UTF-8"},
		"utf-8 surrogate":      {"\"\xed\xa0\x80\"", "UTF-8"},
		"invalid utf-8 around": {"\xff", "UTF-8"},
		"high surrogate":       {`"\ud800"`, "surrogate"},
		"low surrogate":        {`"\udc00"`, "surrogate"},
		"two high surrogates":  {`"\ud800\ud800"`, "surrogate"},
		"control":              {"\"a\x01\"", `\u0001`},
		"bad escape":           {`"\x41"`, "unknown escape"},
		"cut escape":           {`"\`, "ends inside an escape"},
		"cut unicode":          {`"\u00`, "four hexadecimal"},
		"open string":          {`"abc`, "ends inside a string"},
		"open string escaped":  {`"a\nbc`, "ends inside a string"},
		"open object":          {`{"a":1`, "a comma or }"},
		"open array":           {`[1`, "a comma or ]"},
		"trailing comma":       {`[1,]`, "a JSON value"},
		"trailing comma 2":     {`{"a":1,}`, "member name"},
		"single quotes":        {`{'a':1}`, "member name in double quotes"},
		"no colon":             {`{"a" 1}`, "a colon"},
		"leading zero":         {`01`, "leading zeros"},
		"bare minus":           {`-`, "a digit"},
		"no fraction":          {`1.`, "decimal point"},
		"no exponent":          {`1e`, "exponent"},
		"plus":                 {`+1`, "a JSON value"},
		"NaN":                  {`NaN`, "a JSON value"},
		"infinite":             {`1e999`, "beyond"},
		"tiny":                 {`1e-99999`, "closer to 0"},
		"zero with exponent":   {`0e99999999`, "beyond"},
		"absurd exponent":      {`1e99999999999999999999`, "out of range"},
		"long number":          {"1" + strings.Repeat("0", 300), "more than 256"},
		"byte order mark":      {"\xef\xbb\xbf{}", "byte order mark"},
		"comment":              {`{/**/}`, "member name"},
		"white space":          {"\u00a0{}", `\u00a0`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := strictjson.Parse([]byte(tc.in), strictjson.Limits{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse(%q) = %v, want an error with %q", tc.in, err, tc.want)
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	if _, err := strictjson.Parse([]byte(`"12345678"`), strictjson.Limits{MaxBytes: 9}); err == nil {
		t.Error("10 bytes passed a limit of 9")
	}
	if _, err := strictjson.Parse([]byte(`"12345678"`), strictjson.Limits{MaxBytes: 10}); err != nil {
		t.Errorf("10 bytes under a limit of 10: %v", err)
	}
	if _, err := strictjson.Parse([]byte(`[{}]`), strictjson.Limits{MaxDepth: 1}); err == nil {
		t.Error("two levels passed a limit of one")
	}
	if _, err := strictjson.Parse([]byte(`[{"a":1}]`), strictjson.Limits{MaxDepth: 2}); err != nil {
		t.Errorf("two levels under a limit of two: %v", err)
	}
}

func TestErrorsQuoteLittle(t *testing.T) {
	long := strings.Repeat("secret", 1000)
	for _, in := range []string{
		`{"` + long + `":1,"` + long + `":2}`,
		`{"` + long + `":{"` + long + `":{"` + long + `":{"` + long + `":{"` + long + `":x}}}}}`,
		`["` + long + `" 1]`,
		long,
	} {
		_, err := strictjson.Parse([]byte(in), strictjson.Limits{})
		if err == nil || len(err.Error()) > 400 {
			t.Errorf("error is %d bytes long: %v", len(err.Error()), err)
		}
	}
}

func TestObject(t *testing.T) {
	for in, want := range map[string]string{`[]`: "an array", `null`: "null", `"x"`: "a string", `1`: "a number", `true`: "a boolean"} {
		if _, err := strictjson.Object([]byte(in), strictjson.Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Object(%s) = %v, want an error with %q", in, err, want)
		}
	}
	if got, err := strictjson.Object([]byte(`{"a":"b"}`), strictjson.Limits{}); err != nil || got["a"] != "b" {
		t.Errorf("Object = %v, %v", got, err)
	}
}

// anyJSON generates values as Parse makes them.
func anyJSON(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.String().AsAny(),
		rapid.Custom(func(t *rapid.T) any {
			return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,10})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number"))
		}),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(append(scalars,
		rapid.Custom(func(t *rapid.T) any {
			return append([]any{}, rapid.SliceOfN(inner, 0, 4).Draw(t, "items")...)
		}),
		rapid.Custom(func(t *rapid.T) any {
			return rapid.MapOfN(rapid.String(), inner, 0, 4).Draw(t, "members")
		}))...)
}

func TestCanonicalRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyJSON(4).Draw(t, "value")
		text := strictjson.Canonical(v)
		back, err := strictjson.Parse(text, strictjson.Limits{})
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		if !reflect.DeepEqual(v, back) {
			t.Fatalf("Parse(Canonical(v)) differs:\n%s", cmp.Diff(v, back))
		}
		if again := strictjson.Canonical(back); string(again) != string(text) {
			t.Fatalf("not stable: %q then %q", text, again)
		}
	})
}

// What encoding/json writes is always accepted and means the same, whatever escapes
// and order it chose.
func TestAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyJSON(4).Draw(t, "value")
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Skip(err)
		}
		got, err := strictjson.CanonicalBytes(text)
		if err != nil {
			t.Fatalf("CanonicalBytes(%q): %v", text, err)
		}
		if want := strictjson.Canonical(v); string(got) != string(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\ud83d\ude00",null]}`, `{"a":1,"a":2}`, `"\u00"`, `1e400`, "\"\xff\"", `[[[[`, `{"k":{"k":{}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := strictjson.Parse(data, strictjson.Limits{})
		if err != nil {
			if len(err.Error()) > 500 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted %q, which encoding/json refuses", data)
		}
		back, err := strictjson.Parse(strictjson.Canonical(v), strictjson.Limits{MaxBytes: 1 << 20})
		if err != nil || !reflect.DeepEqual(v, back) {
			t.Fatalf("canonical form of %q does not read back: %v", data, err)
		}
	})
}

func TestMaxValues(t *testing.T) {
	for text, values := range map[string]int{`1`: 1, `[]`: 1, `[1,2]`: 3, `{"a":{"b":[null]}}`: 4} {
		if _, err := strictjson.Parse([]byte(text), strictjson.Limits{MaxValues: values}); err != nil {
			t.Errorf("%s within %d: %v", text, values, err)
		}
		if _, err := strictjson.Parse([]byte(text), strictjson.Limits{MaxValues: values - 1}); values > 1 && !errors.Is(err, strictjson.ErrTooManyValues) {
			t.Errorf("%s within %d: %v", text, values-1, err)
		}
	}
}
