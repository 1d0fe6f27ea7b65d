package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// behindProxy makes the test's own program one that asks each provider once and ends: what
// the environment says of proxies is read once in the life of a process.
const behindProxy = "PAWL_TEST_BEHIND_PROXY"

func TestMain(m *testing.M) {
	if os.Getenv(behindProxy) == "" {
		os.Exit(m.Run())
	}
	for name, a := range adapters {
		client, err := a.dial(wire.Config{Endpoint: "http://models.example.com", Model: "m", Timeout: 10 * time.Second})
		if err == nil {
			_, err = client.Decide(context.Background(), question())
		}
		fmt.Println(name, err)
	}
}

// operations are how the paths of the wires end.
var operations = map[string]string{"/chat/completions": "chat", "/responses": "responses", "/messages": "messages", ":generateContent": "gemini"}

// TestProxy checks that a proxy of the environment is used, as clusters without a way out
// of their own need it.
func TestProxy(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "models.example.com" {
			asked.Add(1)
		}
		for end, a := range operations {
			if strings.HasSuffix(r.URL.Path, end) {
				_, _ = w.Write(fakemodel.Body(adapters[a].wire, fakemodel.Text("42")))
			}
		}
	}))
	defer proxy.Close()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), behindProxy+"=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := strings.Count(string(out), " <nil>\n"); got != len(adapters) || int(asked.Load()) != len(adapters) {
		t.Errorf("the proxy was asked %d times, and %d wires were answered:\n%s", asked.Load(), got, out)
	}
}

// TestGivingUpClosesTheConnection checks that a request ends with its caller and with its
// timeout, before the answer and in the middle of it: a provider that is still connected
// goes on, and charges for it.
func TestGivingUpClosesTheConnection(t *testing.T) {
	for name, begins := range map[string]bool{"before the answer": false, "in the middle of it": true} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, a adapter) {
				t.Run("the caller", func(t *testing.T) { a.givesUp(t, begins, time.Hour, model.ClassCanceled) })
				t.Run("the timeout", func(t *testing.T) { a.givesUp(t, begins, 50*time.Millisecond, model.ClassTransient) })
			})
		})
	}
}

// patience is far more than giving up takes, and far less than any timeout.
const patience = 10 * time.Second

func (a adapter) givesUp(t *testing.T, begins bool, timeout time.Duration, want model.Class) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed, done := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if begins {
			_, _ = w.Write([]byte(`{"id":`))
			_ = http.NewResponseController(w).Flush()
		}
		if want == model.ClassCanceled {
			cancel()
		}
		select {
		case <-r.Context().Done():
			close(closed)
		case <-done:
		}
	}))
	defer server.Close()
	defer close(done)
	client := a.client(t, wire.Config{Endpoint: server.URL, Timeout: timeout})
	returned := make(chan error, 1)
	go func() {
		_, err := client.Decide(ctx, question())
		returned <- err
	}()
	select {
	case err := <-returned:
		if failure := asError(t, err); failure.Class != want || !failure.Sent {
			t.Errorf("got %+v, want class %s", failure, want)
		}
	case <-time.After(patience):
		t.Fatal("the request goes on")
	}
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("the connection is still open")
	}
}

// endless is a body without end, up to where nobody may read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read > 64<<20 {
		return 0, errors.New("nobody stops reading")
	}
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func (*endless) Close() error { return nil }

// TestBodiesAreBounded checks that no answer is read further than it may be.
func TestBodiesAreBounded(t *testing.T) {
	for status, most := range map[int]int{200: 100 << 10, 400: 256 << 10, 429: 256 << 10, 500: 256 << 10} {
		onEach(t, func(t *testing.T, a adapter) {
			body := &endless{}
			client := a.client(t, wire.Config{
				Endpoint: "https://models.example.com", MaxReplyBytes: 100 << 10,
				Transport: transport(func(r *http.Request) *http.Response {
					return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, ContentLength: -1, Request: r}
				}),
			})
			got, err := client.Decide(t.Context(), question())
			if (status == 200) != (err == nil && got.Decision.Code == model.CodeMalformed) {
				t.Errorf("status %d: got %+v, %v", status, got.Decision, err)
			}
			// What a reader takes at a time may go beyond.
			if body.read > most+1<<10 {
				t.Errorf("status %d: %d bytes were read, at most %d may be", status, body.read, most)
			}
		})
	}
}
