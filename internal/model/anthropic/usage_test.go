package anthropic_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
)

func TestUsage(t *testing.T) {
	unreported := model.Usage{}
	tests := map[string]struct {
		usage string
		want  model.Usage
	}{
		"all counts": {
			`{"input_tokens":10,"cache_read_input_tokens":64,"cache_creation_input_tokens":32,"output_tokens":30,"output_tokens_details":{"thinking_tokens":20},"cache_creation":{"ephemeral_5m_input_tokens":32}}`,
			model.Usage{InputTokens: 106, OutputTokens: 30, CacheReadTokens: 64, CacheWriteTokens: 32, ReasoningTokens: 20, Reported: true},
		},
		"no caching":         {`{"input_tokens":100,"output_tokens":30}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"null counts":        {`{"input_tokens":100,"output_tokens":30,"cache_read_input_tokens":null,"output_tokens_details":null}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"all of it cached":   {`{"input_tokens":0,"cache_read_input_tokens":100,"output_tokens":30}`, model.Usage{InputTokens: 100, CacheReadTokens: 100, OutputTokens: 30, Reported: true}},
		"a summary before":   {`{"input_tokens":100,"output_tokens":30,"iterations":[{"type":"compaction","input_tokens":900,"cache_read_input_tokens":50,"output_tokens":200},{"type":"message","input_tokens":100,"output_tokens":30}]}`, model.Usage{InputTokens: 1050, CacheReadTokens: 50, OutputTokens: 230, Reported: true}},
		"null iterations":    {`{"input_tokens":100,"output_tokens":30,"iterations":null}`, model.Usage{InputTokens: 100, OutputTokens: 30, Reported: true}},
		"odd iterations":     {`{"input_tokens":100,"output_tokens":30,"iterations":"two"}`, unreported},
		"an odd iteration":   {`{"input_tokens":100,"output_tokens":30,"iterations":[1]}`, unreported},
		"an absurd summary":  {`{"input_tokens":100,"output_tokens":30,"iterations":[{"type":"compaction","input_tokens":-9}]}`, unreported},
		"none":               {`null`, unreported},
		"a list":             {`[]`, unreported},
		"nothing in it":      {`{}`, unreported},
		"all zeros":          {`{"input_tokens":0,"output_tokens":0}`, unreported},
		"no input":           {`{"output_tokens":30}`, unreported},
		"no output":          {`{"input_tokens":100,"output_tokens":0}`, unreported},
		"negative":           {`{"input_tokens":-1,"output_tokens":30}`, unreported},
		"a negative cache":   {`{"input_tokens":100,"cache_read_input_tokens":-5,"output_tokens":30}`, unreported},
		"absurd":             {`{"input_tokens":100,"output_tokens":1e18}`, unreported},
		"a fraction":         {`{"input_tokens":100.5,"output_tokens":30}`, unreported},
		"text":               {`{"input_tokens":"100","output_tokens":30}`, unreported},
		"more than was said": {`{"input_tokens":100,"output_tokens":30,"output_tokens_details":{"thinking_tokens":31}}`, unreported},
		"a count twice":      {`{"input_tokens":100,"input_tokens":1,"output_tokens":30}`, unreported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(reply("end_turn", textBlock), `{"input_tokens":20,"output_tokens":5}`, test.usage, 1)
			got := anthropic.Decode([]byte(body))
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
