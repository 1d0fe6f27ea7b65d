package agentrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/limit"
	"github.com/pawl-run/pawl/internal/worker"
)

// crowd is a bench with several runs of one Model.
type crowd struct {
	*bench
	runs  []string
	queue wokenQueue
}

// wokenQueue keeps what was added to it.
type wokenQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	woken []string
}

func (q *wokenQueue) Add(r reconcile.Request) { q.woken = append(q.woken, r.Name) }

// take empties the queue.
func (q *wokenQueue) take() []string {
	woken := q.woken
	q.woken = nil
	return woken
}

func newCrowd(t *testing.T, n int, limits *v1alpha1.ModelLimits, script ...v1alpha1.ScriptStep) *crowd {
	t.Helper()
	c := &crowd{bench: newBench(t, script...)}
	c.setLimits(limits)
	for i := range n {
		object := sampleRun()
		object.Name, object.UID = fmt.Sprint("run-", i), types.UID(fmt.Sprint("uid-of-", i))
		c.runs = append(c.runs, object.Name)
		if err := c.api.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
	c.listen()
	return c
}

func (c *crowd) listen() {
	_ = c.r.Listen(context.Background(), &c.queue)
}

func (c *crowd) setLimits(limits *v1alpha1.ModelLimits) {
	c.t.Helper()
	model := &v1alpha1.Model{}
	key := client.ObjectKey{Namespace: "ns", Name: "model"}
	if err := c.api.Get(context.Background(), key, model); err != nil {
		c.t.Fatal(err)
	}
	model.Spec.Limits = limits
	if err := c.api.Update(context.Background(), model); err != nil {
		c.t.Fatal(err)
	}
}

// members puts the worker among others.
func (c *crowd) members(m Membership) {
	c.r.members = m
}

// look reconciles one run.
func (c *crowd) look(name string) ctrl.Result {
	c.t.Helper()
	result, err := c.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return result
}

// start takes every run to where it asks the model for the first time.
func (c *crowd) start() {
	c.t.Helper()
	for _, name := range c.runs {
		c.look(name)
	}
	c.executor.run()
	for _, name := range c.runs {
		c.look(name)
	}
	c.queue.take()
}

// land lets the oldest thing under way end.
func (c *crowd) land() {
	next := c.executor.pending[0]
	c.executor.pending = c.executor.pending[1:]
	next()
}

func (c *crowd) wantUnderWay(n int) {
	c.t.Helper()
	if got := len(c.executor.pending); got != n {
		c.t.Fatalf("%d are under way, want %d", got, n)
	}
}

func (c *crowd) object(name string) *v1alpha1.AgentRun {
	c.t.Helper()
	object := &v1alpha1.AgentRun{}
	if err := c.api.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: name}, object); err != nil {
		c.t.Fatal(err)
	}
	return object
}

// events lists the types of a run's events.
func (c *crowd) events(name string) []journal.Type {
	c.t.Helper()
	_, records, err := store.New(c.api, nil).Load(context.Background(), c.object(name))
	if err != nil {
		c.t.Fatal(err)
	}
	var kinds []journal.Type
	for _, record := range records {
		kinds = append(kinds, record.Event.Type)
	}
	return kinds
}

// wantMessage checks what people read of a run that waits.
func (c *crowd) wantMessage(name, text string) {
	c.t.Helper()
	condition := meta.FindStatusCondition(c.object(name).Status.Conditions, v1alpha1.ConditionSucceeded)
	if condition == nil || condition.Reason != string(v1alpha1.ReasonRunning) || !strings.Contains(condition.Message, text) {
		c.t.Errorf("%s shows %+v, want Running with %q", name, condition, text)
	}
}

func (c *crowd) wantEnded(name string) {
	c.t.Helper()
	if c.object(name).Status.CompletionTime == nil {
		c.t.Errorf("%s has not ended", name)
	}
}

