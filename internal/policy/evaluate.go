package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/expression"
)

// Input is everything that a verdict depends on besides the policies.
type Input struct {
	// Tool is the full name.
	Tool string
	// Arguments as strictjson reads them. They are not changed.
	Arguments map[string]any
	Call      Call
	Run       Run
}

// Call says which call it is.
type Call struct {
	ID string
	// Position in the batch, from 0.
	Position int
	// BatchSize is the number of calls in the batch.
	BatchSize int
	// Answers are what people answered to the questions that the call's service asked last,
	// by question; nil before it asked.
	Answers map[string]any
}

// Run says for whom the call is made.
type Run struct {
	Namespace, Name string
	Labels          map[string]string
	// CreatedBy is empty where admission does not stamp it.
	CreatedBy string
	// Turn in which the call was proposed, from 1.
	Turn  int
	Usage v1alpha1.Usage
}

// Reason says which way a verdict came about.
type Reason string

// Reasons of a verdict.
const (
	// ReasonRule surfaces when a rule matched.
	ReasonRule Reason = "Rule"
	// ReasonRuleFailed surfaces when the condition of a rule could not be evaluated.
	ReasonRuleFailed Reason = "RuleFailed"
	// ReasonUnknownServer surfaces when no policy declares the tool's server.
	ReasonUnknownServer Reason = "UnknownServer"
	// ReasonUnknownTool surfaces when the server's list of tools lacks the tool.
	ReasonUnknownTool Reason = "UnknownTool"
	// ReasonNoRule surfaces when no rule matched.
	ReasonNoRule Reason = "NoRule"
)

// Verdict is what may be done with a call.
type Verdict struct {
	Action v1alpha1.Action
	Reason Reason
	// Policy that decided, empty for ReasonUnknownServer. PolicyDigest covers it.
	Policy, PolicyDigest string
	// Rule that decided, empty where none matched. RuleDigest covers it.
	Rule, RuleDigest string
	// Approval says how to ask, for ActionAsk.
	Approval Approval
	// OnDeny says what follows, for ActionDeny.
	OnDeny v1alpha1.Consequence
	// Message says why, for the model, and where the call was refused what to
	// change. It never holds anything of the call.
	Message string
}

// Approval says how a call is put before people, all defaults resolved.
type Approval struct {
	// TimeoutSeconds is how long people have. Default 86400.
	TimeoutSeconds int32
	// OnTimeout says what follows when nobody answered in time. Default End.
	OnTimeout v1alpha1.Consequence
	// OnDeny says what follows a denial. Default ReturnToModel.
	OnDeny v1alpha1.Consequence
	// Message is shown to the approver.
	Message string
}

// evaluation is one call on its way through the checks.
type evaluation struct {
	Input
	properties Properties
	owner      *Policy
	// vars of expressions, made when the first condition needs them.
	vars map[string]any
}

// checks in the order in which they are asked. nil means that a check has nothing to
// say.
var checks = []func(e *evaluation) *Verdict{
	serverDeclared,
	toolDeclared,
	ruleDecides,
}

// Evaluate gives the verdict on one call.
func (s *Set) Evaluate(in Input) Verdict {
	e := &evaluation{Input: in, owner: s.owner(in.Tool), properties: s.entryOf(in.Tool).resolved}
	for _, check := range checks {
		if verdict := check(e); verdict != nil {
			return *verdict
		}
	}
	return *e.deny(ReasonNoRule, fmt.Sprintf(
		"no rule of policy %q allows this call: use another tool, or other arguments, or do without it", e.owner.name))
}

func serverDeclared(e *evaluation) *Verdict {
	if e.owner != nil {
		return nil
	}
	return e.deny(ReasonUnknownServer, "no tool of this name exists for this run: use one of the tools that are offered")
}

func toolDeclared(e *evaluation) *Verdict {
	name, _, _ := strings.Cut(e.Tool, ".")
	if s := e.owner.server(name); !s.listed || s.tools[e.Tool] {
		return nil
	}
	return e.deny(ReasonUnknownTool, "no tool of this name exists for this run: use one of the tools that are offered")
}

