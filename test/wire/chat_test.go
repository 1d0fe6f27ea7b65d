package wire

import (
	"encoding/json"
	"fmt"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// chat reads recordings of Chat Completions.
type chat struct{}

func (chat) wire() fakemodel.Wire        { return fakemodel.Chat }
func (chat) provider() v1alpha1.Provider { return v1alpha1.ProviderOpenAI }

func (chat) differences() []fakemodel.Difference {
	return []fakemodel.Difference{fakemodel.EchoKeepsEmptyMembers}
}

func (chat) begin(first fakemodel.Exchange) (beginning, error) {
	var body struct {
		Model               string                  `json:"model"`
		Messages            []fakemodel.ChatMessage `json:"messages"`
		Tools               []fakemodel.ChatTool    `json:"tools"`
		MaxTokens           int32                   `json:"max_tokens"`
		MaxCompletionTokens int32                   `json:"max_completion_tokens"`
	}
	if err := json.Unmarshal(first.RequestBody, &body); err != nil {
		return beginning{}, err
	}
	b := beginning{model: body.Model, maxOutputTokens: max(body.MaxTokens, body.MaxCompletionTokens)}
	for _, m := range body.Messages {
		switch m.Role {
		case "system":
			b.systemPrompt = m.Text()
		case "user":
			b.prompt = m.Text()
		default:
			return beginning{}, fmt.Errorf("the recording begins with a message of %s", m.Role)
		}
	}
	for _, t := range body.Tools {
		b.tools = append(b.tools, fakemodel.Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	var err error
	b.parameters, err = parametersOf(first.RequestBody, append(openai.ReservedParameters(), "max_tokens", "max_completion_tokens"))
	return b, err
}

func (chat) answer(last fakemodel.Exchange) (string, error) {
	var body struct {
		Choices []struct {
			Message fakemodel.ChatMessage `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(last.ResponseBody, &body); err != nil {
		return "", err
	}
	if len(body.Choices) != 1 {
		return "", fmt.Errorf("the recorded reply has %d choices", len(body.Choices))
	}
	return body.Choices[0].Message.Text(), nil
}
