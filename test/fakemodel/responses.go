package fakemodel

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// Responses is OpenAI's Responses, of a server that stores nothing.
var Responses Wire = responses{}

type responses struct{}

// ResponsesItem is one item of a conversation or a reply.
type ResponsesItem struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// Role and Content of a message; Content of a thought, too.
	Role    string `json:"role"`
	Content any    `json:"content"`
	Status  string `json:"status"`
	// CallID, Name and Arguments of a call; CallID and Output of its result.
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    any             `json:"output"`
	// EncryptedContent and Summary of a thought.
	EncryptedContent string `json:"encrypted_content"`
	Summary          []any  `json:"summary"`

	members map[string]json.RawMessage
}

// Text is the content of a message, of a list its texts.
func (i ResponsesItem) Text() string { return ChatMessage{Content: i.Content}.Text() }

// kind is the type, which messages may leave out.
func (i ResponsesItem) kind() string {
	if i.Type == "" && i.Role != "" {
		return "message"
	}
	return i.Type
}

// spoken reports whether the assistant said it.
func (i ResponsesItem) spoken() bool {
	switch i.kind() {
	case "message":
		return i.Role == "assistant"
	case "function_call_output":
		return false
	default:
		return true
	}
}

// ResponsesTool is an offered function.
type ResponsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Name implements Wire.
func (responses) Name() string { return "OpenAIResponses" }

// Endpoint implements Wire.
func (responses) Endpoint(root string) string { return root + "/v1" }

// Serves implements Wire.
func (responses) Serves(method, path string) bool {
	return method == http.MethodPost && slices.Contains([]string{"/v1/responses", "/openai/v1/responses", "/openai/responses"}, path)
}

// Key implements Wire.
func (responses) Key(r *http.Request) string { return openAIKey(r) }

// openAIKey is the key of a request to the vendor, or to the platform by whose path it
// came, which takes a key in a header of its own as well as a token.
func openAIKey(r *http.Request) string {
	key, isToken := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if own := r.Header.Get("Api-Key"); !isToken && strings.HasPrefix(r.URL.Path, "/openai/") {
		return own
	}
	return key
}

// checkVersion checks the query: dated paths of the platform need a version, no other
// path has any.
func checkVersion(r *Request) string {
	query := r.URL.Query()
	dated := strings.HasPrefix(r.URL.Path, "/openai/") && !strings.HasPrefix(r.URL.Path, "/openai/v1/")
	versionless := strings.HasPrefix(r.URL.Path, "/openai/v1/") && len(query) == 1
	switch {
	case versionless && (query.Get("api-version") == "preview" || query.Get("api-version") == "latest"):
		return ""
	case !dated && len(query) > 0:
		return "the path has no query"
	case dated && (len(query) != 1 || query.Get("api-version") == ""):
		return "api-version is missing, or not alone"
	}
	return ""
}

// Render implements Wire. A thought is encrypted; what stands for it can be given back to
// this server alone.
func (responses) Render(reply Reply, names *Names) ([]byte, error) {
	status, reason := "completed", ""
	switch reply.Stop {
	case StopCutOff:
		status, reason = "incomplete", "max_output_tokens"
	case StopFiltered:
		status, reason = "incomplete", "content_filter"
	case StopDone, StopRefused:
	default:
		return nil, errors.New("no status means " + string(reply.Stop))
	}
	switch reply.StopReason {
	case "":
	case "completed", "failed", "in_progress", "cancelled", "queued":
		status, reason = reply.StopReason, ""
	default:
		status, reason = "incomplete", reply.StopReason
	}
	output := responsesOutput(reply, names)
	if status == "incomplete" && len(output) > 0 {
		if last := output[len(output)-1]; last["type"] != "reasoning" {
			last["status"] = "incomplete"
		}
	}
	return responded(output, status, reason, usageOf(reply, output)), nil
}

