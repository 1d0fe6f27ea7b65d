package expression

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
)

// Program is a compiled expression. It may be used by several goroutines at a time.
type Program struct {
	program   cel.Program
	costLimit uint64
}

// CompileWhen compiles a rule's condition: args, tool, call and run, giving true or
// false.
func CompileWhen(expression string) (*Program, error) { return whenPlace.compile(expression) }

// CompileConflictKey compiles a conflict key: args, giving any JSON value.
func CompileConflictKey(expression string) (*Program, error) {
	return conflictKeyPlace.compile(expression)
}

// CompilePrompt compiles the prompt of a child run: args, giving a string.
func CompilePrompt(expression string) (*Program, error) { return promptPlace.compile(expression) }

// CompileProgress compiles a progress measure: results, giving any JSON value.
func CompileProgress(expression string) (*Program, error) { return progressPlace.compile(expression) }

// CompileValidation compiles a validation of the answer: answer, giving true or false.
func CompileValidation(expression string) (*Program, error) {
	return validationPlace.compile(expression)
}

// CompileFinal compiles the answer of a scripted model: results, giving any JSON value.
func CompileFinal(expression string) (*Program, error) { return finalPlace.compile(expression) }

// wanted says in words what an expression must give.
var wanted = map[types.Kind]string{types.BoolKind: "true or false", types.StringKind: "a string"}

// compile guards against panics: the libraries below it meet texts here that anyone
// may write, and one of them must not take the operator down.
func (p *place) compile(text string) (program *Program, err error) {
	defer func() {
		if recover() != nil {
			program, err = nil, whole("the expression can't be compiled: write it in another way")
		}
	}()
	return p.compileUnguarded(text)
}

func (p *place) compileUnguarded(text string) (*Program, error) {
	if utf8.RuneCountInString(text) > maxExpressionRunes {
		return nil, whole("the expression is longer than %d characters: shorten it", maxExpressionRunes)
	}
	env := p.env()
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, problemsOf(issues, nil, p)
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, problemsOf(issues, parsed, p)
	}
	if kind := checked.OutputType().Kind(); p.gives != types.DynKind && kind != p.gives && kind != types.DynKind {
		return nil, whole("the expression gives %s: it must give %s", cel.FormatCELType(checked.OutputType()), wanted[p.gives])
	}
	if err := checkEstimate(env, checked); err != nil {
		return nil, err
	}
	program, err := env.Program(checked, cel.CustomDecoratorV2(meter(env)))
	if err != nil {
		return nil, whole("the expression can't be prepared: %v", err)
	}
	return &Program{program: program, costLimit: p.costLimit}, nil
}

// Eval gives the expression's value for vars, whose values may be anything FromJSON
// takes: nil, bool, string, int64 (uint64 for larger integers), float64, []any and
// map[string]any, as deep as it goes. The error says what kind of thing went wrong
// and never holds anything of vars.
func (p *Program) Eval(vars map[string]any) (any, error) {
	input := make(map[string]any, len(vars))
	for name, value := range vars {
		converted, err := FromJSON(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		input[name] = converted
	}
	value, _, err := p.program.Eval(&evaluation{vars: input, left: p.costLimit})
	if err != nil {
		return nil, withoutContent(err)
	}
	return toJSON(value)
}

// EvalBool is Eval for expressions that have to give true or false.
func (p *Program) EvalBool(vars map[string]any) (bool, error) {
	value, err := p.Eval(vars)
	if err != nil {
		return false, err
	}
	truth, ok := value.(bool)
	if !ok {
		return false, errNotBool
	}
	return truth, nil
}

// EvalText is Eval for expressions that have to give a string.
func (p *Program) EvalText(vars map[string]any) (string, error) {
	value, err := p.Eval(vars)
	if err != nil {
		return "", err
	}
	text, ok := value.(string)
	if !ok {
		return "", errNotText
	}
	return text, nil
}

// Errors of an evaluation. The set is closed, because CEL's own texts quote what
// the expression was evaluated on.
var (
	// ErrMissing means that the expression reads something that is not there.
	ErrMissing = errors.New("it reads a member that is missing: guard it with has() or .?")
	// ErrType means that a value has another type than the expression expects.
	ErrType = errors.New("a value has another type than the expression expects")
	// ErrCost means that the evaluation went over its cost limit.
	ErrCost = errors.New("it costs too much to evaluate on values of this size")
	// ErrFailed stands for every other failure of a function or operator.
	ErrFailed = errors.New("a function or operator can't handle its operands")

	errNotBool = fmt.Errorf("%w: it must give true or false", ErrType)
	errNotText = fmt.Errorf("%w: it must give a string", ErrType)
)

func withoutContent(err error) error {
	var cancelled interpreter.EvalCancelledError
	text := err.Error()
	switch {
	case errors.As(err, &cancelled):
		return ErrCost
	case strings.Contains(text, "no such key"), strings.Contains(text, "no such attribute"),
		strings.Contains(text, "index out of bounds"):
		return ErrMissing
	case strings.Contains(text, "no such overload"):
		return ErrType
	}
	return ErrFailed
}
