package agentrun

import (
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// TestWhatWasWithheldIsNotUnknown cuts the API server off while a call is announced. Whether
// the announcement was stored or not, the process that made it knows that nothing was sent.
func TestWhatWasWithheldIsNotUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		stored  bool
		wantAll int32
	}{
		"the announcement was stored":     {true, 1},
		"the announcement was not stored": {false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, call(), call(), final())
			reset, away := errors.New("connection reset"), 0
			b.fault = func(segment *corev1.ConfigMap) fault {
				if away > 0 || !holds(segment, journal.TypeCallDispatched) {
					return fault{}
				}
				away = 3
				return fault{err: reset, stored: test.stored}
			}
			b.read = func(client.Object) error {
				if away > 1 {
					away--
					return reset
				}
				return nil
			}
			for away != 1 {
				_, _ = b.reconcile()
				b.executor.run()
			}
			b.drive()
			b.want(v1alpha1.ReasonCompleted, test.wantAll)
			if n := len(b.r.flights.landed("uid-1")); n != 0 {
				t.Errorf("%d attempts are still said to be withheld", n)
			}
			var effects []string
			for _, record := range b.journal() {
				var completed journal.CallCompleted
				if record.Event.Type != journal.TypeCallCompleted {
					continue
				}
				if err := json.Unmarshal(record.Event.Data, &completed); err != nil {
					t.Fatal(err)
				}
				effects = append(effects, completed.Effect)
			}
			first := journal.EffectCommitted
			if test.stored {
				first = journal.EffectRejected
			}
			if len(effects) != 2 || effects[0] != first || effects[1] != journal.EffectCommitted {
				t.Errorf("the calls' effects are %v", effects)
			}
		})
	}
}

// TestWhatSomebodyElseAnnouncedIsNotWithheld checks that a process which was kept from
// sending says nothing of an attempt that another one has announced since.
func TestWhatSomebodyElseAnnouncedIsNotWithheld(t *testing.T) {
	withheld := &flight{call: "c", attempt: 1, epoch: 2, withheld: true}
	for name, test := range map[string]struct {
		owner string
		epoch int64
		want  bool
	}{
		"ours":                         {"w", 2, false},
		"taken over":                   {"other", 3, true},
		"taken over and taken back":    {"w", 4, true},
		"ours, but released meanwhile": {"", 2, true},
	} {
		if got := withheld.stale(&journal.State{Owner: test.owner, Epoch: test.epoch}, "w"); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if (&flight{call: "c", epoch: 2}).stale(&journal.State{Owner: "other", Epoch: 3}, "w") {
		t.Error("what was sent is no less known for a takeover")
	}
}
