package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/jsonschema"
)

// quick is far above what any of the hostile inputs takes, and far below what they
// take without bounds.
const quick = 3 * time.Second

func TestHostileSchemas(t *testing.T) {
	doubling := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 20 {
		doubling += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling += `"d20":{"type":"string"}}}`
	chain := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 500 {
		chain += fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	chain += `"d500":{}}}`
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 5000) + `{}` + strings.Repeat(`}}`, 5000)
	deepShort := strings.Repeat(`{"not":`, 5000) + `{}` + strings.Repeat(`}`, 5000)
	for name, tc := range map[string]struct{ schema, want string }{
		"self reference":         {`{"type":"object","$ref":"#"}`, "leads back to itself"},
		"self reference inside":  {`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`, "leads back to itself"},
		"mutual references":      {`{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, "leads back to itself"},
		"other spellings":        {`{"type":"object","$defs":{"a":{"$ref":"#/$defs/%61"}},"$ref":"#/$defs/a"}`, "leads back to itself"},
		"tree":                   {`{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}}`, "leads back to itself"},
		"doubling references":    {doubling, "more than 2000 sub-schemas"},
		"chain of references":    {chain, "nested deeper than 64"},
		"depth 5000":             {deep, "allowed"},
		"depth 5000, small":      {deepShort, "64"},
		"16000 sub-schemas":      {`{"type":"object","anyOf":[` + strings.Repeat(`{},`, 16000) + `{}]}`, "more than 2000 sub-schemas"},
		"too many bytes":         {`{"type":"object","description":"` + strings.Repeat("x", 65<<10) + `"}`, "more than the 65536 allowed"},
		"http reference":         {`{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}`, "only references inside"},
		"file reference":         {`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "only references inside"},
		"relative reference":     {`{"type":"object","properties":{"a":{"$ref":"other.json"}}}`, "only references inside"},
		"reference by $id":       {`{"$id":"http://x/","type":"object","properties":{"a":{"$id":"file:///etc/","$ref":"passwd"}}}`, "nested $id"},
		"anchor":                 {`{"type":"object","$ref":"#name"}`, "anchors are not supported"},
		"dangling reference":     {`{"type":"object","$ref":"#/$defs/none"}`, "leads nowhere"},
		"reference to no schema": {`{"type":"object","properties":{"a":{"$ref":"#/required"}},"required":["a"]}`, "must be a schema"},
		"bad escape":             {`{"type":"object","$ref":"#/%zz"}`, "not a valid reference"},
		"dynamic reference":      {`{"type":"object","$dynamicRef":"#x"}`, "$dynamicRef is not supported"},
		"look-ahead":             {`{"type":"object","properties":{"a":{"pattern":"^(?!x)"}}}`, "at #/properties/a/pattern"},
		"back-reference":         {`{"type":"object","properties":{"a":{"pattern":"(a)\\1"}}}`, "back-references"},
		"pattern property":       {`{"type":"object","patternProperties":{"(":{}}}`, "not supported"},
		"large pattern":          {`{"type":"object","properties":{"a":{"pattern":"` + strings.Repeat("a{1000}", 100) + `"}}}`, "too large"},
		"long pattern":           {`{"type":"object","properties":{"a":{"pattern":"` + strings.Repeat("a", 2000) + `"}}}`, "more than 1024 bytes"},
		"many patterns":          {`{"type":"object","properties":{` + manyPatterns() + `}}`, "too large together"},
		"unknown dialect":        {`{"$schema":"https://evil.example/schema","type":"object"}`, "unknown dialect"},
		"draft-04":               {`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object"}`, "unknown dialect"},
		"dialect not a string":   {`{"$schema":{"a":1},"type":"object"}`, "unknown dialect"},
		"no type":                {`{"properties":{}}`, "#/type"},
		"array":                  {`{"type":"array"}`, "#/type"},
		"two types":              {`{"type":["object","null"]}`, "#/type"},
		"boolean":                {`true`, "object"},
		"not JSON":               {`{type: object}`, "invalid JSON"},
		"duplicate member":       {`{"type":"object","type":"object"}`, "twice"},
		"bad type":               {`{"type":"object","properties":{"a":{"type":"strng"}}}`, "#/properties/a/type"},
		"bad required":           {`{"type":"object","required":"a"}`, "#/required"},
		"bad properties":         {`{"type":"object","properties":[]}`, "#/properties"},
		"bad property":           {`{"type":"object","properties":{"a":5}}`, "#/properties/a"},
		"bad allOf":              {`{"type":"object","allOf":{}}`, "#/allOf"},
		"bad bound":              {`{"type":"object","properties":{"a":{"minLength":-1}}}`, "#/properties/a/minLength"},
		"zero divisor":           {`{"type":"object","properties":{"a":{"multipleOf":0}}}`, "#/properties/a/multipleOf"},
		"draft-04 bound":         {`{"type":"object","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`, "#/properties/a/exclusiveMinimum"},
		"array of items":         {`{"type":"object","properties":{"a":{"items":[{}]}}}`, "use prefixItems"},
		"many faults":            {`{"type":"object","properties":{` + manyFaults() + `}}`, "and "},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := jsonschema.CompileObject([]byte(tc.schema))
			if took := time.Since(start); took > quick {
				t.Errorf("took %v", took)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if len(err.Error()) > 1024 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			if !strings.HasPrefix(err.Error(), "schema unusable: ") {
				t.Errorf("error doesn't say that the schema is unusable: %v", err)
			}
		})
	}
}

