package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/redaction"
)

const (
	defaultApprovalSeconds = 86400

	// maxFullName is what status.tools holds.
	maxFullName = 200
)

// Problem is one thing that has to be changed in a policy.
type Problem struct {
	// Place says where, as in `rules[2] "small-refunds": when`.
	Place string
	// Text says what is wrong and what to change.
	Text string
}

// String is place and text.
func (p Problem) String() string { return p.Place + ": " + p.Text }

// Compile looks at a whole policy and lists all its problems in the order of their
// places. With any problem there is no policy: a rule that is left out would let
// later ones decide.
func Compile(name string, spec v1alpha1.ToolPolicySpec) (*Policy, []Problem) {
	c := &compiler{spec: *spec.DeepCopy(), policy: &Policy{name: name}}
	c.servers()
	c.properties()
	c.rules()
	digest, err := digestOf(c.spec)
	if err != nil && len(c.problems) == 0 {
		c.report("spec", "%v", err)
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	c.policy.digest = digest
	return c.policy, nil
}

type compiler struct {
	spec     v1alpha1.ToolPolicySpec
	policy   *Policy
	problems []Problem
}

func (c *compiler) report(place, format string, args ...any) {
	c.problems = append(c.problems, Problem{Place: place, Text: fmt.Sprintf(format, args...)})
}

func (c *compiler) servers() {
	if len(c.spec.Servers) == 0 {
		c.report("servers", "a policy without servers has no tools: declare one")
	}
	seen := map[string]bool{}
	for i, spec := range c.spec.Servers {
		place := fmt.Sprintf("servers[%d] %q", i, spec.Name)
		if spec.Name == "" || strings.ContainsAny(spec.Name, ".*") {
			c.report(place, "the name must be one or more letters, digits and dashes: a dot separates it from the tool's name")
		}
		if seen[spec.Name] {
			c.report(place, "another server has the same name: rename one of them")
		}
		seen[spec.Name] = true
		c.policy.servers = append(c.policy.servers, c.server(place, spec))
	}
}

func (c *compiler) server(place string, spec v1alpha1.ToolServer) server {
	s := server{spec: spec}
	switch {
	case kinds(spec) != 1:
		c.report(place, "set exactly one of mcp, http, job and agentRun")
	case spec.MCP != nil:
		c.headers(place+": mcp", spec.MCP.HeadersFrom)
	case spec.HTTP != nil:
		c.headers(place+": http", spec.HTTP.HeadersFrom)
		s.listed, s.tools = true, c.declared(place+": http", spec)
	case spec.Job != nil:
		s.listed, s.tools = true, c.declared(place+": job", spec)
	default:
		s.listed, s.tools = true, c.declared(place+": agentRun", spec)
		s.children = compileChildren(spec)
	}
	return s
}

// kinds counts what a server says it is.
func kinds(spec v1alpha1.ToolServer) int {
	n := 0
	for _, set := range []bool{spec.MCP != nil, spec.HTTP != nil, spec.Job != nil, spec.AgentRun != nil} {
		if set {
			n++
		}
	}
	return n
}

// headers finds names that differ only in their case, which the schema takes for
// different ones and HTTP does not.
func (c *compiler) headers(place string, headers []v1alpha1.HeaderFromSecret) {
	seen := map[string]bool{}
	for i, h := range headers {
		name := strings.ToLower(h.Name)
		if seen[name] {
			c.report(fmt.Sprintf("%s.headersFrom[%d] %q", place, i, h.Name), "another entry sets the same header: remove one of them")
		}
		seen[name] = true
	}
}

// declared checks the tools that a server's declaration defines.
func (c *compiler) declared(place string, spec v1alpha1.ToolServer) map[string]bool {
	tools := map[string]bool{}
	for i, tool := range definitions(spec) {
		place := fmt.Sprintf("%s.tools[%d] %q", place, i, tool.Name)
		name := fullName(spec.Name, tool.Name)
		switch {
		case tools[name]:
			c.report(place, "another tool of this server has the same name: rename one of them")
		case len(name) > maxFullName:
			c.report(place, "the full name is longer than %d characters: shorten it", maxFullName)
		}
		tools[name] = true
		if _, err := jsonschema.CompileObject(tool.InputSchema); err != nil {
			c.report(place+": inputSchema", "%v", err)
		}
	}
	return tools
}

func (c *compiler) properties() {
	for i, spec := range c.spec.Tools {
		place := fmt.Sprintf("tools[%d]", i)
		e := entry{
			globs:    c.globs(place, spec.Match),
			resolved: resolve(entryName(c.policy.name, i), spec),
		}
		if spec.ConflictKey != "" {
			e.conflictKey = c.expression(place+": conflictKey", spec.ConflictKey, expression.CompileConflictKey)
		}
		if spec.MaxAttempts > 1 && e.resolved.Effect == v1alpha1.EffectNonIdempotent {
			c.report(place+": maxAttempts", "a NonIdempotent call is sent at most once: remove maxAttempts or set another effect")
		}
		if spec.IdempotencyKeyLifetimeSeconds != 0 && e.resolved.Effect != v1alpha1.EffectIdempotent {
			c.report(place+": idempotencyKeyLifetimeSeconds", "only effect Idempotent has keys: remove it or set another effect")
		}
		for j, path := range spec.Redact {
			if err := redaction.Check(path); err != nil {
				c.report(fmt.Sprintf("%s: redact[%d] %q", place, j, path), "%v", err)
			}
		}
		c.policy.properties = append(c.policy.properties, e)
	}
}

func (c *compiler) rules() {
	seen := map[string]bool{}
	for i, spec := range c.spec.Rules {
		place := fmt.Sprintf("rules[%d] %q", i, spec.Name)
		if spec.Name == "" || seen[spec.Name] {
			c.report(place, "each rule needs a name of its own: rename it")
		}
		seen[spec.Name] = true
		c.policy.rules = append(c.policy.rules, c.rule(place, spec))
	}
}

func (c *compiler) rule(place string, spec v1alpha1.ToolRule) rule {
	r := rule{
		name:     spec.Name,
		globs:    c.globs(place, spec.Match),
		action:   spec.Action,
		onDeny:   cmp.Or(spec.OnDeny, v1alpha1.ConsequenceReturnToModel),
		approval: approvalOf(spec.Approval),
	}
	if spec.When != "" {
		r.when = c.expression(place+": when", spec.When, expression.CompileWhen)
	}
	actions := []v1alpha1.Action{v1alpha1.ActionAllow, v1alpha1.ActionAsk, v1alpha1.ActionDeny}
	if !slices.Contains(actions, spec.Action) {
		c.report(place+": action", "set one of Allow, Ask and Deny")
	}
	if spec.Approval != nil && spec.Action != v1alpha1.ActionAsk {
		c.report(place+": approval", "it belongs to action Ask: remove it or change the action")
	}
	if spec.OnDeny != "" && spec.Action != v1alpha1.ActionDeny {
		c.report(place+": onDeny", "it belongs to action Deny: for Ask set approval.onDeny")
	}
	var err error
	if r.digest, err = digestOf(spec); err != nil {
		c.report(place, "%v", err)
	}
	return r
}

func approvalOf(spec *v1alpha1.Approval) Approval {
	if spec == nil {
		spec = &v1alpha1.Approval{}
	}
	return Approval{
		TimeoutSeconds: cmp.Or(spec.TimeoutSeconds, defaultApprovalSeconds),
		OnTimeout:      cmp.Or(spec.OnTimeout, v1alpha1.ConsequenceEnd),
		OnDeny:         cmp.Or(spec.OnDeny, v1alpha1.ConsequenceReturnToModel),
		Message:        spec.Message,
	}
}

// expression compiles one expression and lists its problems one by one.
func (c *compiler) expression(place, text string, compile func(string) (*expression.Program, error)) *expression.Program {
	program, err := compile(text)
	for _, problem := range expression.ProblemsOf(err) {
		c.report(place, "%s", problem.Error())
	}
	return program
}

// globs reports patterns that can't have been meant.
func (c *compiler) globs(place string, patterns []string) []glob {
	if len(patterns) == 0 {
		c.report(place+": match", "an empty list matches nothing: name a tool, or use <server>.*")
	}
	globs := make([]glob, len(patterns))
	for i, pattern := range patterns {
		globs[i] = newGlob(pattern)
		place := fmt.Sprintf("%s: match[%d] %q", place, i, pattern)
		switch {
		case hasOddity(pattern):
			c.report(place, "only * is special, and no tool's name has such characters: list the names, or use *")
		case !c.concerns(globs[i]):
			c.report(place, "it matches no tool of this policy's servers: a full name is <server>.<tool>, and the servers are %s", c.serverNames())
		}
	}
	return globs
}

// concerns is true when a pattern can match a tool of some server.
func (c *compiler) concerns(g glob) bool {
	for _, s := range c.policy.servers {
		if !s.listed && g.mayMatch(s.spec.Name+".") {
			return true
		}
		for tool := range s.tools {
			if g.matches(tool) {
				return true
			}
		}
	}
	return false
}

// maxServerNames bounds the list in a message.
const maxServerNames = 5

func (c *compiler) serverNames() string {
	var names []string
	for i, s := range c.policy.servers {
		if i == maxServerNames {
			names = append(names, "others")
			break
		}
		names = append(names, s.spec.Name)
	}
	return strings.Join(names, ", ")
}
