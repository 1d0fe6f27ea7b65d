package openai_test

import (
	"encoding/json"
	"os"
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
	playAll(t, "testdata")
}

// TestRecordings plays conversations that were recorded with the real provider, from
// the folder that PAWL_WIRE names.
func TestRecordings(t *testing.T) {
	folder := os.Getenv("PAWL_WIRE")
	if folder == "" {
		t.Skip("PAWL_WIRE names no folder with recorded exchanges")
	}
	playAll(t, filepath.Join(folder, "TestOpenAICommon"))
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
			request.Messages = append(request.Messages, recorded.added(t)...)
		}
		request.Decision = n + 1
		client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: recorded.Model})
		got, err := client.Decide(t.Context(), request)
		if err != nil {
			t.Fatalf("exchange %d: %v; %v", n, err, server.Refusals())
		}
		checkReply(t, got)
		checkRecorded(t, got, exchange.ResponseBody)
		checkSDKReply(t, exchange.ResponseBody)
		sent := server.Requests()[n].Body
		checkRequest(t, sent)
		if diff := fakemodel.DiffRequests(sent, exchange.RequestBody, fakemodel.EchoKeepsEmptyMembers); diff != "" {
			t.Errorf("request %d (-recorded +sent):\n%s", n, diff)
		}
		request.Messages = append(request.Messages, model.Message{
			Role: model.RoleAssistant, Text: got.Decision.Text, Calls: got.Decision.Calls, Raw: got.Raw,
		})
	}
}

// plainReply is a response body, read plainly.
type plainReply struct {
	ID      string `json:"id"`
	Choices []struct {
		FinishReason string                `json:"finish_reason"`
		Message      fakemodel.ChatMessage `json:"message"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Cached     struct {
			Tokens int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Details struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
}

// checkRecorded compares our reading of a reply with a plain reading of the same bytes.
func checkRecorded(t *testing.T, got model.Reply, body []byte) {
	t.Helper()
	var plain plainReply
	if err := json.Unmarshal(body, &plain); err != nil {
		t.Fatal(err)
	}
	choice := plain.Choices[0]
	if got.StopReason != choice.FinishReason || got.RequestID != plain.ID {
		t.Errorf("got stop reason %q of %q, want %q of %q", got.StopReason, got.RequestID, choice.FinishReason, plain.ID)
	}
	if got.Decision.Text != choice.Message.Text() {
		t.Errorf("got text %q, want %q", got.Decision.Text, choice.Message.Text())
	}
	if diff := cmp.Diff(plainCalls(t, choice.Message), got.Decision.Calls); diff != "" {
		t.Errorf("calls (-plain +got):\n%s", diff)
	}
	var want model.Usage
	if u := plain.Usage; u != nil {
		want = model.Usage{
			InputTokens: u.Prompt, OutputTokens: u.Completion,
			CacheReadTokens: u.Cached.Tokens, ReasoningTokens: u.Details.Reasoning, Reported: true,
		}
	}
	if got.Usage != want {
		t.Errorf("got usage %+v, want %+v", got.Usage, want)
	}
}

func plainCalls(t *testing.T, message fakemodel.ChatMessage) []model.Call {
	t.Helper()
	var calls []model.Call
	for _, c := range message.ToolCalls {
		call := model.Call{ID: c.ID, Alias: c.Function.Name}
		if err := json.Unmarshal(c.Function.Arguments, &call.Arguments); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	return calls
}

// recorded is a request body, read plainly.
type recorded struct {
	Model     string                  `json:"model"`
	Messages  []fakemodel.ChatMessage `json:"messages"`
	Tools     []fakemodel.ChatTool    `json:"tools"`
	MaxTokens int32                   `json:"max_tokens"`
	MaxOutput int32                   `json:"max_completion_tokens"`
}

func readRecorded(t *testing.T, body []byte) recorded {
	t.Helper()
	var r recorded
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r recorded) first() model.Request {
	request := model.Request{MaxOutputTokens: max(r.MaxTokens, r.MaxOutput)}
	for _, m := range r.Messages {
		if m.Role == "system" {
			request.System = m.Text()
			continue
		}
		request.Messages = append(request.Messages, model.Message{Role: model.Role(m.Role), Text: m.Text()})
	}
	for _, tool := range r.Tools {
		request.Tools = append(request.Tools, model.Tool{
			Name: "server." + tool.Function.Name, Alias: tool.Function.Name,
			Description: tool.Function.Description, InputSchema: tool.Function.Parameters,
		})
	}
	return request
}

// added are the messages after the last one of the assistant.
func (r recorded) added(t *testing.T) []model.Message {
	t.Helper()
	var added []model.Message
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			added = nil
			continue
		}
		added = append(added, model.Message{Role: model.Role(m.Role), Text: m.Text(), CallID: m.ToolCallID})
	}
	if len(added) == 0 {
		t.Fatal("a recorded request adds nothing to the one before")
	}
	return added
}
