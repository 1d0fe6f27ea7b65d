package fakemodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// Messages is Anthropic's Messages, also as Amazon Bedrock and Vertex AI serve it.
var Messages Wire = messages{}

type messages struct{}

// MessagesReply answers with these content blocks and a stop reason of this wire; stop ""
// leaves it out.
func MessagesReply(stop string, blocks ...map[string]any) Answer {
	usage := &model.Usage{InputTokens: 100, OutputTokens: int64(len(encode(blocks)) / 4), Reported: true}
	return Answer{Body: envelope("msg_test", blocks, stop, nil, usage)}
}

// Name implements Wire.
func (messages) Name() string { return "Anthropic" }

// Endpoint implements Wire.
func (messages) Endpoint(root string) string { return root }

var (
	// Bedrock's runtime and Vertex AI name the model in the path, and take the version
	// from the body. The name of an inference profile has a slash, which is escaped.
	claudeOnBedrock = regexp.MustCompile(`^/model/.+/invoke$`)
	claudeOnVertex  = regexp.MustCompile(`^/v1/projects/[^/]+/locations/[^/]+/publishers/anthropic/models/[^/:]+:rawPredict$`)
)

// claudeOnMantle is that of Bedrock's own Messages.
const claudeOnMantle = "/anthropic/v1/messages"

// Serves implements Wire.
func (messages) Serves(method, path string) bool {
	return method == http.MethodPost && (path == "/v1/messages" || path == claudeOnMantle || modelInPath(path))
}

func modelInPath(path string) bool {
	return claudeOnBedrock.MatchString(path) || claudeOnVertex.MatchString(path)
}

