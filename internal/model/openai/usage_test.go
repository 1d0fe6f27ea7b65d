package openai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
)

func TestUsage(t *testing.T) {
	unreported := model.Usage{}
	tests := map[string]struct {
		usage string
		want  model.Usage
	}{
		"all counts": {
			`{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":20}}`,
			model.Usage{InputTokens: 100, OutputTokens: 30, CacheReadTokens: 64, ReasoningTokens: 20, Reported: true},
		},
		"no total, no details": {
			`{"prompt_tokens":100,"completion_tokens":30}`,
			model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true},
		},
		"null details": {
			`{"prompt_tokens":100,"completion_tokens":30,"prompt_tokens_details":null,"completion_tokens_details":null}`,
			model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true},
		},
		"reasoning in the total only": {
			`{"prompt_tokens":100,"completion_tokens":30,"total_tokens":180,"completion_tokens_details":{"reasoning_tokens":50}}`,
			model.Usage{InputTokens: 100, OutputTokens: 80, ReasoningTokens: 50, Reported: true},
		},
		"a total of 0": {
			`{"prompt_tokens":100,"completion_tokens":30,"total_tokens":0}`,
			model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true},
		},
		"none":                        {`null`, unreported},
		"a list":                      {`[]`, unreported},
		"nothing in it":               {`{}`, unreported},
		"all zeros":                   {`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, unreported},
		"no input":                    {`{"completion_tokens":30}`, unreported},
		"no output for a reply":       {`{"prompt_tokens":100,"completion_tokens":0}`, unreported},
		"negative":                    {`{"prompt_tokens":-1,"completion_tokens":30}`, unreported},
		"a negative detail":           {`{"prompt_tokens":100,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":-5}}`, unreported},
		"absurd":                      {`{"prompt_tokens":100,"completion_tokens":1e18}`, unreported},
		"over the largest":            {`{"prompt_tokens":1000000001,"completion_tokens":30}`, unreported},
		"a fraction":                  {`{"prompt_tokens":100.5,"completion_tokens":30}`, unreported},
		"text":                        {`{"prompt_tokens":"100","completion_tokens":30}`, unreported},
		"too large for any number":    {`{"prompt_tokens":1e999,"completion_tokens":30}`, unreported},
		"a total below its parts":     {`{"prompt_tokens":100,"completion_tokens":30,"total_tokens":99}`, unreported},
		"more cached than read":       {`{"prompt_tokens":100,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":101}}`, unreported},
		"more reasoning than written": {`{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130,"completion_tokens_details":{"reasoning_tokens":31}}`, unreported},
		"a count twice":               {`{"prompt_tokens":100,"prompt_tokens":1,"completion_tokens":30}`, unreported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"choices":[{"message":{"role":"assistant","content":"42"},"finish_reason":"stop"}],"usage":` + test.usage + `}`
			got := openai.Decode([]byte(body))
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
