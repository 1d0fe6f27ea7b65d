package wire_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// failing asks a provider that answers with an error, on one wire.
func failing(t *testing.T, a adapter, status int, body string) *model.Error {
	t.Helper()
	client := a.client(t, wire.Config{Endpoint: "https://models.example.com", Transport: answers(status, nil, []byte(body))})
	_, err := client.Decide(t.Context(), question())
	return asError(t, err)
}

// tooLong is how servers say that a conversation is too long, by who was seen saying it.
var tooLong = map[string]struct {
	status  int
	message string
}{
	"OpenAI, vLLM, Mistral, Ollama":   {400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"},
	"OpenAI's newer models":           {400, "Your input exceeds the context window of this model. Please adjust your input and try again."},
	"xAI":                             {400, "This model's maximum prompt length is 131072 but the request contains 150000 tokens."},
	"Anthropic":                       {400, "prompt is too long: 200001 tokens > 200000 maximum"},
	"Anthropic, with its limit":       {400, "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000"},
	"Bedrock":                         {400, "Input is too long for requested model."},
	"Gemini":                          {400, "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."},
	"Vertex AI":                       {400, "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576."},
	"Google's front end":              {400, "Request payload size exceeds the limit: 20971520 bytes."},
	"llama.cpp":                       {400, "the request exceeds the available context size, try increasing it"},
	"Together AI, SGLang":             {400, "The input (40000 tokens) is longer than the model's context length (32768 tokens)."},
	"TGI, Hugging Face":               {422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`"},
	"TGI, without room for a reply":   {422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"},
	"Moonshot, Kimi":                  {400, "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)"},
	"LM Studio":                       {400, "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context length of only 7866 tokens, which is not enough."},
	"LM Studio, the number of tokens": {400, "The number of tokens to keep from the initial prompt is greater than the context length."},
	"Ollama":                          {400, "prompt too long; exceeded max context length by 12 tokens"},
	"Groq":                            {400, "Please reduce the length of the messages or completion."},
	"Cohere":                          {400, "too many tokens: total number of tokens in the prompt cannot exceed 4081"},
	"GitHub Copilot":                  {400, "prompt token count of 200000 exceeds the limit of 128000"},
	"DashScope, Qwen":                 {400, "Range of input length should be [1, 129024]"},
	"MiniMax":                         {400, "invalid params, context window exceeds limit"},
	"Poolside":                        {400, "Input exceeds the maximum allowed input length of 131040 tokens."},
	"a proxy without words":           {413, ""},
}

func TestTooLong(t *testing.T) {
	for who, said := range tooLong {
		t.Run(who, func(t *testing.T) {
			onEach(t, func(t *testing.T, a adapter) {
				body := fmt.Sprintf(`{"error":{"message":%s,"type":"invalid_request_error"}}`, wire.Quote(said.message))
				if failure := failing(t, a, said.status, body); failure.Class != model.ClassOverflow {
					t.Errorf("got class %s", failure.Class)
				}
			})
		})
	}
}

// TestNotTooLong checks messages that speak of lengths and tokens and mean something else.
func TestNotTooLong(t *testing.T) {
	for _, message := range []string{
		"max_tokens is too large: 100000.", "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
		"Invalid 'tools[0].function.description': string too long.", "Rate limit reached for tokens per minute",
	} {
		onEach(t, func(t *testing.T, a adapter) {
			body := fmt.Sprintf(`{"error":{"message":%s,"type":"invalid_request_error"}}`, wire.Quote(message))
			if failure := failing(t, a, http.StatusBadRequest, body); failure.Class != model.ClassRequest {
				t.Errorf("%s: got class %s", message, failure.Class)
			}
		})
	}
}

// TestStatuses checks that a status that says nothing else means the same on every wire.
func TestStatuses(t *testing.T) {
	for class, statuses := range map[model.Class][]int{
		model.ClassRequest:      {300, 302, 307, 400, 404, 405, 410, 415, 418, 422, 451},
		model.ClassUnauthorized: {401, 403},
		model.ClassQuota:        {402},
		model.ClassOverflow:     {413},
		model.ClassThrottled:    {429, 529},
		model.ClassTransient:    {408, 409, 424, 425, 499, 500, 501, 502, 503, 504, 520, 524, 599},
	} {
		for _, status := range statuses {
			onEach(t, func(t *testing.T, a adapter) {
				for _, body := range []string{"", "<html>nope</html>", `{"error":{"message":"x"}}`} {
					if failure := failing(t, a, status, body); failure.Class != class || failure.Status != status || !failure.Sent {
						t.Errorf("status %d with %q: got %+v, want class %s", status, body, failure, class)
					}
				}
			})
		}
	}
}
