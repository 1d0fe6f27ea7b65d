// Package openaiapi holds what OpenAI's two wires, Chat Completions and Responses, have in
// common: where they are reached and how a request gets there, what an error means, and
// how a tool is written down.
package openaiapi

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/pawl-run/pawl/internal/model/wire"
)

// DefaultEndpoint is the vendor's public root.
const DefaultEndpoint = "https://api.openai.com/v1"

// Address is where a wire is reached.
type Address struct {
	// base is what the operation's own path is appended to; it ends in a slash.
	base string
	// apiVersion goes into the query, empty for none.
	apiVersion string
	// azure is true for Azure's authentication.
	azure bool
	// deployments is true on Azure, with its authentication or the vendor's.
	deployments bool
	// vendors is true for the vendor's own hosts, and those of Azure.
	vendors bool
}

// Routing says whether a versioned API of Azure names the deployment in the path.
type Routing bool

// Ways of naming a deployment.
const (
	// ByDeployment is a path below /openai/deployments/<name>.
	ByDeployment Routing = true
	// ByModel is a path below /openai, and the name in the body.
	ByModel Routing = false
)

// operation is what the wire that routes like this appends to its base URL.
func (r Routing) operation() string {
	if r == ByDeployment {
		return "/chat/completions"
	}
	return "/responses"
}

// dated matches versions of Azure's API before it had one without. The others, "preview"
// and "latest", belong to the versionless API.
var dated = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?$`)

// Resolve finds the address that a configuration means. Its errors hold no values.
func Resolve(config wire.Config, routing Routing) (Address, error) {
	switch {
	case config.Platform.Bedrock != nil, config.Platform.Vertex != nil:
		return Address{}, fmt.Errorf("platform %s does not serve this provider: remove it or change the provider", config.Platform.Name())
	case config.Platform.Azure != nil:
		return resolveAzure(config, routing)
	}
	endpoint := config.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	u, err := wire.ParseEndpoint(endpoint, routing.operation())
	if err != nil {
		return Address{}, err
	}
	return Address{base: u.String() + "/", vendors: isVendors(u), deployments: within(u, ".openai.azure.com")}, nil
}

// resolveAzure finds the address below the root of a resource.
func resolveAzure(config wire.Config, routing Routing) (Address, error) {
	if config.Endpoint == "" {
		return Address{}, errors.New("platform azure needs endpoint: the root of your resource, such as https://<name>.openai.azure.com")
	}
	u, err := wire.ParseEndpoint(config.Endpoint, routing.operation())
	if err != nil {
		return Address{}, err
	}
	// The portal shows the root with this path.
	u.Path = strings.TrimSuffix(u.Path, "/openai/v1")
	address := Address{azure: true, deployments: true, vendors: true, apiVersion: config.Platform.Azure.APIVersion}
	switch {
	case !dated.MatchString(address.apiVersion):
		u = u.JoinPath("openai", "v1")
	case routing == ByDeployment:
		u = u.JoinPath("openai", "deployments", url.PathEscape(config.Model))
	default:
		u = u.JoinPath("openai")
	}
	address.base = u.String() + "/"
	return address, nil
}

// NamesDeployments reports whether models are asked for by the names of deployments, which
// their owner chose.
func (a Address) NamesDeployments() bool { return a.deployments }

// isVendors tells the vendor's hosts from those of compatible servers.
func isVendors(u *url.URL) bool {
	return within(u, ".openai.com") || within(u, ".azure.com")
}

func within(u *url.URL, domain string) bool {
	return strings.HasSuffix(strings.ToLower(u.Hostname()), domain)
}