func manyPatterns() string {
	var list []string
	for i := range 30 {
		list = append(list, fmt.Sprintf(`"p%d":{"pattern":"a{1000}b{1000}c{1000}d{1000}"}`, i))
	}
	return strings.Join(list, ",")
}

func manyFaults() string {
	var faults []string
	for i := range 500 {
		faults = append(faults, fmt.Sprintf(`"property-%d":{"minLength":-%d}`, i, i+1))
	}
	return strings.Join(faults, ",")
}

// The largest schemas that pass are compiled and used in reasonable time.
func TestLargestSchemas(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 30) + `{}` + strings.Repeat(`}}`, 30)
	wide := `{"type":"object","anyOf":[` + strings.Repeat(`{"required":["x"]},`, 1900) + `{"required":["y"]}]}`
	double := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 8 {
		double += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	double += `"d8":{"type":"string"}}}`
	for name, schema := range map[string]string{"deep": deep, "wide": wide, "double": double} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			compiled, err := jsonschema.CompileObject([]byte(schema))
			if err != nil {
				t.Fatal(err)
			}
			if err := compiled.ValidateJSON([]byte(`{"x":1,"z":{}}`)); err == nil || len(err.Error()) > 1024 {
				t.Errorf("error %v", err)
			}
			if took := time.Since(start); took > quick {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestHostileValues(t *testing.T) {
	compiled, err := jsonschema.CompileObject([]byte(`{"type":"object","properties":{
		"list":{"type":"array","items":{"anyOf":[` + strings.Repeat(`{"minLength":9},`, 500) + `{"minLength":10}]}},
		"text":{"type":"string","pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"},
		"unique":{"type":"array","uniqueItems":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"long list":   `{"list":[` + strings.Repeat(`"a",`, 60000) + `"a"]}`,
		"medium list": `{"list":[` + strings.Repeat(`"a",`, 900) + `"a"]}`,
		"long text":   `{"text":"` + strings.Repeat("a", 200000) + `"}`,
		"unique":      `{"unique":[` + numbers(20000) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			err := compiled.ValidateJSON([]byte(value))
			if took := time.Since(start); took > 2*quick {
				t.Errorf("took %v", took)
			}
			if err != nil && len(err.Error()) > 1024 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

func numbers(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	return strings.Join(list, ",")
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"enum":[1,"x",null]}}}`,
		`{"type":"object","$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"],"c":{"required":["d"]}}}`,
		`{"type":"object","patternProperties":{"^x":{"type":"number","multipleOf":0.1}},"additionalProperties":false}`,
		`{"type":"object","oneOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"const":2}}}],"if":{"required":["a"]},"then":{"minProperties":2}}`,
		`{"$ref":"#","type":"object"}`,
	} {
		f.Add([]byte(seed), []byte(`{"a":1,"k":2,"x1":0.30}`))
	}
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		start := time.Now()
		compiled, err := jsonschema.CompileObject(schema)
		if err == nil {
			err = compiled.ValidateJSON(value)
		}
		if err != nil && len(err.Error()) > 1024 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
