package anthropic_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
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
	for _, name := range []string{"TestAnthropicCommon", "TestAnthropicCommonWithCacheControl", "TestAnthropicThinking"} {
		playAll(t, filepath.Join(folder, name))
	}
}

func playAll(t *testing.T, folder string) {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		// Failing inputs of the fuzzer are kept in the same folder.
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
// what the recorded request adds to it: results of tools and words of the user.
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
			request.Messages = append(request.Messages, recorded.added()...)
		}
		request.Decision = n + 1
		client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Messages), Model: recorded.Model, Parameters: recorded.parameters})
		got, err := client.Decide(t.Context(), request)
		if err != nil {
			t.Fatalf("exchange %d: %v; %v", n, err, server.Refusals())
		}
		checkReply(t, got)
		checkRecorded(t, got, exchange.ResponseBody)
		checkSent(t, server.Requests()[n].Body, exchange.RequestBody)
		request.Messages = append(request.Messages, model.Message{
			Role: model.RoleAssistant, Text: got.Decision.Text, Calls: got.Decision.Calls, Raw: got.Raw,
		})
	}
}

// checkSent compares a request with the recorded one, but for marks for the cache, and for
// members that the recorder's library dropped from replies.
func checkSent(t *testing.T, sent, recorded []byte) {
	t.Helper()
	difference := fakemodel.Difference{Remove: func(request map[string]any) { withoutMarks(request) }}
	if diff := fakemodel.DiffRequests(sent, recorded, difference); diff != "" {
		t.Errorf("a request (-recorded +sent):\n%s", diff)
	}
}

func withoutMarks(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			withoutMarks(one)
		}
	case map[string]any:
		for name, one := range v {
			if one == nil || name == "cache_control" || name == "caller" {
				delete(v, name)
			}
			withoutMarks(one)
		}
	}
}

// checkRecorded compares our reading of a reply with a plain reading of the same bytes.
func checkRecorded(t *testing.T, got model.Reply, body []byte) {
	t.Helper()
	var plain struct {
		StopReason string `json:"stop_reason"`
		Content    []struct {
			Type, Text, ID, Name string
			Input                json.RawMessage
		}
		Usage struct {
			Input   int64 `json:"input_tokens"`
			Read    int64 `json:"cache_read_input_tokens"`
			Written int64 `json:"cache_creation_input_tokens"`
			Output  int64 `json:"output_tokens"`
			Details struct {
				Thinking int64 `json:"thinking_tokens"`
			} `json:"output_tokens_details"`
		}
	}
	if err := json.Unmarshal(body, &plain); err != nil {
		t.Fatal(err)
	}
	text := ""
	var calls []model.Call
	for _, b := range plain.Content {
		text += b.Text
		if b.Type == "tool_use" {
			calls = append(calls, model.Call{ID: b.ID, Alias: b.Name, Arguments: string(b.Input)})
		}
	}
	if got.StopReason != plain.StopReason || got.Decision.Text != text {
		t.Errorf("got %q with %q, want %q with %q", got.StopReason, got.Decision.Text, plain.StopReason, text)
	}
	if diff := cmp.Diff(calls, got.Decision.Calls); diff != "" {
		t.Errorf("calls (-plain +got):\n%s", diff)
	}
	u := plain.Usage
	want := model.Usage{
		InputTokens: u.Input + u.Read + u.Written, OutputTokens: u.Output, CacheReadTokens: u.Read, CacheWriteTokens: u.Written,
		ReasoningTokens: u.Details.Thinking, Reported: true,
	}
	if got.Usage != want {
		t.Errorf("got usage %+v, want %+v", got.Usage, want)
	}
}

// recorded is a request body, read plainly.
type recorded struct {
	Model     string
	MaxTokens int32 `json:"max_tokens"`
	System    []recordedBlock
	Messages  []struct {
		Role    string
		Content []recordedBlock
	}
	Tools []struct {
		Name, Description string
		Schema            json.RawMessage `json:"input_schema"`
	}

	parameters json.RawMessage
}

type recordedBlock struct {
	Type, Text string
	ToolUseID  string          `json:"tool_use_id"`
	IsError    bool            `json:"is_error"`
	Content    json.RawMessage `json:"content"`
}

func readRecorded(t *testing.T, body []byte) recorded {
	t.Helper()
	var r recorded
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &r) != nil || json.Unmarshal(body, &members) != nil {
		t.Fatalf("can't read %s", body)
	}
	for _, name := range anthropic.ReservedParameters() {
		delete(members, name)
	}
	var err error
	if r.parameters, err = json.Marshal(members); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r recorded) first() model.Request {
	request := model.Request{MaxOutputTokens: r.MaxTokens}
	for _, b := range r.System {
		request.System += b.Text
	}
	for _, tool := range r.Tools {
		request.Tools = append(request.Tools, model.Tool{
			Name: "server." + tool.Name, Alias: tool.Name, Description: tool.Description, InputSchema: tool.Schema,
		})
	}
	request.Messages = r.added()
	return request
}

// added are the messages after the last one of the assistant.
func (r recorded) added() []model.Message {
	last := r.Messages[len(r.Messages)-1]
	if last.Role == "assistant" {
		return nil
	}
	var added []model.Message
	for _, b := range last.Content {
		if b.Type == "text" {
			added = append(added, model.Message{Role: model.RoleUser, Text: b.Text})
			continue
		}
		var texts []recordedBlock
		_ = json.Unmarshal(b.Content, &texts)
		result := model.Message{Role: model.RoleTool, CallID: b.ToolUseID, Failed: b.IsError}
		for _, text := range texts {
			result.Text += text.Text
		}
		added = append(added, result)
	}
	return added
}
