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

// twice makes two processes of one name, the later of which has taken it.
func twice(t *testing.T) (c *cluster, earlier, later, other *Membership) {
	t.Helper()
	c = newCluster(t)
	earlier, later, other = c.member("a", "1"), c.member("a", "2"), c.member("b", "1")
	earlier.options.NewIncarnation = func() string { return "3" }
	c.pass(t, time.Minute, earlier, other)
	c.pass(t, time.Second, later, other)
	c.pass(t, 2*lease, earlier, later, other)
	if earlier.Fresh(c.clock.Now()) || !later.Fresh(c.clock.Now()) || earlier.Identity() != "a-1" {
		t.Fatal("two processes have one name")
	}
	if earlier.Ready() == nil || later.Ready() != nil {
		t.Fatal("who has no lease says that it is ready, or who has one does not")
	}
	return c, earlier, later, other
}

// TestANameThatWasTakenIsTakenBack checks that a process whose name another one took works
// again once that one died or left: as a new worker, to which nothing of before belongs.
func TestANameThatWasTakenIsTakenBack(t *testing.T) {
	for name, leaves := range map[string]bool{"the other died": false, "the other left": true} {
		t.Run(name, func(t *testing.T) {
			c, earlier, later, other := twice(t)
			if leaves {
				if err := later.release(); err != nil {
					t.Fatal(err)
				}
			} else {
				c.pass(t, lease*2/3-time.Second, earlier, other)
				if earlier.Fresh(c.clock.Now()) {
					t.Error("the name was taken back before the lease of the other was over")
				}
			}
			c.pass(t, lease+2*time.Second, earlier, other)
			if !earlier.Fresh(c.clock.Now()) || earlier.Identity() != "a-3" {
				t.Errorf("fresh %v as %s", earlier.Fresh(c.clock.Now()), earlier.Identity())
			}
			for identity, want := range map[string]State{"a-1": Dead, "a-2": Dead, "a-3": Live} {
				if got := other.State(identity); got != want {
					t.Errorf("%s is %s", identity, got)
				}
			}
			c.pass(t, 2*lease, earlier, later, other)
			if later.Fresh(c.clock.Now()) || !earlier.Fresh(c.clock.Now()) {
				t.Error("the one that came back has the name again, or nobody has")
			}
		})
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

// TestLeasesLeftBehindAreCleared checks that the Lease of a worker that was killed goes an
// hour after it was last seen to change, that of a worker that lives never, and that one
// which moves in the last moment stays.
func TestLeasesLeftBehindAreCleared(t *testing.T) {
	c := newCluster(t)
	a, dead, living := c.member("a", "1"), c.member("dead", "1"), c.member("living", "1")
	exists := func(name string) bool {
		return c.client.Get(t.Context(), client.ObjectKey{Namespace: "pawl-system", Name: "pawl-worker-" + name}, &coordinationv1.Lease{}) == nil
	}
	c.pass(t, time.Minute, a, dead, living)
	c.pass(t, keepLeases-time.Minute, a, living)
	if !exists("dead") {
		t.Error("the lease of a worker that died less than an hour ago is gone")
	}
	c.pass(t, 3*time.Minute, a, living)
	if exists("dead") || !exists("living") || !exists("a") {
		t.Errorf("after more than an hour: the dead one's lease is there: %v, the living one's %v, its own %v", exists("dead"), exists("living"), exists("a"))
	}

	// Whoever does come back goes on under its own identity.
	c.pass(t, time.Minute, a, dead)
	if !exists("dead") || !dead.Fresh(c.clock.Now()) || a.State("dead-1") != Live {
		t.Error("a worker whose lease was cleared away can't come back")
	}

	// What was seen is not what is there any more.
	c.pass(t, time.Minute, a)
	stale := Seen{Name: "pawl-worker-living", UID: "another", Version: "1"}
	a.observer.seen[stale.Name] = observation{Seen: stale, dead: true}
	a.clear(t.Context(), c.clock.Now())
	if !exists("living") {
		t.Error("a lease was deleted that is another than the one that was seen")
	}
}

// TestWhoSleptClearsNothing checks that only time that was watched counts.
func TestWhoSleptClearsNothing(t *testing.T) {
	c := newCluster(t)
	a, dead := c.member("a", "1"), c.member("dead", "1")
	c.pass(t, time.Minute, a, dead)
	c.pass(t, keepLeases/2, a)
	c.clock.Step(keepLeases)
	c.pass(t, keepLeases/2, a)
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "pawl-system", Name: "pawl-worker-dead"}, &coordinationv1.Lease{}); err != nil {
		t.Errorf("a worker that slept for an hour cleared a lease after half an hour of watching: %v", err)
	}
}

// sharing is what a member would divide limits by now.
func (c *cluster) sharing(t *testing.T, m *Membership, want ...string) (usable bool) {
	t.Helper()
	members, from, known := m.Sharers(c.clock.Now())
	if diff := cmp.Diff(want, members); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	return known && !c.clock.Now().Before(from)
}

func TestANewMemberWaitsALeaseForItsShare(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	if _, _, known := a.Sharers(c.clock.Now()); known {
		t.Error("a member that never looked knows who shares")
	}
	c.pass(t, lease, a)
	if c.sharing(t, a, "a-1") {
		t.Error("may use a share that somebody may not know of")
	}
	c.pass(t, tickInterval, a)
	if !c.sharing(t, a, "a-1") {
		t.Error("may not use its share after a lease")
	}
	c.pass(t, lease, a, b)
	if !c.sharing(t, a, "a-1", "b-1") || c.sharing(t, b, "a-1", "b-1") {
		t.Error("the newcomer does not wait, or the other does")
	}
	c.pass(t, tickInterval, a, b)
	if !c.sharing(t, b, "a-1", "b-1") {
		t.Error("the newcomer may not use its share after a lease")
	}
}

func TestAMemberThatWasLateWaitsAgain(t *testing.T) {
	c := newCluster(t)
	a, b := c.member("a", "1"), c.member("b", "1")
	c.pass(t, 2*lease, a, b)
	// Not long enough to be dead, but long enough that it could not be sure.
	c.clock.Step(lease * 3 / 4)
	if _, _, known := a.Sharers(c.clock.Now()); known {
		t.Error("who has not looked for long knows who shares")
	}
	c.pass(t, lease, a, b)
	if c.sharing(t, a, "a-1", "b-1") {
		t.Error("may use its share at once")
	}
	c.pass(t, tickInterval, a, b)
	if !c.sharing(t, a, "a-1", "b-1") {
		t.Error("may not use its share after a lease")
	}
}

func TestAMemberSharesUntilItIsGone(t *testing.T) {
	c := newCluster(t)
	changes := 0
	a := NewMembership(Options{Client: c.client, Clock: c.clock, Namespace: "pawl-system", Name: "a", Incarnation: "1", Lease: lease, Changed: func() { changes++ }})
	b := c.member("b", "1")
	c.pass(t, 2*lease, a, b)
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.pass(t, time.Second, a, b)
	c.sharing(t, a, "a-1", "b-1")
	if diff := cmp.Diff([]string{"a-1"}, a.Workers()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	changes = 0
	if err := b.release(); err != nil {
		t.Fatal(err)
	}
	c.pass(t, time.Second, a)
	c.sharing(t, a, "a-1")
	if changes != 1 {
		t.Errorf("told of %d changes, want one", changes)
	}
}
