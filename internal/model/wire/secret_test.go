package wire_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

func TestWithoutSecret(t *testing.T) {
	const key = "sk-SECRET0123456789abcdef"
	for word, want := range map[string]string{
		"":                       "",
		"invalid_api_key":        "invalid_api_key",
		key:                      "",
		"invalid_" + key[:20]:    "",
		key[5:13]:                "",
		strings.ToLower(key[:9]): "",
		"a_" + key[3:10] + "_b":  "a_" + key[3:10] + "_b",
		"req " + key[10:]:        "",
	} {
		if got := wire.WithoutSecret(word, key); got != want {
			t.Errorf("of %q remains %q, want %q", word, got, want)
		}
		if got := wire.WithoutSecret(word, ""); got != word {
			t.Errorf("without a key, of %q remains %q", word, got)
		}
	}
	if got := wire.WithoutSecret("short", "short"); got != "" {
		t.Errorf("a short key is repeated as %q", got)
	}
}

// quotes is an error, or a reply, that has a word wherever a wire has one.
func quotes(word string, status int) (http.Header, []byte) {
	header := http.Header{}
	for _, name := range []string{"Request-Id", "X-Request-Id", "Apim-Request-Id", "X-Amzn-Requestid", "X-Amzn-Errortype"} {
		header.Set(name, word)
	}
	fault := fmt.Sprintf(`"error":{"type":%[1]q,"code":%[1]q,"status":%[1]q,"message":%[1]q,"details":[{"@type":"google.rpc.ErrorInfo","reason":%[1]q}]}`, word)
	if status != http.StatusOK {
		return header, []byte(fmt.Sprintf(`{"type":"error",%s,"request_id":%q}`, fault, word))
	}
	return header, []byte(fmt.Sprintf(`{"id":%[1]q,"responseId":%[1]q,"type":"message","role":"assistant","stop_reason":%[1]q,"content":[],`+
		`"status":%[1]q,"output":[],"choices":[{"finish_reason":%[1]q,"message":{}}],"candidates":[{"finishReason":%[1]q}]}`, word))
}

// TestCredentialsStayInside checks that nothing that an adapter says beside what the model
// said has a piece of the credential, wherever the provider puts one.
func TestCredentialsStayInside(t *testing.T) {
	onEach(t, func(t *testing.T, a adapter) {
		rapid.Check(t, func(rt *rapid.T) {
			key := rapid.StringMatching(`sk-[A-Z0-9]{9}[a-zA-Z0-9_-]{0,40}`).Draw(rt, "key")
			from := rapid.IntRange(0, len(key)-8).Draw(rt, "from")
			to := rapid.IntRange(from+8, len(key)).Draw(rt, "to")
			around := rapid.StringMatching(`[a-z_.-]{0,10}`)
			word := around.Draw(rt, "before") + key[from:to] + around.Draw(rt, "after")
			status := rapid.SampledFrom([]int{200, 400, 401, 429, 500}).Draw(rt, "status")
			config := wire.Config{Endpoint: "https://models.example.com"}
			credential := key
			if a.azure() && rapid.Bool().Draw(rt, "on Azure") {
				config.Platform.Azure = &wire.Azure{}
				if rapid.Bool().Draw(rt, "a token") {
					credential = "Bearer " + key
				}
			}
			config.APIKey = func() (string, error) { return credential, nil }
			header, body := quotes(word, status)
			config.Transport = answers(status, header, body)
			reply, err := a.client(t, config).Decide(t.Context(), question())
			said := strings.Join([]string{reply.RequestID, reply.StopReason, reply.Decision.Code, reply.Decision.Problem}, "\n")
			if failure := (*model.Error)(nil); errors.As(err, &failure) {
				said = failure.Error() + "\n" + failure.Code + "\n" + failure.Detail
			}
			for i := range len(key) - 7 {
				if strings.Contains(strings.ToLower(said), strings.ToLower(key[i:i+8])) {
					rt.Fatalf("%q of the key %q is in %q", key[i:i+8], key, said)
				}
			}
		})
	})
}
