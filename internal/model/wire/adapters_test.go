package wire_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/anthropic"
	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/responses"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// adapter is what speaks a wire. What the wires have in common is tested on all of them.
type adapter struct {
	wire fakemodel.Wire
	dial func(wire.Config) (model.Client, error)
}

func adapterOf[C model.Client](w fakemodel.Wire, dial func(wire.Config) (C, error)) adapter {
	return adapter{w, func(c wire.Config) (model.Client, error) { return dial(c) }}
}

var adapters = map[string]adapter{
	"chat":      adapterOf(fakemodel.Chat, openai.New),
	"responses": adapterOf(fakemodel.Responses, responses.New),
	"messages":  adapterOf(fakemodel.Messages, anthropic.New),
	"gemini":    adapterOf(fakemodel.Gemini, gemini.New),
}

// onEach runs a test on each wire, in turn.
func onEach(t *testing.T, test func(t *testing.T, a adapter)) {
	for name, a := range adapters {
		t.Run(name, func(t *testing.T) { test(t, a) })
	}
}

// client has a name of no model in particular unless the configuration has one.
func (a adapter) client(t *testing.T, config wire.Config) model.Client {
	t.Helper()
	if config.Model == "" {
		config.Model = "m"
	}
	client, err := a.dial(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// azure reports whether Azure serves the wire.
func (a adapter) azure() bool { return a.wire == fakemodel.Chat || a.wire == fakemodel.Responses }

func question() model.Request {
	return model.Request{Decision: 1, Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, MaxOutputTokens: 100}
}

// transport answers without a network.
type transport func(*http.Request) *http.Response

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

// answers is a transport that always gives one answer.
func answers(status int, header http.Header, body []byte) transport {
	return func(*http.Request) *http.Response {
		recorder := httptest.NewRecorder()
		for name, values := range header {
			recorder.Header()[name] = values
		}
		recorder.WriteHeader(status)
		_, _ = recorder.Write(body)
		return recorder.Result()
	}
}

func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	var failure *model.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a *model.Error", err)
	}
	return failure
}
