package expression

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

const (
	// maxProblemBytes bounds the text of one problem.
	maxProblemBytes = 240
	// maxProblems bounds the problems of one expression.
	maxProblems = 8
)

// Problem is one thing that is wrong with an expression.
type Problem struct {
	// Line and Column say where, both from 1; 0 when the whole expression is meant.
	Line, Column int
	// Text says what is wrong and what to change.
	Text string
}

// Error implements error.
func (p *Problem) Error() string {
	switch p.Line {
	case 0:
		return p.Text
	case 1:
		return fmt.Sprintf("column %d: %s", p.Column, p.Text)
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Text)
}

// Problems are all that is wrong with an expression; at least one, in the order of
// their places. It is the type of every error of a Compile function.
type Problems []*Problem

// Error implements error.
func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.Error()
	}
	return strings.Join(texts, "; ")
}

// ProblemsOf lists the problems of a Compile function's error, one by one.
func ProblemsOf(err error) []*Problem {
	var problems Problems
	if errors.As(err, &problems) {
		return problems
	}
	if err == nil {
		return nil
	}
	return []*Problem{{Text: clip(err.Error())}}
}

func whole(format string, args ...any) Problems {
	return Problems{{Text: clip(fmt.Sprintf(format, args...))}}
}

// problemsOf turns CEL's findings into problems. parsed is nil for a syntax error.
func problemsOf(issues *cel.Issues, parsed *cel.Ast, place *place) Problems {
	var problems Problems
	for _, issue := range issues.Errors() {
		if len(problems) == maxProblems {
			break
		}
		problem := &Problem{Text: clip(explain(issue.Message, issue.ExprID, parsed, place))}
		if issue.Location != nil && issue.Location.Line() > 0 {
			problem.Line, problem.Column = issue.Location.Line(), issue.Location.Column()+1
		}
		problems = append(problems, problem)
	}
	return problems
}

// explain adds to CEL's message what to write instead, where that is known.
func explain(message string, id int64, parsed *cel.Ast, place *place) string {
	message = strings.TrimSuffix(message, " (in container '')")
	switch {
	case strings.HasPrefix(message, "undeclared reference"):
		return message + ": use " + place.variableNames()
	case strings.HasPrefix(message, "undefined field"):
		if members := membersAt(parsed, id); members != "" {
			return message + ": the members are " + members
		}
	case strings.HasPrefix(message, "found no matching overload"):
		return message + ": compare and combine values of one type, with double(), int() or string() where needed"
	case strings.HasPrefix(message, "Syntax error"):
		return strings.ToLower(message[:1]) + message[1:]
	}
	return message
}

// membersAt lists what the object of the selection with this id has.
func membersAt(parsed *cel.Ast, id int64) string {
	if parsed == nil {
		return ""
	}
	members := ""
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() != id || e.Kind() != ast.SelectKind {
			return
		}
		members = memberNames(objectNamed(e.AsSelect().Operand()))
	}))
	return members
}

// objectNamed says which declared object an expression reads: every one is reached
// by a name of its own.
func objectNamed(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		return e.AsSelect().FieldName()
	default:
		return ""
	}
}

// clip keeps a text to one line of bounded length.
func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxProblemBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblemBytes], "") + "…"
}
