package openaiapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const (
	// maxDescription is how many characters of a tool's description the vendor accepts.
	maxDescription = 1024
	// maxCacheKey is how many characters of a cache key the vendor accepts.
	maxCacheKey = 64
)

// Tool writes down a function that the model may call. It is not strict: that would
// refuse most schemas, and arguments are checked anyway.
func (a Address) Tool(t model.Tool) (wire.Object, error) {
	if !wire.LegalName.MatchString(t.Alias) {
		return nil, errors.New("its alias is not a legal name")
	}
	schema, err := encodeSchema(t.InputSchema)
	if err != nil {
		return nil, err
	}
	description := t.Description
	if a.vendors {
		description = cut(description, maxDescription)
	}
	return wire.Object{
		wire.M("name", wire.Quote(t.Alias)),
		wire.M("description", wire.Quote(description)),
		wire.M("strict", json.RawMessage("false")),
		wire.M("parameters", schema),
	}, nil
}

// encodeSchema adds what the vendor refuses a tool without beside a type at the root: it
// has to have properties. That changes nothing of what the schema accepts.
func encodeSchema(schema json.RawMessage) (json.RawMessage, error) {
	root, err := wire.ParseSchema(schema)
	if err != nil {
		return nil, err
	}
	if root.Get("properties") == nil {
		root = root.With("properties", json.RawMessage("{}"))
	}
	return root.Bytes(), nil
}

// cut shortens text to at most limit characters and marks where it did.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	const mark = "..."
	return strings.TrimSpace(string([]rune(text)[:limit-len(mark)])) + mark
}

// WithCacheKey adds the key by which the vendor finds the prefix it has cached, where the
// server knows of such keys and the parameters don't set one.
func (a Address) WithCacheKey(body wire.Object, conversation string, parameters wire.Object) wire.Object {
	const name = "prompt_cache_key"
	// Strict servers refuse members that they don't know; so do the dated versions of
	// Azure's API, most of which are older than this one.
	if conversation == "" || !a.vendors || dated.MatchString(a.apiVersion) || parameters.Has(name) {
		return body
	}
	if len(conversation) > maxCacheKey {
		sum := sha256.Sum256([]byte(conversation))
		conversation = hex.EncodeToString(sum[:])
	}
	return append(body, wire.M(name, wire.Quote(conversation)))
}

// ReasoningFamily reports whether a model of this name belongs to the families that reason
// before they answer. A vendor prefix ("openai/gpt-5") and the mark of a fine-tuned model
// do not count.
func ReasoningFamily(name string) bool {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	return reasoningFamily.MatchString(name)
}

// reasoningFamily matches o1 and later, and gpt-5 and later; gpt-35 is an older model's
// name on a platform that allows no dots.
var reasoningFamily = regexp.MustCompile(`^(o[1-9]([-:@]|$)|gpt-([5-9]|1[0-9])([^0-9]|$))`)
