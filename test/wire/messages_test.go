package wire

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// messages reads recordings of Anthropic's Messages.
type messages struct{}

func (messages) wire() fakemodel.Wire        { return fakemodel.Messages }
func (messages) provider() v1alpha1.Provider { return v1alpha1.ProviderAnthropic }

func (messages) differences() []fakemodel.Difference {
	return []fakemodel.Difference{
		{
			Name: "marks for the cache",
			Why:  "the whole request is cached, whatever the recorder marked; marks are no part of what the model reads",
			Remove: func(request map[string]any) {
				delete(request, "cache_control")
				eachBlock(request, func(_ string, block map[string]any) { delete(block, "cache_control") })
			},
		},
		{
			Name: "echo keeps members",
			Why:  "blocks of the assistant go back as they came, while the recorder's library dropped who may call a tool and what is null",
			Remove: func(request map[string]any) {
				eachBlock(request, func(role string, block map[string]any) {
					if role != "assistant" {
						return
					}
					delete(block, "caller")
					for name, value := range block {
						if value == nil {
							delete(block, name)
						}
					}
				})
			},
		},
	}
}

// eachBlock visits the blocks of system prompt and messages, those in results included,
// and the tools.
func eachBlock(request map[string]any, visit func(role string, block map[string]any)) {
	var list func(role string, value any)
	list = func(role string, value any) {
		blocks, _ := value.([]any)
		for _, b := range blocks {
			block, ok := b.(map[string]any)
			if !ok {
				continue
			}
			visit(role, block)
			list(role, block["content"])
		}
	}
	list("system", request["system"])
	list("tools", request["tools"])
	turns, _ := request["messages"].([]any)
	for _, t := range turns {
		turn, _ := t.(map[string]any)
		role, _ := turn["role"].(string)
		list(role, turn["content"])
	}
}

// messagesText is a block of text.
type messagesText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func joined(blocks []messagesText) string {
	var text strings.Builder
	for _, b := range blocks {
		text.WriteString(b.Text)
	}
	return text.String()
}

func (messages) begin(first fakemodel.Exchange) (beginning, error) {
	var body struct {
		Model    string         `json:"model"`
		System   []messagesText `json:"system"`
		Messages []struct {
			Role    string         `json:"role"`
			Content []messagesText `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		MaxTokens int32 `json:"max_tokens"`
	}
	if err := json.Unmarshal(first.RequestBody, &body); err != nil {
		return beginning{}, err
	}
	if len(body.Messages) != 1 || body.Messages[0].Role != "user" {
		return beginning{}, fmt.Errorf("the recording begins with %d messages", len(body.Messages))
	}
	b := beginning{
		model: body.Model, systemPrompt: joined(body.System), prompt: joined(body.Messages[0].Content), maxOutputTokens: body.MaxTokens,
	}
	for _, t := range body.Tools {
		b.tools = append(b.tools, fakemodel.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	var err error
	b.parameters, err = parametersOf(first.RequestBody, anthropic.ReservedParameters())
	return b, err
}

func (messages) answer(last fakemodel.Exchange) (string, error) {
	var body struct {
		Content []messagesText `json:"content"`
	}
	if err := json.Unmarshal(last.ResponseBody, &body); err != nil {
		return "", err
	}
	return joined(body.Content), nil
}
