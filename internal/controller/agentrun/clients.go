package agentrun

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/tool"
	agentruntool "github.com/pawl-run/pawl/internal/tool/agentrun"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// Clients builds what talks to models, tools and effect services.
type Clients interface {
	// Model builds the client of a run's model: what is frozen comes from the journal,
	// everything else from the live objects. A problem is something that may heal.
	Model(ctx context.Context, namespace string, frozen journal.Model) (decider model.Client, problem string, err error)
	// Tool builds the server that has a tool, as the named policies declare it now, and
	// gives the server's own name of the tool.
	Tool(ctx context.Context, namespace string, policies []string, fullName string) (tool.Server, string, error)
	// Children follows child runs that were made, whatever the policies declare by now.
	Children() tool.Deferrer
	// Server builds a declared server.
	Server(ctx context.Context, namespace string, declared v1alpha1.ToolServer) (tool.Server, error)
	// Effects builds the service where an unknown effect is looked up.
	Effects(ctx context.Context, namespace string, policies []string, effect journal.UnknownEffect) (EffectService, error)
	// Missing names the first thing that a run needs and that is not there yet.
	Missing(ctx context.Context, namespace string, m *v1alpha1.Model, servers []v1alpha1.ToolServer) (string, error)
}

// EffectService says what became of an effect.
type EffectService interface {
	// Look asks about one effect by its key. An error leaves everything as it was.
	Look(ctx context.Context, key string) (httptool.Found, error)
	// Close ends what the service keeps open.
	Close()
}

// Adapters are the Clients of a real operator. Secrets and CA bundles are read by name
// each time they are used, so that a rotated one takes effect.
type Adapters struct {
	reader client.Reader
	models *modelCache
	tokens *transport.Tokens
	mcp    *mcptool.Memory
	jobs   jobtool.Cluster
	runs   agentruntool.Cluster
}

var _ Clients = (*Adapters)(nil)

// NewAdapters returns Adapters that read Models and ToolPolicies through the reader, and
// ConfigMaps and Secrets live through it, and that make Jobs and child runs
// in the clusters.
func NewAdapters(reader client.Reader, jobs jobtool.Cluster, children agentruntool.Cluster) *Adapters {
	return &Adapters{
		reader: reader, jobs: jobs, runs: children, models: &modelCache{byConfig: map[string]model.Client{}},
		tokens: transport.NewTokens(time.Now), mcp: mcptool.NewMemory(time.Now),
	}
}

// Tool implements Clients.
func (c *Adapters) Tool(ctx context.Context, namespace string, policies []string, fullName string) (tool.Server, string, error) {
	wanted, name := splitTool(fullName)
	for _, policyName := range policies {
		live := &v1alpha1.ToolPolicy{}
		if err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: policyName}, live); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, "", fmt.Errorf("reading ToolPolicy %s: %w", policyName, err)
		}
		for _, declared := range live.Spec.Servers {
			if declared.Name == wanted {
				server, err := c.Server(ctx, namespace, declared)
				return server, name, err
			}
		}
	}
	return nil, "", fmt.Errorf("no policy of the run declares server %s any more", wanted)
}

// Children implements Clients.
func (c *Adapters) Children() tool.Deferrer { return agentruntool.New(c.runs, nil) }

// Effects implements Clients: the address is frozen with the call, its headers and
// certificates are those of the policy now.
func (c *Adapters) Effects(ctx context.Context, namespace string, policies []string, effect journal.UnknownEffect) (EffectService, error) {
	service := v1alpha1.EffectService{URL: effect.Reconcile}
	for _, name := range policies {
		live := &v1alpha1.ToolPolicy{}
		if err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, live); err != nil {
			continue
		}
		for _, properties := range live.Spec.Tools {
			if properties.Reconcile != nil && properties.Reconcile.HTTP.URL == effect.Reconcile {
				service = properties.Reconcile.HTTP
			}
		}
	}
	reached, err := c.connection(ctx, namespace, settings{service.HeadersFrom, service.OAuth, service.CABundleConfigMapRef})
	if err != nil {
		return nil, err
	}
	return httptool.NewEffects(httptool.Options{URL: service.URL, Connection: reached}, effect.MaxResultBytes)
}

// Server implements Clients.
func (c *Adapters) Server(ctx context.Context, namespace string, declared v1alpha1.ToolServer) (tool.Server, error) {
	if declared.Job != nil {
		return jobtool.New(c.jobs, jobTools(declared.Job)), nil
	}
	if declared.AgentRun != nil {
		tools, err := childTools(declared.AgentRun)
		return agentruntool.New(c.runs, tools), err
	}
	reached, err := c.connection(ctx, namespace, settingsOf(declared))
	if err != nil {
		return nil, err
	}
	if declared.MCP != nil {
		return mcptool.New(mcptool.Options{
			URL: declared.MCP.URL, Connection: reached, Memory: c.mcp,
			// Runs wait for tasks, and people answer what a call asks.
			Capabilities: mcptool.Capabilities{Tasks: true, Elicitation: true},
		})
	}
	var tools []tool.Definition
	for _, t := range declared.HTTP.Tools {
		tools = append(tools, tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw})
	}
	return httptool.New(httptool.Options{URL: declared.HTTP.URL, Tools: tools, Connection: reached})
}

func childTools(declared *v1alpha1.AgentRunServer) ([]agentruntool.Tool, error) {
	var tools []agentruntool.Tool
	for _, t := range declared.Tools {
		template, err := json.Marshal(t.Template)
		if err != nil {
			return nil, fmt.Errorf("writing the template of tool %s: %w", t.Name, err)
		}
		definition := tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw}
		tools = append(tools, agentruntool.Tool{Definition: definition, Prompt: t.Prompt, Template: template, Problem: policy.ChildProblem(t)})
	}
	return tools, nil
}

func jobTools(declared *v1alpha1.JobServer) []jobtool.Tool {
	var tools []jobtool.Tool
	for _, t := range declared.Tools {
		definition := tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw}
		tools = append(tools, jobtool.Tool{Definition: definition, Template: t.Template.Spec.Raw})
	}
	return tools
}