func TestRunsWaitForTheirTurn(t *testing.T) {
	c := newCrowd(t, 4, &v1alpha1.ModelLimits{MaxConcurrentRequests: 1}, final())
	c.start()
	c.wantUnderWay(1)
	before := c.events("run-1")
	for range 3 {
		c.clock.Step(statusInterval)
		for _, name := range c.runs[1:] {
			if again := c.look(name).RequeueAfter; again < time.Second || again > time.Minute {
				t.Errorf("%s looks again after %s", name, again)
			}
		}
	}
	c.wantUnderWay(1)
	c.wantMessage("run-1", "Model model allows 1 requests at once (limits.maxConcurrentRequests)")
	if after := c.events("run-1"); !slices.Equal(before, after) {
		t.Errorf("waiting wrote %v after %v", after, before)
	}
	for i := range c.runs {
		c.land()
		woken := c.queue.take()
		if i+1 < len(c.runs) && !slices.Equal(woken, []string{c.runs[i+1], c.runs[i]}) {
			t.Fatalf("woken are %v when %s has its answer", woken, c.runs[i])
		}
		for _, name := range slices.Backward(c.runs[i:]) {
			c.look(name)
		}
		c.wantEnded(c.runs[i])
	}
	c.wantUnderWay(0)
}

func TestTheLimitOfTheLiveModelCounts(t *testing.T) {
	c := newCrowd(t, 5, &v1alpha1.ModelLimits{MaxConcurrentRequests: 1}, final())
	c.start()
	c.wantUnderWay(1)
	c.setLimits(&v1alpha1.ModelLimits{MaxConcurrentRequests: 3})
	for _, name := range c.runs {
		c.look(name)
	}
	c.wantUnderWay(3)
	c.setLimits(&v1alpha1.ModelLimits{MaxConcurrentRequests: 2})
	c.land()
	c.look("run-0")
	for _, name := range c.runs[3:] {
		c.look(name)
	}
	c.wantUnderWay(2)
	c.setLimits(nil)
	for _, name := range c.runs[3:] {
		c.look(name)
	}
	c.wantUnderWay(4)
}

func TestARateSpacesRequests(t *testing.T) {
	c := newCrowd(t, 3, &v1alpha1.ModelLimits{RequestsPerMinute: 10}, final())
	c.start()
	c.wantUnderWay(1)
	c.clock.Step(statusInterval)
	if again := c.look("run-1").RequeueAfter; again != time.Second {
		t.Errorf("the first in line looks again after %s, want 1s", again)
	}
	if again := c.look("run-2").RequeueAfter; again != 7*time.Second {
		t.Errorf("the second in line looks again after %s, want 7s", again)
	}
	c.wantMessage("run-1", "Model model allows 10 requests in a minute (limits.requestsPerMinute)")
	c.clock.Step(time.Second)
	c.look("run-2")
	c.wantUnderWay(1)
	c.look("run-1")
	c.wantUnderWay(2)
}

func TestAReplicaHasBoundsOfItsOwn(t *testing.T) {
	for text, places := range map[string]*places{
		"(--max-concurrent-turns)": newPlaces(2, 3), "(--max-concurrent-turns-per-namespace)": newPlaces(10, 2),
	} {
		t.Run(text, func(t *testing.T) {
			c := newCrowd(t, 4, nil, final())
			c.r.places = places
			c.start()
			c.wantUnderWay(2)
			c.clock.Step(statusInterval)
			c.look("run-3")
			c.wantMessage("run-3", text)
		})
	}
}

func TestAPlaceIsGivenBackThatWasNotUsed(t *testing.T) {
	c := newCrowd(t, 2, &v1alpha1.ModelLimits{MaxConcurrentRequests: 1}, final())
	failing := true
	c.fault = func(segment *corev1.ConfigMap) fault {
		if failing && holds(segment, journal.TypeRunStarted) {
			return fault{err: fmt.Errorf("the API server is away")}
		}
		return fault{}
	}
	c.look("run-0")
	c.executor.run()
	if _, err := c.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "run-0"}}); err == nil {
		t.Fatal("the journal can be written")
	}
	failing = false
	c.look("run-1")
	c.executor.run()
	c.look("run-1")
	c.wantUnderWay(1)
}

func TestWhoIsCancelledGivesWay(t *testing.T) {
	c := newCrowd(t, 3, &v1alpha1.ModelLimits{MaxConcurrentRequests: 1}, final())
	c.start()
	object := c.object("run-1")
	object.Spec.State = v1alpha1.StateCancelled
	if err := c.api.Update(context.Background(), object); err != nil {
		t.Fatal(err)
	}
	c.look("run-1")
	c.wantEnded("run-1")
	c.queue.take()
	c.land()
	if woken := c.queue.take(); !slices.Contains(woken, "run-2") {
		t.Errorf("woken are %v, want run-2", woken)
	}
	c.look("run-2")
	c.wantUnderWay(1)
}

