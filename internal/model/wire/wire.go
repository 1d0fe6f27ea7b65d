// Package wire holds what the wires of the providers have in common: JSON objects that
// keep their bytes, one attempt at one request, and the reading of what every provider
// says in its own words but means alike. Each wire's own rules live in its adapter.
package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultTimeout bounds a request where Config doesn't.
	DefaultTimeout = 2 * time.Minute
	// DefaultMaxReplyBytes bounds a reply where Config doesn't.
	DefaultMaxReplyBytes = 8 << 20
)

// Config says how to reach one model.
type Config struct {
	// Endpoint is the base URL that the wire's own path is appended to. Empty for the
	// vendor's public root.
	Endpoint string
	// Model is the provider's own model name.
	Model string
	// APIKey is asked once per request, so that a rotated key takes effect. Nil for
	// servers without authentication. Its error must not hold the key.
	APIKey func() (string, error)
	// CABundle holds PEM certificates that are trusted instead of the system's.
	CABundle []byte
	// Timeout bounds a request from its first byte sent to its last byte read. 0 or
	// less for DefaultTimeout.
	Timeout time.Duration
	// Parameters is a JSON object whose members are added to each request.
	Parameters json.RawMessage
	// Platform is the cloud that serves the model, the zero value for the vendor itself
	// or a compatible server.
	Platform Platform
	// Transport replaces the client's own, CABundle included. It must not retry.
	Transport http.RoundTripper
	// MaxReplyBytes bounds what is read of a reply. 0 or less for DefaultMaxReplyBytes.
	MaxReplyBytes int64
	// Now is the clock that dates and signatures are compared with. Nil for time.Now.
	Now func() time.Time
}

// Platform is a cloud that serves a vendor's models under its own address and
// authentication. At most one member is set.
type Platform struct {
	Bedrock *Bedrock
	Vertex  *Vertex
	Azure   *Azure
}

// Bedrock is Amazon Bedrock.
type Bedrock struct {
	// Region, such as eu-central-1.
	Region string
}

// Vertex is Google Cloud's Vertex AI.
type Vertex struct {
	// Project that is charged.
	Project string
	// Location, such as europe-west1 or global.
	Location string
}

// Azure is Azure OpenAI, or Azure AI Foundry.
type Azure struct {
	// APIVersion is the version in the query; empty for the versionless API.
	APIVersion string
}

// Name of the platform, empty for none.
func (p Platform) Name() string {
	switch {
	case p.Bedrock != nil:
		return "bedrock"
	case p.Vertex != nil:
		return "vertex"
	case p.Azure != nil:
		return "azure"
	default:
		return ""
	}
}

// ParseParameters reads a Model's parameters less what the adapter sets itself. The
// members come sorted by name, so that equal settings give equal bytes whatever order
// they were written in. The error names members, never values.
func ParseParameters(parameters json.RawMessage, reserved []string) (Object, error) {
	if len(parameters) == 0 || IsNull(parameters) {
		return nil, nil
	}
	members, err := ParseObject(parameters)
	if err != nil {
		return nil, fmt.Errorf("parameters must be a JSON object: %w", err)
	}
	var taken []string
	for _, m := range members {
		// Some servers read names in whatever case.
		if slices.ContainsFunc(reserved, func(name string) bool { return strings.EqualFold(name, m.Name) }) {
			taken = append(taken, m.Name)
		}
	}
	slices.Sort(taken)
	if len(taken) > 0 {
		return nil, fmt.Errorf("parameters may not set %s: remove what is set by the operator", strings.Join(taken, ", "))
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}
