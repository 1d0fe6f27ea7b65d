package responses_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

func startServer(t *testing.T, options fakemodel.Options) *fakemodel.Server {
	t.Helper()
	server, err := fakemodel.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func key() (string, error) { return secret, nil }

func question() model.Request {
	return model.Request{Decision: 1, Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, MaxOutputTokens: 100}
}

func TestDecide(t *testing.T) {
	server := startServer(t, fakemodel.Options{Key: secret})
	answer := fakemodel.Text("42")
	answer.Header = http.Header{"X-Request-Id": {"req_9"}}
	server.Enqueue(answer)
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Responses) + "/", Model: "m", APIKey: key})
	got, err := client.Decide(t.Context(), question())
	if err != nil {
		t.Fatal(err)
	}
	checkReply(t, got)
	if got.Decision.Text != "42" || got.RequestID != "req_9" || !got.Usage.Reported || got.StopReason != "completed" {
		t.Errorf("got %+v", got)
	}
}

func TestDecideGarbage(t *testing.T) {
	for name, body := range fakemodel.Garbage(fakemodel.Responses) {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Raw(body))
			got, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Responses), Model: "m"}).Decide(t.Context(), question())
			if slices.Contains(fakemodel.NoReplies, name) {
				if failure := asError(t, err); failure.Class != model.ClassTransient || failure.Status != 200 || !failure.Sent {
					t.Errorf("got %+v", failure)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkReply(t, got)
			if got.Decision.Kind != model.KindInvalid {
				t.Errorf("got %+v", got.Decision)
			}
		})
	}
}

// TestDecideTrouble checks every kind of trouble that the provider has a way to say.
func TestDecideTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		answer fakemodel.Answer
		want   model.Class
	}{
		"throttled":    {fakemodel.Throttled(3_000_000_000), model.ClassThrottled},
		"overloaded":   {fakemodel.Overloaded(), model.ClassThrottled},
		"out of quota": {fakemodel.OutOfQuota(), model.ClassQuota},
		"too long":     {fakemodel.TooLong(), model.ClassOverflow},
		"broken":       {fakemodel.ServerError(502), model.ClassTransient},
	} {
		server := startServer(t, fakemodel.Options{})
		server.Enqueue(test.answer)
		_, err := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Responses), Model: "m"}).Decide(t.Context(), question())
		failure := asError(t, err)
		if failure.Class != test.want || !failure.Sent || (name == "throttled") != (failure.RetryAfter > 0) {
			t.Errorf("%s: got %+v", name, failure)
		}
	}
}

// TestDecideHidesTheKey checks replies and errors that quote the key.
func TestDecideHidesTheKey(t *testing.T) {
	server := startServer(t, fakemodel.Options{})
	server.Enqueue(
		fakemodel.Raw([]byte(strings.Replace(reply("incomplete/"+secret, answer), "resp_7", "resp_"+secret, 1))),
		fakemodel.Refuse(401, secret, "Incorrect key "+secret),
	)
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Responses), Model: "m", APIKey: key})
	got, err := client.Decide(t.Context(), question())
	if err != nil || strings.Contains(got.RequestID+got.StopReason, secret) {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = client.Decide(t.Context(), question())
	if failure := asError(t, err); failure.Code != "" {
		t.Errorf("got %+v", failure)
	}
}

// broken is a transport that runs no hooks, so that nothing is known about sending.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("broken " + secret)
}

func TestDecideInjectedTransport(t *testing.T) {
	_, err := newClient(t, wire.Config{Model: "m", APIKey: key, Transport: broken{}}).Decide(t.Context(), question())
	if failure := asError(t, err); failure.Class != model.ClassTransient || !failure.Sent {
		t.Errorf("got %+v", failure)
	}
}

// TestConversation holds a long conversation with a server that checks that what the model
// has thought comes back as it was.
func TestConversation(t *testing.T) {
	const turns = 20
	server := startServer(t, fakemodel.Options{})
	for range turns {
		server.Enqueue(fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup"}, fakemodel.Call{Name: "lookup", Arguments: `{"key":"b"}`}), "Hm.", "Well."))
	}
	server.Enqueue(fakemodel.Thinking(fakemodel.Text("42"), "So."))
	client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Responses), Model: "gpt-5"})
	request := question()
	for n := 1; ; n++ {
		request.Decision = n
		got, err := client.Decide(t.Context(), request)
		if err != nil {
			t.Fatalf("turn %d: %v; %v", n, err, server.Refusals())
		}
		checkReply(t, got)
		if got.Decision.Kind == model.KindFinal {
			break
		}
		request.Messages = append(request.Messages, next(got).Messages[1:]...)
	}
	if n := len(server.Requests()); n != turns+1 || len(server.Refusals()) != 0 {
		t.Errorf("%d requests, %v", n, server.Refusals())
	}
}

// TestEchoIsAccepted sends the echo of each reply that needs repair to a server that
// refuses what the vendor refuses.
func TestEchoIsAccepted(t *testing.T) {
	for name, items := range map[string][]string{
		"no ids":                     {`{"type":"function_call","name":"lookup","arguments":"{}"}`, `{"type":"function_call","name":"lookup","arguments":"{}"}`},
		"arguments as an object":     {strings.Replace(callA, `"{\"key\":\"a\"}"`, `{"key":"a"}`, 1)},
		"broken arguments":           {strings.Replace(callA, `\"a\"}`, `\"a`, 1)},
		"an invented name":           {strings.Replace(callA, `"lookup"`, `"functions.lookup now"`, 1)},
		"thoughts of ids alone":      {bare, callA, callB},
		"a thought that is unheard":  {thought, callA, bare},
		"a thought after everything": {callA, thought},
		"the same item again":        {answer, answer, callA},
		"words before calls":         {answer, callA},
		"an answer":                  {bare, answer},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, fakemodel.Options{})
			server.Enqueue(fakemodel.Raw([]byte(reply("completed", items...))), fakemodel.Text("done"))
			client := newClient(t, wire.Config{Endpoint: server.Endpoint(fakemodel.Responses), Model: "gpt-5"})
			first, err := client.Decide(t.Context(), question())
			if err != nil {
				t.Fatal(err)
			}
			continued := next(first)
			if first.Decision.Kind == model.KindFinal {
				continued.Messages = append(continued.Messages, model.Message{Role: model.RoleUser, Text: "Again."})
			}
			if _, err := client.Decide(t.Context(), continued); err != nil {
				t.Fatalf("%v; %v", err, server.Refusals())
			}
		})
	}
}
