package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func TestNewRefuses(t *testing.T) {
	for name, config := range map[string]wire.Config{
		"no model":                 {},
		"a relative endpoint":      {Model: "m", Endpoint: "/v1"},
		"another scheme":           {Model: "m", Endpoint: "ftp://example.com"},
		"a user":                   {Model: "m", Endpoint: "https://me:secret@example.com"},
		"a query":                  {Model: "m", Endpoint: "https://example.com?key=secret"},
		"parameters of a list":     {Model: "m", Parameters: json.RawMessage(`["secret"]`)},
		"a parameter twice":        {Model: "m", Parameters: json.RawMessage(`{"secret":1,"secret":2}`)},
		"a reserved parameter":     {Model: "m", Parameters: json.RawMessage(`{"stream":"secret"}`)},
		"a choice to call":         {Model: "m", Parameters: json.RawMessage(`{"tool_choice":{"type":"any","secret":1}}`)},
		"a choice in words":        {Model: "m", Parameters: json.RawMessage(`{"tool_choice":"secret"}`)},
		"betas that are text":      {Model: "m", Parameters: json.RawMessage(`{"anthropic_beta":"secret"}`)},
		"betas with a line":        {Model: "m", Parameters: json.RawMessage(`{"anthropic_beta":["a\nsecret"]}`)},
		"a bundle without content": {Model: "m", CABundle: []byte("secret")},
		"platform azure":           {Model: "m", Platform: wire.Platform{Azure: &wire.Azure{}}},
		"vertex without a project": {Model: "m", Platform: wire.Platform{Vertex: &wire.Vertex{Location: "eu"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := anthropic.New(config)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats a value: %v", err)
			}
		})
	}
}

func TestParameters(t *testing.T) {
	for _, name := range anthropic.ReservedParameters() {
		err := anthropic.CheckParameters(json.RawMessage(`{"thinking":{"type":"adaptive"},"` + name + `":1}`))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("reserved parameter %s: got error %v", name, err)
		}
	}
	for _, parameters := range []string{
		"", "null", "{}", `{"temperature":0}`, `{"thinking":{"type":"adaptive"},"cache_control":null}`,
		`{"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"anthropic_beta":["x-2026-01-01"]}`,
	} {
		if err := anthropic.CheckParameters(json.RawMessage(parameters)); err != nil {
			t.Errorf("parameters %s: %v", parameters, err)
		}
	}
}

func TestEncodeParameters(t *testing.T) {
	const choice = `{"type":"auto","disable_parallel_tool_use":true}`
	parameters := json.RawMessage(`{"tool_choice":` + choice + `,"cache_control":{"type":"ephemeral","ttl":"1h"},"anthropic_beta":["a-1","b-2"]}`)
	got := encoded(t, wire.Config{Model: "m", Parameters: parameters}, conversation())
	if !strings.HasSuffix(got, `"tool_choice":`+choice+`,"cache_control":{"type":"ephemeral","ttl":"1h"}}`) {
		t.Errorf("got %s", got)
	}
	got = encoded(t, wire.Config{Model: "m", Parameters: parameters, Platform: onVertex}, conversation())
	if !strings.HasPrefix(got, `{"anthropic_version":"2026-10-21","anthropic_beta":["a-1","b-2"],"max_tokens"`) || strings.Count(got, `"ttl":"1h"`) != 3 {
		t.Errorf("got %s", got)
	}
	for _, platform := range []wire.Platform{{}, onBedrock} {
		got := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"cache_control":null}`), Platform: platform}, conversation())
		if strings.Contains(got, "cache_control") {
			t.Errorf("caching was switched off: %s", got)
		}
	}
	request := conversation()
	request.Tools = nil
	if got := encoded(t, wire.Config{Model: "m", Parameters: parameters}, request); strings.Contains(got, "tool_choice") {
		t.Errorf("a choice without tools: %s", got)
	}
}

// TestEncodeThinking checks that a low limit of a reply leaves room for thinking, or has
// none of it.
func TestEncodeThinking(t *testing.T) {
	for name, test := range map[string]struct {
		thinking string
		limit    int32
		want     string
	}{
		"a budget below the limit": {`{"type":"enabled","budget_tokens":4000}`, 4001, `"thinking":{"type":"enabled","budget_tokens":4000}`},
		"a budget at the limit":    {`{"type":"enabled","budget_tokens":4000,"display":"omitted"}`, 4000, `"thinking":{"type":"enabled","budget_tokens":2000,"display":"omitted"}`},
		"the lowest budget":        {`{"type":"enabled","budget_tokens":4000}`, 2048, `"thinking":{"type":"enabled","budget_tokens":1024}`},
		"no room":                  {`{"type":"enabled","budget_tokens":4000}`, 2047, ``},
		"no budget":                {`{"type":"adaptive"}`, 1, `"thinking":{"type":"adaptive"}`},
		"nonsense":                 {`"hard"`, 1, `"thinking":"hard"`},
	} {
		request := conversation()
		request.MaxOutputTokens = test.limit
		got := encoded(t, wire.Config{Model: "m", Parameters: json.RawMessage(`{"speed":"fast","thinking":` + test.thinking + `}`)}, request)
		want := `"cache_control":{"type":"ephemeral"},"speed":"fast",` + test.want
		if test.want == "" {
			want = strings.TrimSuffix(want, ",")
		}
		if !strings.HasSuffix(got, want+"}") {
			t.Errorf("%s: want %s in %s", name, want, got[len(got)-150:])
		}
	}
}

// TestNothingActsByItself checks that parameters bring in nothing that the provider would
// call or search by itself, past policy and journal.
func TestNothingActsByItself(t *testing.T) {
	for _, name := range []string{"container", "mcp_servers", "plugins", "Tools"} {
		if err := anthropic.CheckParameters(json.RawMessage(`{"` + name + `":{}}`)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
