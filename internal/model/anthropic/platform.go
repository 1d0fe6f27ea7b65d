package anthropic

import (
	"context"
	"errors"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const (
	// defaultEndpoint is the vendor's public root.
	defaultEndpoint = "https://api.anthropic.com"
	// version of the API, the one that the SDK sends as a header. Platforms read it from
	// the body, which is written here.
	version = "2026-10-21"
)

// platform is what differs between the places that serve the models.
type platform interface {
	// url of the operation.
	url() string
	// versionInBody is true where version and model are not in header and body but in
	// body and path.
	versionInBody() bool
	// cachesRequests is true where a member of the request caches all of it.
	cachesRequests() bool
	// authorize turns what the Secret holds into what authorizes one request.
	authorize(ctx context.Context, body []byte) (grant, *model.Error)
}

// grant authorizes one request.
type grant struct {
	options []option.RequestOption
	// secrets must not be repeated to anybody.
	secrets []string
	// forget drops what was kept of the grant, for one that was refused. Nil for
	// nothing.
	forget func()
}

func newPlatform(config wire.Config, connection *wire.Connection) (platform, error) {
	root, err := rootOf(config.Endpoint)
	if err != nil {
		return nil, err
	}
	switch {
	case config.Platform.Azure != nil:
		return nil, errors.New("platform azure does not serve provider Anthropic")
	case config.Platform.Bedrock != nil:
		return newBedrock(root, config, connection), nil
	case config.Platform.Vertex != nil:
		return newVertex(root, config, connection)
	case root == "":
		root = defaultEndpoint
	}
	return vendor{root + messagesPath, connection}, nil
}

// rootOf checks an endpoint, and takes from its end the version that is part of every
// path. Empty for none.
func rootOf(endpoint string) (string, error) {
	if endpoint == "" {
		return "", nil
	}
	u, err := wire.ParseEndpoint(endpoint, "/messages")
	if err != nil {
		return "", err
	}
	u.Path = strings.TrimRight(strings.TrimSuffix(u.Path, "/v1"), "/")
	return u.String(), nil
}

// messagesPath is the operation of the API itself.
const messagesPath = "/v1/messages"

// vendor is Anthropic, or a server compatible with it.
type vendor struct {
	address    string
	connection *wire.Connection
}

func (v vendor) url() string        { return v.address }
func (vendor) versionInBody() bool  { return false }
func (vendor) cachesRequests() bool { return true }

func (v vendor) authorize(context.Context, []byte) (grant, *model.Error) {
	key, failure := v.connection.Key()
	if failure != nil || key == "" {
		return grant{}, failure
	}
	return bearer(key), nil
}

// bearer is how the API and both platforms take a key or token.
func bearer(key string) grant {
	return grant{options: []option.RequestOption{option.WithAuthToken(key)}, secrets: []string{key}}
}
