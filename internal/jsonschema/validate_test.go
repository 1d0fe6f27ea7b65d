package jsonschema_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/jsonschema"
)

const refund = `{"type":"object","required":["order_id","amount"],"properties":{
	"order_id":{"type":"string","minLength":3,"maxLength":10,"pattern":"^[A-Z]+$"},
	"amount":{"type":"number","minimum":0,"exclusiveMaximum":1000,"multipleOf":0.01},
	"currency":{"enum":["EUR","USD"]},
	"notes":{"type":["array","null"],"maxItems":2,"items":{"type":"string"},"uniqueItems":true},
	"customer":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]},
	"extra":{"type":"object"}}}`

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct{ schema, value, want string }{
		"fine":             {refund, `{"order_id":"ABC","amount":12.30,"customer":{"name":"x"},"extra":{"any":1},"notes":null}`, ""},
		"type":             {refund, `{"order_id":"ABC","amount":"12"}`, "$.amount: must be number, got string"},
		"missing":          {refund, `{"amount":1}`, `$: required but missing: "order_id"; add it`},
		"undeclared":       {refund, `{"order_id":"ABC","amount":1,"amout":2}`, `$.amout: not declared by the schema; remove it (declared: "amount", "currency", "customer", "extra", "notes", "order_id")`},
		"nested":           {refund, `{"order_id":"ABC","amount":1,"customer":{"name":"a","vip":true}}`, `$.customer.vip: not declared by the schema; remove it (declared: "name")`},
		"nested missing":   {refund, `{"order_id":"ABC","amount":1,"customer":{}}`, `$.customer: required but missing: "name"; add it`},
		"enum":             {refund, `{"order_id":"ABC","amount":1,"currency":"GBP"}`, `$.currency: must be one of "EUR", "USD"`},
		"item":             {refund, `{"order_id":"ABC","amount":1,"notes":["a",1]}`, "$.notes[1]: must be string, got number"},
		"several types":    {refund, `{"order_id":"ABC","amount":1,"notes":7}`, "$.notes: must be array or null, got number"},
		"too many items":   {refund, `{"order_id":"ABC","amount":1,"notes":["a","b","c"]}`, "$.notes: must have at most 2 items, has 3"},
		"equal items":      {refund, `{"order_id":"ABC","amount":1,"notes":["a","a"]}`, "$.notes: items 0 and 1 are equal"},
		"minimum":          {refund, `{"order_id":"ABC","amount":-1}`, "$.amount: must be at least 0"},
		"maximum":          {refund, `{"order_id":"ABC","amount":1000}`, "$.amount: must be less than 1000"},
		"multiple":         {refund, `{"order_id":"ABC","amount":1.005}`, "$.amount: must be a multiple of 0.01"},
		"exact":            {refund, `{"order_id":"ABC","amount":999.99}`, ""},
		"short":            {refund, `{"order_id":"AB","amount":1}`, "$.order_id: must have at least 3 characters, has 2"},
		"pattern":          {refund, `{"order_id":"abc","amount":1}`, "$.order_id: must match the pattern ^[A-Z]+$"},
		"root type":        {refund, `[]`, "$: must be object, got array"},
		"big integer":      {`{"type":"object","properties":{"id":{"type":"integer","maximum":9007199254740992}}}`, `{"id":9007199254740993}`, "$.id: must be at most 9007199254740992"},
		"no members":       {`{"type":"object"}`, `{"a":1}`, "$.a: not declared by the schema; remove it"},
		"open root":        {`{"type":"object","additionalProperties":true}`, `{"a":1}`, ""},
		"typed rest":       {`{"type":"object","additionalProperties":{"type":"string"}}`, `{"a":1}`, "$.a: must be string, got number"},
		"own false":        {`{"type":"object","properties":{"a":{}},"additionalProperties":false}`, `{"b":1}`, `$: not allowed here: "b"; remove it`},
		"patterns":         {`{"type":"object","patternProperties":{"^x":{"type":"string"}}}`, `{"xa":"s","b":1}`, ""},
		"own unevaluated":  {`{"type":"object","unevaluatedProperties":true,"properties":{"a":{}}}`, `{"b":1}`, ""},
		"allOf":            {`{"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, `{"a":1,"b":2}`, ""},
		"allOf undeclared": {`{"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, `{"a":1,"c":2}`, `$.c: not declared by the schema; remove it (declared: "a", "b")`},
		"reference":        {`{"type":"object","$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":{"type":"string"}}}}}`, `{"a":"1","c":2}`, `$.c: not declared`},
		"reference fails":  {`{"type":"object","$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":{"type":"string"}}}}}`, `{"a":1}`, `$.a: must be string, got number`},
		"nullable":         {`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/$defs/x"},{"type":"null"}]}},"$defs":{"x":{"type":"object","properties":{"b":{"type":"string"}}}}}`, `{"a":{"b":1}}`, "$.a.b: must be string, got number"},
		"nullable extra":   {`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/$defs/x"},{"type":"null"}]}},"$defs":{"x":{"type":"object","properties":{"b":{"type":"string"}}}}}`, `{"a":{"c":1}}`, "$.a.c: not declared"},
		"alternatives":     {`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"boolean"}]}}}`, `{"a":1}`, "$.a: must be boolean or string, got number"},
		"no alternative":   {`{"type":"object","properties":{"a":{"oneOf":[{"minLength":5},{"pattern":"^x"}]}}}`, `{"a":"abc"}`, "$.a: fits none of 2 alternatives; make one of them true: ($.a: must have at least 5 characters, has 3) or ($.a: must match the pattern ^x)"},
		"two alternatives": {`{"type":"object","properties":{"a":{"oneOf":[{"minLength":1},{"pattern":"^a"}]}}}`, `{"a":"abc"}`, "$.a: fits more than one"},
		"discriminated":    {`{"type":"object","oneOf":[{"properties":{"k":{"const":1},"x":{}}},{"properties":{"k":{"const":2},"y":{}}}]}`, `{"k":1,"y":2}`, "$.y"},
		"same nested":      {`{"type":"object","allOf":[{"properties":{"a":{"properties":{"x":{}}}}},{"properties":{"a":{"properties":{"y":{}}}}}]}`, `{"a":{"x":1,"y":2}}`, ""},
		"if":               {`{"type":"object","properties":{"a":{"type":"object"}},"if":{"properties":{"a":{"properties":{"b":{"const":1}},"required":["b"]}}},"then":{"properties":{"c":{}}}}`, `{"a":{"b":1,"z":2},"c":3}`, ""},
		"not":              {`{"type":"object","properties":{"a":{"not":{"properties":{"b":{"const":1}}}}}}`, `{"a":{"b":1,"c":2}}`, "$.a: has a form that the schema excludes"},
		"contains":         {`{"type":"object","properties":{"a":{"contains":{"properties":{"b":{}},"required":["b"]}}}}`, `{"a":[{"b":1,"c":2}]}`, ""},
		"array items":      {`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{}}}}}}`, `{"a":[{"b":1},{"c":2}]}`, "$.a[1].c: not declared"},
		"tuple":            {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"items":[{"type":"string"}],"additionalItems":false}}}`, `{"a":["x",1]}`, "$.a[1]: not allowed here; remove it"},
		"draft-07 ref":     {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/definitions/s","maxLength":1}},"definitions":{"s":{"type":"string"}}}`, `{"a":"long"}`, ""},
		"draft-07 true":    {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","$ref":"#/definitions/s","definitions":{"s":true}}`, `{"a":"long"}`, "$.a: not declared"},
		"draft-07 deps":    {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{},"b":{},"c":{}},"dependencies":{"a":["b"],"c":{"required":["b"]}}}`, `{"a":1}`, `$: "b" is required where "a" is given; add it`},
		"draft-07 deps 2":  {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{},"b":{},"c":{}},"dependencies":{"a":["b"],"c":{"required":["b"]}}}`, `{"c":1}`, `$: required but missing: "b"; add it`},
		"format":           {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"string","format":"email"}}}`, `{"a":"nope"}`, ""},
		"property format":  {`{"type":"object","properties":{"format":{"type":"string"},"$ref":{"type":"string"}}}`, `{"format":1,"$ref":"x"}`, "$.format: must be string"},
		"names":            {`{"type":"object","propertyNames":{"maxLength":2},"additionalProperties":true}`, `{"abc":1}`, `the member name "abc" is not allowed`},
		"digits":           {`{"type":"object","properties":{"a":{"type":"object","properties":{"0":{"type":"string"}}}}}`, `{"a":{"0":1}}`, "$.a.0: must be string"},
		"duplicate":        {refund, `{"order_id":"ABC","amount":1,"amount":1}`, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(tc.schema)
			schema, err := jsonschema.CompileObject(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(raw, []byte(tc.schema)) {
				t.Error("the schema was changed")
			}
			err = schema.ValidateJSON([]byte(tc.value))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestCompileLeavesSchemasOpen(t *testing.T) {
	schema, err := jsonschema.Compile([]byte(`{"properties":{"a":{"type":"string"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, valid := range map[string]bool{`{"b":1}`: true, `5`: true, `{"a":1}`: false} {
		if err := schema.ValidateJSON([]byte(value)); (err == nil) != valid {
			t.Errorf("Validate(%s) = %v", value, err)
		}
	}
	if _, err := jsonschema.Compile([]byte(`false`)); err != nil {
		t.Errorf("a boolean schema: %v", err)
	}
}

func TestErrorsAreBoundedAndStable(t *testing.T) {
	schema, err := jsonschema.CompileObject([]byte(`{"type":"object","additionalProperties":{"type":"string"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var members []string
	for _, c := range strings.Split("abcdefghijklmnop", "") {
		members = append(members, `"`+strings.Repeat(c, 500)+`":1`)
	}
	value := []byte("{" + strings.Join(members, ",") + "}")
	first := schema.ValidateJSON(value).Error()
	if len(first) > 1024 || !strings.HasSuffix(first, "and 8 more") {
		t.Errorf("error of %d bytes: %s", len(first), first)
	}
	for range 20 {
		if again := schema.ValidateJSON(value).Error(); again != first {
			t.Fatalf("unstable:\n%s\n%s", first, again)
		}
	}
}