// among is a membership of several workers.
type among struct {
	alone
	members []string
	from    time.Time
	unknown bool
}

func (a among) Workers() []string                             { return a.members }
func (a among) Sharers(time.Time) ([]string, time.Time, bool) { return a.members, a.from, !a.unknown }
func (a among) State(string) worker.State                     { return worker.Live }
func (a among) Confirm(context.Context, string) worker.State  { return worker.Live }

// others makes names of which the first has the only slot of the Model.
func others(self string) []string {
	key := limit.Key{Namespace: "ns", Name: "model/model"}
	for i := range 1000 {
		other := fmt.Sprint("other-", i)
		shares := newPlaces(0, 0).divide(key, limit.Limits{Concurrent: 1}, []string{other, self})
		if shares[1].Nothing() {
			return []string{other, self}
		}
	}
	return nil
}

func TestAWorkerWithoutShareHandsOver(t *testing.T) {
	c := newCrowd(t, 1, nil, call(), final())
	c.start()
	c.land()
	c.look("run-0")
	// Its call is under way when the limit comes, of which another worker has everything.
	c.wantUnderWay(1)
	self := c.r.members.Identity()
	c.members(among{alone: alone(self), members: others(self)})
	c.setLimits(&v1alpha1.ModelLimits{MaxConcurrentRequests: 1})
	c.land()
	again := c.look("run-0").RequeueAfter
	events := c.events("run-0")
	if last := events[len(events)-1]; last != journal.TypeReleased {
		t.Fatalf("the last event is %s, want Released", last)
	}
	if again < lookInterval {
		t.Errorf("looks again after %s", again)
	}
	c.wantMessage("run-0", "waiting for a replica with a share of the limits of Model model")
	if owner := c.object("run-0").Status.Owner; owner != nil {
		t.Errorf("status names %s as owner", owner.Worker)
	}
	// It leaves the run to the other, and takes nothing that it could not go on with.
	for range 10 {
		c.clock.Step(lookInterval + 10*time.Second)
		c.look("run-0")
	}
	if after := c.events("run-0"); !slices.Equal(events, after) {
		t.Errorf("a worker without share wrote %v", after[len(events):])
	}
	c.wantUnderWay(0)
	// What needs no model it does, once the others have had their time.
	object := c.object("run-0")
	object.Spec.State = v1alpha1.StateCancelled
	if err := c.api.Update(context.Background(), object); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(c.look("run-0").RequeueAfter)
	c.look("run-0")
	c.wantEnded("run-0")
}

func TestANewWorkerWaitsForItsShare(t *testing.T) {
	c := newCrowd(t, 1, &v1alpha1.ModelLimits{MaxConcurrentRequests: 1}, final())
	self := c.r.members.Identity()
	from := c.clock.Now().Add(20 * time.Second)
	c.members(among{alone: alone(self), members: []string{self}, from: from})
	c.start()
	c.wantUnderWay(0)
	before := c.events("run-0")
	c.clock.Step(statusInterval)
	if again := c.look("run-0").RequeueAfter; again != 15*time.Second {
		t.Errorf("looks again after %s, want 15s", again)
	}
	c.wantMessage("run-0", "waiting until this replica may use its share")
	if after := c.events("run-0"); !slices.Equal(before, after) {
		t.Errorf("waiting wrote %v after %v", after, before)
	}
	c.members(among{alone: alone(self), members: []string{self}, unknown: true})
	c.clock.SetTime(from)
	if again := c.look("run-0").RequeueAfter; again != time.Second {
		t.Errorf("without a recent look at the others it looks again after %s", again)
	}
	c.wantUnderWay(0)
	c.members(among{alone: alone(self), members: []string{self}, from: from})
	c.look("run-0")
	c.wantUnderWay(1)
}

