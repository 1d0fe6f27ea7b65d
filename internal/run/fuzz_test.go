package run

import (
	"encoding/json"
	"testing"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

// Whatever a reply holds, it becomes a decision that the journal takes, after which
// the run goes on or ends, and the conversation stays one that strict providers take.
func FuzzRecordReply(f *testing.F) {
	f.Add("Calls", "text", "id1", "read", `{"k":"a"}`, "id2", "act", `{}`, []byte(`{"role":"assistant"}`), int64(10), int64(5), "stop")
	f.Add("Calls", "", "call-1-1", "ask", `{"question":"?"}`, "", "", ``, []byte(`null`), int64(-1), int64(1<<62), "\xff")
	f.Add("Calls", "", "", "request_approval", `{"text":"t","calls":[{"tool":"act","arguments":{}}]}`, "", "", ``, []byte(`{`), int64(0), int64(0), "")
	f.Add("Calls", "", "same", "read", `{"n":1e999}`, "same", "read", `{"k":"a","k":"b"}`, []byte(nil), int64(0), int64(0), "")
	f.Add("Final", " ", "", "", ``, "", "", ``, []byte(`"x"`), int64(1), int64(1), "stop")
	f.Add("Invalid", "text", "", "", ``, "", "", ``, []byte(nil), int64(1), int64(1), "length")
	f.Add("Nonsense", "", "", "", ``, "", "", ``, []byte(nil), int64(1), int64(1), "")
	rules := compiled(f, sampleSpec())
	f.Fuzz(func(t *testing.T, kind, text, id1, alias1, arguments1, id2, alias2, arguments2 string, raw []byte, input, output int64, stop string) {
		s := newStage(t, sampleRun())
		s.facts.Policies = rules
		s.drive()
		reply := model.Reply{
			Decision:   model.Decision{Kind: model.Kind(kind), Text: text, Code: stop, Problem: text},
			StopReason: stop, RequestID: id1, Raw: json.RawMessage(raw),
			Usage: model.Usage{InputTokens: input, OutputTokens: output, Reported: true},
		}
		for _, call := range []model.Call{{ID: id1, Alias: alias1, Arguments: arguments1}, {ID: id2, Alias: alias2, Arguments: arguments2}} {
			if call.Alias != "" {
				reply.Decision.Calls = append(reply.Decision.Calls, call)
			}
		}
		s.answer(reply)
		last := s.drive()
		if u := s.state().Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.Total() > 2*maxUsage {
			t.Fatalf("usage %+v", u)
		}
		if err := strict(prompt.Project(s.state()).Messages); err != nil {
			t.Fatalf("after %s: %v", last.Kind, err)
		}
		for id, sending := range s.calls {
			if sending.Call.Invalid != "" || sending.Call.Verdict == nil || sending.Call.Verdict.Action != journal.ActionAllow {
				t.Fatalf("call %s is sent: %+v", id, sending.Call)
			}
		}
	})
}
