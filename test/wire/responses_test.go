package wire

import (
	"encoding/json"
	"fmt"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// responded reads recordings of Responses.
type responded struct{}

func (responded) wire() fakemodel.Wire                { return fakemodel.Responses }
func (responded) provider() v1alpha1.Provider         { return v1alpha1.ProviderOpenAIResponses }
func (responded) differences() []fakemodel.Difference { return fakemodel.ResponsesDifferences }

func (responded) begin(first fakemodel.Exchange) (beginning, error) {
	var body struct {
		Model           string                    `json:"model"`
		Input           []fakemodel.ResponsesItem `json:"input"`
		Tools           []fakemodel.ResponsesTool `json:"tools"`
		MaxOutputTokens int32                     `json:"max_output_tokens"`
	}
	if err := json.Unmarshal(first.RequestBody, &body); err != nil {
		return beginning{}, err
	}
	b := beginning{model: body.Model, maxOutputTokens: body.MaxOutputTokens}
	for _, item := range body.Input {
		switch item.Role {
		case "developer", "system":
			b.systemPrompt = item.Text()
		case "user":
			b.prompt = item.Text()
		default:
			return beginning{}, fmt.Errorf("the recording begins with a %s of %s", item.Type, item.Role)
		}
	}
	for _, t := range body.Tools {
		b.tools = append(b.tools, fakemodel.Tool{Name: t.Name, Description: t.Description, Schema: t.Parameters})
	}
	var err error
	b.parameters, err = parametersOf(first.RequestBody, responses.ReservedParameters())
	return b, err
}

func (responded) answer(last fakemodel.Exchange) (string, error) {
	var body struct {
		Output []fakemodel.ResponsesItem `json:"output"`
	}
	if err := json.Unmarshal(last.ResponseBody, &body); err != nil {
		return "", err
	}
	text := ""
	for _, item := range body.Output {
		if item.Type == "message" {
			text += item.Text()
		}
	}
	return text, nil
}
