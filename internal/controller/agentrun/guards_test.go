package agentrun

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// describe says what the only tool is.
func (b *bench) describe(properties v1alpha1.ToolProperties) {
	b.t.Helper()
	ctx := context.Background()
	policy := &v1alpha1.ToolPolicy{}
	if err := b.api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "policy"}, policy); err != nil {
		b.t.Fatal(err)
	}
	properties.Match = []string{"log.write"}
	policy.Generation++
	policy.Spec.Tools = []v1alpha1.ToolProperties{properties}
	if err := b.api.Update(ctx, policy); err != nil {
		b.t.Fatal(err)
	}
}

// TestTheFinalizerComesFirst checks that a run has its finalizer, and status its mark, before
// the first call that may have an effect is announced.
func TestTheFinalizerComesFirst(t *testing.T) {
	b := newBench(t, call(), final())
	announced := 0
	b.fault = func(segment *corev1.ConfigMap) fault {
		if holds(segment, journal.TypeCallDispatched) {
			announced++
			object := b.object()
			if !controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects) || object.Status.Journal == nil {
				t.Errorf("announced with finalizers %v and the mark %v", object.Finalizers, object.Status.Journal)
			}
		}
		return fault{}
	}
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 1)
	if announced == 0 {
		t.Error("no announcement was seen")
	}
	if object := b.object(); len(object.Finalizers) != 0 || b.held(1) {
		t.Errorf("finalizers at the end: %v, of the segment %v", object.Finalizers, b.held(1))
	}
}

// TestTheSegmentIsHeld checks that the segment which records a call is held until it is
// known what became of the call, and no longer.
func TestTheSegmentIsHeld(t *testing.T) {
	t.Run("while nobody knows", func(t *testing.T) {
		b := doubtful(t)
		if !b.held(1) {
			t.Error("the segment is not held")
		}
		settle(b, journal.EffectCommitted)
		b.drive()
		b.want(v1alpha1.ReasonCompleted, 1)
		if b.held(1) {
			t.Error("the segment is still held")
		}
	})
	t.Run("while an attempt in doubt is to be repeated", func(t *testing.T) {
		b := newBench(t, call(), final())
		b.describe(v1alpha1.ToolProperties{Effect: v1alpha1.EffectIdempotent, IdempotencyKeyLifetimeSeconds: 86400, MaxAttempts: 3})
		b.dispatched()
		b.restart()
		for b.count(journal.TypeCallCompleted) == 0 {
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		if b.count(journal.TypeCallDispatched) != 1 || !b.held(1) {
			t.Errorf("%d attempts, the segment is held: %v", b.count(journal.TypeCallDispatched), b.held(1))
		}
		b.drive()
		b.want(v1alpha1.ReasonCompleted, 1)
		if b.held(1) {
			t.Error("the segment is still held")
		}
	})
}

// TestADeletedRunWaitsForPeople checks that what nobody knows is put before people for the
// grace, and no longer.
func TestADeletedRunWaitsForPeople(t *testing.T) {
	b := doubtful(t)
	b.remove()
	deleted := b.object().DeletionTimestamp.Time
	b.clock.SetTime(deleted)
	b.drive()
	b.clock.SetTime(deleted.Add(b.r.deletionGrace - time.Minute))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if b.gone() {
		t.Fatal("the run was let go before the grace ended")
	}
	if !b.held(1) || len(b.told("EffectsAbandoned")) != 0 {
		t.Error("the segment is not held, or the effects are given up, before the grace ended")
	}
	b.want(v1alpha1.ReasonCancelled, 1)
	before := countAbandoned(t)
	b.clock.SetTime(deleted.Add(b.r.deletionGrace))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if told := b.told("EffectsAbandoned"); !b.gone() || len(told) != 1 {
		t.Errorf("gone %v, told %q", b.gone(), told)
	}
	if n := countAbandoned(t) - before; n != 1 {
		t.Errorf("the metric counts %v", n)
	}
	if b.held(1) {
		t.Error("the segment is still held")
	}
}

// countAbandoned reads the metric as the operator serves it.
func countAbandoned(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "pawl_effects_abandoned_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// TestTheGraceIsTenMinutes checks what the contract says where no flag says otherwise.
func TestTheGraceIsTenMinutes(t *testing.T) {
	if b := newBench(t); b.r.deletionGrace != 10*time.Minute {
		t.Errorf("the grace is %s", b.r.deletionGrace)
	}
}

// TestTheLastLookUp checks that what became of an effect is asked once more before its run
// ends without knowing.
func TestTheLastLookUp(t *testing.T) {
	var says atomic.Value
	var asked atomic.Int32
	says.Store("pending")
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		result := strings.Repeat("x", 5000)
		_, _ = fmt.Fprintf(w, `{"state":%q,"result":%q}`, says.Load(), result)
	}))
	t.Cleanup(service.Close)
	b := newBench(t, call(), final())
	b.describe(v1alpha1.ToolProperties{MaxResultBytes: 1024, Reconcile: &v1alpha1.EffectReconcile{HTTP: v1alpha1.EffectService{URL: service.URL}}})
	b.dispatched()
	b.restart()
	for asked.Load() == 0 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		b.executor.run()
	}
	b.restart()
	says.Store("committed")
	before := asked.Load()
	b.change(func(object *v1alpha1.AgentRun) { object.Spec.State = v1alpha1.StateCancelled })
	b.drive()
	b.want(v1alpha1.ReasonCancelled, 0)
	if n := asked.Load() - before; n != 1 {
		t.Errorf("the service was asked %d times", n)
	}
	if by := b.settledBy(); len(by) != 1 || by[0] != journal.SourceService || len(b.object().Status.UnknownEffects) != 0 {
		t.Errorf("settled by %v, unknown %v", by, b.object().Status.UnknownEffects)
	}
	for _, record := range b.journal() {
		if record.Event.Type == journal.TypeEffectReconciled && len(record.Bytes) > 3000 {
			t.Errorf("a result of %d bytes is stored although the tool's may have 1024", len(record.Bytes))
		}
	}
}

