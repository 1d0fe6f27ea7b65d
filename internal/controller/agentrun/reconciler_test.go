package agentrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/worker"
)

// bench is a Reconciler on a fake API server, with nothing that moves by itself.
type bench struct {
	t        *testing.T
	api      client.Client
	r        *Reconciler
	executor *stepper
	clock    *clocktesting.FakeClock
	events   *events.FakeRecorder
	// calls counts the requests of the only tool, log.write.
	calls atomic.Int32
	// answer, where set, is awaited by the tool before it answers.
	answer chan struct{}
	// fault decides about each write of a ConfigMap; nil lets it be.
	fault func(segment *corev1.ConfigMap) fault
	// read, where set, is told of each object after it was read, and may fail the reading.
	read func(object client.Object) error
}

// fault is what becomes of a write.
type fault struct {
	err error
	// stored is true for a write that took effect although it looks failed.
	stored bool
}

var (
	runKey  = types.NamespacedName{Namespace: "ns", Name: "run"}
	request = ctrl.Request{NamespacedName: runKey}
)

func newBench(t *testing.T, script ...v1alpha1.ScriptStep) *bench {
	t.Helper()
	b := &bench{t: t, executor: &stepper{}, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), events: events.NewFakeRecorder(100)}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := b.calls.Add(1)
		if b.answer != nil {
			<-b.answer
		}
		_, _ = fmt.Fprintf(w, "%d", n)
	}))
	t.Cleanup(service.Close)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b.api = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.AgentRun{}, &v1alpha1.Model{}).
		WithObjects(sampleModel(script), samplePolicy(service.URL), sampleRun()).
		WithInterceptorFuncs(interceptor.Funcs{Create: b.create, Update: b.update, Get: b.get}).
		Build()
	b.restart()
	return b
}

// restart makes a new Reconciler, as a new process would.
func (b *bench) restart() {
	nonce, name := 0, fmt.Sprintf("worker-%p", new(int))
	b.executor.pending = nil
	b.r = New(Options{
		Client: b.api, Live: b.api, Recorder: b.events, Clock: b.clock, Executor: b.executor,
		Boot: func() time.Duration { return time.Duration(b.clock.Now().UnixNano()) }, Members: alone(name),
		Store:              store.New(b.api, func() string { nonce++; return fmt.Sprintf("%s-%d", name, nonce) }),
		MaxConcurrentTurns: 10, JournalRefusalTimeout: time.Minute, Clients: NewAdapters(b.api, nil, nil),
	})
}

// alone is a membership of one worker, which outlives all that went before.
type alone string

func (a alone) Identity() string     { return string(a) }
func (a alone) Fresh(time.Time) bool { return true }
func (a alone) Workers() []string    { return []string{string(a)} }
func (a alone) Sharers(time.Time) ([]string, time.Time, bool) {
	return []string{string(a)}, time.Time{}, true
}
func (a alone) Lease() time.Duration                                 { return 15 * time.Second }
func (a alone) Confirm(_ context.Context, other string) worker.State { return a.State(other) }
func (a alone) State(other string) worker.State {
	if other == string(a) {
		return worker.Live
	}
	return worker.Dead
}

func (b *bench) get(ctx context.Context, api client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := api.Get(ctx, key, object, options...); err != nil || b.read == nil {
		return err
	}
	return b.read(object)
}

func (b *bench) create(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
	return b.write(object, func() error { return api.Create(ctx, object, options...) })
}

func (b *bench) update(ctx context.Context, api client.WithWatch, object client.Object, options ...client.UpdateOption) error {
	return b.write(object, func() error { return api.Update(ctx, object, options...) })
}

func (b *bench) write(object client.Object, write func() error) error {
	segment, ok := object.(*corev1.ConfigMap)
	if !ok || b.fault == nil {
		return write()
	}
	fault := b.fault(segment.DeepCopy())
	if fault.err == nil || fault.stored {
		if err := write(); err != nil {
			return err
		}
	}
	return fault.err
}

