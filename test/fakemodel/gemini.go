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

// Gemini is generateContent, as the Gemini API and Vertex AI speak it.
var Gemini Wire = gemini{}

type gemini struct{}

// GeminiContent is one content of a request or a reply.
type GeminiContent struct {
	Role  string       `json:"role"`
	Parts []GeminiPart `json:"parts"`
}

// Text is what was said, less the thoughts.
func (c GeminiContent) Text() string {
	var text strings.Builder
	for _, p := range c.Parts {
		if !p.Thought {
			text.WriteString(p.Text)
		}
	}
	return text.String()
}

// GeminiPart is one part of a content.
type GeminiPart struct {
	Text             string                  `json:"text"`
	Thought          bool                    `json:"thought"`
	ThoughtSignature string                  `json:"thoughtSignature"`
	FunctionCall     *GeminiFunctionCall     `json:"functionCall"`
	FunctionResponse *GeminiFunctionResponse `json:"functionResponse"`

	members map[string]json.RawMessage
}

// GeminiFunctionCall is a proposed call.
type GeminiFunctionCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// GeminiFunctionResponse is the result of a call.
type GeminiFunctionResponse struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Response map[string]any `json:"response"`
}

// GeminiTool is a list of offered functions.
type GeminiTool struct {
	FunctionDeclarations []GeminiFunction `json:"functionDeclarations"`
}