// lagging is a cache that still shows a run as it was.
type lagging struct {
	client.Client
	shows *v1alpha1.AgentRun
}

func (l *lagging) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if run, ok := object.(*v1alpha1.AgentRun); ok && l.shows != nil {
		l.shows.DeepCopyInto(run)
		return nil
	}
	return l.Client.Get(ctx, key, object, options...)
}

// TestADeletedRunSendsNothing checks that a run which is being deleted starts no call that
// may have an effect, although the cache does not know yet.
func TestADeletedRunSendsNothing(t *testing.T) {
	b := newBench(t, call(), call(), final())
	for b.calls.Load() == 0 || b.count(journal.TypeTurnCompleted) == 0 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		if b.count(journal.TypeTurnCompleted) == 0 {
			b.executor.run()
		}
	}
	b.executor.run() // the model has proposed the second call
	cache := &lagging{Client: b.api, shows: b.object()}
	b.r.client = cache
	b.remove()
	announced, ended := 0, false
	b.fault = func(segment *corev1.ConfigMap) fault {
		sent := 0
		for _, event := range segment.Data {
			sent += strings.Count(event, `"type":"CallDispatched"`)
		}
		announced, ended = max(announced, sent), ended || holds(segment, journal.TypeFinished)
		return fault{}
	}
	for range 5 {
		_, _ = b.reconcile()
		b.executor.run()
	}
	if n := b.calls.Load(); n != 1 || announced != 1 || !ended {
		t.Errorf("%d calls, %d announced, ended %v", n, announced, ended)
	}
}

// TestDrainingKeepsWhatIsOut checks that a run is not released while a call of it that may
// have an effect is out, and is once its outcome is recorded.
func TestDrainingKeepsWhatIsOut(t *testing.T) {
	b := newBench(t, call(), final())
	for b.count(journal.TypeCallDispatched) == 0 {
		b.executor.run()
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	b.r.draining.Store(true)
	for range 3 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		b.clock.Step(time.Second)
	}
	if n := b.count(journal.TypeReleased); n != 0 || b.object().Status.Owner == nil {
		t.Fatalf("%d releases while the call is out, owner %v", n, b.object().Status.Owner)
	}
	b.executor.run()
	b.drive()
	if n, known := b.count(journal.TypeReleased), b.count(journal.TypeCallCompleted); n != 1 || known != 1 {
		t.Errorf("%d releases, %d outcomes", n, known)
	}
	b.want(v1alpha1.ReasonRunning, 1)
	if n := len(b.object().Status.UnknownEffects); n != 0 {
		t.Errorf("%d unknown effects", n)
	}
}
