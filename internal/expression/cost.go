package expression

import (
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	// maxEstimate refuses expressions when they are accepted. It is far above the
	// limits at run time: the estimate takes every loop and every branch.
	maxEstimate = 10_000_000
	// maxWalk is where measuring a value stops: more than any evaluation may cost.
	maxWalk = resultsCost + 1

	// Sizes that an estimate assumes of inputs, which are not known before a run.
	assumedText  = 256
	assumedItems = 100

	// bytesPerUnit is CEL's own measure: a text is traversed at a tenth of a unit
	// per character.
	bytesPerUnit = 10
)

// assumedSizes implements checker.CostEstimator.
type assumedSizes struct{}

// EstimateSize implements checker.CostEstimator.
func (assumedSizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	size := checker.SizeEstimate{Min: 0, Max: assumedItems}
	switch element.Type().Kind() {
	case types.StringKind, types.BytesKind:
		size.Max = assumedText
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.NullTypeKind:
		size.Max = 1
	default:
		// Everything else may have as many parts as a list.
	}
	return &size
}

// EstimateCallCost implements checker.CostEstimator.
func (assumedSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// checkEstimate refuses an expression that would cost too much on ordinary inputs.
func checkEstimate(env *cel.Env, checked *cel.Ast) error {
	estimate, err := env.EstimateCost(checked, assumedSizes{})
	if err != nil {
		return whole("the cost of the expression can't be estimated: %v", err)
	}
	if estimate.Max > maxEstimate {
		return whole("the expression may cost too much to evaluate: use fewer nested loops, or compare shorter values")
	}
	return nil
}

// measures say what an operation costs, from operands that are known. Some walk whole
// values, which may be made of the same part many times over, and some give a result
// that is far larger than their operands. What is not listed here costs 1.
var measures = map[string]func(args []ref.Val) uint64{
	operators.Equals:        wholeValues,
	operators.NotEquals:     wholeValues,
	operators.In:            contained,
	operators.Add:           texts,
	operators.Less:          texts,
	operators.LessEquals:    texts,
	operators.Greater:       texts,
	operators.GreaterEquals: texts,
	overloads.Size:          texts,
	overloads.Contains:      texts,
	overloads.StartsWith:    texts,
	overloads.EndsWith:      texts,

	overloads.TypeConvertBytes:     texts,
	overloads.TypeConvertDouble:    texts,
	overloads.TypeConvertDuration:  texts,
	overloads.TypeConvertInt:       texts,
	overloads.TypeConvertString:    texts,
	overloads.TypeConvertTimestamp: texts,
	overloads.TypeConvertUint:      texts,

	"charAt":          texts,
	"format":          wholeValues,
	"indexOf":         searched,
	"join":            joined,
	"lastIndexOf":     searched,
	"lowerAscii":      texts,
	"replace":         replaced,
	"reverse":         texts,
	"split":           texts,
	"strings.quote":   texts,
	"optional.unwrap": wholeValues,
	"unwrapOpt":       wholeValues,
	"substring":       texts,
	"trim":            texts,
	"upperAscii":      texts,
}

func texts(args []ref.Val) uint64 {
	length := uint64(0)
	for _, arg := range args {
		length += textLength(arg)
	}
	return length / bytesPerUnit
}

func wholeValues(args []ref.Val) uint64 {
	w := walk{left: maxWalk}
	for _, arg := range args {
		w.value(arg)
	}
	return maxWalk - w.left
}

func contained(args []ref.Val) uint64 {
	if _, ok := args[1].(traits.Mapper); ok {
		return textLength(args[0]) / bytesPerUnit
	}
	return wholeValues(args)
}

func joined(args []ref.Val) uint64 {
	cost := wholeValues(args)
	if list, ok := args[0].(traits.Sizer); ok && len(args) == 2 {
		if size, ok := list.Size().(types.Int); ok {
			cost = add(cost, multiply(uint64(size), textLength(args[1])/bytesPerUnit))
		}
	}
	return cost
}

func replaced(args []ref.Val) uint64 {
	if len(args) < 3 {
		return 0
	}
	length, old, replacement := textLength(args[0]), textLength(args[1]), textLength(args[2])
	times := length + 1
	if old > 0 {
		times = length / old
	}
	if len(args) == 4 {
		if n, ok := args[3].(types.Int); ok && n >= 0 {
			times = min(times, uint64(n))
		}
	}
	return add(length, multiply(times, replacement)) / bytesPerUnit
}

func searched(args []ref.Val) uint64 {
	if len(args) < 2 {
		return 0
	}
	return multiply(textLength(args[0]), 1+textLength(args[1])) / bytesPerUnit
}

func textLength(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 0
}

// walk measures values part by part and stops where nothing is left.
type walk struct{ left uint64 }

func (w *walk) spend(cost uint64) bool {
	if cost >= w.left {
		w.left = 0
		return false
	}
	w.left -= cost
	return true
}

func (w *walk) value(v ref.Val) {
	if !w.spend(1 + textLength(v)/bytesPerUnit) {
		return
	}
	switch v := v.(type) {
	case *types.Optional:
		if v.HasValue() {
			w.value(v.GetValue())
		}
	case traits.Mapper:
		for it := v.Iterator(); w.fits(v) && it.HasNext() == types.True; {
			key := it.Next()
			w.value(key)
			w.value(v.Get(key))
		}
	case traits.Lister:
		for it := v.Iterator(); w.fits(v) && it.HasNext() == types.True; {
			w.value(it.Next())
		}
	}
}

// fits spares the way through a container that is too large by its size alone.
func (w *walk) fits(container traits.Sizer) bool {
	size, ok := container.Size().(types.Int)
	if !ok || uint64(size) > maxWalk {
		w.left = 0
	}
	return w.left > 0
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func multiply(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}
