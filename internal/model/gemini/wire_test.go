package gemini_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// TestExchanges plays the exchanges in testdata: whole conversations, in the format of
// the recordings.
func TestExchanges(t *testing.T) {
	for _, path := range recordings(t, "testdata") {
		t.Run(filepath.Base(path), func(t *testing.T) { play(t, path) })
	}
}

// TestRecordings plays conversations that were recorded with the real provider, from
// the folder that PAWL_WIRE names.
func TestRecordings(t *testing.T) {
	folder := os.Getenv("PAWL_WIRE")
	if folder == "" {
		t.Skip("PAWL_WIRE names no folder with recorded exchanges")
	}
	paths := recordings(t, folder)
	for _, path := range paths {
		name, _ := filepath.Rel(folder, path)
		t.Run(filepath.ToSlash(name), func(t *testing.T) { play(t, path) })
	}
	t.Logf("%d recordings", len(paths))
}

// recordings are the files below a folder that were recorded on this wire.
func recordings(t *testing.T, folder string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		exchanges, err := fakemodel.ReadCassette(path)
		if err != nil {
			return err
		}
		if address, err := url.Parse(exchanges[0].URL); err == nil && fakemodel.Gemini.Serves("POST", address.Path) {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 3 {
		t.Fatalf("only %d recordings in %s", len(paths), folder)
	}
	return paths
}

// play holds the recorded conversation again. The first request is built from the
// recorded one; each later request from the one before, our reading of the reply, and
// what the recorded request adds to it.
func play(t *testing.T, file string) {
	t.Helper()
	exchanges, err := fakemodel.ReadCassette(file)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fakemodel.StartReplay(exchanges)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	var request model.Request
	var calls []model.Call
	for n, exchange := range exchanges {
		recorded := readRecorded(t, exchange)
		if n == 0 {
			request = recorded.first()
		} else {
			request.Messages = append(request.Messages, recorded.added(t, calls)...)
		}
		request.Decision = n + 1
		client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Gemini), Model: recorded.model, Parameters: recorded.parameters})
		got, err := client.Decide(t.Context(), request)
		if err != nil {
			t.Fatalf("exchange %d: %v; %v", n, err, server.Refusals())
		}
		checkReply(t, got)
		checkRecorded(t, got, exchange.ResponseBody)
		sent := server.Requests()[n].Body
		if diff := fakemodel.DiffRequests(sent, exchange.RequestBody, fakemodel.GeminiDifferences...); diff != "" {
			t.Errorf("request %d (-recorded +sent):\n%s", n, diff)
		}
		checkOracleRequest(t, sent)
		checkOracleReply(t, exchange.ResponseBody, got)
		calls = got.Decision.Calls
		request.Messages = append(request.Messages, model.Message{
			Role: model.RoleAssistant, Text: got.Decision.Text, Calls: got.Decision.Calls, Raw: got.Raw,
		})
	}
}

// plainReply is a response body, read plainly.
type plainReply struct {
	ID         string `json:"responseId"`
	Candidates []struct {
		FinishReason string                  `json:"finishReason"`
		Content      fakemodel.GeminiContent `json:"content"`
	} `json:"candidates"`
	Usage struct {
		Prompt     int64 `json:"promptTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
}

// checkRecorded compares our reading of a reply with a plain reading of the same bytes.
func checkRecorded(t *testing.T, got model.Reply, body []byte) {
	t.Helper()
	var plain plainReply
	if err := json.Unmarshal(body, &plain); err != nil {
		t.Fatal(err)
	}
	candidate := plain.Candidates[0]
	if got.StopReason != candidate.FinishReason || got.RequestID != plain.ID {
		t.Errorf("got stop reason %q of %q, want %q of %q", got.StopReason, got.RequestID, candidate.FinishReason, plain.ID)
	}
	if got.Decision.Text != candidate.Content.Text() {
		t.Errorf("got text %q, want %q", got.Decision.Text, candidate.Content.Text())
	}
	var calls []model.Call
	for _, p := range candidate.Content.Parts {
		if p.FunctionCall == nil {
			continue
		}
		call := model.Call{ID: p.FunctionCall.ID, Alias: p.FunctionCall.Name, Arguments: string(p.FunctionCall.Args)}
		if call.ID == "" && len(calls) < len(got.Decision.Calls) {
			call.ID = got.Decision.Calls[len(calls)].ID
		}
		calls = append(calls, call)
	}
	if diff := cmp.Diff(calls, got.Decision.Calls); diff != "" {
		t.Errorf("calls (-plain +got):\n%s", diff)
	}
	u := plain.Usage
	want := model.Usage{
		InputTokens: u.Prompt, OutputTokens: u.Candidates + u.Thoughts,
		CacheReadTokens: u.Cached, ReasoningTokens: u.Thoughts, Reported: true,
	}
	if got.Usage != want {
		t.Errorf("got usage %+v, want %+v", got.Usage, want)
	}
}

// recorded is a request, read plainly.
type recorded struct {
	model      string
	parameters json.RawMessage
	limit      int32

	System   fakemodel.GeminiContent    `json:"systemInstruction"`
	Contents []fakemodel.GeminiContent  `json:"contents"`
	Tools    []fakemodel.GeminiTool     `json:"tools"`
	Config   map[string]json.RawMessage `json:"generationConfig"`
}

func readRecorded(t *testing.T, exchange fakemodel.Exchange) recorded {
	t.Helper()
	var r recorded
	if err := json.Unmarshal(exchange.RequestBody, &r); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(exchange.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.model, _, _ = strings.Cut(path.Base(address.Path), ":")
	r.limit = 4096
	if limit, ok := r.Config["maxOutputTokens"]; ok {
		if err := json.Unmarshal(limit, &r.limit); err != nil {
			t.Fatal(err)
		}
		delete(r.Config, "maxOutputTokens")
	}
	if r.parameters, err = json.Marshal(map[string]any{"generationConfig": r.Config}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r recorded) first() model.Request {
	request := model.Request{MaxOutputTokens: r.limit, System: r.System.Text()}
	for _, c := range r.Contents {
		request.Messages = append(request.Messages, model.Message{Role: model.RoleUser, Text: c.Text()})
	}
	for _, tool := range r.Tools {
		for _, f := range tool.FunctionDeclarations {
			request.Tools = append(request.Tools, model.Tool{
				Name: "server." + f.Name, Alias: f.Name, Description: f.Description, InputSchema: fakemodel.GeminiJSONSchema(f.Parameters),
			})
		}
	}
	return request
}

// added is what the user's side adds after the last reply, whose calls these are.
func (r recorded) added(t *testing.T, calls []model.Call) []model.Message {
	t.Helper()
	var added []model.Message
	for i, p := range r.Contents[len(r.Contents)-1].Parts {
		if p.FunctionResponse == nil {
			added = append(added, model.Message{Role: model.RoleUser, Text: p.Text})
			continue
		}
		text, ok := p.FunctionResponse.Response["result"].(string)
		if !ok || i >= len(calls) {
			t.Fatalf("part %d of the recorded results is not one", i)
		}
		added = append(added, model.Message{Role: model.RoleTool, CallID: calls[i].ID, Text: text})
	}
	return added
}
