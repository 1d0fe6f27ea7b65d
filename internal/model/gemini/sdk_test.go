package gemini_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/pawl-run/pawl/internal/model/gemini"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// The tests in this file measure what the vendor's client does with what has to stay as
// it is, and what it does by itself. They are why requests are made without it: see
// docs/decisions/0012. One that fails after an upgrade asks for that decision to be
// looked at again.

// TestSDKChangesOurBytes checks that the client has no way to send a body as it is: even
// the hook that replaces the whole body writes it anew.
func TestSDKChangesOurBytes(t *testing.T) {
	ours := encoded(t, wire.Config{Model: "m"}, conversation())
	server := &vendorServer{bodies: []string{reply(said(answer), `"STOP"`)}}
	_, err := vendorClient(t, server).Models.GenerateContent(context.Background(), vendorModel, genai.Text("replaced"), &genai.GenerateContentConfig{
		HTTPOptions: &genai.HTTPOptions{ExtrasRequestProvider: func(map[string]any) map[string]any {
			var body map[string]json.RawMessage
			if err := json.Unmarshal([]byte(ours), &body); err != nil {
				t.Fatal(err)
			}
			replaced := map[string]any{}
			for name, value := range body {
				replaced[name] = value
			}
			return replaced
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := string(server.sent[0])
	if !strings.Contains(ours, rawCalls) {
		t.Fatal("the request does not echo the reply that this test is about")
	}
	for what, kept := range map[string]bool{
		"the whole body":     strings.TrimSpace(sent) == ours,
		"the echoed reply":   strings.Contains(sent, rawCalls),
		"<, > and &":         strings.Contains(sent, "Be <brief> & kind."),
		"the order of parts": strings.HasPrefix(sent, `{"systemInstruction"`),
	} {
		if kept {
			t.Errorf("the client now keeps %s", what)
		}
	}
}

// TestSDKTypesLose checks what the client's types lose of a reply, which would be missing
// when it goes back.
func TestSDKTypesLose(t *testing.T) {
	const number, unknown = "9007199254740993", `"x_new"`
	server := &vendorServer{bodies: []string{reply(rawCalls, `"STOP"`)}}
	response, err := vendorClient(t, server).Models.GenerateContent(context.Background(), vendorModel, genai.Text("Go."), nil)
	if err != nil {
		t.Fatal(err)
	}
	echoed, err := json.Marshal(response.Candidates[0].Content)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(echoed), unknown) {
		t.Error("the types now keep unknown members")
	}
	if strings.Contains(string(echoed), number) || !strings.Contains(string(echoed), "9007199254740992") {
		t.Errorf("the types now do something else to large integers: %s", echoed)
	}
	if response.SDKHTTPResponse != nil && response.SDKHTTPResponse.Body != "" {
		t.Error("the client now hands over the body")
	}
	// What they do keep: the bytes of a signature in the alphabet of base64 that is
	// usual.
	if !strings.Contains(string(echoed), `"thoughtSignature":"c2lnbmF0dXJl"`) {
		t.Errorf("the signature is not in %s", echoed)
	}
	// The other alphabet, which servers of this wire may use, breaks the whole reply.
	server.bodies = []string{reply(said(strings.Replace(callA, "c2lnbmF0dXJl", "-_8", 1)), `"STOP"`)}
	if _, err := vendorClient(t, server).Models.GenerateContent(context.Background(), vendorModel, genai.Text("Go."), nil); err == nil {
		t.Error("the types now read both alphabets")
	}
	if got := gemini.Decode([]byte(server.bodies[0])); !strings.Contains(string(got.Raw), `"-_8"`) {
		t.Errorf("ours reads %+v", got)
	}
}

// TestSDKAsksAgainByItself checks that one call of the client is more than one request,
// each of them billed, for a reply that asks to be continued.
func TestSDKAsksAgainByItself(t *testing.T) {
	unfinished := strings.Replace(reply(said(`{"text":"4"}`), `"CONTINUATION"`), `"index":0`, `"index":0,"continuationToken":"dG9rZW4="`, 1)
	server := &vendorServer{bodies: []string{unfinished, unfinished, reply(said(`{"text":"2"}`), `"STOP"`)}}
	if _, err := vendorClient(t, server).Models.GenerateContent(context.Background(), vendorModel, genai.Text("Go."), nil); err != nil {
		t.Fatal(err)
	}
	if len(server.sent) != 3 {
		t.Errorf("the client made %d requests of one call, it used to make 3", len(server.sent))
	}
}

// TestSDKReadsTheEnvironment checks that a client without an address of its own sends
// the key where the environment says.
func TestSDKReadsTheEnvironment(t *testing.T) {
	var key string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key = r.Header.Get("X-Goog-Api-Key")
		_, _ = io.WriteString(w, reply(said(answer), `"STOP"`))
	}))
	defer elsewhere.Close()
	t.Setenv("GOOGLE_GEMINI_BASE_URL", elsewhere.URL)
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: secret, Backend: genai.BackendGeminiAPI})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Models.GenerateContent(t.Context(), vendorModel, genai.Text("Go."), nil); err != nil {
		t.Fatal(err)
	}
	if key != secret {
		t.Error("the client no longer takes its address from the environment")
	}
	if _, err := genai.NewClient(t.Context(), &genai.ClientConfig{Backend: genai.BackendGeminiAPI}); err == nil {
		t.Error("the client now works without a key, which servers inside a cluster may need none of")
	}
}
