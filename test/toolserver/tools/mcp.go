package tools

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// echo, add and note are the arguments and results of the MCP tools.
type (
	echoArguments struct {
		Text string `json:"text" jsonschema:"what to say"`
	}
	addArguments struct {
		A int64 `json:"a"`
		B int64 `json:"b"`
	}
	addResult struct {
		Sum int64 `json:"sum"`
	}
	noteArguments struct {
		Text string `json:"text" jsonschema:"what to write down"`
	}
	noteResult struct {
		Notes int64 `json:"notes"`
	}
)

// mcpHandler serves the MCP tools, with sessions or without.
func (s *Server) mcpHandler(sessions bool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "pawl-toolserver", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Say the text back.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, r *mcp.CallToolRequest, in echoArguments) (*mcp.CallToolResult, any, error) {
			s.recordMCP(r, false)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add two integers.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, r *mcp.CallToolRequest, in addArguments) (*mcp.CallToolResult, addResult, error) {
			s.recordMCP(r, false)
			return nil, addResult{Sum: in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "write_note", Description: "Write a note down; says how many there are."},
		func(_ context.Context, r *mcp.CallToolRequest, _ noteArguments) (*mcp.CallToolResult, noteResult, error) {
			s.recordMCP(r, true)
			return nil, noteResult{Notes: s.count("notes")}, nil
		})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: !sessions})
}

// recordMCP adds a call to the ledger, with what its _meta says.
func (s *Server) recordMCP(r *mcp.CallToolRequest, applied bool) {
	now := time.Now()
	e := Entry{Tool: "mcp." + r.Params.Name, Time: now, Done: &now, Arguments: r.Params.Arguments, Applied: applied}
	var meta struct {
		Key     string `json:"pawl.run/idempotency-key"`
		CallID  string `json:"pawl.run/call-id"`
		Run     string `json:"pawl.run/run"`
		RunUID  string `json:"pawl.run/run-uid"`
		Attempt int64  `json:"pawl.run/attempt"`
		Epoch   int64  `json:"pawl.run/epoch"`
	}
	if text, err := json.Marshal(r.Params.Meta); err == nil {
		_ = json.Unmarshal(text, &meta)
	}
	e.Key, e.CallID, e.Run, e.RunUID, e.Attempt, e.Epoch = meta.Key, meta.CallID, meta.Run, meta.RunUID, meta.Attempt, meta.Epoch
	s.record(e)
}
