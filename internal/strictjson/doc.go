// Package strictjson reads JSON so that everybody who looks at the same bytes sees
// the same value: one value, no member twice, no text that readers would repair
// differently, numbers as they were written. It is pure: no I/O, clock or global
// state.
//
// Policy, digest and executor of a tool call all start from what this package
// accepts, so it refuses what other readers only tolerate.
package strictjson

import (
	"errors"
	"math"
)

// ErrTooManyValues is in the error for a document with more values than its limit.
var ErrTooManyValues = errors.New("too many values")

const (
	// DefaultMaxBytes bounds a document where Limits doesn't.
	DefaultMaxBytes = 256 << 10
	// DefaultMaxDepth bounds nesting where Limits doesn't.
	DefaultMaxDepth = 64

	// maxNumberBytes bounds one number's text; the exponent is bounded besides,
	// because exact arithmetic on 1e999999 takes memory in proportion to its value.
	maxNumberBytes = 256
	maxExponent    = 1000
	// maxPlaceBytes bounds the path in an error.
	maxPlaceBytes = 160
)

// Limits bound a document. A field of 0 or less means its default.
type Limits struct {
	// MaxBytes bounds the whole text.
	MaxBytes int
	// MaxDepth bounds the nesting of arrays and objects; a scalar has depth 0.
	MaxDepth int
	// MaxValues bounds the values in it, since small ones take many times their text in
	// memory. No bound by default.
	MaxValues int
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	if l.MaxValues <= 0 {
		l.MaxValues = math.MaxInt
	}
	return l
}
