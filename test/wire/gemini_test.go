package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// generateContent reads recordings of Gemini.
type generateContent struct{}

func (generateContent) wire() fakemodel.Wire                { return fakemodel.Gemini }
func (generateContent) provider() v1alpha1.Provider         { return v1alpha1.ProviderGemini }
func (generateContent) differences() []fakemodel.Difference { return fakemodel.GeminiDifferences }

func (generateContent) begin(first fakemodel.Exchange) (beginning, error) {
	var body struct {
		System   fakemodel.GeminiContent    `json:"systemInstruction"`
		Contents []fakemodel.GeminiContent  `json:"contents"`
		Tools    []fakemodel.GeminiTool     `json:"tools"`
		Config   map[string]json.RawMessage `json:"generationConfig"`
	}
	if err := json.Unmarshal(first.RequestBody, &body); err != nil {
		return beginning{}, err
	}
	address, err := url.Parse(first.URL)
	if err != nil {
		return beginning{}, err
	}
	if len(body.Contents) != 1 || body.Contents[0].Role != "user" {
		return beginning{}, errors.New("the recording begins in the middle of a conversation")
	}
	name, _, _ := strings.Cut(path.Base(address.Path), ":")
	b := beginning{model: name, systemPrompt: body.System.Text(), prompt: body.Contents[0].Text()}
	for _, tool := range body.Tools {
		for _, f := range tool.FunctionDeclarations {
			b.tools = append(b.tools, fakemodel.Tool{Name: f.Name, Description: f.Description, Schema: fakemodel.GeminiJSONSchema(f.Parameters)})
		}
	}
	if limit, ok := body.Config["maxOutputTokens"]; ok {
		if err := json.Unmarshal(limit, &b.maxOutputTokens); err != nil {
			return beginning{}, err
		}
		delete(body.Config, "maxOutputTokens")
	}
	if b.parameters, err = parametersOf(first.RequestBody, gemini.ReservedParameters()); err != nil {
		return beginning{}, err
	}
	b.parameters["generationConfig"], err = json.Marshal(body.Config)
	return b, err
}

func (generateContent) answer(last fakemodel.Exchange) (string, error) {
	var body struct {
		Candidates []struct {
			Content fakemodel.GeminiContent `json:"content"`
		} `json:"candidates"`
	}
	if err := json.Unmarshal(last.ResponseBody, &body); err != nil {
		return "", err
	}
	if len(body.Candidates) != 1 {
		return "", fmt.Errorf("the recorded reply has %d candidates", len(body.Candidates))
	}
	return body.Candidates[0].Content.Text(), nil
}
