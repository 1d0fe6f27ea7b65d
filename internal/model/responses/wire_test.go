package responses_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// TestExchanges plays the exchanges in testdata: whole conversations, in the format of
// the recordings.
func TestExchanges(t *testing.T) {
	playAll(t, "testdata")
}

// TestRecordings plays conversations that were recorded with the real provider, from
// the folder that PAWL_WIRE names.
func TestRecordings(t *testing.T) {
	folder := os.Getenv("PAWL_WIRE")
	if folder == "" {
		t.Skip("PAWL_WIRE names no folder with recorded exchanges")
	}
	for _, name := range []string{"TestOpenAIResponsesCommon", "TestOpenAIResponsesWithSummaryThinking"} {
		playAll(t, filepath.Join(folder, name))
	}
}

func playAll(t *testing.T, folder string) {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".yaml") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no exchanges in %s", folder)
	}
	for _, path := range paths {
		name, _ := filepath.Rel(folder, path)
		t.Run(filepath.ToSlash(name), func(t *testing.T) { play(t, path) })
	}
}

// play holds the recorded conversation again. The first request is built from the
// recorded one; each later request from the one before, our reading of the reply, and
// what the recorded request adds to it: results of tools and words of the user. The
// vendor's types have to read both sides as we do.
func play(t *testing.T, path string) {
	t.Helper()
	exchanges, err := fakemodel.ReadCassette(path)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fakemodel.StartReplay(exchanges)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	var request model.Request
	for n, exchange := range exchanges {
		recorded := readRecorded(t, exchange.RequestBody)
		if n == 0 {
			request = recorded.first()
		} else {
			request.Messages = append(request.Messages, recorded.added(t)...)
		}
		request.Decision = n + 1
		config := wire.Config{Endpoint: server.Endpoint(fakemodel.Responses), Model: recorded.Model, Parameters: recorded.parameters(t)}
		got, err := newClient(t, config).Decide(t.Context(), request)
		if err != nil {
			t.Fatalf("exchange %d: %v; %v", n, err, server.Refusals())
		}
		checkReply(t, got)
		checkSDKReply(t, exchange.ResponseBody)
		sent := server.Requests()[n].Body
		checkRequest(t, sent)
		if diff := fakemodel.DiffRequests(sent, exchange.RequestBody, fakemodel.ResponsesDifferences...); diff != "" {
			t.Errorf("request %d (-recorded +sent):\n%s", n, diff)
		}
		request.Messages = append(request.Messages, model.Message{
			Role: model.RoleAssistant, Text: got.Decision.Text, Calls: got.Decision.Calls, Raw: got.Raw,
		})
	}
}

// recorded is a request body, read plainly.
type recorded struct {
	Model           string                    `json:"model"`
	Input           []fakemodel.ResponsesItem `json:"input"`
	Tools           []fakemodel.ResponsesTool `json:"tools"`
	MaxOutputTokens int32                     `json:"max_output_tokens"`
	Reasoning       json.RawMessage           `json:"reasoning"`
}

func readRecorded(t *testing.T, body []byte) recorded {
	t.Helper()
	var r recorded
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r recorded) parameters(t *testing.T) json.RawMessage {
	t.Helper()
	if r.Reasoning == nil {
		return nil
	}
	parameters, err := json.Marshal(map[string]json.RawMessage{"reasoning": r.Reasoning})
	if err != nil {
		t.Fatal(err)
	}
	return parameters
}

func (r recorded) first() model.Request {
	request := model.Request{MaxOutputTokens: r.MaxOutputTokens}
	if request.MaxOutputTokens == 0 {
		request.MaxOutputTokens = 4096 // what a Model asks for that says nothing
	}
	for _, item := range r.Input {
		if item.Role == "developer" || item.Role == "system" {
			request.System = item.Text()
			continue
		}
		request.Messages = append(request.Messages, model.Message{Role: model.RoleUser, Text: item.Text()})
	}
	for _, tool := range r.Tools {
		request.Tools = append(request.Tools, model.Tool{
			Name: "server." + tool.Name, Alias: tool.Name, Description: tool.Description, InputSchema: tool.Parameters,
		})
	}
	return request
}

// added are the messages after the last item of the assistant.
func (r recorded) added(t *testing.T) []model.Message {
	t.Helper()
	var added []model.Message
	for _, item := range r.Input {
		switch {
		case item.Type == "function_call_output":
			text, _ := item.Output.(string)
			added = append(added, model.Message{Role: model.RoleTool, CallID: item.CallID, Text: text})
		case item.Role == "user":
			added = append(added, model.Message{Role: model.RoleUser, Text: item.Text()})
		default:
			added = nil
		}
	}
	if len(added) == 0 {
		t.Fatal("a recorded request adds nothing to the one before")
	}
	return added
}
