package redaction_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/redaction"
	"github.com/pawl-run/pawl/internal/strictjson"
)

func TestApply(t *testing.T) {
	withheld := string(strictjson.Canonical(redaction.Withheld))
	for name, tc := range map[string]struct {
		paths    []string
		embedded []string
		in, want string
	}{
		"no paths":              {nil, nil, `{"b":1, "a":2}`, `{"b":1, "a":2}`},
		"a member":              {[]string{"$.customer.email"}, nil, `{"customer":{"email":"a@b.c","id":7}}`, `{"customer":{"email":"[redacted]","id":7}}`},
		"whatever it is":        {[]string{"$.a"}, nil, `{"a":{"b":[1,2]}}`, `{"a":"[redacted]"}`},
		"not there":             {[]string{"$.a.b"}, nil, `{"a":[1]}`, `{"a":[1]}`},
		"elements":              {[]string{"$.items[*].price"}, nil, `{"items":[{"price":1,"n":1},{"n":2},3]}`, `{"items":[{"n":1,"price":"[redacted]"},{"n":2},3]}`},
		"anywhere":              {[]string{"$..token"}, nil, `{"token":"x","a":[{"token":"y"}]}`, `{"a":[{"token":"[redacted]"}],"token":"[redacted]"}`},
		"a filter":              {[]string{"$.f[?@.secret == true].value"}, nil, `{"f":[{"secret":true,"value":1},{"secret":false,"value":2}]}`, `{"f":[{"secret":true,"value":"[redacted]"},{"secret":false,"value":2}]}`},
		"a filter's own member": {[]string{"$.f[?@.s].s", "$.f[?@.s].v"}, nil, `{"f":[{"s":1,"v":2}]}`, `{"f":[{"s":"[redacted]","v":"[redacted]"}]}`},
		"two ways":              {[]string{"$.a", "$.a.b"}, nil, `{"a":{"b":1}}`, `{"a":"[redacted]"}`},
		"from the end":          {[]string{"$[-1]"}, nil, `[1,2]`, `[1,"[redacted]"]`},
		"everything":            {[]string{"$"}, nil, `{"a":1}`, `"[redacted]"`},
		"odd names":             {[]string{"$['e mail']['ü']"}, nil, `{"e mail":{"ü":1}}`, `{"e mail":{"ü":"[redacted]"}}`},
		"big numbers stay":      {[]string{"$.a"}, nil, `{"a":1,"b":9007199254740993}`, `{"a":"[redacted]","b":9007199254740993}`},
		"no document":           {[]string{"$.a"}, nil, `null`, `null`},
		"JSON in a text":        {[]string{"$.a"}, nil, `"{\"a\":1,\"b\":2}"`, `"{\"a\":\"[redacted]\",\"b\":2}"`},
		"JSON in a text in one": {[]string{"$.a"}, nil, `"\"{\\\"a\\\":1}\""`, `"\"{\\\"a\\\":\\\"[redacted]\\\"}\""`},
		"nested without end":    {[]string{"$.a"}, nil, nest(`{"a":1}`, 5), nest(redaction.Withheld, 4)},
		"prose":                 {[]string{"$.a"}, nil, `"Ada's address is a@b.c"`, withheld},
		"a member twice":        {[]string{"$.a"}, nil, `"{\"a\":1,\"a\":2}"`, withheld},
		"several documents":     {[]string{"$.a"}, nil, `"{\"a\":1}\n{\"a\":2}"`, withheld},
		"broken JSON":           {[]string{"$.a"}, nil, `{"a":`, withheld},
		"too deep":              {[]string{"$.a"}, nil, strings.Repeat("[", 70) + strings.Repeat("]", 70), withheld},
		"too many values":       {[]string{"$.a"}, nil, "[" + strings.Repeat("1,", 70000) + "1]", withheld},
		"a path that is none":   {[]string{"$.a", "b"}, nil, `{"c":1}`, withheld},
		"contents of MCP": {[]string{"$.a"}, []string{"text", "data"},
			`[{"type":"text","text":"{\"a\":1}"},{"type":"text","text":"prose"},{"type":"image","data":"aGk=","mimeType":"image/png"}]`,
			`[{"text":"{\"a\":\"[redacted]\"}","type":"text"},{"text":` + withheld + `,"type":"text"},{"data":` + withheld + `,"mimeType":"image/png","type":"image"}]`},
		"what a job left": {[]string{"$.a"}, []string{"message", "logs"}, `{"exitCode":1,"logs":"a is 1","message":"{\"a\":1}"}`, `{"exitCode":1,"logs":` + withheld + `,"message":"{\"a\":\"[redacted]\"}"}`},
		"an error of a wire": {[]string{"$.a"}, []string{"message", "data"}, `{"code":-1,"data":{"a":1,"b":2},"message":"no a@b.c"}`,
			`{"code":-1,"data":{"a":"[redacted]","b":2},"message":` + withheld + `}`},
		"an answer with one": {[]string{"$.a"}, []string{"error.message", "error.data"}, `{"id":1,"error":{"code":-1,"data":{"a":1},"message":"no a@b.c"}}`,
			`{"error":{"code":-1,"data":{"a":"[redacted]"},"message":` + withheld + `},"id":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := redaction.New(tc.paths).Apply(json.RawMessage(tc.in), tc.embedded)
			if string(got) != tc.want {
				t.Errorf("Apply(%s) = %s, want %s", tc.in, got, tc.want)
			}
		})
	}
}

// nest writes a text as JSON in a text n times over.
func nest(text string, n int) string {
	for range n {
		text = string(strictjson.Canonical(text))
	}
	return text
}

func TestCheck(t *testing.T) {
	for path, want := range map[string]string{
		"$.customer.email":              "",
		"$":                             "",
		"$..token":                      "",
		"$['a','b']":                    "",
		"$.a[?match(@.name, 'x.*')]":    "",
		"":                              "not a JSONPath",
		"customer.email":                "not a JSONPath",
		"$.":                            "not a JSONPath",
		"$.a[":                          "not a JSONPath",
		"$.a..":                         "not a JSONPath",
		"$[?@.a ==]":                    "not a JSONPath",
		"$[?nosuch(@)]":                 "not a JSONPath",
		"$..a..b":                       "more than once",
		"$[?$.a == @.b]":                "current value alone",
		"$[?@..a]":                      "current value alone",
		"$[*,*][*,*][*,*][*,*][*,*]":    "several paths",
		"$." + strings.Repeat("a", 300): "shorter",
	} {
		err := redaction.Check(path)
		switch {
		case want == "" && err != nil:
			t.Errorf("Check(%q) = %v", path, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("Check(%q) = %v, want an error with %q", path, err, want)
		}
	}
}
