package policy

import (
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/jsonschema"
)

// Child is a tool whose calls are child runs.
type Child struct {
	// Limits of its template.
	Limits v1alpha1.Limits
	// Problem says what has to be changed before the tool can be used, empty for nothing.
	Problem string
}

// Quarantined is a tool that is declared and that no run gets. One bad tool is no reason
// to do without the others.
type Quarantined struct {
	// Name is the full name.
	Name string
	// Reason says what to change.
	Reason string
}

// Quarantined lists the declared tools that can't be used, in the policy's order.
func (p *Policy) Quarantined() []Quarantined {
	var out []Quarantined
	for _, s := range p.servers {
		for _, t := range definitions(s.spec) {
			if child := s.children[t.Name]; child != nil && child.Problem != "" {
				out = append(out, Quarantined{fullName(s.spec.Name, t.Name), child.Problem})
			}
		}
	}
	return out
}

func compileChildren(spec v1alpha1.ToolServer) map[string]*Child {
	children := map[string]*Child{}
	for _, t := range spec.AgentRun.Tools {
		children[t.Name] = &Child{Limits: t.Template.Limits, Problem: ChildProblem(t)}
	}
	return children
}

// ChildProblem says what is wrong with the prompt and the template of a tool whose calls
// are child runs, empty for nothing.
func ChildProblem(t v1alpha1.AgentRunTool) string {
	var problems []string
	note := func(place string, err error) {
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s", place, strings.Join(strings.Fields(err.Error()), " ")))
		}
	}
	_, err := expression.CompilePrompt(t.Prompt)
	note("prompt", err)
	if progress := t.Template.Progress; progress != nil {
		_, err := expression.CompileProgress(progress.Expression)
		note("template.progress.expression", err)
	}
	if output := t.Template.Output; output != nil {
		if output.Schema != nil {
			_, err := jsonschema.Compile(output.Schema.Raw)
			note("template.output.schema", err)
		}
		for i, validation := range output.Validations {
			_, err := expression.CompileValidation(validation.Expression)
			note(fmt.Sprintf("template.output.validations[%d].expression", i), err)
		}
	}
	return strings.Join(problems, "; ")
}
