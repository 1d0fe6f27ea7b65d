// Command client is what the MCP conformance suite starts for each of its scenarios, with
// the address of the scenario's server as its argument. It uses the operator's own MCP
// client, and does with it what the scenario is about: list the tools and call them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
)

// patience bounds the whole of a scenario.
const patience = 10 * time.Second

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: client URL"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[len(os.Args)-1], os.Getenv("MCP_CONFORMANCE_SCENARIO"), []byte(os.Getenv("MCP_CONFORMANCE_CONTEXT"))); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "client:", err)
	os.Exit(1)
}

// scenarioContext is what some scenarios tell the client besides.
type scenarioContext struct {
	ToolCalls []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"toolCalls"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// run plays one scenario.
func run(ctx context.Context, url, scenario string, context []byte) error {
	var told scenarioContext
	if len(context) > 0 {
		if err := json.Unmarshal(context, &told); err != nil {
			return fmt.Errorf("the scenario's context: %w", err)
		}
	}
	options := mcptool.Options{URL: url}
	// Questions are answered here; the operator itself declares none until it can park a run.
	options.Capabilities.Elicitation = strings.HasPrefix(scenario, "sep-2322-")
	if told.ClientID != "" {
		oauth, err := discover(ctx, url, told.ClientID, told.ClientSecret)
		if err != nil {
			return err
		}
		options.Connection.OAuth = oauth
	}
	server, err := mcptool.New(options)
	if err != nil {
		return err
	}
	defer server.Close()
	listing, err := server.List(ctx)
	if err != nil {
		return err
	}
	for _, q := range listing.Quarantined {
		fmt.Printf("left out %s: %s\n", q.Name, q.Reason)
	}
	switch {
	case len(told.ToolCalls) > 0:
		for _, c := range told.ToolCalls {
			if err := call(ctx, server, definition(listing, c.Name), c.Arguments); err != nil {
				return err
			}
		}
		return nil
	case strings.HasPrefix(scenario, "json-schema-2020-12"):
		return echoSchema(ctx, server, listing)
	}
	for _, d := range listing.Tools {
		if err := call(ctx, server, d, example(d.InputSchema)); err != nil {
			return err
		}
	}
	return nil
}

func definition(listing tool.Listing, name string) tool.Definition {
	for _, d := range listing.Tools {
		if d.Name == name {
			return d
		}
	}
	return tool.Definition{Name: name}
}

// call makes one call as the operator does, and answers what the server asks.
func call(ctx context.Context, server *mcptool.Server, d tool.Definition, arguments json.RawMessage) error {
	full := "server." + d.Name
	c := tool.Call{
		Tool: d.Name, FullName: full, Digest: d.Digest(full), Arguments: arguments, ID: "call-1", EffectKey: "key-1", Attempt: 1, Epoch: 1,
		RunNamespace: "conformance", RunName: "run", RunUID: "uid",
	}
	out := server.Call(ctx, c)
	for out.Class == tool.ClassInputRequired {
		out = server.Continue(ctx, c, *out.Input, accept(out.Input.Questions))
	}
	fmt.Printf("%s: %s, %s %s\n", d.Name, out.Class, out.Message, out.Value)
	if out.Class != tool.ClassOK {
		return fmt.Errorf("%s ended as %s: %s", d.Name, out.Class, out.Message)
	}
	return nil
}

// accept answers every question with the plainest value that its schema takes.
func accept(questions []tool.Question) []tool.Answer {
	var answers []tool.Answer
	for _, q := range questions {
		answers = append(answers, tool.Answer{Key: q.Key, Action: tool.ActionAccept, Content: example(q.Schema)})
	}
	return answers
}

// echoSchema gives the schema of one tool to another as its argument.
func echoSchema(ctx context.Context, server *mcptool.Server, listing tool.Listing) error {
	arguments, err := json.Marshal(map[string]json.RawMessage{"schema": definition(listing, "json_schema_2020_12_tool").InputSchema})
	if err != nil {
		return err
	}
	return call(ctx, server, definition(listing, "json_schema_echo"), arguments)
}

// example makes an object with a plain value for every property of a schema.
func example(schema json.RawMessage) json.RawMessage {
	var read struct {
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &read)
	values := map[string]any{}
	for name, property := range read.Properties {
		switch property.Type {
		case "string":
			values[name] = "text"
		case "number", "integer":
			values[name] = 5
		case "boolean":
			values[name] = true
		case "array":
			values[name] = []any{}
		case "object":
			values[name] = map[string]any{}
		}
	}
	return strictjson.Canonical(jsonNumbers(values))
}

// jsonNumbers writes numbers as strictjson has them.
func jsonNumbers(values map[string]any) map[string]any {
	for name, value := range values {
		if n, ok := value.(int); ok {
			values[name] = json.Number(fmt.Sprint(n))
		}
	}
	return values
}
