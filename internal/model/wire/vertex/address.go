// Package vertex is what the wires that Vertex AI serves have in common: where a model
// is, and the access token that it wants.
package vertex

import (
	"errors"
	"net/url"

	"github.com/pawl-run/pawl/internal/model/wire"
)

// Publishers of models.
const (
	PublisherGoogle    = "google"
	PublisherAnthropic = "anthropic"
)

// ModelURL is where an operation of a model is asked for. endpoint is the versioned root
// of a gateway, empty for the platform's own in the location.
func ModelURL(endpoint string, platform wire.Vertex, publisher, model, operation string) (string, error) {
	if platform.Project == "" || platform.Location == "" {
		return "", errors.New("platform vertex needs a project and a location")
	}
	if endpoint == "" {
		endpoint = root(platform.Location)
	}
	u, err := wire.ParseEndpoint(endpoint, ":"+operation)
	if err != nil {
		return "", err
	}
	return u.JoinPath(
		"projects", url.PathEscape(platform.Project), "locations", url.PathEscape(platform.Location),
		"publishers", url.PathEscape(publisher), "models", url.PathEscape(model)+":"+operation,
	).String(), nil
}

// root is the platform's versioned root in a location: a region, a group of regions or
// the whole world.
func root(location string) string {
	switch location {
	case "global":
		return "https://aiplatform.googleapis.com/v1"
	case "eu", "us":
		return "https://aiplatform." + location + ".rep.googleapis.com/v1"
	default:
		return "https://" + location + "-aiplatform.googleapis.com/v1"
	}
}
