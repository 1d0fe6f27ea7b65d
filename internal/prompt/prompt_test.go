package prompt

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// stateOf is a run with these turns behind it.
func stateOf(turns ...journal.Turn) *journal.State {
	return &journal.State{
		Run: &journal.RunStarted{
			SystemPrompt: "You help.", Prompt: "Please help.", MaxToolResultBytes: 64, Model: journal.Model{MaxOutputTokens: 1000},
			Tools: []journal.Tool{{Name: "s.read", Alias: "read", Description: "Reads.", InputSchema: json.RawMessage(`{"type":"object"}`), Digest: "d"}},
		},
		Turns: int32(len(turns)), Transcript: turns,
	}
}

// called is a turn with one call that ended in one way.
func called(result *journal.CallCompleted, edits ...func(*journal.Call)) journal.Turn {
	call := journal.Call{ID: "a", Alias: "read", Tool: "s.read", Arguments: `{"k": 1}`}
	for _, edit := range edits {
		edit(&call)
	}
	return journal.Turn{
		Decision: journal.DecisionMade{Kind: journal.DecisionToolCalls, Text: "Let me see.", Calls: []journal.Call{call}},
		Calls:    []journal.CallState{{Call: call, Attempt: 2, Last: result}},
	}
}

func TestProjectBegins(t *testing.T) {
	want := model.Request{
		Decision: 1, System: "You help.", Messages: []model.Message{{Role: model.RoleUser, Text: "Please help."}}, MaxOutputTokens: 1000,
		Tools: []model.Tool{{Name: "s.read", Alias: "read", Description: "Reads.", InputSchema: json.RawMessage(`{"type":"object"}`)}},
	}
	if diff := cmp.Diff(want, Project(stateOf())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a turn adds to the conversation.
func TestTurns(t *testing.T) {
	assistant := model.Message{Role: model.RoleAssistant, Text: "Let me see.", Calls: []model.Call{{ID: "a", Alias: "read", Arguments: `{"k": 1}`}}}
	result := func(text, value string) model.Message {
		return model.Message{Role: model.RoleTool, CallID: "a", Text: text, Value: json.RawMessage(value)}
	}
	failed := func(text string) model.Message {
		return model.Message{Role: model.RoleTool, CallID: "a", Text: text, Value: json.RawMessage("null"), Failed: true}
	}
	ok := func(value string) *journal.CallCompleted {
		return &journal.CallCompleted{ID: "a", Final: true, Class: "ok", Value: json.RawMessage(value)}
	}
	long := strings.Repeat("é", 40)
	renamed := assistant
	renamed.Calls = []model.Call{{ID: "its own id", Alias: "read", Arguments: `{"k": 1}`}}
	renamedResult := result("1", "1")
	renamedResult.CallID = "its own id"
	raw := assistant
	raw.Raw = json.RawMessage(`{"role":"assistant"}`)
	rawTurn := called(ok(`1`))
	rawTurn.Part = raw.Raw
	cases := map[string]struct {
		turn journal.Turn
		want []model.Message
	}{
		"a value":                {called(ok(`{"total":12.50}`)), []model.Message{assistant, result(`{"total":12.50}`, `{"total":12.50}`)}},
		"a text":                 {called(ok(`"<paid>\n"`)), []model.Message{assistant, result("<paid>\n", `"<paid>\n"`)}},
		"nothing":                {called(ok(`null`)), []model.Message{assistant, result("null", `null`)}},
		"a value that is long":   {called(ok(`"` + long + `"`)), []model.Message{assistant, result(strings.Repeat("é", 32)+"\n[cut: the first 64 of 80 bytes]", `"`+long+`"`)}},
		"the provider's own id":  {called(ok(`1`), func(c *journal.Call) { c.ProviderID = "its own id" }), []model.Message{renamed, renamedResult}},
		"the provider's message": {rawTurn, []model.Message{raw, result("1", "1")}},
		"a failure": {
			called(&journal.CallCompleted{ID: "a", Final: true, Class: "rejected", Effect: "rejected", Message: "refused", Value: json.RawMessage(`"no such order"`)}),
			[]model.Message{assistant, failed(`{"error":{"class":"rejected","message":"refused","retryable":false,"attempts":2,"effect":"rejected","detail":"no such order"}}`)},
		},
		"no result yet": {called(nil), []model.Message{assistant, failed(`{"error":{"class":"not_run"}}`)}},
		"an attempt that is not the last": {
			called(&journal.CallCompleted{ID: "a", Class: "transport", Retryable: true}), []model.Message{assistant, failed(`{"error":{"class":"not_run"}}`)},
		},
		"an invalid reply": {
			journal.Turn{Decision: journal.DecisionMade{Kind: journal.DecisionInvalid, Text: "Hm.", Problem: "That was empty."}},
			[]model.Message{{Role: model.RoleAssistant, Text: "Hm."}, {Role: model.RoleUser, Text: "That was empty."}},
		},
		"an invalid reply without text": {
			journal.Turn{Decision: journal.DecisionMade{Kind: journal.DecisionInvalid, Problem: "That was empty."}},
			[]model.Message{{Role: model.RoleUser, Text: "That was empty."}},
		},
		"an answer": {
			journal.Turn{Decision: journal.DecisionMade{Kind: journal.DecisionFinal, Text: "42"}}, []model.Message{{Role: model.RoleAssistant, Text: "42"}},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request := Project(stateOf(test.turn))
			if diff := cmp.Diff(test.want, request.Messages[1:]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if request.Decision != 2 {
				t.Errorf("decision %d", request.Decision)
			}
		})
	}
}

func TestRepeatsAreNoted(t *testing.T) {
	for repeats, want := range map[int32]bool{0: false, 1: false, 2: true, 7: true} {
		turn := called(&journal.CallCompleted{ID: "a", Final: true, Class: "ok", Value: json.RawMessage(`1`), Repeats: repeats})
		text := Project(stateOf(turn)).Messages[2].Text
		if strings.Contains(text, "[note:") != want || !strings.HasPrefix(text, "1") {
			t.Errorf("%d repeats: %q", repeats, text)
		}
	}
}

// A result that is told by its beginning is named by its digest, so that results which begin
// alike are told apart.
func TestReducedResultsAreNamed(t *testing.T) {
	value := func(last string) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", 400) + last + `"`) }
	tell := func(last string) string {
		state := stateOf(called(&journal.CallCompleted{ID: "a", Final: true, Class: "ok", Value: value(last)}))
		state.Run.MaxToolResultBytes = 1000
		state.Context = journal.Shortened{Through: 1, FullFrom: 2}
		return Project(state).Messages[0].Text
	}
	for _, last := range []string{"1", "2"} {
		want := `"begins":"` + strings.Repeat("x", 240) + `","bytes":401,"digest":"` + strictjson.Digest(value(last)) + `"`
		if got := tell(last); !strings.Contains(got, want) {
			t.Errorf("told as %s", got)
		}
	}
	if tell("1") == tell("2") {
		t.Error("two results are told alike")
	}
}

func TestDigestsTellRequestsApart(t *testing.T) {
	base := Project(stateOf(called(&journal.CallCompleted{ID: "a", Final: true, Class: "ok", Value: json.RawMessage(`1`)})))
	seen := map[string]string{Digest(base): "nothing"}
	for name, edit := range map[string]func(*model.Request){
		"system":   func(r *model.Request) { r.System += "." },
		"text":     func(r *model.Request) { r.Messages[0].Text += "." },
		"result":   func(r *model.Request) { r.Messages[2].Text += "." },
		"tools":    func(r *model.Request) { r.Tools[0].Description += "." },
		"limit":    func(r *model.Request) { r.MaxOutputTokens++ },
		"decision": func(r *model.Request) { r.Decision++ },
	} {
		request := Project(stateOf(called(&journal.CallCompleted{ID: "a", Final: true, Class: "ok", Value: json.RawMessage(`1`)})))
		edit(&request)
		if other, same := seen[Digest(request)]; same {
			t.Errorf("changing %s gives the same digest as changing %s", name, other)
		}
		seen[Digest(request)] = name
	}
}

func TestEstimatesGrowWithWhatIsSent(t *testing.T) {
	small := EstimateTokens(Project(stateOf()))
	large := EstimateTokens(Project(stateOf(called(&journal.CallCompleted{ID: "a", Final: true, Class: "ok", Value: json.RawMessage(`"` + strings.Repeat("x", 60) + `"`)}))))
	if small < 10 || large < small+15 {
		t.Errorf("estimates %d and %d", small, large)
	}
}

func TestCutsAreBoundedAndValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.Int32Range(0, 70).Draw(t, "limit")
		got := show{limit: limit}.cut(journal.Call{}, text, len(text))
		if len(text) <= int(limit) && got != text {
			t.Fatalf("%q was cut to %q", text, got)
		}
		shown, note, isCut := strings.Cut(got, "\n[cut: the first ")
		if len(text) > int(limit) && (!isCut || len(shown) > int(limit) && !strings.Contains(text, "\n[cut") || !strings.HasPrefix(text, shown)) {
			t.Fatalf("%q was cut at %d to %q, %q", text, limit, shown, note)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Fatalf("%q was cut to %q", text, got)
		}
	})
}
