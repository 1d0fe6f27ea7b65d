package agentrun

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pawl-run/pawl/internal/journal"
)

// TestTheRightToSendLapses checks that a worker which was frozen after its announcement
// sends nothing that may have an effect, however often the call may be repeated.
func TestTheRightToSendLapses(t *testing.T) {
	for effect, lapses := range map[string]bool{journal.ReadOnly: false, journal.Idempotent: true, journal.NonIdempotent: true} {
		var since time.Duration
		r := &Reconciler{boot: func() time.Duration { return time.Hour + since }, members: alone("w"), clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
		mayLeave := r.rightToSend(time.Hour, effect)
		if since = sendWindow; mayLeave() != nil {
			t.Errorf("%s: refused inside the window", effect)
		}
		if since = sendWindow + time.Millisecond; (mayLeave() != nil) != lapses {
			t.Errorf("%s: refused after the window: %v, want %v", effect, !lapses, lapses)
		}
	}
}