// Key implements Wire.
func (messages) Key(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// messagesStops are the wire's words.
var messagesStops = map[Stop]string{
	StopDone: "end_turn", StopCutOff: "max_tokens", StopFull: "model_context_window_exceeded",
	StopRefused: "refusal", StopPaused: "pause_turn",
}

// Render implements Wire.
func (messages) Render(reply Reply, names *Names) ([]byte, error) {
	stop, ok := messagesStops[reply.Stop]
	if !ok {
		return nil, errors.New("no stop reason means " + string(reply.Stop))
	}
	blocks := thoughtBlocks(reply.Thoughts, names)
	var details any
	switch {
	case reply.Stop == StopRefused:
		details = map[string]any{"type": "refusal", "category": nil, "explanation": reply.Text}
	case reply.Text != "":
		blocks = append(blocks, map[string]any{"type": "text", "text": reply.Text, "citations": nil})
	}
	for _, c := range reply.Calls {
		block, err := callBlock(c, names)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
		if reply.Stop == StopDone {
			stop = "tool_use"
		}
	}
	if reply.Stop == StopPaused {
		blocks = append(blocks, searchBlocks(names)...)
	}
	if reply.StopReason != "" {
		stop = reply.StopReason
	}
	return envelope(names.ID("msg_"), blocks, stop, details, usageOf(reply, blocks)), nil
}

func thoughtBlocks(thoughts []Thought, names *Names) []map[string]any {
	var blocks []map[string]any
	for _, t := range thoughts {
		if t.Redacted {
			blocks = append(blocks, map[string]any{"type": "redacted_thinking", "data": names.Signature(t.Text)})
			continue
		}
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": t.Text, "signature": names.Signature(t.Text)})
	}
	return blocks
}

func callBlock(c Call, names *Names) (map[string]any, error) {
	input := json.RawMessage(c.Arguments)
	if c.Arguments == "" {
		input = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(input, &object) != nil {
		return nil, fmt.Errorf("the arguments of %s are no JSON object, and nothing else is an input", c.Name)
	}
	return map[string]any{
		"type": "tool_use", "id": names.ID("toolu_"), "name": c.Name, "input": input,
		"caller": map[string]any{"type": "direct"},
	}, nil
}

// searchBlocks is a tool of the provider's own, in the middle of which it pauses.
func searchBlocks(names *Names) []map[string]any {
	id := names.ID("srvtoolu_")
	return []map[string]any{
		{"type": "server_tool_use", "id": id, "name": "web_search", "input": map[string]any{"query": "pawl"}},
		{"type": "web_search_tool_result", "tool_use_id": id, "content": []any{}},
	}
}

// envelope wraps content as the vendor does.
func envelope(id string, blocks []map[string]any, stop string, details any, usage *model.Usage) []byte {
	if blocks == nil {
		blocks = []map[string]any{}
	}
	body := map[string]any{
		"id": id, "type": "message", "role": "assistant", "model": "test-model", "container": nil,
		"content": blocks, "stop_sequence": nil, "stop_details": details, "stop_reason": nil,
	}
	if stop != "" {
		body["stop_reason"] = stop
	}
	if usage.Reported {
		body["usage"] = map[string]any{
			"input_tokens":                usage.InputTokens - usage.CacheReadTokens - usage.CacheWriteTokens,
			"cache_read_input_tokens":     usage.CacheReadTokens,
			"cache_creation_input_tokens": usage.CacheWriteTokens,
			"cache_creation":              map[string]any{"ephemeral_5m_input_tokens": usage.CacheWriteTokens, "ephemeral_1h_input_tokens": 0},
			"output_tokens":               usage.OutputTokens,
			"output_tokens_details":       map[string]any{"thinking_tokens": usage.ReasoningTokens},
			"service_tier":                "standard",
		}
	}
	return encode(body)
}

// Seals implements Wire.
func (messages) Seals(body []byte) []Seal {
	var reply struct {
		Content []messagesBlock `json:"content"`
	}
	if json.Unmarshal(body, &reply) != nil {
		return nil
	}
	var seals []Seal
	for _, b := range reply.Content {
		seals = append(seals, b.seals()...)
	}
	return seals
}

// messagesTypes are the vendor's types of errors.
var messagesTypes = map[TroubleKind]string{
	TroubleRequest: "invalid_request_error", TroubleKey: "authentication_error", TroubleThrottled: "rate_limit_error",
	TroubleOverloaded: "overloaded_error", TroubleQuota: "rate_limit_error",
	TroubleTooLong: "invalid_request_error", TroubleInternal: "api_error",
}

// Refuse implements Wire.
func (messages) Refuse(trouble Trouble) Answer {
	status := trouble.statusOf()
	if trouble.Kind == TroubleOverloaded && trouble.Status == 0 {
		status = 529
	}
	said := map[string]any{"type": trouble.codeOf(messagesTypes), "message": trouble.Message}
	if trouble.Kind == TroubleQuota {
		said["details"] = map[string]any{"error_code": "enforced_spend_limit_reached"}
	}
	if trouble.Kind == TroubleTooLong {
		said["message"] = "prompt is too long: 200001 tokens > 200000 maximum"
	}
	const id = "req_test"
	header := trouble.retryAfter()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Request-Id", id)
	return Answer{Status: status, Header: header, Body: encode(map[string]any{"type": "error", "error": said, "request_id": id})}
}

// Garbage implements Wire.
func (messages) Garbage() map[string][]byte {
	return map[string][]byte{
		"an event stream":                []byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n"),
		"nesting without end":            []byte(`{"type":"message","content":` + endless() + `}`),
		"members of the wrong type":      []byte(`{"type":"message","content":{"0":{"type":"text","text":"hello"}},"stop_reason":"end_turn","usage":"none"}`),
		"no content":                     []byte(`{"type":"message","role":"assistant","stop_reason":"end_turn"}`),
		"nothing in the content":         []byte(`{"type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}`),
		"a block that is no object":      []byte(`{"type":"message","role":"assistant","content":["hello"],"stop_reason":"end_turn"}`),
		"a block without a type":         []byte(`{"type":"message","role":"assistant","content":[{"text":"hello"}],"stop_reason":"end_turn"}`),
		"a text that is a number":        []byte(`{"type":"message","role":"assistant","content":[{"type":"text","text":1}],"stop_reason":"end_turn"}`),
		"a call without a name":          []byte(`{"type":"message","role":"assistant","content":[{"type":"tool_use","id":"a","input":{}}],"stop_reason":"tool_use"}`),
		"a stop reason that is a number": []byte(`{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":1}`),
		"a message of the user":          []byte(`{"type":"message","role":"user","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}`),
	}
}