func sampleModel(script []v1alpha1.ScriptStep) *v1alpha1.Model {
	model := &v1alpha1.Model{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "model", UID: "model"},
		Spec:       v1alpha1.ModelSpec{Provider: v1alpha1.ProviderScripted, Script: script, MaxOutputTokens: 100, RequestTimeoutSeconds: 10, MaxAttempts: 3},
	}
	meta.SetStatusCondition(&model.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: "True", Reason: v1alpha1.ReadyReasonAccepted})
	return model
}

func samplePolicy(url string) *v1alpha1.ToolPolicy {
	return &v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "policy", UID: "policy"},
		Spec: v1alpha1.ToolPolicySpec{
			Servers: []v1alpha1.ToolServer{{Name: "log", HTTP: &v1alpha1.HTTPServer{URL: url, Tools: []v1alpha1.HTTPTool{
				{Name: "write", InputSchema: runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{}}`)}},
			}}}},
			Rules: []v1alpha1.ToolRule{{Name: "all", Match: []string{"*"}, Action: v1alpha1.ActionAllow}},
		},
	}
}

func sampleRun() *v1alpha1.AgentRun {
	return &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run", UID: "uid-1", Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000, 0))},
		Spec: v1alpha1.AgentRunSpec{
			ModelRef: v1alpha1.LocalReference{Name: "model"}, ToolPolicyRefs: []v1alpha1.LocalReference{{Name: "policy"}},
			Prompt: "Go.", State: v1alpha1.StateActive, Context: v1alpha1.Context{MaxToolResultBytes: 1000},
			Limits: v1alpha1.Limits{
				MaxTurns: 9, MaxToolCalls: 9, MaxTokens: 9999, ActiveDeadlineSeconds: 900, DeadlineSeconds: 9000,
				MaxRepeatedPlans: 9, MaxConsecutiveFailures: 3, MaxInvalidDecisions: ptr.To[int32](2), InputTimeoutSeconds: 60,
			},
		},
	}
}

func call() v1alpha1.ScriptStep {
	return v1alpha1.ScriptStep{ToolCalls: []v1alpha1.ScriptToolCall{{Tool: "log.write"}}}
}

func final() v1alpha1.ScriptStep { return v1alpha1.ScriptStep{Final: "Done."} }

// reconcile does one reconcile.
func (b *bench) reconcile() (ctrl.Result, error) {
	return b.r.Reconcile(context.Background(), request)
}

// drive reconciles, and lets what was started end, until nothing is under way.
func (b *bench) drive() {
	b.t.Helper()
	for range 100 {
		result, err := b.reconcile()
		switch ran := b.executor.run(); {
		case ran > 0 || err != nil:
		case result.RequeueAfter == 0 || result.RequeueAfter > 2*time.Second:
			return
		default:
			b.clock.Step(result.RequeueAfter)
		}
	}
	b.t.Fatal("the run comes to no rest")
}

func (b *bench) object() *v1alpha1.AgentRun {
	b.t.Helper()
	object := &v1alpha1.AgentRun{}
	if err := b.api.Get(context.Background(), runKey, object); err != nil {
		b.t.Fatal(err)
	}
	return object
}

// journal reads what is stored, chain verified.
func (b *bench) journal() []journal.Record {
	b.t.Helper()
	_, records, err := store.New(b.api, nil).Load(context.Background(), b.object())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := journal.Fold("uid-1", records); err != nil {
		b.t.Fatal(err)
	}
	return records
}

func (b *bench) count(kind journal.Type) int {
	n := 0
	for _, record := range b.journal() {
		if record.Event.Type == kind {
			n++
		}
	}
	return n
}

func (b *bench) want(reason v1alpha1.Reason, calls int32) {
	b.t.Helper()
	c := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionSucceeded)
	if c == nil || c.Reason != string(reason) {
		b.t.Errorf("Succeeded is %+v, want reason %s", c, reason)
	}
	if n := b.calls.Load(); n != calls {
		b.t.Errorf("the tool was called %d times, want %d", n, calls)
	}
}

func TestOneReconcileCommitsAtMostOneTurn(t *testing.T) {
	b := newBench(t, call(), call(), call(), final())
	before := 0
	for range 50 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		turns := b.count(journal.TypeDecisionMade)
		if turns > before+1 {
			t.Errorf("one reconcile committed %d turns", turns-before)
		}
		before = turns
		if b.executor.run() == 0 {
			break
		}
	}
	b.want(v1alpha1.ReasonCompleted, 3)
}

// holds says whether a segment has an event of the type.
func holds(segment *corev1.ConfigMap, kind journal.Type) bool {
	for _, event := range segment.Data {
		if strings.Contains(event, `"type":"`+string(kind)+`"`) {
			return true
		}
	}
	return false
}

var unavailable = apierrors.NewServiceUnavailable("try later")

func TestNothingLeavesBeforeItIsAnnounced(t *testing.T) {
	b := newBench(t, call(), final())
	b.fault = func(segment *corev1.ConfigMap) fault {
		if holds(segment, journal.TypeCallDispatched) {
			return fault{err: unavailable}
		}
		return fault{}
	}
	for range 10 {
		_, _ = b.reconcile()
		b.executor.run()
	}
	b.want(v1alpha1.ReasonRunning, 0)
	b.fault = nil
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 1)
}

// TestAWriteWithAnUnclearAnswer lets each write of a journal look failed once although
// it took effect. Nothing is done twice, and nothing is written twice.
func TestAWriteWithAnUnclearAnswer(t *testing.T) {
	b := newBench(t, call(), call(), final())
	failed := map[string]bool{}
	b.fault = func(segment *corev1.ConfigMap) fault {
		key := fmt.Sprintf("%s %d", segment.Name, len(segment.Data))
		if failed[key] {
			return fault{}
		}
		failed[key] = true
		return fault{err: errors.New("connection reset"), stored: true}
	}
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 2)
	if len(failed) < 5 {
		t.Errorf("only %d writes were tried", len(failed))
	}
}

// TestAWriteThatIsLost lets each write fail once without effect.
func TestAWriteThatIsLost(t *testing.T) {
	b := newBench(t, call(), call(), final())
	failed := map[string]bool{}
	b.fault = func(segment *corev1.ConfigMap) fault {
		key := fmt.Sprintf("%s %d", segment.Name, len(segment.Data))
		if failed[key] {
			return fault{}
		}
		failed[key] = true
		return fault{err: unavailable}
	}
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 2)
	if n := b.count(journal.TypeCallDispatched); n != 2 {
		t.Errorf("%d dispatches were recorded", n)
	}
}

// TestACrashAnywhere makes a new process after each number of reconciles, losing what
// was in the air. No call that may be sent once is sent again.
func TestACrashAnywhere(t *testing.T) {
	unknown := 0
	for crash := range 14 {
		for _, landed := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d reconciles, landed %v", crash, landed), func(t *testing.T) {
				b := newBench(t, call(), call(), final())
				for range crash {
					b.executor.run()
					_, _ = b.reconcile()
				}
				if landed {
					b.executor.run()
				}
				b.restart()
				b.drive()
				if c := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionSucceeded); c.Reason == string(v1alpha1.ReasonOutcomeUnknown) {
					unknown++
					settle(b, journal.EffectCommitted)
					b.drive()
				}
				b.want(v1alpha1.ReasonCompleted, b.calls.Load())
				if n, dispatched := b.calls.Load(), b.count(journal.TypeCallDispatched); int(n) > dispatched || dispatched != 2 {
					t.Errorf("%d calls, %d dispatches", n, dispatched)
				}
			})
		}
	}
	if unknown < 2 {
		t.Errorf("only %d crashes left an outcome unknown", unknown)
	}
}

// settle says what became of every unknown effect.
func settle(b *bench, effect string) {
	b.t.Helper()
	object := b.object()
	values := map[string]string{}
	for _, unknown := range object.Status.UnknownEffects {
		values[unknown.EffectKey] = effect
	}
	text, err := json.Marshal(values)
	if err != nil {
		b.t.Fatal(err)
	}
	object.Annotations = map[string]string{v1alpha1.AnnotationSettle: string(text), v1alpha1.AnnotationSettleBy: "dana"}
	if err := b.api.Update(context.Background(), object); err != nil {
		b.t.Fatal(err)
	}
}

func TestAJournalThatIsRefused(t *testing.T) {
	b := newBench(t, call(), final())
	b.fault = func(*corev1.ConfigMap) fault {
		return fault{err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "segment", errors.New("exceeded quota"))}
	}
	for range 3 {
		_, _ = b.reconcile()
		b.executor.run()
	}
	if c := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionFinished); c == nil || c.Status != metav1.ConditionFalse {
		t.Fatalf("Finished is %+v before the timeout", c)
	}
	b.clock.Step(time.Minute)
	_, _ = b.reconcile()
	b.want(v1alpha1.ReasonCheckpointFailed, 0)

	// It stays ended, whatever becomes of the quota and of the run's spec.
	b.fault = nil
	object := b.object()
	object.Generation++
	if err := b.api.Update(context.Background(), object); err != nil {
		t.Fatal(err)
	}
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 0)
	if object := b.object(); object.Status.ObservedGeneration != object.Generation {
		t.Errorf("observedGeneration is %d, generation %d", object.Status.ObservedGeneration, object.Generation)
	}
}

func TestARunThatIsReplaced(t *testing.T) {
	b := newBench(t, call(), final())
	for b.calls.Load() == 0 {
		_, _ = b.reconcile()
		b.executor.run()
	}
	if err := b.api.Delete(context.Background(), b.object()); err != nil {
		t.Fatal(err)
	}
	b.drive() // its finalizer keeps it until the outcome of its call is known
	again := sampleRun()
	again.UID = "uid-2"
	if err := b.api.Create(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 2)
	if b.r.memory.session("uid-1") != nil || len(b.r.flights.landed("uid-1")) != 0 {
		t.Error("something of the old run is kept")
	}
}

// TestARunThatOnlySeemsReplaced lets the cache go back to an earlier run of the same name
// while a call has come back and is not recorded yet.
func TestARunThatOnlySeemsReplaced(t *testing.T) {
	b := newBench(t, call(), final())
	for b.calls.Load() == 0 {
		_, _ = b.reconcile()
		b.executor.run()
	}
	cache := b.r.client
	b.r.client = interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := api.Get(ctx, key, object, options...)
			if _, isRun := object.(*v1alpha1.AgentRun); isRun {
				object.SetUID("uid-0")
			}
			return err
		},
	})
	if result, err := b.reconcile(); err != nil || result.RequeueAfter == 0 {
		t.Errorf("the earlier run was reconciled: %v, %v", result, err)
	}
	b.r.client = cache
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 1)
}

func TestARunThatIsGone(t *testing.T) {
	b := newBench(t, call(), final())
	for range 3 {
		_, _ = b.reconcile()
		b.executor.run()
	}
	if err := b.api.Delete(context.Background(), b.object()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if b.r.memory.session("uid-1") != nil || len(b.r.flights.landed("uid-1")) != 0 {
		t.Error("something of it is kept")
	}
}

// touchy are clients that panic.
type touchy struct{ Clients }

func (touchy) Model(context.Context, string, journal.Model) (model.Client, string, error) {
	panic("an adapter that panics")
}

// TestAPanicLeavesNothingInHand checks that what was proposed before a panic, and never
// committed, is forgotten: by the next look the run may be somebody else's.
func TestAPanicLeavesNothingInHand(t *testing.T) {
	b := newBench(t, call(), final())
	for range 2 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		b.executor.run()
	}
	before := len(b.journal())
	b.restart()
	sound := b.r.clients
	b.r.clients = touchy{sound}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing panicked")
			}
		}()
		_, _ = b.reconcile()
	}()
	if s := b.r.memory.session("uid-1"); s != nil {
		t.Errorf("%d events are in hand, the journal has %d", s.draft.State.Events, before)
	}
	if after := len(b.journal()); after != before {
		t.Errorf("the journal had %d events, now %d", before, after)
	}
	b.r.clients = sound
	b.drive()
	b.want(v1alpha1.ReasonCompleted, 1)
}

func TestPollInterval(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, 4 * time.Second: time.Second, time.Hour: 30 * time.Second, -time.Hour: 500 * time.Millisecond,
	} {
		if got := pollInterval(age); got != want {
			t.Errorf("at the age of %s: %s, want %s", age, got, want)
		}
	}
}
