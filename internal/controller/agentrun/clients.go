package agentrun

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
)

// secretTimeout bounds one read of a Secret on behalf of a request under way.
const secretTimeout = 10 * time.Second

// Clients builds what talks to models, tools and effect services.
type Clients interface {
	// Model builds the client of a run's model: what is frozen comes from the journal,
	// everything else from the live objects. A problem is something that may heal.
	Model(ctx context.Context, namespace string, frozen journal.Model) (decider model.Client, problem string, err error)
	// Tool builds the server that has a tool, as the named policies declare it now, and
	// gives the server's own name of the tool.
	Tool(ctx context.Context, namespace string, policies []string, fullName string) (tool.Server, string, error)
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
}

var _ Clients = (*Adapters)(nil)

// NewAdapters returns Adapters that read Models and ToolPolicies through the reader, and
// ConfigMaps and Secrets live through it.
func NewAdapters(reader client.Reader) *Adapters {
	return &Adapters{reader: reader, models: &modelCache{byConfig: map[string]model.Client{}}}
}

// missingError says what has to exist before a request can be made.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }

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
	bundle, err := c.caBundle(ctx, namespace, service.CABundleConfigMapRef)
	if err != nil {
		return nil, err
	}
	return httptool.NewEffects(httptool.Options{URL: service.URL, Headers: c.headers(namespace, service.HeadersFrom), CABundle: bundle})
}

// Server implements Clients.
func (c *Adapters) Server(ctx context.Context, namespace string, declared v1alpha1.ToolServer) (tool.Server, error) {
	if declared.MCP != nil {
		bundle, err := c.caBundle(ctx, namespace, declared.MCP.CABundleConfigMapRef)
		if err != nil {
			return nil, err
		}
		return mcptool.New(mcptool.Options{URL: declared.MCP.URL, Headers: c.headers(namespace, declared.MCP.HeadersFrom), CABundle: bundle})
	}
	bundle, err := c.caBundle(ctx, namespace, declared.HTTP.CABundleConfigMapRef)
	if err != nil {
		return nil, err
	}
	var tools []tool.Definition
	for _, t := range declared.HTTP.Tools {
		tools = append(tools, tool.Definition{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema.Raw})
	}
	return httptool.New(httptool.Options{URL: declared.HTTP.URL, Tools: tools, Headers: c.headers(namespace, declared.HTTP.HeadersFrom), CABundle: bundle})
}

// headers reads the Secrets behind a server's headers each time it is asked.
func (c *Adapters) headers(namespace string, from []v1alpha1.HeaderFromSecret) func() (http.Header, error) {
	return func() (http.Header, error) {
		ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
		defer cancel()
		header := http.Header{}
		for _, h := range from {
			value, err := c.secret(ctx, namespace, h.SecretKeyRef)
			if err != nil {
				return nil, err
			}
			header.Set(h.Name, value)
		}
		return header, nil
	}
}

// Missing implements Clients: it looks for the Secrets and CA bundles.
func (c *Adapters) Missing(ctx context.Context, namespace string, m *v1alpha1.Model, servers []v1alpha1.ToolServer) (string, error) {
	var keys []v1alpha1.KeyReference
	var bundles []*v1alpha1.KeyReference
	if m.Spec.CredentialsSecretRef != nil {
		keys = append(keys, *m.Spec.CredentialsSecretRef)
	}
	bundles = append(bundles, m.Spec.CABundleConfigMapRef)
	for _, declared := range servers {
		for _, h := range headersOf(declared) {
			keys = append(keys, h.SecretKeyRef)
		}
		if declared.MCP != nil {
			bundles = append(bundles, declared.MCP.CABundleConfigMapRef)
		} else {
			bundles = append(bundles, declared.HTTP.CABundleConfigMapRef)
		}
	}
	for _, key := range keys {
		if _, err := c.secret(ctx, namespace, key); err != nil {
			return missingText(err)
		}
	}
	for _, bundle := range bundles {
		if _, err := c.caBundle(ctx, namespace, bundle); err != nil {
			return missingText(err)
		}
	}
	return "", nil
}

func headersOf(declared v1alpha1.ToolServer) []v1alpha1.HeaderFromSecret {
	if declared.MCP != nil {
		return declared.MCP.HeadersFrom
	}
	return declared.HTTP.HeadersFrom
}

func missingText(err error) (string, error) {
	var missing *missingError
	if errors.As(err, &missing) {
		return missing.text, nil
	}
	return "", err
}

// secret reads one key. Its errors name the Secret and the key, never the value.
func (c *Adapters) secret(ctx context.Context, namespace string, ref v1alpha1.KeyReference) (string, error) {
	found := &corev1.Secret{}
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, found)
	switch {
	case apierrors.IsNotFound(err):
		return "", &missingError{fmt.Sprintf("Secret %s does not exist", ref.Name)}
	case apierrors.IsForbidden(err):
		return "", &missingError{fmt.Sprintf("Secret %s may not be read by the operator", ref.Name)}
	case err != nil:
		return "", fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	}
	value, ok := found.Data[ref.Key]
	if !ok || len(value) == 0 {
		return "", &missingError{fmt.Sprintf("Secret %s has no key %s", ref.Name, ref.Key)}
	}
	return string(value), nil
}

func (c *Adapters) caBundle(ctx context.Context, namespace string, ref *v1alpha1.KeyReference) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	found := &corev1.ConfigMap{}
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, found)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &missingError{fmt.Sprintf("ConfigMap %s does not exist", ref.Name)}
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", ref.Name, err)
	}
	value, ok := found.Data[ref.Key]
	if !ok {
		return nil, &missingError{fmt.Sprintf("ConfigMap %s has no key %s", ref.Name, ref.Key)}
	}
	return []byte(value), nil
}