func TestRunsGoToWhoMayAsk(t *testing.T) {
	c := newCrowd(t, 1, &v1alpha1.ModelLimits{MaxConcurrentRequests: 1})
	self := c.r.members.Identity()
	members := others(self)
	object := c.object("run-0")
	place := func(as string, m among) int {
		m.alone = alone(as)
		c.members(m)
		return c.r.rank(context.Background(), object, c.clock.Now())
	}
	if rank := place(members[0], among{members: members}); rank != 0 {
		t.Errorf("the worker with the only slot ranks %d", rank)
	}
	if rank := place(self, among{members: members}); rank < 1 {
		t.Errorf("a worker without a slot ranks %d", rank)
	}
	if rank := place(self, among{members: []string{self}, from: c.clock.Now().Add(time.Second)}); rank != 0 {
		t.Errorf("the only worker ranks %d", rank)
	}
	c.setLimits(&v1alpha1.ModelLimits{RequestsPerMinute: 1000})
	for _, newcomer := range members {
		if rank := place(newcomer, among{members: members, from: c.clock.Now().Add(time.Second)}); rank < 1 {
			t.Errorf("%s, which may not use its share yet, ranks %d", newcomer, rank)
		}
	}
}

// rated limits the only tool.
func (c *crowd) rated(perMinute int32) {
	c.t.Helper()
	policy := &v1alpha1.ToolPolicy{}
	if err := c.api.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: "policy"}, policy); err != nil {
		c.t.Fatal(err)
	}
	policy.Generation++
	policy.Spec.Tools = []v1alpha1.ToolProperties{{Match: []string{"log.*"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel, RequestsPerMinute: perMinute}}
	if err := c.api.Update(context.Background(), policy); err != nil {
		c.t.Fatal(err)
	}
}

func three() v1alpha1.ScriptStep {
	one := v1alpha1.ScriptToolCall{Tool: "log.write"}
	return v1alpha1.ScriptStep{ToolCalls: []v1alpha1.ScriptToolCall{one, one, one}}
}

func TestARateSpacesCalls(t *testing.T) {
	c := newCrowd(t, 1, nil, three(), final())
	c.rated(10)
	c.start()
	c.land()
	c.look("run-0")
	for sent := int32(1); sent <= 3; sent++ {
		c.wantUnderWay(1)
		c.land()
		c.look("run-0")
		if n := c.calls.Load(); n != sent {
			t.Fatalf("%d calls were made, want %d", n, sent)
		}
		if sent == 3 {
			break
		}
		c.wantUnderWay(0)
		c.clock.Step(statusInterval)
		before := c.events("run-0")
		if again := c.look("run-0").RequeueAfter; again != time.Second {
			t.Errorf("looks again after %s, want 1s", again)
		}
		c.wantMessage("run-0", "waiting to call log.write as often as its policy allows (requestsPerMinute)")
		if after := c.events("run-0"); !slices.Equal(before, after) {
			t.Errorf("waiting wrote %v after %v", after, before)
		}
		c.clock.Step(time.Second)
		c.look("run-0")
	}
	// The third result has come: the model is asked again.
	c.wantUnderWay(1)
	c.land()
	c.look("run-0")
	c.wantEnded("run-0")
}

func TestAWorkerWithoutShareOfAToolHandsOver(t *testing.T) {
	c := newCrowd(t, 1, nil, call(), final())
	c.rated(1)
	c.start()
	self := c.r.members.Identity()
	key := limit.Key{Namespace: "ns", Name: "tool/policy/log.write"}
	members := []string{"other-0", self}
	for i := 1; !newPlaces(0, 0).divide(key, limit.Limits{PerMinute: 1}, members)[1].Nothing(); i++ {
		members[0] = fmt.Sprint("other-", i)
	}
	c.members(among{alone: alone(self), members: members})
	c.land()
	if again := c.look("run-0").RequeueAfter; again < lookInterval {
		t.Errorf("looks again after %s", again)
	}
	events := c.events("run-0")
	if last := events[len(events)-1]; last != journal.TypeReleased {
		t.Fatalf("the last event is %s, want Released", last)
	}
	c.wantUnderWay(0)
	if ok, _ := c.r.preferred(context.Background(), c.object("run-0"), c.clock.Now()); ok {
		t.Error("takes the run again at once")
	}
	c.members(among{alone: alone(self), members: []string{self}})
	c.clock.Step(lookInterval)
	c.look("run-0")
	c.wantUnderWay(1)
}
