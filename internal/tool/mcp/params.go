package mcptool

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pawl-run/pawl/internal/tool"
)

// Members of _meta that tell a server about the call.
const (
	metaKey     = "pawl.run/idempotency-key"
	metaRun     = "pawl.run/run"
	metaRunUID  = "pawl.run/run-uid"
	metaCallID  = "pawl.run/call-id"
	metaAttempt = "pawl.run/attempt"
	metaEpoch   = "pawl.run/epoch"
)

// parameters are those of tools/call and tools/list.
type parameters struct {
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Cursor    string          `json:"cursor,omitempty"`
	Meta      map[string]any  `json:"_meta,omitempty"`
}

// meta is what every request of the session's revision carries.
func meta(current *session) map[string]any {
	if !current.modern() {
		return map[string]any{}
	}
	return map[string]any{
		mcp.MetaKeyProtocolVersion:    current.version,
		mcp.MetaKeyClientInfo:         map[string]any{"name": "pawl", "version": "v1alpha1"},
		mcp.MetaKeyClientCapabilities: map[string]any{},
	}
}

func callParams(current *session, call tool.Call) parameters {
	m := meta(current)
	if call.EffectKey != "" {
		m[metaKey] = call.EffectKey
	}
	m[metaRun] = call.RunNamespace + "/" + call.RunName
	m[metaRunUID] = call.RunUID
	m[metaCallID] = call.ID
	m[metaAttempt] = call.Attempt
	m[metaEpoch] = call.Epoch
	arguments := call.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	return parameters{Name: call.Tool, Arguments: arguments, Meta: m}
}
