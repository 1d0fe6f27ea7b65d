package agentrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/scripted"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// modelCache keeps one client, and so one pool of connections, for each configuration.
type modelCache struct {
	mu       sync.Mutex
	byConfig map[string]model.Client
}

// maxModelClients bounds the cache; beyond it everything is built anew.
const maxModelClients = 256

func (c *modelCache) get(key string, build func() (model.Client, error)) (model.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.byConfig[key]; ok {
		return known, nil
	}
	built, err := build()
	if err != nil {
		return nil, err
	}
	if len(c.byConfig) >= maxModelClients {
		clear(c.byConfig)
	}
	c.byConfig[key] = built
	return built, nil
}

// Model implements Clients.
func (c *Adapters) Model(ctx context.Context, namespace string, frozen journal.Model) (decider model.Client, problem string, err error) {
	live := &v1alpha1.Model{}
	err = c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: frozen.Name}, live)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("Model %s does not exist", frozen.Name), nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading Model %s: %w", frozen.Name, err)
	}
	if string(live.Spec.Provider) != frozen.Provider {
		return nil, fmt.Sprintf("Model %s has another provider than when the run started: restore %s", frozen.Name, frozen.Provider), nil
	}
	if live.Spec.Provider == v1alpha1.ProviderScripted {
		decider, err = scripted.New(scriptOf(live.Spec.Script))
	} else {
		decider, err = c.provider(ctx, namespace, frozen, live)
	}
	var missing *missingError
	if errors.As(err, &missing) {
		return nil, missing.text, nil
	}
	if err != nil {
		return nil, fmt.Sprintf("Model %s can't be used: %s", frozen.Name, oneLine(err)), nil
	}
	return decider, "", nil
}

// provider builds the client of a model behind a wire.
func (c *Adapters) provider(ctx context.Context, namespace string, frozen journal.Model, live *v1alpha1.Model) (model.Client, error) {
	references, err := referencesOf(frozen, live)
	if err != nil {
		return nil, err
	}
	config := wire.Config{
		Endpoint: frozen.Endpoint, Model: frozen.Model, Parameters: frozen.Parameters, Platform: platformOf(frozen.Platform),
		Timeout: time.Duration(frozen.RequestTimeoutSeconds) * time.Second,
	}
	if ref := keyOf(references.Credentials); ref != nil {
		if _, err := c.secret(ctx, namespace, *ref); err != nil {
			return nil, err
		}
		config.APIKey = func() (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
			defer cancel()
			return c.secret(ctx, namespace, *ref)
		}
	}
	if config.CABundle, err = c.caBundle(ctx, namespace, keyOf(references.CABundle)); err != nil {
		return nil, err
	}
	key, err := json.Marshal([]any{namespace, frozen, references, config.CABundle})
	if err != nil {
		return nil, err
	}
	return c.models.get(string(key), func() (model.Client, error) { return newModelClient(frozen.Provider, config) })
}

// referencesOf says where the credentials of a run's endpoint are. A run that began before
// they were frozen has those of the Model, for as long as that still means the same endpoint:
// one vendor's key must not go to another.
func referencesOf(frozen journal.Model, live *v1alpha1.Model) (*journal.ModelReferences, error) {
	if frozen.References != nil {
		return frozen.References, nil
	}
	now := freezeModel(live)
	if now.Endpoint != frozen.Endpoint || !ptr.Equal(now.Platform, frozen.Platform) {
		return nil, &missingError{fmt.Sprintf("Model %s has another endpoint or platform than when the run started, "+
			"and its credentials may not go to the earlier one: restore them, or start the run anew", frozen.Name)}
	}
	return now.References, nil
}

func keyOf(frozen *journal.KeyReference) *v1alpha1.KeyReference {
	if frozen == nil {
		return nil
	}
	return &v1alpha1.KeyReference{Name: frozen.Name, Key: frozen.Key}
}

// newModelClient is the one place where a provider meets its adapter.
func newModelClient(provider string, config wire.Config) (model.Client, error) {
	switch v1alpha1.Provider(provider) {
	case v1alpha1.ProviderAnthropic:
		return anthropic.New(config)
	case v1alpha1.ProviderOpenAI:
		return openai.New(config)
	case v1alpha1.ProviderOpenAIResponses:
		return responses.New(config)
	case v1alpha1.ProviderGemini:
		return gemini.New(config)
	default:
		return nil, fmt.Errorf("this operator has no adapter for provider %s: upgrade it", provider)
	}
}

func platformOf(frozen *journal.Platform) wire.Platform {
	switch {
	case frozen == nil:
		return wire.Platform{}
	case frozen.Name == "bedrock":
		return wire.Platform{Bedrock: &wire.Bedrock{Region: frozen.Region}}
	case frozen.Name == "vertex":
		return wire.Platform{Vertex: &wire.Vertex{Project: frozen.Project, Location: frozen.Location}}
	default:
		return wire.Platform{Azure: &wire.Azure{APIVersion: frozen.APIVersion}}
	}
}

func scriptOf(steps []v1alpha1.ScriptStep) []scripted.Step {
	script := make([]scripted.Step, 0, len(steps))
	for _, s := range steps {
		step := scripted.Step{
			Final: s.Final, FinalExpression: s.FinalExpression, Question: s.Question, CannotContinue: s.CannotContinue,
			Raw: rawOf(s.Raw), Delay: time.Duration(s.DelayMilliseconds) * time.Millisecond,
		}
		if s.Error != nil {
			step.Status = int(s.Error.Status)
		}
		for _, call := range s.ToolCalls {
			step.ToolCalls = append(step.ToolCalls, scripted.ToolCall{Tool: call.Tool, Arguments: rawOf(call.Arguments)})
		}
		script = append(script, step)
	}
	return script
}
