package wire_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// An attempt is one request, whatever a library between us and the socket does with the
// transport that it is given, and the first answer is the one that counts.
func TestAnAttemptIsOneRequest(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	connection, err := wire.Connect(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	response, failure := connection.Exchange(t.Context(), func(ctx context.Context, once http.RoundTripper) error {
		for range 3 {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("{}"))
			if err != nil {
				return err
			}
			_, err = once.RoundTrip(request)
			errs = append(errs, err)
		}
		return errors.New("the library gave up")
	})
	if failure != nil || response.Status != http.StatusServiceUnavailable {
		t.Errorf("got status %d, %v", response.Status, failure)
	}
	if errs[0] != nil || errs[1] == nil || errs[2] == nil {
		t.Errorf("the three uses gave %v", errs)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests arrived", n)
	}
}

// What never reached the transport was not sent, and says so.
func TestWhatWasNotSentIsNotCharged(t *testing.T) {
	connection, err := wire.Connect(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	refused := wire.Unauthorized("no token")
	for name, test := range map[string]struct {
		err  error
		want model.Class
	}{
		"it could not be built": {errors.New("s3cr3t"), model.ClassRequest},
		"it has no credential":  {refused, model.ClassUnauthorized},
	} {
		_, failure := connection.Exchange(t.Context(), func(context.Context, http.RoundTripper) error { return test.err })
		if failure == nil || failure.Class != test.want || failure.Sent || strings.Contains(failure.Error(), "s3cr3t") {
			t.Errorf("%s: %+v", name, failure)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, failure := connection.Exchange(canceled, func(context.Context, http.RoundTripper) error {
		t.Error("sent although the caller has gone")
		return nil
	})
	if failure == nil || failure.Class != model.ClassCanceled || failure.Sent {
		t.Errorf("canceled: %+v", failure)
	}
}
