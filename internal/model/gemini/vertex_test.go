package gemini_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/serviceaccount"
)

// platform starts a token endpoint, and a server that accepts its tokens only.
func platform(t *testing.T) (*serviceaccount.Server, *fakemodel.Server) {
	t.Helper()
	account, err := serviceaccount.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = account.Close() })
	return account, startServer(t, fakemodel.Options{Authorize: func(r *http.Request, _ []byte) string {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !strings.HasPrefix(r.URL.Path, "/v1/projects/my-project/locations/europe-west1/publishers/google/models/gemini-2.5-flash:"):
			return "another path"
		case r.Header.Get("X-Goog-Api-Key") != "":
			return "a key beside the token"
		case !bearer || !account.Valid(token):
			return "no valid token"
		default:
			return ""
		}
	}})
}

func onPlatform(t *testing.T, server *fakemodel.Server, credential func() (string, error)) model.Client {
	t.Helper()
	return newClient(t, wire.Config{
		Endpoint: server.Root() + "/v1", Model: "gemini-2.5-flash", APIKey: credential, Timeout: 10 * time.Second,
		Platform:  wire.Platform{Vertex: &wire.Vertex{Project: "my-project", Location: "europe-west1"}},
		Transport: &http.Transport{DisableKeepAlives: true},
	})
}

func TestVertex(t *testing.T) {
	account, server := platform(t)
	credential := account.KeyFile()
	client := onPlatform(t, server, func() (string, error) { return credential, nil })
	ask := func(tokens int) error {
		t.Helper()
		server.Enqueue(fakemodel.Text("42"))
		got, err := client.Decide(t.Context(), question())
		if err == nil && got.Decision.Text != "42" {
			t.Errorf("got %+v", got)
		}
		if account.Requests() != tokens {
			t.Errorf("%d tokens were fetched, want %d", account.Requests(), tokens)
		}
		return err
	}
	for range 2 {
		if err := ask(1); err != nil {
			t.Fatalf("%v; %v; %v", err, server.Refusals(), account.Refusals())
		}
	}
	// A token that was revoked is refused once, and not used again.
	account.Revoke()
	if failure := asError(t, ask(1)); failure.Class != model.ClassUnauthorized || !failure.Sent {
		t.Errorf("a revoked token: got %+v", failure)
	}
	if err := ask(2); err != nil {
		t.Errorf("after a revoked token: %v", err)
	}
	// A token of the user's own, which nothing is fetched for.
	credential = "ya29.pawl-2"
	if err := ask(2); err != nil {
		t.Errorf("a token of one's own: %v", err)
	}
	credential = "ya29.other"
	if failure := asError(t, ask(2)); failure.Class != model.ClassUnauthorized || !failure.Sent {
		t.Errorf("a wrong token: got %+v", failure)
	}
}

// TestVertexWithoutToken checks that the model is not asked when there is no token to ask
// with.
func TestVertexWithoutToken(t *testing.T) {
	account, server := platform(t)
	server.Enqueue(fakemodel.Text("42"))
	account.Fail(serviceaccount.Failure{Status: 503})
	client := onPlatform(t, server, func() (string, error) { return account.KeyFile(), nil })
	_, err := client.Decide(t.Context(), question())
	if failure := asError(t, err); failure.Class != model.ClassTransient || failure.Sent || len(server.Requests()) != 0 {
		t.Errorf("a token endpoint that failed: got %+v after %d requests", failure, len(server.Requests()))
	}
	_, err = onPlatform(t, server, nil).Decide(t.Context(), question())
	if failure := asError(t, err); failure.Class != model.ClassUnauthorized || failure.Sent || len(server.Requests()) != 0 {
		t.Errorf("no credential: got %+v after %d requests", failure, len(server.Requests()))
	}
}
