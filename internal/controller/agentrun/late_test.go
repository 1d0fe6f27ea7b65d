package agentrun

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// hang brings a run to its only call, which takes effect and does not come back before the
// watchdog gives it up, and returns what lets it come back.
func hang(b *bench) (comesBack func()) {
	b.t.Helper()
	b.answer = make(chan struct{})
	for b.count(journal.TypeCallDispatched) == 0 {
		b.executor.run()
		if _, err := b.reconcile(); err != nil {
			b.t.Fatal(err)
		}
	}
	call := b.executor.pending
	b.executor.pending = nil
	back := make(chan struct{})
	go func() {
		defer close(back)
		for _, f := range call {
			f()
		}
	}()
	for b.calls.Load() == 0 {
		runtime.Gosched()
	}
	b.clock.Step(2 * time.Minute)
	b.drive()
	b.want(v1alpha1.ReasonOutcomeUnknown, 1)
	return func() {
		close(b.answer)
		<-back
	}
}

// settledBy are the sources of the settlements in the journal.
func (b *bench) settledBy() []journal.Source {
	b.t.Helper()
	var sources []journal.Source
	for _, record := range b.journal() {
		var settled journal.EffectReconciled
		if record.Event.Type != journal.TypeEffectReconciled {
			continue
		}
		if err := json.Unmarshal(record.Event.Data, &settled); err != nil {
			b.t.Fatal(err)
		}
		sources = append(sources, settled.Source)
	}
	return sources
}

// TestALateOutcomeIsEvidence checks that what a call says after the watchdog gave it up
// settles the unknown effect, without anybody's help.
func TestALateOutcomeIsEvidence(t *testing.T) {
	b := newBench(t, call(), final())
	comesBack := hang(b)
	comesBack()
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 1)
	if by := b.settledBy(); len(by) != 1 || by[0] != journal.SourceWorker {
		t.Errorf("settled by %v", by)
	}
}

// TestALateOutcomeAfterTheEnd checks that it does so for a run that has ended meanwhile,
// and changes nothing else about it.
func TestALateOutcomeAfterTheEnd(t *testing.T) {
	b := newBench(t, call(), final())
	comesBack := hang(b)
	object := b.object()
	object.Spec.State = v1alpha1.StateCancelled
	if err := b.api.Update(context.Background(), object); err != nil {
		t.Fatal(err)
	}
	b.drive()
	b.want(v1alpha1.ReasonCancelled, 1)
	if unknown := b.object().Status.UnknownEffects; len(unknown) != 1 {
		t.Fatalf("%d unknown effects", len(unknown))
	}
	comesBack()
	b.drive()
	b.want(v1alpha1.ReasonCancelled, 1)
	if by, unknown := b.settledBy(), b.object().Status.UnknownEffects; len(by) != 1 || by[0] != journal.SourceWorker || len(unknown) != 0 {
		t.Errorf("settled by %v, still unknown %v", by, unknown)
	}
}

// TestALateOutcomeOfWhatWasSettled checks that a person's word is not contradicted.
func TestALateOutcomeOfWhatWasSettled(t *testing.T) {
	b := newBench(t, call(), final())
	comesBack := hang(b)
	settle(b, journal.EffectRejected)
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 1)
	comesBack()
	b.drive()
	if by := b.settledBy(); len(by) != 1 || by[0] != journal.SourcePerson {
		t.Errorf("settled by %v", by)
	}
	if n := len(b.r.flights.landed("uid-1")); n != 0 {
		t.Errorf("%d outcomes are kept", n)
	}
}
