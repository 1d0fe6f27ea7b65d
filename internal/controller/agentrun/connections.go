package agentrun

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// secretTimeout bounds one read of a Secret on behalf of a request under way.
const secretTimeout = 10 * time.Second

// missingError says what has to exist before a request can be made.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }

// settings are what every kind of service says of how it is reached.
type settings struct {
	headers []v1alpha1.HeaderFromSecret
	oauth   *v1alpha1.OAuthClient
	bundle  *v1alpha1.KeyReference
}

func settingsOf(declared v1alpha1.ToolServer) settings {
	switch {
	case declared.MCP != nil:
		return settings{declared.MCP.HeadersFrom, declared.MCP.OAuth, declared.MCP.CABundleConfigMapRef}
	case declared.HTTP != nil:
		return settings{declared.HTTP.HeadersFrom, declared.HTTP.OAuth, declared.HTTP.CABundleConfigMapRef}
	default:
		return settings{} // a Job's pod reaches what it needs by itself
	}
}

// secrets are the Secrets that have to exist.
func (s settings) secrets() []v1alpha1.KeyReference {
	var keys []v1alpha1.KeyReference
	for _, h := range s.headers {
		keys = append(keys, h.SecretKeyRef)
	}
	if s.oauth != nil {
		keys = append(keys, s.oauth.ClientIDSecretRef, s.oauth.ClientSecretSecretRef)
	}
	return keys
}

// bundles are the CA bundles that have to exist, nil for none.
func (s settings) bundles() []*v1alpha1.KeyReference {
	if s.oauth != nil {
		return []*v1alpha1.KeyReference{s.bundle, s.oauth.CABundleConfigMapRef}
	}
	return []*v1alpha1.KeyReference{s.bundle}
}

// connection reads what does not change while a connection lasts, and leaves Secrets to
// be read each time they are needed.
func (c *Adapters) connection(ctx context.Context, namespace string, s settings) (transport.Options, error) {
	bundle, err := c.caBundle(ctx, namespace, s.bundle)
	if err != nil {
		return transport.Options{}, err
	}
	options := transport.Options{Headers: c.headers(namespace, s.headers), CABundle: bundle}
	if s.oauth == nil {
		return options, nil
	}
	if bundle, err = c.caBundle(ctx, namespace, s.oauth.CABundleConfigMapRef); err != nil {
		return transport.Options{}, err
	}
	options.OAuth = &transport.OAuth{
		TokenURL: s.oauth.TokenURL, Client: c.oauthClient(namespace, s.oauth), Scopes: s.oauth.Scopes, Resource: s.oauth.Resource,
		InBody: s.oauth.Authentication == v1alpha1.TokenAuthenticationBody, CABundle: bundle, Tokens: c.tokens,
	}
	return options, nil
}

// oauthClient reads the client's id and secret each time they are asked for.
func (c *Adapters) oauthClient(namespace string, o *v1alpha1.OAuthClient) func() (id, secret string, err error) {
	return func() (id, secret string, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
		defer cancel()
		if id, err = c.secret(ctx, namespace, o.ClientIDSecretRef); err != nil {
			return "", "", err
		}
		secret, err = c.secret(ctx, namespace, o.ClientSecretSecretRef)
		// Secrets made from files often end in a line break.
		return strings.TrimRight(id, "\r\n"), strings.TrimRight(secret, "\r\n"), err
	}
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
	if m.Spec.CredentialsSecretRef != nil {
		keys = append(keys, *m.Spec.CredentialsSecretRef)
	}
	bundles := []*v1alpha1.KeyReference{m.Spec.CABundleConfigMapRef}
	for _, declared := range servers {
		keys = append(keys, settingsOf(declared).secrets()...)
		bundles = append(bundles, settingsOf(declared).bundles()...)
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
