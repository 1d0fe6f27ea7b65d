package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// TestEncodeOutputLimitOfDeployments checks that the name of a deployment is taken for no
// model's, and that parameters decide where no name tells.
func TestEncodeOutputLimitOfDeployments(t *testing.T) {
	azure := wire.Platform{Azure: &wire.Azure{}}
	resource := "https://x.openai.azure.com"
	for name, test := range map[string]struct {
		config wire.Config
		want   string
	}{
		"a deployment":              {wire.Config{Model: "prod-chat", Endpoint: resource, Platform: azure}, `"max_completion_tokens":64`},
		"a dated deployment":        {wire.Config{Model: "prod-chat", Endpoint: resource, Platform: wire.Platform{Azure: &wire.Azure{APIVersion: "2024-10-21"}}}, `"max_completion_tokens":64`},
		"a misleading deployment":   {wire.Config{Model: "gpt-4o", Endpoint: resource, Platform: azure}, `"max_completion_tokens":64`},
		"a gateway to a platform":   {wire.Config{Model: "chat", Endpoint: "https://gateway.example.com", Platform: azure}, `"max_completion_tokens":64`},
		"the vendor's own key":      {wire.Config{Model: "prod-chat", Endpoint: resource + "/openai/v1"}, `"max_completion_tokens":64`},
		"an older deployment":       {wire.Config{Model: "old", Endpoint: resource, Platform: azure, Parameters: json.RawMessage(`{"max_tokens":1000}`)}, `"max_tokens":64`},
		"a gateway's alias":         {wire.Config{Model: "smart", Endpoint: "https://gateway.example.com", Parameters: json.RawMessage(`{"max_completion_tokens":1000}`)}, `"max_completion_tokens":64`},
		"an alias that misleads":    {wire.Config{Model: "gpt-5-at-home", Endpoint: "https://gateway.example.com", Parameters: json.RawMessage(`{"max_tokens":1000}`)}, `"max_tokens":64`},
		"a bound below the request": {wire.Config{Model: "smart", Parameters: json.RawMessage(`{"max_completion_tokens":7}`)}, `"max_completion_tokens":7`},
		"a bound beyond all counts": {wire.Config{Model: "smart", Parameters: json.RawMessage(`{"max_tokens":1000000000}`)}, `"max_tokens":64`},
	} {
		t.Run(name, func(t *testing.T) {
			got := encoded(t, test.config, conversation())
			if !strings.HasSuffix(got, test.want+"}") || strings.Count(got, `"max_`) != 1 {
				t.Errorf("want %s in %s", test.want, got)
			}
		})
	}
	for _, parameters := range []string{`{"max_tokens":1,"max_completion_tokens":1}`, `{"max_tokens":0}`, `{"max_tokens":"9"}`, `{"max_completion_tokens":1.5}`, `{"max_completion_tokens":null}`, `{"max_tokens":-1}`} {
		if err := openai.CheckParameters(json.RawMessage(parameters)); err == nil || !strings.Contains(err.Error(), "max_") {
			t.Errorf("%s: got error %v", parameters, err)
		}
	}
}

// TestLimitOfParameters checks that a reply is read against the limit that was sent.
func TestLimitOfParameters(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	body := []byte(reply(`{"role":"assistant","content":"4"}`, ""))
	server.Enqueue(fakemodel.Raw(body), fakemodel.Raw(body))
	for limit, want := range map[string]model.Kind{"5": model.KindInvalid, "6": model.KindFinal} {
		client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "m", Parameters: json.RawMessage(`{"max_tokens":` + limit + `}`)})
		got, err := client.Decide(t.Context(), model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, MaxOutputTokens: 64})
		if err != nil || got.Decision.Kind != want {
			t.Errorf("limit %s: got %+v, %v", limit, got.Decision, err)
		}
	}
}
