package anthropic

import (
	"context"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/model/wire/vertex"
)

// google is Google Cloud's Vertex AI. As with Bedrock, the SDK's own package would change
// the body after it was written.
type google struct {
	address string
	tokens  *vertex.Tokens
}

func newVertex(root string, config wire.Config, connection *wire.Connection) (*google, error) {
	if root != "" {
		root += "/v1"
	}
	address, err := vertex.ModelURL(root, *config.Platform.Vertex, vertex.PublisherAnthropic, config.Model, "rawPredict")
	if err != nil {
		return nil, err
	}
	return &google{address: address, tokens: vertex.NewTokens(connection)}, nil
}

func (g *google) url() string         { return g.address }
func (g *google) versionInBody() bool { return true }

// cachesRequests is false: Vertex AI answers 400 to the member.
func (g *google) cachesRequests() bool { return false }

func (g *google) authorize(ctx context.Context, _ []byte) (grant, *model.Error) {
	token, failure := g.tokens.Token(ctx)
	if failure != nil {
		return grant{}, failure
	}
	granted := bearer(token)
	granted.forget = func() { g.tokens.Forget(token) }
	return granted, nil
}