func responsesOutput(reply Reply, names *Names) []map[string]any {
	output := []map[string]any{}
	for _, t := range reply.Thoughts {
		summary := []any{}
		if !t.Redacted {
			summary = append(summary, map[string]any{"type": "summary_text", "text": t.Text})
		}
		output = append(output, map[string]any{
			"id": names.ID("rs_"), "type": "reasoning", "content": []any{}, "summary": summary,
			"encrypted_content": names.Signature(t.Text),
		})
	}
	message := func(part map[string]any) {
		output = append(output, map[string]any{
			"id": names.ID("msg_"), "type": "message", "status": "completed", "role": "assistant", "content": []any{part},
		})
	}
	switch {
	case reply.Stop == StopRefused:
		message(map[string]any{"type": "refusal", "refusal": reply.Text})
	case reply.Text != "":
		message(map[string]any{"type": "output_text", "annotations": []any{}, "logprobs": []any{}, "text": reply.Text})
	}
	for _, c := range reply.Calls {
		arguments := c.Arguments
		if arguments == "" {
			arguments = "{}"
		}
		output = append(output, map[string]any{
			"id": names.ID("fc_"), "type": "function_call", "status": "completed",
			"arguments": arguments, "call_id": names.ID("call_"), "name": c.Name,
		})
	}
	return output
}

// responded wraps an output as the vendor does.
func responded(output []map[string]any, status, reason string, usage *model.Usage) []byte {
	body := map[string]any{
		"id": "resp_test", "object": "response", "created_at": 1790000000, "status": status, "error": nil,
		"incomplete_details": nil, "instructions": nil, "model": "test-model", "output": output, "store": false,
	}
	if reason != "" {
		body["incomplete_details"] = map[string]any{"reason": reason}
	}
	if status == "failed" {
		body["error"] = map[string]any{"code": "server_error", "message": "something went wrong"}
	}
	if usage.Reported {
		body["usage"] = map[string]any{
			"input_tokens": usage.InputTokens, "output_tokens": usage.OutputTokens,
			"total_tokens":          usage.InputTokens + usage.OutputTokens,
			"input_tokens_details":  map[string]any{"cached_tokens": usage.CacheReadTokens, "cache_write_tokens": usage.CacheWriteTokens},
			"output_tokens_details": map[string]any{"reasoning_tokens": usage.ReasoningTokens},
		}
	}
	return encode(body)
}

// Seals implements Wire: what was encrypted stands for the whole thought, and for the kind
// of item that followed from it. A thought that nothing followed from can't come back.
func (responses) Seals(body []byte) []Seal {
	var reply struct {
		Output []json.RawMessage `json:"output"`
	}
	if json.Unmarshal(body, &reply) != nil {
		return nil
	}
	items, problem := readResponsesItems(reply.Output)
	if problem != "" {
		return nil
	}
	var seals []Seal
	for i, item := range items {
		if seal, sealed := item.seal(items[i+1:]); sealed && i+1 < len(items) {
			seals = append(seals, seal)
		}
	}
	return seals
}

// seal of a thought, before what follows.
func (i ResponsesItem) seal(following []ResponsesItem) (Seal, bool) {
	if i.kind() != "reasoning" || i.EncryptedContent == "" {
		return Seal{}, false
	}
	next := "nothing"
	if len(following) > 0 && following[0].spoken() {
		next = following[0].kind()
	}
	return Seal{Signature: i.EncryptedContent, Content: canonical(encode(i.members)) + " before " + next}, true
}

// Refuse implements Wire.
func (responses) Refuse(trouble Trouble) Answer { return Chat.Refuse(trouble) }

// Garbage implements Wire.
func (responses) Garbage() map[string][]byte {
	return map[string][]byte{
		"an event stream":             []byte("event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n"),
		"nesting without end":         []byte(`{"status":"completed","output":` + endless() + `}`),
		"members of the wrong type":   []byte(`{"status":"completed","output":{"0":{"type":"message"}},"usage":"none"}`),
		"no output":                   []byte(`{"id":"resp_1","status":"completed"}`),
		"a null output":               []byte(`{"id":"resp_1","status":"completed","output":null}`),
		"an item without a type":      []byte(`{"status":"completed","output":[{"content":"hello"}]}`),
		"an item that is text":        []byte(`{"status":"completed","output":["hello"]}`),
		"a status that is a number":   []byte(`{"status":1,"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]}`),
		"a reply of another wire":     Body(Chat, Text("hello")),
		"a message that is a number":  []byte(`{"status":"completed","output":[{"type":"message","role":"assistant","content":1}]}`),
		"a message of somebody else":  []byte(`{"status":"completed","output":[{"type":"message","role":"user","content":"hello"}]}`),
		"a call without a name":       []byte(`{"status":"completed","output":[{"type":"function_call","call_id":"c","arguments":"{}"}]}`),
		"a call that nobody can make": []byte(`{"status":"completed","output":[{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}}]}`),
	}
}
