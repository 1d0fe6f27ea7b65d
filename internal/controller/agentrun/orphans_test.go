package agentrun

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
)

// passes lets time go by for what is to happen later.
func (b *bench) passes(d time.Duration) {
	b.clock.Step(d)
	b.executor.run()
}

// held says whether a segment is there and has the finalizer.
func (b *bench) held(n int32) bool {
	b.t.Helper()
	segment := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: "ns", Name: store.SegmentName("uid-1", n)}
	if err := b.api.Get(context.Background(), key, segment); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return controllerutil.ContainsFinalizer(segment, v1alpha1.FinalizerEffects)
}

// dispatched brings the run to a call that is under way.
func (b *bench) dispatched() *v1alpha1.AgentRun {
	b.t.Helper()
	for b.count(journal.TypeCallDispatched) == 0 {
		b.executor.run()
		if _, err := b.reconcile(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.executor.pending = nil
	if !b.held(1) {
		b.t.Fatal("the segment with the dispatch has no finalizer")
	}
	return b.object()
}

// withoutFinalizer deletes the run as somebody does who takes its finalizer off by hand.
func (b *bench) withoutFinalizer(object *v1alpha1.AgentRun) {
	b.t.Helper()
	ctx := context.Background()
	free := object.DeepCopy()
	free.Finalizers = nil
	if err := b.api.Update(ctx, free); err != nil {
		b.t.Fatal(err)
	}
	if err := b.api.Delete(ctx, free); err != nil {
		b.t.Fatal(err)
	}
}

// TestAFinalizerThatIsRemovedByHand checks that the journal of a run is not held for ever
// when somebody takes the finalizer off the run alone.
func TestAFinalizerThatIsRemovedByHand(t *testing.T) {
	b := newBench(t, call(), final())
	object := b.dispatched()
	b.withoutFinalizer(object)
	b.r.Gone(object)
	b.passes(time.Millisecond)
	if b.held(1) {
		t.Error("the segment is still held")
	}
}

// TestASegmentThatComesLate checks that a segment which is created when its run is gone,
// by a request that was given up before, is not held for ever either.
func TestASegmentThatComesLate(t *testing.T) {
	b := newBench(t, call(), final())
	object := b.dispatched()
	b.withoutFinalizer(object)
	b.r.Gone(object)
	b.passes(10 * time.Second)
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: store.SegmentName("uid-1", 2), Finalizers: []string{v1alpha1.FinalizerEffects}}}
	if err := b.api.Create(context.Background(), late); err != nil {
		t.Fatal(err)
	}
	b.passes(latestWrite)
	if b.held(2) {
		t.Error("the segment is still held")
	}
}

// TestARunThatOnlySeemsGone checks that a cache which lags behind costs no run its
// protection.
func TestARunThatOnlySeemsGone(t *testing.T) {
	b := newBench(t, call(), final())
	object := b.dispatched()
	b.r.Gone(object)
	b.passes(10 * time.Second)
	b.passes(latestWrite)
	if !b.held(1) {
		t.Error("the segment of a run that is there has lost its finalizer")
	}
}

func TestWhatMayLeaveSegments(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }
	shown := &v1alpha1.Journal{Events: 5, Segments: 1}
	for name, test := range map[string]struct {
		finalizers []string
		status     v1alpha1.AgentRunStatus
		want       bool
	}{
		"never begun":             {nil, v1alpha1.AgentRunStatus{}, false},
		"still open":              {nil, v1alpha1.AgentRunStatus{Journal: shown}, true},
		"ended a moment ago":      {nil, v1alpha1.AgentRunStatus{Journal: shown, CompletionTime: at(time.Minute)}, true},
		"ended a while ago":       {nil, v1alpha1.AgentRunStatus{Journal: shown, CompletionTime: at(time.Hour)}, false},
		"held, ended a while ago": {[]string{v1alpha1.FinalizerEffects}, v1alpha1.AgentRunStatus{Journal: shown, CompletionTime: at(time.Hour)}, true},
	} {
		object := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Finalizers: test.finalizers}, Status: test.status}
		if got := mayLeaveSegments(object, now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
