package expression

import (
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

const (
	// argumentsCost bounds expressions that look at one call or one answer.
	argumentsCost = 500_000
	// resultsCost bounds expressions that look at the outputs of a whole batch.
	resultsCost = 2_000_000

	maxExpressionRunes = 4096
	maxNodes           = 10_000
	maxNesting         = 64
	// maxPatternSize bounds the compiled form of a regular expression.
	maxPatternSize = 1000
)

// place is where an expression stands: what it may read, what it must give and what
// it may cost.
type place struct {
	variables []variable
	// gives is the kind of value that it must give, types.DynKind for any JSON value.
	gives     types.Kind
	costLimit uint64
	env       func() *cel.Env
}

type variable struct {
	name string
	t    *cel.Type
}

var (
	argsVariable    = variable{"args", cel.MapType(cel.StringType, cel.DynType)}
	resultsVariable = variable{"results", cel.ListType(cel.DynType)}

	whenPlace = newPlace(argumentsCost, types.BoolKind, argsVariable,
		variable{"tool", cel.ObjectType("tool")},
		variable{"call", cel.ObjectType("call")},
		variable{"run", cel.ObjectType("run")})
	conflictKeyPlace = newPlace(argumentsCost, types.DynKind, argsVariable)
	promptPlace      = newPlace(argumentsCost, types.StringKind, argsVariable)
	progressPlace    = newPlace(resultsCost, types.DynKind, resultsVariable)
	validationPlace  = newPlace(argumentsCost, types.BoolKind, variable{"answer", cel.DynType})
	finalPlace       = newPlace(resultsCost, types.DynKind, resultsVariable)
)

func newPlace(costLimit uint64, gives types.Kind, variables ...variable) *place {
	p := &place{variables: variables, gives: gives, costLimit: costLimit}
	p.env = sync.OnceValue(p.build)
	return p
}

func (p *place) variableNames() string {
	names := make([]string, len(p.variables))
	for i, v := range p.variables {
		names[i] = v.name
	}
	return strings.Join(names, ", ")
}

// build can only fail for a mistake in this package, which any test finds.
func (p *place) build() *cel.Env {
	registry, err := types.NewRegistry()
	if err != nil {
		panic("building the CEL type registry: " + err.Error())
	}
	options := []cel.EnvOption{
		cel.CustomTypeAdapter(registry),
		cel.CustomTypeProvider(registry),
		cel.StdLib(cel.StdLibSubset(withoutTimeZones())),
		cel.OptionalTypes(),
		ext.Strings(ext.StringsVersion(5)),
		// OptionalTypes adds to the registry, so it has to come before its wrapper.
		cel.CustomTypeProvider(p.provider(registry)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(maxExpressionRunes),
		cel.ParserRecursionLimit(maxNesting),
		cel.ExpressionNodeLimit(maxNodes),
		cel.ASTValidators(cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals(), plainParts{}),
	}
	for _, v := range p.variables {
		options = append(options, cel.Variable(v.name, v.t))
	}
	built, err := cel.NewCustomEnv(options...)
	if err != nil {
		panic("building the CEL environment: " + err.Error())
	}
	return built
}

// provider adds the declared objects where a variable has such a type.
func (p *place) provider(registry *types.Registry) types.Provider {
	for _, v := range p.variables {
		if v.t.Kind() == types.StructKind {
			return provider{registry}
		}
	}
	return registry
}

// withoutTimeZones leaves out what reads the time zone database of the machine.
func withoutTimeZones() *env.LibrarySubset {
	zoned := map[string]string{
		"getFullYear":     "timestamp_to_year_with_tz",
		"getMonth":        "timestamp_to_month_with_tz",
		"getDayOfYear":    "timestamp_to_day_of_year_with_tz",
		"getDayOfMonth":   "timestamp_to_day_of_month_with_tz",
		"getDate":         "timestamp_to_day_of_month_1_based_with_tz",
		"getDayOfWeek":    "timestamp_to_day_of_week_with_tz",
		"getHours":        "timestamp_to_hours_with_tz",
		"getMinutes":      "timestamp_to_minutes_with_tz",
		"getSeconds":      "timestamp_to_seconds_tz",
		"getMilliseconds": "timestamp_to_milliseconds_with_tz",
	}
	subset := env.NewLibrarySubset()
	for name, overload := range zoned {
		subset.AddExcludedFunctions(env.NewFunction(name, &env.Overload{ID: overload}))
	}
	return subset
}

// plainParts refuses what the type checker would let pass.
type plainParts struct{}

// Name implements cel.ASTValidator.
func (plainParts) Name() string { return "pawl.plain_parts" }

// Validate implements cel.ASTValidator.
func (plainParts) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.StructKind:
			issues.ReportErrorAtID(e.ID(), "objects of named types can't be made here: use a map, {\"name\": value}")
		case ast.CallKind:
			if call := e.AsCall(); call.FunctionName() == overloads.Matches && len(call.Args()) > 0 {
				pattern := call.Args()[len(call.Args())-1]
				if problem := checkPattern(pattern); problem != "" {
					issues.ReportErrorAtID(pattern.ID(), "%s", problem)
				}
			}
		default:
		}
	}))
}

// checkPattern says what is wrong with the pattern of matches. Compiling a pattern
// may take far more memory than its text suggests, so it has to be looked at before
// anything is at stake.
func checkPattern(e ast.Expr) string {
	if e.Kind() != ast.LiteralKind {
		return "the pattern of matches must be a literal: write it as a string"
	}
	pattern, ok := e.AsLiteral().(types.String)
	if !ok {
		return "" // the type checker refuses it
	}
	size, err := patternSize(string(pattern))
	switch {
	case err != nil:
		return "the pattern of matches is not a regular expression: " + err.Error()
	case size > maxPatternSize:
		return "the pattern of matches is too large: use smaller repetitions"
	}
	return ""
}

// patternSize counts the states of a compiled pattern.
func patternSize(pattern string) (uint64, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return uint64(len(program.Inst)), nil
}
