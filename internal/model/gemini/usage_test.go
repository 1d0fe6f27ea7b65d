package gemini_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/gemini"
)

func TestUsage(t *testing.T) {
	unreported := model.Usage{}
	tests := map[string]struct {
		usage string
		want  model.Usage
	}{
		"all counts": {
			`{"promptTokenCount":299,"cachedContentTokenCount":256,"candidatesTokenCount":32,"thoughtsTokenCount":495,"toolUsePromptTokenCount":10,"totalTokenCount":836}`,
			model.Usage{InputTokens: 309, OutputTokens: 527, CacheReadTokens: 256, ReasoningTokens: 495, Reported: true},
		},
		"as it was recorded": {
			`{"promptTokenCount":299,"candidatesTokenCount":32,"totalTokenCount":826,"promptTokensDetails":[{"modality":"TEXT","tokenCount":299}],"thoughtsTokenCount":495}`,
			model.Usage{InputTokens: 299, OutputTokens: 527, ReasoningTokens: 495, Reported: true},
		},
		"no total":                   {`{"promptTokenCount":100,"candidatesTokenCount":30}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"thoughts without a total":   {`{"promptTokenCount":100,"candidatesTokenCount":30,"thoughtsTokenCount":50}`, model.Usage{InputTokens: 100, OutputTokens: 80, ReasoningTokens: 50, Reported: true}},
		"thoughts alone, no total":   {`{"promptTokenCount":100,"thoughtsTokenCount":50}`, model.Usage{InputTokens: 100, OutputTokens: 50, ReasoningTokens: 50, Reported: true}},
		"thoughts alone":             {`{"promptTokenCount":100,"thoughtsTokenCount":30,"totalTokenCount":130}`, model.Usage{InputTokens: 100, OutputTokens: 30, ReasoningTokens: 30, Reported: true}},
		"thoughts in the total only": {`{"promptTokenCount":100,"candidatesTokenCount":30,"totalTokenCount":180}`, model.Usage{InputTokens: 100, OutputTokens: 80, Reported: true}},
		"a total of 0":               {`{"promptTokenCount":100,"candidatesTokenCount":30,"totalTokenCount":0}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"all of it cached":           {`{"promptTokenCount":100,"cachedContentTokenCount":100,"candidatesTokenCount":30}`, model.Usage{InputTokens: 100, CacheReadTokens: 100, OutputTokens: 30, Reported: true}},
		"none":                       {`null`, unreported},
		"a list":                     {`[]`, unreported},
		"nothing in it":              {`{}`, unreported},
		"all zeros":                  {`{"promptTokenCount":0,"candidatesTokenCount":0,"totalTokenCount":0}`, unreported},
		"no input":                   {`{"candidatesTokenCount":30}`, unreported},
		"only tools as input":        {`{"toolUsePromptTokenCount":10,"candidatesTokenCount":30}`, unreported},
		"no output for a reply":      {`{"promptTokenCount":100,"totalTokenCount":100}`, unreported},
		"negative":                   {`{"promptTokenCount":-1,"candidatesTokenCount":30}`, unreported},
		"negative thoughts":          {`{"promptTokenCount":100,"candidatesTokenCount":30,"thoughtsTokenCount":-5}`, unreported},
		"absurd":                     {`{"promptTokenCount":100,"candidatesTokenCount":1e18}`, unreported},
		"a fraction":                 {`{"promptTokenCount":100.5,"candidatesTokenCount":30}`, unreported},
		"text":                       {`{"promptTokenCount":"100","candidatesTokenCount":30}`, unreported},
		"too large for any number":   {`{"promptTokenCount":1e999,"candidatesTokenCount":30}`, unreported},
		"a total below its parts":    {`{"promptTokenCount":100,"candidatesTokenCount":30,"totalTokenCount":129}`, unreported},
		"more cached than read":      {`{"promptTokenCount":100,"toolUsePromptTokenCount":9,"cachedContentTokenCount":101,"candidatesTokenCount":30}`, unreported},
		"a count twice":              {`{"promptTokenCount":100,"promptTokenCount":1,"candidatesTokenCount":30}`, unreported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"candidates":[{"content":` + said(answer) + `,"finishReason":"STOP"}],"usageMetadata":` + test.usage + `}`
			got := gemini.Decode([]byte(body))
			checkReply(t, got)
			if got.Decision.Kind != model.KindFinal {
				t.Errorf("a usage made the reply %s", got.Decision.Kind)
			}
			if diff := cmp.Diff(test.want, got.Usage); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUsageOfARefusal checks that a refused prompt costs what it cost, with no output.
func TestUsageOfARefusal(t *testing.T) {
	got := gemini.Decode([]byte(`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":100,"totalTokenCount":100}}`))
	if want := (model.Usage{InputTokens: 100, Reported: true}); got.Usage != want {
		t.Errorf("got %+v, want %+v", got.Usage, want)
	}
}
