package jsonschema

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	santhosh "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// Schema is a compiled schema, safe for concurrent use.
type Schema struct {
	compiled *santhosh.Schema
	// doc is the copy that was compiled: 2020-12 without references.
	doc any
	// parts and patternSize estimate the work of a validation.
	parts, patternSize int
}

// location names the copy inside the library.
const location = "urn:pawl:schema"

// Compile compiles a schema as it stands. The error says what to change and has at
// most 1 KiB.
func Compile(raw []byte) (*Schema, error) {
	return compile(raw, false)
}

// CompileObject compiles the schema of a tool's arguments. Its root must have the
// type object. Members that it doesn't declare are refused at the root, and in every
// nested object whose schema declares properties, unless the schema itself sets
// additionalProperties, unevaluatedProperties or patternProperties there.
func CompileObject(raw []byte) (*Schema, error) {
	return compile(raw, true)
}

func compile(raw []byte, object bool) (schema *Schema, err error) {
	// The library panics on some inputs that it should refuse; a schema that does
	// that despite the bounds is unusable, and no reason to stop the process.
	defer func() {
		if r := recover(); r != nil {
			schema, err = nil, errors.New("schema unusable: the validator fails on it; simplify it")
		}
	}()
	doc, err := strictjson.Parse(raw, strictjson.Limits{MaxBytes: maxSchemaBytes, MaxDepth: maxSchemaDepth})
	if err != nil {
		return nil, unusable("%v", err)
	}
	if object {
		if err := objectRoot(doc); err != nil {
			return nil, err
		}
	}
	e := &expander{}
	plain, err := e.expandRoot(doc)
	if err != nil {
		return nil, err
	}
	if err := checkMeta(e.draft, doc); err != nil {
		return nil, err
	}
	if object {
		if plain == true { // draft-07 drops the type beside a $ref
			plain = map[string]any{"type": "object"}
		}
		closeObjects(plain)
	}
	compiler := newCompiler()
	if err := compiler.AddResource(location, plain); err != nil {
		return nil, unusable("%v", err)
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return nil, unusable("%v", err)
	}
	return &Schema{compiled: compiled, doc: plain, parts: e.parts, patternSize: e.patternSize}, nil
}

func objectRoot(doc any) error {
	root, ok := doc.(map[string]any)
	if !ok {
		return unusable("at #: must be an object with \"type\": \"object\"")
	}
	switch t := root["type"].(type) {
	case string:
		if t == "object" {
			return nil
		}
	case []any:
		if len(t) == 1 && t[0] == "object" {
			return nil
		}
	}
	return unusable("at #/type: must be \"object\", because arguments are an object")
}

func unusable(format string, args ...any) error {
	return errors.New(cut("schema unusable: "+fmt.Sprintf(format, args...), maxErrorBytes))
}

// cut shortens text, at a rune boundary, to at most max bytes.
func cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	return strings.ToValidUTF8(text[:max-len("…")], "") + "…"
}

// denyAll refuses to load anything: a schema is never a reason to open a file or a
// connection.
type denyAll struct{}

// Load implements santhosh.URLLoader.
func (denyAll) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not supported")
}

func newCompiler() *santhosh.Compiler {
	compiler := santhosh.NewCompiler()
	compiler.DefaultDraft(santhosh.Draft2020)
	compiler.UseLoader(denyAll{})
	return compiler
}

// metaSchema gives the compiled schema of schemas.
var metaSchema = map[draft]func() (*santhosh.Schema, error){
	draft2020: sync.OnceValues(func() (*santhosh.Schema, error) {
		return newCompiler().Compile("https://json-schema.org/draft/2020-12/schema")
	}),
	draft2019: sync.OnceValues(func() (*santhosh.Schema, error) {
		return newCompiler().Compile("https://json-schema.org/draft/2019-09/schema")
	}),
	draft07: sync.OnceValues(func() (*santhosh.Schema, error) {
		return newCompiler().Compile("http://json-schema.org/draft-07/schema")
	}),
}

// checkMeta finds keywords with values that they can't have. It reads the author's
// own document, so that the places in its errors are the author's.
func checkMeta(d draft, doc any) error {
	meta, err := metaSchema[d]()
	if err != nil {
		return unusable("%v", err)
	}
	err = meta.Validate(doc)
	if err == nil {
		return nil
	}
	return unusable("%s", explain(err, doc, nil, pointerPlace))
}
