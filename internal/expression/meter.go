package expression

import (
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// evaluation is the outermost scope of one evaluation: its variables, and what it
// may still cost.
//
// CEL's own cost tracker is not used: it charges an operation after it ran, knows no
// price for operands whose type shows only at run time, and takes time in proportion
// to the square of a loop's length.
type evaluation struct {
	vars map[string]any
	left uint64
}

// ResolveName implements interpreter.Activation.
func (e *evaluation) ResolveName(name string) (any, bool) {
	value, ok := e.vars[name]
	return value, ok
}

// Parent implements interpreter.Activation.
func (e *evaluation) Parent() interpreter.Activation { return nil }

// charge ends the evaluation when it can't pay. An error value would not do: an
// operator or a loop around it may swallow it and go on.
func charge(scope interpreter.Activation, cost uint64) {
	for {
		parent := scope.Parent()
		if parent == nil {
			break
		}
		scope = parent
	}
	e, ok := scope.(*evaluation)
	if !ok || cost > e.left {
		panic(interpreter.EvalCancelledError{Message: ErrCost.Error(), Cause: interpreter.CostLimitExceeded})
	}
	e.left -= cost
}

// metered charges for a step before it runs.
type metered struct{ interpreter.InterpretableV2 }

// Eval implements interpreter.Interpretable.
func (m *metered) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (m *metered) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	charge(frame.Activation, 1)
	return m.InterpretableV2.Exec(frame)
}

// meteredAttribute is metered for a step that later steps add members to.
type meteredAttribute struct {
	interpreter.InterpretableAttribute
}

// Eval implements interpreter.Interpretable.
func (m *meteredAttribute) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (m *meteredAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	charge(frame.Activation, 1)
	return m.InterpretableAttribute.Exec(frame)
}

// meteredCall charges for an operation by what its operands are.
type meteredCall struct {
	interpreter.InterpretableCall
	measure func(args []ref.Val) uint64
	apply   func(args ...ref.Val) ref.Val
}

// Eval implements interpreter.Interpretable.
func (m *meteredCall) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (m *meteredCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	steps := m.Args()
	args := make([]ref.Val, len(steps))
	for i, step := range steps {
		args[i] = step.Exec(frame)
		if types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	charge(frame.Activation, add(1, m.measure(args)))
	return m.apply(args...)
}

// meter decorates every step of a plan.
func meter(env *cel.Env) interpreter.InterpretableDecoratorV2 {
	return func(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		switch s := step.(type) {
		case interpreter.InterpretableConst:
			return s, nil
		case interpreter.InterpretableAttribute:
			return &meteredAttribute{s}, nil
		case interpreter.InterpretableCall:
			if s.Function() == overloads.Matches {
				return matches(s)
			}
			if measure, ok := measures[s.Function()]; ok {
				apply, err := implementation(env, s)
				return &meteredCall{InterpretableCall: s, measure: measure, apply: apply}, err
			}
		}
		return &metered{step}, nil
	}
}

// implementation finds what a measured operation does with operands of any type.
func implementation(env *cel.Env, call interpreter.InterpretableCall) (func(args ...ref.Val) ref.Val, error) {
	switch call.Function() {
	case operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	case operators.In:
		return contains, nil
	}
	bindings, err := env.Functions()[call.Function()].Bindings()
	if err != nil {
		return nil, err
	}
	return dispatch(call.Function(), bindings), nil
}

func contains(args ...ref.Val) ref.Val {
	if container, ok := args[1].(traits.Container); ok {
		return container.Contains(args[0])
	}
	return types.MaybeNoSuchOverloadErr(args[1])
}

// matches compiles the pattern once; plainParts made sure that it is a literal of
// bounded size. Each character may have to be tried in every state of the pattern.
func matches(call interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	var pattern types.String
	if args := call.Args(); len(args) == 2 {
		if literal, ok := args[1].(interpreter.InterpretableConst); ok {
			pattern, _ = literal.Value().(types.String)
		}
	}
	states, err := patternSize(string(pattern))
	if err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(string(pattern))
	if err != nil {
		return nil, err
	}
	return &meteredCall{
		InterpretableCall: call,
		measure: func(args []ref.Val) uint64 {
			return multiply(textLength(args[0]), states) / bytesPerUnit
		},
		apply: func(args ...ref.Val) ref.Val {
			if text, ok := args[0].(types.String); ok {
				return types.Bool(compiled.MatchString(string(text)))
			}
			return types.MaybeNoSuchOverloadErr(args[0])
		},
	}, nil
}

// dispatch calls the binding that chooses the overload by the operands' types.
func dispatch(function string, bindings []*functions.Overload) func(args ...ref.Val) ref.Val {
	var chosen *functions.Overload
	for _, binding := range bindings {
		if binding.Operator == function {
			chosen = binding
		}
	}
	return func(args ...ref.Val) ref.Val {
		switch {
		case chosen == nil:
		case len(args) == 1 && chosen.Unary != nil:
			return chosen.Unary(args[0])
		case len(args) == 2 && chosen.Binary != nil:
			return chosen.Binary(args[0], args[1])
		case chosen.Function != nil:
			return chosen.Function(args...)
		}
		return types.MaybeNoSuchOverloadErr(args[0])
	}
}
