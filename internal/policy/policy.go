package policy

import (
	"encoding/json"
	"fmt"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// Policy is a compiled ToolPolicy. It never changes.
type Policy struct {
	name       string
	digest     string
	servers    []server
	properties []entry
	rules      []rule
}

// Name is the ToolPolicy's name.
func (p *Policy) Name() string { return p.name }

// Digest covers the whole spec.
func (p *Policy) Digest() string { return p.digest }

// server is one place that tools come from.
type server struct {
	spec v1alpha1.ToolServer
	// tools that the policy itself declares, by full name. listed is false for
	// servers that say themselves which tools they have.
	tools  map[string]bool
	listed bool
	// children are the tools whose calls are child runs, by their own names.
	children map[string]*Child
}

// entry is one element of spec.tools.
type entry struct {
	globs       []glob
	conflictKey *expression.Program
	resolved    Properties
}

// rule is one element of spec.rules.
type rule struct {
	name     string
	digest   string
	globs    []glob
	when     *expression.Program
	action   v1alpha1.Action
	onDeny   v1alpha1.Consequence
	approval Approval
}

// Tool is a tool whose definition is part of a policy.
type Tool struct {
	// Name is the full name.
	Name        string
	Description string
	InputSchema json.RawMessage
	Effect      v1alpha1.Effect
	// Digest is that of the definition.
	Digest string
}

// Tools lists the tools whose definitions are part of the policy and can be used, in its
// order.
func (p *Policy) Tools() []Tool {
	var tools []Tool
	for _, s := range p.servers {
		for _, t := range definitions(s.spec) {
			name := fullName(s.spec.Name, t.Name)
			if child := s.children[t.Name]; child != nil && child.Problem != "" {
				continue
			}
			tools = append(tools, Tool{
				Name:        name,
				Description: t.Description,
				InputSchema: t.InputSchema,
				Effect:      p.propertiesOf(name).resolved.Effect,
				Digest:      t.Digest(name),
			})
		}
	}
	return tools
}

// definitions are the tools that a server's declaration defines, in its order.
func definitions(spec v1alpha1.ToolServer) []tool.Definition {
	var tools []tool.Definition
	if spec.HTTP != nil {
		for _, t := range spec.HTTP.Tools {
			tools = append(tools, tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw})
		}
	}
	if spec.Job != nil {
		for _, t := range spec.Job.Tools {
			tools = append(tools, tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw})
		}
	}
	if spec.AgentRun != nil {
		for _, t := range spec.AgentRun.Tools {
			tools = append(tools, tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw})
		}
	}
	return tools
}

// Effect that applies to a tool by its full name.
func (p *Policy) Effect(fullName string) v1alpha1.Effect {
	return p.propertiesOf(fullName).resolved.Effect
}

// digestOf names a part of a spec by its content.
func digestOf(part any) (string, error) {
	text, err := json.Marshal(part)
	if err != nil {
		return "", fmt.Errorf("marshalling: %w", err)
	}
	canonical, err := strictjson.CanonicalBytes(text)
	if err != nil {
		return "", fmt.Errorf("reading JSON: %w", err)
	}
	return strictjson.Digest(canonical), nil
}

func fullName(server, tool string) string { return server + "." + tool }