func ruleDecides(e *evaluation) *Verdict {
	for i := range e.owner.rules {
		r := &e.owner.rules[i]
		if !matchesAny(r.globs, e.Tool) {
			continue
		}
		holds, err := e.holds(r)
		if err != nil {
			verdict := e.deny(ReasonRuleFailed, fmt.Sprintf("rule %q of policy %q can't judge this call: %s",
				r.name, e.owner.name, explain(err)))
			verdict.Rule, verdict.RuleDigest = r.name, r.digest
			return verdict
		}
		if holds {
			return e.decide(r)
		}
	}
	return nil
}

// holds evaluates the condition of a rule.
func (e *evaluation) holds(r *rule) (bool, error) {
	if r.when == nil {
		return true, nil
	}
	if e.vars == nil {
		vars, err := e.variables()
		if err != nil {
			return false, err
		}
		e.vars = vars
	}
	return r.when.EvalBool(e.vars)
}

// variables are those that package expression documents for a rule's condition.
func (e *evaluation) variables() (map[string]any, error) {
	args, err := expression.FromJSON(e.Arguments)
	if err != nil {
		return nil, err
	}
	answers, err := expression.FromJSON(e.Call.Answers)
	if err != nil {
		return nil, err
	}
	server, _, _ := strings.Cut(e.Tool, ".")
	return map[string]any{
		"args": args,
		"tool": map[string]any{"name": e.Tool, "server": server, "effect": string(e.properties.Effect)},
		"call": map[string]any{
			"id":        e.Call.ID,
			"position":  int64(e.Call.Position),
			"batchSize": int64(e.Call.BatchSize),
			"answers":   answers,
		},
		"run": map[string]any{
			"namespace": e.Run.Namespace,
			"name":      e.Run.Name,
			"labels":    e.Run.Labels,
			"createdBy": e.Run.CreatedBy,
			"turn":      int64(e.Run.Turn),
			"usage": map[string]any{
				"totalTokens":  e.Run.Usage.TotalTokens,
				"inputTokens":  e.Run.Usage.InputTokens,
				"outputTokens": e.Run.Usage.OutputTokens,
			},
		},
	}, nil
}

// explain says what to change in a call that a condition can't be evaluated on. What
// the model reads must not tell it how to write rules.
func explain(err error) string {
	switch {
	case errors.Is(err, expression.ErrMissing):
		return "something it looks at is missing; give all arguments that matter for the call"
	case errors.Is(err, expression.ErrNumber):
		return "a number is too large; give a smaller one"
	case errors.Is(err, expression.ErrCost):
		return "the arguments are too large or too deep; make them smaller"
	case errors.Is(err, expression.ErrType):
		return "something it looks at has an unexpected type; give the arguments as the tool describes them"
	}
	return "a value it looks at can't be handled; give the arguments as the tool describes them"
}

func (e *evaluation) deny(reason Reason, message string) *Verdict {
	verdict := &Verdict{
		Action:  v1alpha1.ActionDeny,
		Reason:  reason,
		OnDeny:  v1alpha1.ConsequenceReturnToModel,
		Message: message,
	}
	if e.owner != nil {
		verdict.Policy, verdict.PolicyDigest = e.owner.name, e.owner.digest
	}
	return verdict
}

func (e *evaluation) decide(r *rule) *Verdict {
	verdict := &Verdict{
		Action:       r.action,
		Reason:       ReasonRule,
		Policy:       e.owner.name,
		PolicyDigest: e.owner.digest,
		Rule:         r.name,
		RuleDigest:   r.digest,
	}
	switch r.action {
	case v1alpha1.ActionAllow:
		verdict.Message = fmt.Sprintf("rule %q of policy %q allows this call", r.name, e.owner.name)
	case v1alpha1.ActionAsk:
		verdict.Approval = r.approval
		verdict.Message = fmt.Sprintf("rule %q of policy %q lets a person decide on this call", r.name, e.owner.name)
	default:
		verdict.Action, verdict.OnDeny = v1alpha1.ActionDeny, r.onDeny
		verdict.Message = fmt.Sprintf("rule %q of policy %q denies this call: %s", r.name, e.owner.name, r.advice())
	}
	return verdict
}

// advice says what may help after a denial.
func (r *rule) advice() string {
	if r.when == nil {
		return "use another tool, or do without it"
	}
	return "use other arguments or another tool, or do without it"
}
