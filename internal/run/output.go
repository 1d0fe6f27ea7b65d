package run

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// checkOutput says what is wrong with an answer, for the model; empty when it satisfies
// spec.output.
func checkOutput(output *journal.Output, text string) string {
	if output == nil {
		return ""
	}
	var answer any = text
	if len(output.Schema) > 0 {
		parsed, err := strictjson.Parse([]byte(Unfence(text)), strictjson.Limits{})
		if err != nil {
			return fmt.Sprintf("The answer must be one JSON value and nothing else: %v", err)
		}
		schema, err := jsonschema.Compile(output.Schema)
		if err != nil {
			return fmt.Sprintf("The answer can't be checked: %v", err)
		}
		if err := schema.Validate(parsed); err != nil {
			return fmt.Sprintf("The answer does not fit the required schema: %v", err)
		}
		answer = parsed
	}
	return checkValidations(output.Validations, answer)
}

func checkValidations(validations []journal.Validation, answer any) string {
	value, err := expression.FromJSON(answer)
	if err != nil {
		return fmt.Sprintf("The answer can't be checked: %v", err)
	}
	var problems []string
	for _, validation := range validations {
		program, err := expression.CompileValidation(validation.Expression)
		if err != nil {
			return fmt.Sprintf("The answer can't be checked: %v", err)
		}
		// An expression that fails on an answer has not approved it.
		if ok, err := program.EvalBool(map[string]any{"answer": value}); err != nil || !ok {
			problems = append(problems, validation.Message)
		}
	}
	if len(problems) == 0 {
		return ""
	}
	return "The answer is not accepted: " + strings.Join(problems, "; ")
}

// Unfence takes the content of an answer that is one fenced code block.
func Unfence(text string) string {
	trimmed := strings.TrimSpace(text)
	if !strings.HasPrefix(trimmed, "```") || !strings.HasSuffix(trimmed, "```") {
		return text
	}
	body := strings.TrimSuffix(trimmed, "```")
	_, body, found := strings.Cut(body, "\n")
	if !found || strings.Contains(body, "```") {
		return text
	}
	return body
}

// CheckSpec says what is wrong for good with the expressions and the schema that a run
// is to be started with.
func CheckSpec(started *journal.RunStarted) error {
	var problems []error
	if started.Limits.MaxCost != "" && started.Model.Prices == nil {
		problems = append(problems, fmt.Errorf("spec.limits.maxCost: Model %s has no prices: add spec.prices to it, or remove maxCost", started.Model.Name))
	}
	if started.Progress != nil {
		if _, err := expression.CompileProgress(started.Progress.Expression); err != nil {
			problems = append(problems, fmt.Errorf("spec.progress.expression: %w", err))
		}
	}
	if started.Output == nil {
		return errors.Join(problems...)
	}
	if len(started.Output.Schema) > 0 {
		if _, err := jsonschema.Compile(started.Output.Schema); err != nil {
			problems = append(problems, fmt.Errorf("spec.output.schema: %w", err))
		}
	}
	for i, validation := range started.Output.Validations {
		if _, err := expression.CompileValidation(validation.Expression); err != nil {
			problems = append(problems, fmt.Errorf("spec.output.validations[%d].expression: %w", i, err))
		}
	}
	return errors.Join(problems...)
}
