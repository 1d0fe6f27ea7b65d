package responses_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/responses"
)

func TestUsage(t *testing.T) {
	unreported := model.Usage{}
	tests := map[string]struct {
		usage string
		want  model.Usage
	}{
		"all counts": {
			`{"input_tokens":100,"input_tokens_details":{"cached_tokens":64,"cache_write_tokens":16},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":20},"total_tokens":130}`,
			model.Usage{InputTokens: 100, OutputTokens: 30, CacheReadTokens: 64, CacheWriteTokens: 16, ReasoningTokens: 20, Reported: true},
		},
		"no total, no details":    {`{"input_tokens":100,"output_tokens":30}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"null details":            {`{"input_tokens":100,"output_tokens":30,"input_tokens_details":null,"output_tokens_details":null}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"thoughts in total only":  {`{"input_tokens":100,"output_tokens":30,"total_tokens":180}`, model.Usage{InputTokens: 100, OutputTokens: 80, Reported: true}},
		"thoughts in both":        {`{"input_tokens":100,"output_tokens":30,"total_tokens":180,"output_tokens_details":{"reasoning_tokens":50}}`, model.Usage{InputTokens: 100, OutputTokens: 80, ReasoningTokens: 50, Reported: true}},
		"none":                    {`null`, unreported},
		"a list":                  {`[]`, unreported},
		"nothing in it":           {`{}`, unreported},
		"the other wire's":        {`{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130}`, unreported},
		"all zeros":               {`{"input_tokens":0,"output_tokens":0,"total_tokens":0}`, unreported},
		"no output for a reply":   {`{"input_tokens":100,"output_tokens":0}`, unreported},
		"negative":                {`{"input_tokens":-1,"output_tokens":30}`, unreported},
		"absurd":                  {`{"input_tokens":100,"output_tokens":1e18}`, unreported},
		"a fraction":              {`{"input_tokens":100.5,"output_tokens":30}`, unreported},
		"text":                    {`{"input_tokens":"100","output_tokens":30}`, unreported},
		"a total below its parts": {`{"input_tokens":100,"output_tokens":30,"total_tokens":99}`, unreported},
		"more cached than read":   {`{"input_tokens":100,"output_tokens":30,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":41}}`, unreported},
		"more thought than said":  {`{"input_tokens":100,"output_tokens":30,"output_tokens_details":{"reasoning_tokens":31}}`, unreported},
		"a count twice":           {`{"input_tokens":100,"input_tokens":1,"output_tokens":30}`, unreported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(reply("completed", answer), `{"input_tokens":20,"output_tokens":5,"total_tokens":25}`, test.usage, 1)
			got := responses.Decode([]byte(body))
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
