package vertex_test

import (
	"testing"

	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/model/wire/vertex"
)

func TestModelURL(t *testing.T) {
	tests := map[string]struct {
		endpoint, location, model, want string
	}{
		"a region":             {"", "europe-west1", "gemini-3-pro", "https://europe-west1-aiplatform.googleapis.com/v1/projects/my-project/locations/europe-west1/publishers/google/models/gemini-3-pro:generateContent"},
		"the world":            {"", "global", "gemini-3-pro", "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/google/models/gemini-3-pro:generateContent"},
		"a group of regions":   {"", "eu", "gemini-3-pro", "https://aiplatform.eu.rep.googleapis.com/v1/projects/my-project/locations/eu/publishers/google/models/gemini-3-pro:generateContent"},
		"another group":        {"", "us", "gemini-3-pro", "https://aiplatform.us.rep.googleapis.com/v1/projects/my-project/locations/us/publishers/google/models/gemini-3-pro:generateContent"},
		"a version in a name":  {"", "global", "model@20260101", "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/google/models/model@20260101:generateContent"},
		"a gateway":            {"http://127.0.0.1:8080/vertex/v1/", "global", "m", "http://127.0.0.1:8080/vertex/v1/projects/my-project/locations/global/publishers/google/models/m:generateContent"},
		"a name that is paths": {"", "global", "../../x?y=1#z", "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/google/models/..%2F..%2Fx%3Fy=1%23z:generateContent"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := vertex.ModelURL(test.endpoint, wire.Vertex{Project: "my-project", Location: test.location}, vertex.PublisherGoogle, test.model, "generateContent")
			if err != nil || got != test.want {
				t.Errorf("got %s, %v; want %s", got, err, test.want)
			}
		})
	}
}

func TestModelURLOfProjects(t *testing.T) {
	for _, project := range []string{"123456789012", "example.com:my-project"} {
		want := "https://aiplatform.googleapis.com/v1/projects/" + project + "/locations/global/publishers/google/models/m:generateContent"
		got, err := vertex.ModelURL("", wire.Vertex{Project: project, Location: "global"}, vertex.PublisherGoogle, "m", "generateContent")
		if err != nil || got != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}

func TestModelURLRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		endpoint string
		platform wire.Vertex
	}{
		"no project":          {"", wire.Vertex{Location: "global"}},
		"no location":         {"", wire.Vertex{Project: "p"}},
		"a relative endpoint": {"/v1", wire.Vertex{Project: "p", Location: "global"}},
	} {
		if got, err := vertex.ModelURL(test.endpoint, test.platform, vertex.PublisherAnthropic, "m", "rawPredict"); err == nil {
			t.Errorf("%s: got %s", name, got)
		}
	}
}
