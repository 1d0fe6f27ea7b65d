package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// cluster is the Leases that several members share.
type cluster struct {
	client client.Client
	clock  *clocktesting.FakeClock
	// away makes every call fail.
	away bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gone := func() error {
		if c.away {
			return errors.New("the API server is away")
		}
		return nil
	}
	c.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return errors.Join(gone(), w.Get(ctx, key, object, options...))
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return errors.Join(gone(), w.List(ctx, list, options...))
		},
	})
	return c
}

func (c *cluster) member(name, incarnation string) *Membership {
	return NewMembership(Options{Client: c.client, Clock: c.clock, Namespace: "pawl-system", Name: name, Incarnation: incarnation, Lease: lease})
}

// pass lets time go by for the members that are awake.
func (c *cluster) pass(t *testing.T, d time.Duration, awake ...*Membership) {
	t.Helper()
	for range d / tickInterval {
		c.clock.Step(tickInterval)
		for _, member := range awake {
			member.Beat(t.Context())
		}
	}
}

func TestMembersSeeEachOther(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	c.pass(t, time.Minute, a, b)
	if diff := cmp.Diff([]string{"a-1", "b-1"}, a.Workers()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !a.Fresh(c.clock.Now()) || a.State("b-1") != Live {
		t.Error("two members that renew do not count as alive")
	}
}

func TestMemberThatStopsIsDeadAfterItsLease(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	c.pass(t, time.Minute, a, b)
	// Its newest renewal is up to a third of a lease old when it stops.
	c.pass(t, lease*2/3-time.Second, a)
	if a.State("b-1") != Live {
		t.Error("dead before its lease was over")
	}
	if b.Fresh(c.clock.Now().Add(time.Second)) {
		t.Error("a member that did not renew believes to be fresh")
	}
	c.pass(t, lease/3+2*time.Second, a)
	if a.State("b-1") != Dead {
		t.Error("still alive after its lease")
	}
}

func TestNobodyDiesWhileTheServerIsAway(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	c.pass(t, time.Minute, a, b)
	c.away = true
	c.pass(t, 3*lease, a, b)
	if a.Fresh(c.clock.Now()) {
		t.Error("fresh without a server")
	}
	c.away = false
	c.pass(t, 2*time.Second, a, b)
	if a.State("b-1") != Live || b.State("a-1") != Live {
		t.Error("a member was taken for dead because the server was away")
	}
}

func TestRestartTakesItsOwnNameAtOnce(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	c.pass(t, time.Minute, a, b)
	next := c.member("a", "2")
	c.pass(t, time.Second, next, b)
	if !next.Fresh(c.clock.Now()) || b.State("a-1") != Dead || b.State("a-2") != Live {
		t.Error("a new incarnation has to wait for its predecessor")
	}
	c.pass(t, lease, a, next)
	if a.Fresh(c.clock.Now()) {
		t.Error("the earlier incarnation took its name back")
	}
}

func TestHeartbeatThatStopsLetsTheLeaseRunOut(t *testing.T) {
	c := newCluster(t)
	moves := true
	a := NewMembership(Options{Client: c.client, Clock: c.clock, Namespace: "pawl-system", Name: "a", Incarnation: "1", Lease: lease, Heartbeat: func() bool { return moves }})
	c.pass(t, time.Minute, a)
	moves = false
	c.pass(t, lease, a)
	if a.Fresh(c.clock.Now()) {
		t.Error("a worker whose queue hangs renewed its lease")
	}
}

func TestReleaseDeletesOnlyItsOwnLease(t *testing.T) {
	c := newCluster(t)
	a := c.member("a", "1")
	c.pass(t, time.Second, a)
	next := c.member("a", "2")
	c.pass(t, time.Second, next)
	if err := a.release(); err != nil {
		t.Fatal(err)
	}
	found := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: "pawl-system", Name: "pawl-worker-a"}
	if err := c.client.Get(t.Context(), key, found); err != nil || ptr.Deref(found.Spec.HolderIdentity, "") != "a-2" {
		t.Errorf("the lease of the later incarnation: %v, %v", found.Spec.HolderIdentity, err)
	}
	if err := next.release(); err != nil {
		t.Fatal(err)
	}
	if err := c.client.Get(t.Context(), key, found); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a released lease is still there: %v", err)
	}
}

func TestNewcomerIsNotTakenForDead(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	c.pass(t, time.Minute, a)
	b.Beat(t.Context())
	// The newcomer has its Lease and claims a run before the other one looks again.
	if state := a.State("b-1"); state != Live {
		t.Errorf("a worker that has just begun is %s", state)
	}
	if state := a.State("c-1"); state != Live {
		t.Errorf("a worker of which nothing was read yet is %s", state)
	}
	woken := 0
	a.options.Changed = func() { woken++ }
	c.pass(t, 2*time.Second, a, b)
	if state := a.State("b-1"); state != Live {
		t.Errorf("a worker that renews is %s", state)
	}
	if state := a.State("c-1"); state != Dead {
		t.Errorf("a worker that a later read does not show is %s", state)
	}
	if woken == 0 {
		t.Error("nobody looks at the runs of a worker that turned out to be gone")
	}
}
