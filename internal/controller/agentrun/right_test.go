package agentrun

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
)

// TestTheRightToSendLapses checks that a worker which was frozen after its announcement
// sends nothing that may have an effect, however often the call may be repeated.
func TestTheRightToSendLapses(t *testing.T) {
	for effect, lapses := range map[string]bool{journal.ReadOnly: false, journal.Idempotent: true, journal.NonIdempotent: true} {
		var since time.Duration
		r := &Reconciler{boot: func() time.Duration { return time.Hour + since }, members: alone("w"), clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
		mayLeave := r.rightToSend(time.Hour, effect)
		// The contract says five seconds.
		if since = 5 * time.Second; mayLeave() != nil {
			t.Errorf("%s: refused inside the window", effect)
		}
		if since = 5*time.Second + time.Millisecond; (mayLeave() != nil) != lapses {
			t.Errorf("%s: refused after the window: %v, want %v", effect, !lapses, lapses)
		}
		since, r.members = 0, absent{"w"}
		if (mayLeave() != nil) != lapses {
			t.Errorf("%s: refused without a lease: %v, want %v", effect, !lapses, lapses)
		}
	}
}

// absent is a membership whose worker lost its lease.
type absent struct{ alone }

func (absent) Fresh(time.Time) bool { return false }

// TestTheRightToAskLapses checks that a worker which was away asks the model nothing, not
// even over a connection that it has already.
func TestTheRightToAskLapses(t *testing.T) {
	var asked atomic.Int32
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer provider.Close()
	ask := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, io.NopCloser(strings.NewReader("{}")))
		if err != nil {
			return err
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	var suspended time.Duration
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	for name, test := range map[string]struct {
		happens func(r *Reconciler)
		want    bool
	}{
		"nothing":                {func(*Reconciler) {}, true},
		"a slow connection":      {func(*Reconciler) { clock.Step(time.Minute) }, true},
		"the lease was lost":     {func(r *Reconciler) { r.members = absent{"w"} }, false},
		"the machine was asleep": {func(*Reconciler) { suspended += time.Minute }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{boot: func() time.Duration { return time.Duration(clock.Now().UnixNano()) + suspended }, members: alone("w"), clock: clock}
			gate := r.rightToAsk()
			if err := ask(context.Background()); err != nil {
				t.Fatal(err) // from here on there is a connection to be used again
			}
			before := asked.Load()
			test.happens(r)
			err := ask(gate.guard(context.Background()))
			if (err == nil) != test.want || (asked.Load() > before) != test.want {
				t.Errorf("asked: %v, error %v", asked.Load() > before, err)
			}
			failure := gate.lapsed(&model.Error{Class: model.ClassCanceled, Sent: true})
			if refused := failure.Code == "not_sent" && !failure.Sent; refused == test.want {
				t.Errorf("the failure is %+v", failure)
			}
		})
	}
}