// GeminiFunction is an offered function. The schema is in one of two languages.
type GeminiFunction struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description"`
	Parameters           json.RawMessage `json:"parameters"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

// Name implements Wire.
func (gemini) Name() string { return "Gemini" }

// Endpoint implements Wire. It is the Gemini API's; Vertex AI's is below /v1.
func (gemini) Endpoint(root string) string { return root + "/v1beta" }

var (
	geminiPath = regexp.MustCompile(`^/v1beta/models/([^/:]+):generateContent$`)
	vertexPath = regexp.MustCompile(`^/v1/projects/[a-z][a-z0-9-]+/locations/[a-z][a-z0-9-]*/publishers/google/models/([^/:]+):generateContent$`)
)

// modelOf is the model that a path names, empty for a path that is not this wire's.
func (gemini) modelOf(path string) string {
	for _, pattern := range []*regexp.Regexp{geminiPath, vertexPath} {
		if match := pattern.FindStringSubmatch(path); match != nil {
			return match[1]
		}
	}
	return ""
}

// Serves implements Wire.
func (g gemini) Serves(method, path string) bool {
	return method == http.MethodPost && g.modelOf(path) != ""
}

// Key implements Wire: on the platform it is an access token.
func (gemini) Key(r *http.Request) string {
	if vertexPath.MatchString(r.URL.Path) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return token
	}
	return r.Header.Get("X-Goog-Api-Key")
}

// Render implements Wire. Calls have no ids: the wire does not promise any, and pairs by
// place. The first call of a reply is signed, and the text of one that took thought.
func (gemini) Render(reply Reply, names *Names) ([]byte, error) {
	stop, ok := map[Stop]string{
		StopDone: "STOP", StopCutOff: "MAX_TOKENS", StopRefused: "PROHIBITED_CONTENT", StopFiltered: "SAFETY",
	}[reply.Stop]
	if !ok {
		return nil, errors.New("no stop reason means " + string(reply.Stop))
	}
	if reply.StopReason != "" {
		stop = reply.StopReason
	}
	var parts []map[string]any
	for _, t := range reply.Thoughts {
		if !t.Redacted {
			parts = append(parts, map[string]any{"text": t.Text, "thought": true})
		}
	}
	said := len(parts)
	if reply.Text != "" {
		parts = append(parts, map[string]any{"text": reply.Text})
	}
	for i, c := range reply.Calls {
		arguments := json.RawMessage(c.Arguments)
		if c.Arguments == "" {
			arguments = json.RawMessage("{}")
		}
		if !json.Valid(arguments) {
			return nil, fmt.Errorf("call %d has arguments that are not JSON", i)
		}
		if i == 0 {
			said = len(parts)
		}
		parts = append(parts, map[string]any{"functionCall": map[string]any{"name": c.Name, "args": arguments}})
	}
	if said < len(parts) && (len(reply.Calls) > 0 || len(reply.Thoughts) > 0) {
		signed := parts[said]
		signed["thoughtSignature"] = names.Signature(canonical(encode(signed)))
	}
	content := map[string]any{"role": "model"}
	if len(parts) > 0 {
		content["parts"] = parts
	}
	return generated(content, stop, usageOf(reply, content)), nil
}

// generated wraps a content as the vendor does.
func generated(content map[string]any, stop string, usage *model.Usage) []byte {
	body := map[string]any{
		"candidates":   []any{map[string]any{"content": content, "finishReason": stop, "index": 0}},
		"modelVersion": "test-model", "responseId": "response-test",
	}
	if usage.Reported {
		body["usageMetadata"] = map[string]any{
			"promptTokenCount": usage.InputTokens, "cachedContentTokenCount": usage.CacheReadTokens,
			"candidatesTokenCount": usage.OutputTokens - usage.ReasoningTokens, "thoughtsTokenCount": usage.ReasoningTokens,
			"totalTokenCount": usage.InputTokens + usage.OutputTokens,
		}
	}
	return encode(body)
}

// Seals implements Wire: a signature signs the part that it is in.
func (gemini) Seals(body []byte) []Seal {
	var reply struct {
		Candidates []struct {
			Content struct {
				Parts []json.RawMessage `json:"parts"`
			} `json:"content"`
		} `json:"candidates"`
	}
	if json.Unmarshal(body, &reply) != nil || len(reply.Candidates) == 0 {
		return nil
	}
	return geminiSeals(reply.Candidates[0].Content.Parts)
}

func geminiSeals(parts []json.RawMessage) []Seal {
	var seals []Seal
	for _, raw := range parts {
		var members map[string]json.RawMessage
		var signature string
		if json.Unmarshal(raw, &members) != nil || json.Unmarshal(members["thoughtSignature"], &signature) != nil {
			continue
		}
		if signature == skipSignature {
			continue
		}
		delete(members, "thoughtSignature")
		seals = append(seals, Seal{Signature: signature, Content: canonical(encode(members))})
	}
	return seals
}

// Refuse implements Wire. What can be waited for is in the details, not in a header.
func (gemini) Refuse(trouble Trouble) Answer {
	status, name, message, details := trouble.statusOf(), "INVALID_ARGUMENT", trouble.Message, []any{}
	kind := func(name string) string { return "type.googleapis.com/google.rpc." + name }
	switch trouble.Kind {
	case TroubleKey:
		if trouble.Status == 0 {
			status = http.StatusBadRequest
		}
		details = append(details, map[string]any{"@type": kind("ErrorInfo"), "reason": "API_KEY_INVALID", "domain": "googleapis.com"})
	case TroubleThrottled:
		name = "RESOURCE_EXHAUSTED"
		details = append(details, quotaFailure("GenerateRequestsPerMinutePerProjectPerModel"))
	case TroubleQuota:
		name = "RESOURCE_EXHAUSTED"
		details = append(details, quotaFailure("GenerateRequestsPerDayPerProjectPerModel"))
	case TroubleOverloaded:
		name = "UNAVAILABLE"
	case TroubleInternal:
		name = "INTERNAL"
	case TroubleRequest:
	case TroubleTooLong:
		message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
	}
	if trouble.Code != "" {
		name = trouble.Code
	}
	if trouble.Wait > 0 {
		details = append(details, map[string]any{"@type": kind("RetryInfo"), "retryDelay": fmt.Sprintf("%gs", trouble.Wait.Seconds())})
	}
	return Answer{Status: status, Body: encode(map[string]any{"error": map[string]any{
		"code": status, "message": message, "status": name, "details": details,
	}})}
}

func quotaFailure(id string) map[string]any {
	return map[string]any{
		"@type":      "type.googleapis.com/google.rpc.QuotaFailure",
		"violations": []any{map[string]any{"quotaId": id, "quotaMetric": "generativelanguage.googleapis.com/requests"}},
	}
}

// Garbage implements Wire.
func (gemini) Garbage() map[string][]byte {
	return map[string][]byte{
		"an event stream":                []byte("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]}}]}\n\n"),
		"nesting without end":            []byte(`{"candidates":` + endless() + `}`),
		"members of the wrong type":      []byte(`{"candidates":{"0":{"content":"hello"}},"usageMetadata":"none"}`),
		"no candidates":                  []byte(`{"candidates":[],"modelVersion":"m"}`),
		"a candidate that is text":       []byte(`{"candidates":["hello"]}`),
		"a content that is text":         []byte(`{"candidates":[{"content":"hello","finishReason":"STOP"}]}`),
		"parts that are an object":       []byte(`{"candidates":[{"content":{"role":"model","parts":{"text":"hi"}},"finishReason":"STOP"}]}`),
		"a stop reason that is a number": []byte(`{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":1}]}`),
	}
}
