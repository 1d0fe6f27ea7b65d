package fakemodel

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// Chat is OpenAI's Chat Completions.
var Chat Wire = chat{}

type chat struct{}

// ChatMessage is one message of a request or a reply.
type ChatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	ToolCalls  []ChatCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`

	members map[string]json.RawMessage
}

// Text is the content, of a list its texts.
func (m ChatMessage) Text() string {
	if text, ok := m.Content.(string); ok {
		return text
	}
	var text strings.Builder
	parts, _ := m.Content.([]any)
	for _, p := range parts {
		part, _ := p.(map[string]any)
		words, _ := part["text"].(string)
		text.WriteString(words)
	}
	return text.String()
}

// ChatCall is a call in an assistant message.
type ChatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// ChatTool is an offered tool.
type ChatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ChatReply answers with a whole assistant message and a stop reason of this wire; stop ""
// leaves it out.
func ChatReply(message map[string]any, stop string) Answer {
	written := int64(len(encode(message)) / 4)
	return Answer{Body: completion(message, stop, &model.Usage{InputTokens: 100, OutputTokens: written, Reported: true})}
}

// Name implements Wire.
func (chat) Name() string { return "OpenAI" }

// Endpoint implements Wire.
func (chat) Endpoint(root string) string { return root + "/v1" }

// Serves implements Wire.
func (chat) Serves(method, path string) bool {
	return method == http.MethodPost && chatPath.MatchString(path)
}

// chatPath is the vendor's, and the two of the platform.
var chatPath = regexp.MustCompile(`^(/v1|/openai/v1|/openai/deployments/[A-Za-z0-9_.-]+)/chat/completions$`)

// Key implements Wire.
func (chat) Key(r *http.Request) string { return openAIKey(r) }

// Render implements Wire. Thoughts are in the member that compatible servers have for
// them; nothing signs them.
func (chat) Render(reply Reply, names *Names) ([]byte, error) {
	message := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	stop := "stop"
	switch reply.Stop {
	case StopCutOff:
		stop = "length"
	case StopFiltered:
		stop = "content_filter"
	case StopDone, StopRefused:
	default:
		return nil, errors.New("no stop reason means " + string(reply.Stop))
	}
	switch {
	case reply.Stop == StopRefused:
		message["refusal"] = reply.Text
	case reply.Text != "" || len(reply.Calls) == 0:
		message["content"] = reply.Text
	}
	if len(reply.Thoughts) > 0 {
		var text strings.Builder
		for _, t := range reply.Thoughts {
			text.WriteString(t.Text)
		}
		message["reasoning_content"] = text.String()
	}
	if len(reply.Calls) > 0 {
		message["annotations"] = []any{}
		message["tool_calls"] = chatCalls(reply.Calls, names)
		if reply.Stop == StopDone {
			stop = "tool_calls"
		}
	}
	if reply.StopReason != "" {
		stop = reply.StopReason
	}
	return completion(message, stop, usageOf(reply, message)), nil
}

func chatCalls(calls []Call, names *Names) []any {
	var list []any
	for _, c := range calls {
		arguments := c.Arguments
		if arguments == "" {
			arguments = "{}"
		}
		list = append(list, map[string]any{
			"id": names.ID("call_"), "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": arguments},
		})
	}
	return list
}

// completion wraps a message as the vendor does.
func completion(message map[string]any, stop string, usage *model.Usage) []byte {
	choice := map[string]any{"index": 0, "message": message, "logprobs": nil}
	if stop != "" {
		choice["finish_reason"] = stop
	}
	body := map[string]any{
		"id": "chatcmpl-test", "object": "chat.completion", "created": 1790000000, "model": "test-model",
		"choices": []any{choice},
	}
	if usage.Reported {
		body["usage"] = map[string]any{
			"prompt_tokens": usage.InputTokens, "completion_tokens": usage.OutputTokens,
			"total_tokens":              usage.InputTokens + usage.OutputTokens,
			"prompt_tokens_details":     map[string]any{"cached_tokens": usage.CacheReadTokens, "cache_write_tokens": usage.CacheWriteTokens},
			"completion_tokens_details": map[string]any{"reasoning_tokens": usage.ReasoningTokens},
		}
	}
	return encode(body)
}

// Seals implements Wire: nothing is signed.
func (chat) Seals([]byte) []Seal { return nil }

// chatCodes are the vendor's codes.
var chatCodes = map[TroubleKind]string{
	TroubleRequest: "invalid_request", TroubleKey: "invalid_api_key", TroubleThrottled: "rate_limit_exceeded",
	TroubleOverloaded: "server_is_overloaded", TroubleQuota: "insufficient_quota",
	TroubleTooLong: "context_length_exceeded", TroubleInternal: "server_error",
}

// Refuse implements Wire.
func (chat) Refuse(trouble Trouble) Answer {
	return Answer{Status: trouble.statusOf(), Header: trouble.retryAfter(), Body: encode(map[string]any{"error": map[string]any{
		"message": trouble.Message, "type": "invalid_request_error", "param": nil, "code": trouble.codeOf(chatCodes),
	}})}
}

// Garbage implements Wire.
func (chat) Garbage() map[string][]byte {
	return map[string][]byte{
		"an event stream":                []byte("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n"),
		"nesting without end":            []byte(`{"choices":` + endless() + `}`),
		"members of the wrong type":      []byte(`{"choices":{"0":{"message":"hello"}},"usage":"none"}`),
		"no choices":                     []byte(`{"id":"chatcmpl-1","choices":[]}`),
		"a choice without a message":     []byte(`{"choices":[{"index":0,"finish_reason":"stop"}]}`),
		"a message that is no object":    []byte(`{"choices":[{"message":["hello"],"finish_reason":"stop"}]}`),
		"a stop reason that is a number": []byte(`{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":1}]}`),
	}
}
