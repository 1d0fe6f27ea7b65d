package transcripts

import (
	"fmt"
	"strings"
)

// object is a schema of an object with properties, of which some are required.
func object(properties string, required ...string) string {
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`, properties, quoted(required))
}

func quoted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return `"` + strings.Join(names, `","`) + `"`
}

// one is a shape with one tool, called once.
func one(schema, arguments, problem string) shape {
	return shape{tools: map[string]string{"s.do": schema}, calls: []proposed{{"s.do", arguments, problem}}}
}

// text is one whose arguments only a wire can carry that has them as a text.
func text(schema, arguments, problem string) shape {
	c := one(schema, arguments, problem)
	c.onlyText = true
	return c
}

const (
	weather = `{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["city"],"additionalProperties":false}`
	order   = `{"type":"object","required":["customer","items"],"additionalProperties":false,"properties":{
		"customer":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}}}}},
		"items":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"object","required":["sku","count"],"properties":{"sku":{"type":"string"},"count":{"type":"integer","minimum":1,"maximum":99},"gift":{"type":"boolean"}}}}}}`
	shapesUnion = `{"type":"object","required":["figure"],"properties":{"figure":{"oneOf":[
		{"type":"object","required":["kind","radius"],"properties":{"kind":{"const":"circle"},"radius":{"type":"number"}},"additionalProperties":false},
		{"type":"object","required":["kind","width","height"],"properties":{"kind":{"const":"box"},"width":{"type":"number"},"height":{"type":"number"}},"additionalProperties":false}]}}}`
	tree = `{"type":"object","required":["root"],"properties":{"root":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/b"}}},"b":{"type":"array","items":{"type":"string"}}}}`
)

// shapes are the forms of calls that public benchmarks of function calling describe:
// simple, several of one function, of different ones, nested, optional, and so on, and
// those that have to be refused.
func shapes() map[string]shape {
	all := map[string]shape{}
	for _, group := range []map[string]shape{severalCalls(), catalogues(), structures(), scalars(), refusals()} {
		for name, c := range group {
			all[name] = c
		}
	}
	return all
}

func severalCalls() map[string]shape {
	tools := map[string]string{
		"s.weather": weather, "s.order": order, "s.add": object(`"a":{"type":"integer"},"b":{"type":"integer"}`, "a", "b"), "s.now": object(""),
	}
	cities := shape{tools: tools}
	for i := range 20 {
		cities.calls = append(cities.calls, proposed{"s.weather", fmt.Sprintf(`{"city":"city %d"}`, i), ""})
	}
	return map[string]shape{
		"one function":         {tools: tools, calls: []proposed{{"s.weather", `{"city":"Oslo","unit":"celsius"}`, ""}}},
		"no arguments":         {tools: tools, calls: []proposed{{"s.now", `{}`, ""}}},
		"one function thrice":  {tools: tools, calls: []proposed{{"s.weather", `{"city":"Oslo"}`, ""}, {"s.weather", `{"city":"Rome"}`, ""}, {"s.weather", `{"city":"Lima","unit":"fahrenheit"}`, ""}}},
		"several functions":    {tools: tools, calls: []proposed{{"s.now", `{}`, ""}, {"s.add", `{"a":1,"b":2}`, ""}, {"s.weather", `{"city":"Oslo"}`, ""}}},
		"some thrice and more": {tools: tools, calls: []proposed{{"s.add", `{"a":1,"b":2}`, ""}, {"s.weather", `{"city":"Oslo"}`, ""}, {"s.add", `{"a":3,"b":4}`, ""}, {"s.order", `{"customer":{"name":"Ada"},"items":[{"sku":"x","count":1}]}`, ""}}},
		"the same call twice":  {tools: tools, calls: []proposed{{"s.now", `{}`, ""}, {"s.now", `{}`, ""}}},
		"twenty at once":       cities,
		"one of them is wrong": {tools: tools, calls: []proposed{{"s.weather", `{"city":"Oslo"}`, ""}, {"s.weather", `{"town":"Oslo"}`, "city"}, {"s.now", `{}`, ""}}},
		"one is unknown":       {tools: tools, calls: []proposed{{"s.now", `{}`, ""}, {"s.fly", `{}`, "fly"}}},
	}
}

func catalogues() map[string]shape {
	hundred := shape{tools: map[string]string{}}
	for i := range 100 {
		name := fmt.Sprintf("s.lookup_%02d", i)
		hundred.tools[name] = object(fmt.Sprintf(`"key_%02d":{"type":"string"}`, i), fmt.Sprintf("key_%02d", i))
		if i%33 == 7 {
			hundred.calls = append(hundred.calls, proposed{name, fmt.Sprintf(`{"key_%02d":"v"}`, i), ""})
		}
	}
	neighbour := hundred
	neighbour.calls = []proposed{{"s.lookup_56", `{"key_57":"v"}`, "key_56"}, {"s.lookup_57", `{"key_57":"v"}`, ""}}
	long := strings.Repeat("n", 64)
	return map[string]shape{
		"a hundred tools":               hundred,
		"a hundred, one for another":    neighbour,
		"equal names of two servers":    {tools: map[string]string{"crm.get": object(`"a":{"type":"string"}`, "a"), "erp.get": object(`"b":{"type":"string"}`, "b")}, calls: []proposed{{"erp.get", `{"b":"x"}`, ""}, {"crm.get", `{"a":"y"}`, ""}}},
		"names of 64 characters":        {tools: map[string]string{"one." + long: weather, "two." + long: weather}, calls: []proposed{{"two." + long, `{"city":"Oslo"}`, ""}, {"one." + long, `{"city":"Rome"}`, ""}}},
		"names with dashes and digits":  {tools: map[string]string{"s.get-v2": weather, "s.get_v2": weather, "s.2-get": weather}, calls: []proposed{{"s.get-v2", `{"city":"a"}`, ""}, {"s.get_v2", `{"city":"b"}`, ""}, {"s.2-get", `{"city":"c"}`, ""}}},
		"a name like a built-in tool's": {tools: map[string]string{"s.read_result": weather}, calls: []proposed{{"s.read_result", `{"city":"Oslo"}`, ""}}},
	}
}

func structures() map[string]shape {
	deep, nested := `{"type":"string"}`, `"x"`
	for range 20 {
		deep, nested = object(`"d":`+deep, "d"), `{"d":`+nested+`}`
	}
	many := strings.TrimSuffix(strings.Repeat(`{"sku":"x"},`, 500), ",")
	return map[string]shape{
		"nested":                 one(order, `{"customer":{"name":"Ada","address":{"street":"Elm 1","zip":"01234"}},"items":[{"sku":"a","count":2,"gift":true},{"sku":"b","count":1}]}`, ""),
		"nested twenty deep":     one(deep, nested, ""),
		"array of strings":       one(object(`"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true}`, "tags"), `{"tags":["a","b",""]}`, ""),
		"array of arrays":        one(object(`"m":{"type":"array","items":{"type":"array","items":{"type":"number"}}}`), `{"m":[[1,2.5],[],[-3]]}`, ""),
		"array of 500 objects":   one(object(`"items":{"type":"array","items":{"type":"object","properties":{"sku":{"type":"string"}}}}`), `{"items":[`+many+`]}`, ""),
		"tuple":                  one(object(`"at":{"type":"array","prefixItems":[{"type":"number"},{"type":"string"}]}`), `{"at":[1.5,"m"]}`, ""),
		"empty array and object": one(object(`"a":{"type":"array"},"o":{"type":"object"}`), `{"a":[],"o":{}}`, ""),
		"a map":                  one(object(`"scores":{"type":"object","additionalProperties":{"type":"number"}}`), `{"scores":{"Ada":1,"böse 鍵":2.5,"":3}}`, ""),
		"any members":            one(`{"type":"object","additionalProperties":true}`, `{"what":"ever","n":[null,{"x":true}]}`, ""),
		"a union, first":         one(shapesUnion, `{"figure":{"kind":"circle","radius":1.5}}`, ""),
		"a union, second":        one(shapesUnion, `{"figure":{"kind":"box","width":1,"height":2}}`, ""),
		"any of two types":       one(object(`"id":{"anyOf":[{"type":"string"},{"type":"integer"}]}`), `{"id":7}`, ""),
		"references":             one(tree, `{"root":{"b":["x","y"]}}`, ""),
		"odd names of members":   one(object(`"first name":{"type":"string"},"a.b":{"type":"integer"},"$ref_":{"type":"string"},"größe":{"type":"number"},"x-y":{"type":"boolean"}`), `{"first name":"Ada","a.b":1,"$ref_":"r","größe":1.80,"x-y":false}`, ""),
		"JSON in a text":         one(object(`"body":{"type":"string"}`), `{"body":"{\"a\":[1,2,{\"b\":\"\\\"\"}]}"}`, ""),
	}
}

func scalars() map[string]shape {
	optional := object(`"q":{"type":"string"},"limit":{"type":"integer","default":10},"cursor":{"type":["string","null"]}`, "q")
	n := object(`"n":{"type":"number"}`, "n")
	i := object(`"i":{"type":"integer"}`, "i")
	s := object(`"s":{"type":"string"}`, "s")
	return map[string]shape{
		"optional left out":        one(optional, `{"q":"x"}`, ""),
		"optional given":           one(optional, `{"q":"x","limit":3,"cursor":"c"}`, ""),
		"null where it may be":     one(optional, `{"q":"x","cursor":null}`, ""),
		"enum of strings":          one(weather, `{"city":"Oslo","unit":"fahrenheit"}`, ""),
		"enum of numbers":          one(object(`"size":{"enum":[1,2,4]}`), `{"size":4}`, ""),
		"enum in other scripts":    one(object(`"c":{"type":"string","enum":["röd","赤","أحمر"]}`), `{"c":"赤"}`, ""),
		"booleans":                 one(object(`"a":{"type":"boolean"},"b":{"type":"boolean"}`), `{"a":true,"b":false}`, ""),
		"integer beyond 2^53":      one(i, `{"i":9007199254740993}`, ""),
		"integer of thirty digits": one(i, `{"i":123456789012345678901234567890}`, ""),
		"negative integer":         one(i, `{"i":-7}`, ""),
		"number as it was written": one(n, `{"n":12.50}`, ""),
		"a third":                  one(n, `{"n":0.3333333333333333}`, ""),
		"many digits":              one(n, `{"n":3.14159265358979323846264338327950288}`, ""),
		"exponent":                 one(n, `{"n":1.5E+3}`, ""),
		"tiny":                     one(n, `{"n":1e-7}`, ""),
		"negative zero":            one(n, `{"n":-0.0}`, ""),
		"within bounds":            one(object(`"n":{"type":"number","minimum":0,"exclusiveMaximum":1,"multipleOf":0.25}`), `{"n":0.75}`, ""),
		"other scripts":            one(s, `{"s":"Ünïcödé 漢字 हिन्दी العربية עברית"}`, ""),
		"emoji and joiners":        one(s, `{"s":"👩‍👩‍👧‍👦 é 🇳🇴"}`, ""),
		"escapes":                  one(s, `{"s":"\ud83d\ude00 \u00e9 \"\\\/\b\f\n\r\t"}`, ""),
		"code":                     one(s, `{"s":"if (a < b && c > d) {\n\tprintf(\"%s\\n\", '</script>');\n}"}`, ""),
		"empty text":               one(s, `{"s":""}`, ""),
		"a long text":              one(s, `{"s":"`+strings.Repeat("lorem ipsum ", 2000)+`"}`, ""),
		"a pattern":                one(object(`"zip":{"type":"string","pattern":"^[0-9]{5}$"}`), `{"zip":"01234"}`, ""),
		"a date":                   one(object(`"on":{"type":"string","format":"date"}`), `{"on":"2026-02-28"}`, ""),
		"white space":              text(weather, " {\n\t\"city\" : \"Oslo\"\n} ", ""),
		"nothing for no arguments": text(object(""), ``, ""),
	}
}

func refusals() map[string]shape {
	i := object(`"i":{"type":"integer"}`, "i")
	return map[string]shape{
		"required is missing":       one(weather, `{"unit":"celsius"}`, "city"),
		"nested is missing":         one(order, `{"customer":{},"items":[{"sku":"a","count":1}]}`, "$.customer: required"),
		"missing in an element":     one(order, `{"customer":{"name":"Ada"},"items":[{"sku":"a","count":1},{"sku":"b"}]}`, "items[1]"),
		"not of the enum":           one(weather, `{"city":"Oslo","unit":"kelvin"}`, "celsius"),
		"enum in another case":      one(weather, `{"city":"Oslo","unit":"Celsius"}`, "celsius"),
		"a member too many":         one(weather, `{"city":"Oslo","country":"NO"}`, "country"),
		"undeclared, not forbidden": one(object(`"a":{"type":"string"}`), `{"a":"x","b":1}`, "$.b"),
		"nested, undeclared":        one(order, `{"customer":{"name":"Ada","vip":true},"items":[{"sku":"a","count":1}]}`, "vip"),
		"text for an integer":       one(i, `{"i":"7"}`, "integer"),
		"integer for a text":        one(weather, `{"city":7}`, "string"),
		"fraction for an integer":   one(i, `{"i":1.5}`, "integer"),
		"text for a boolean":        one(object(`"b":{"type":"boolean"}`), `{"b":"true"}`, "boolean"),
		"null where it may not be":  one(i, `{"i":null}`, "integer"),
		"object for an array":       one(order, `{"customer":{"name":"Ada"},"items":{"sku":"a","count":1}}`, "array"),
		"array for an object":       one(order, `{"customer":[],"items":[{"sku":"a","count":1}]}`, "object"),
		"beyond the maximum":        one(order, `{"customer":{"name":"Ada"},"items":[{"sku":"a","count":100}]}`, "99"),
		"too few":                   one(order, `{"customer":{"name":"Ada"},"items":[]}`, "items"),
		"too many":                  one(order, `{"customer":{"name":"Ada"},"items":[{"sku":"a","count":1},{"sku":"a","count":1},{"sku":"a","count":1},{"sku":"a","count":1}]}`, "items"),
		"against the pattern":       one(order, `{"customer":{"name":"Ada","address":{"zip":"1234"}},"items":[{"sku":"a","count":1}]}`, "zip"),
		"no variant of a union":     one(shapesUnion, `{"figure":{"kind":"box","radius":1}}`, "figure"),
		"a text for a map's number": one(object(`"m":{"type":"object","additionalProperties":{"type":"number"}}`), `{"m":{"a":1,"b":"2"}}`, "number"),
		"arguments for none":        one(object(""), `{"x":1}`, "$.x"),
		"a member twice":            text(weather, `{"city":"Oslo","city":"Rome"}`, "city"),
		"no JSON":                   text(weather, `city: Oslo`, "JSON"),
		"JSON that is cut off":      text(weather, `{"city":"Os`, "JSON"),
		"an array":                  text(weather, `["Oslo"]`, "object"),
		"a bare text":               text(weather, `"Oslo"`, "object"),
		"two objects":               text(weather, `{"city":"Oslo"}{"city":"Rome"}`, "JSON"),
		"half a surrogate":          text(weather, `{"city":"\ud83d"}`, "JSON"),
	}
}
