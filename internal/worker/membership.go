package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pawl-run/pawl/internal/canary"
)

// LabelWorker marks the Leases of workers.
const LabelWorker = "pawl.run/worker"

// labelDraining marks the Lease of a worker that hands its runs over.
const labelDraining = "pawl.run/draining"

// tickInterval is how often a worker looks at its watch; well below maxGap.
const tickInterval = 250 * time.Millisecond

// Options of a Membership.
type Options struct {
	// Client reads Leases live.
	Client client.Client
	Clock  clock.WithTicker
	// Namespace of the Leases.
	Namespace string
	// Name of this worker, unique among replicas, and its random incarnation.
	Name, Incarnation string
	// NewIncarnation makes another one, for a worker that takes back the name which another
	// process had meanwhile. Nil means that a name which was lost stays so.
	NewIncarnation func() string
	// Lease is how long a worker that stopped renewing is waited for.
	Lease time.Duration
	// Heartbeat reports whether the work queue still moves; a worker whose queue hangs
	// must not renew. Nil means that it always does.
	Heartbeat func() bool
	// Go starts what runs beside the beats.
	Go func(func())
	// Changed is called when the live workers changed, or which of them take up runs.
	Changed func()
}

// Membership keeps this worker's Lease and watches the others'.
type Membership struct {
	options Options
	// renewal, glance and clearance are when the next ones are due; only Beat uses them.
	renewal, glance, clearance time.Time

	mu       sync.Mutex
	observer *Observer
	// renewed is when the newest successful renewal was begun, and unbroken the first
	// since when no later one came too late.
	renewed, unbroken time.Time
	version           string
	known             bool
	// looked is when the newest look at all leases was begun, which showed these.
	looked           time.Time
	workers, sharers []string
	// draining is set once this worker is on its way out.
	draining bool
	// incarnation is the one under which the name is held now.
	incarnation string
	// usurper is the Lease as another process wrote it that took the name, since usurped.
	usurper usurper
	usurped time.Time
}

// usurper tells one state of a Lease from every other.
type usurper struct{ uid, version string }

// NewMembership returns a Membership that has not begun.
func NewMembership(o Options) *Membership {
	return &Membership{options: o, observer: NewObserver(o.Lease), incarnation: o.Incarnation}
}

// Identity is this worker's name and incarnation. It changes where another process had the
// name meanwhile: what was claimed before is then somebody else's, who is dead.
func (m *Membership) Identity() string {
	if canary.Is(canary.NoIncarnation) {
		return m.options.Name
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.options.Name + "-" + m.incarnation
}

// NeedLeaderElection says that every replica is active.
func (m *Membership) NeedLeaderElection() bool { return false }

// Start keeps the Lease until the context ends, then releases it.
func (m *Membership) Start(ctx context.Context) error {
	ticker := m.options.Clock.NewTicker(tickInterval)
	defer ticker.Stop()
	m.options.Go(func() { m.watch(ctx) })
	for {
		m.Beat(ctx)
		select {
		case <-ctx.Done():
			return m.release()
		case <-ticker.C():
		}
	}
}

// watch ticks beside the beats: an API server that takes its time must not look like a
// pause of this process, or nobody would ever be found dead while it is slow.
func (m *Membership) watch(ctx context.Context) {
	ticker := m.options.Clock.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			m.tick(m.options.Clock.Now())
		}
	}
}

// Beat does what is due now: tick, renew, look. Start calls it at every tick.
func (m *Membership) Beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.options.Lease/3)
	defer cancel()
	now := m.options.Clock.Now()
	m.tick(now)
	if !now.Before(m.renewal) {
		// A failed renewal is repeated sooner, since freshness runs out.
		m.renewal = now.Add(m.options.Lease / 3)
		if err := m.renew(ctx, now); err != nil {
			log.FromContext(ctx).Error(err, "Renewing the worker lease failed")
			m.renewal = now.Add(m.glanceInterval())
		}
	}
	if !now.Before(m.glance) {
		m.glance = now.Add(m.glanceInterval())
		if _, err := m.look(ctx, ""); err != nil {
			log.FromContext(ctx).Error(err, "Looking at the worker leases failed")
		}
	}
	if !now.Before(m.clearance) {
		m.clearance = now.Add(clearInterval)
		m.clear(ctx, now)
	}
}

// glanceInterval is how often the other leases are read: a fraction of the lease, since
// it adds to the time that a dead worker's runs wait.
func (m *Membership) glanceInterval() time.Duration {
	return min(max(m.options.Lease/15, tickInterval), time.Second)
}

func (m *Membership) tick(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observer.Tick(now, m.fresh(now))
}

// renew writes the Lease by compare-and-set. A Lease of the same name that an earlier
// incarnation left is taken at once; one that a later incarnation took is lost until that
// one is gone or dead.
func (m *Membership) renew(ctx context.Context, began time.Time) error {
	if m.options.Heartbeat != nil && !m.options.Heartbeat() {
		return fmt.Errorf("the work queue does not move")
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: m.options.Namespace, Name: m.leaseName()}
	err := m.options.Client.Get(ctx, key, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the worker lease: %w", err)
	}
	missing := apierrors.IsNotFound(err)
	if !m.mayHold(lease, missing, began) {
		return fmt.Errorf("another process has the worker name %s: give each replica its own", m.options.Name)
	}
	lease.Namespace, lease.Name = key.Namespace, key.Name
	lease.Labels = map[string]string{LabelWorker: "true"}
	if m.isDraining() {
		lease.Labels[labelDraining] = "true"
	}
	now := metav1.NewMicroTime(m.options.Clock.Now())
	if ptr.Deref(lease.Spec.HolderIdentity, "") != m.Identity() {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = ptr.To(m.Identity())
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(max(m.options.Lease.Seconds(), 1)))
	lease.Spec.RenewTime = &now
	if missing {
		err = m.options.Client.Create(ctx, lease)
	} else {
		err = m.options.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("writing the worker lease: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.fresh(began) {
		m.unbroken = began
	}
	m.renewed, m.version = began, lease.ResourceVersion
	return nil
}

// mayHold says whether the name is this worker's. One that another process took is, under a
// new incarnation, once that one let go of it or did not renew it for its whole duration.
func (m *Membership) mayHold(lease *coordinationv1.Lease, missing bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	mine := m.version == "" || missing || holder == m.options.Name+"-"+m.incarnation
	lost := m.usurper != usurper{}
	if mine && !lost {
		return true
	}
	if seen := (usurper{string(lease.UID), lease.ResourceVersion}); !mine && m.usurper != seen {
		m.usurper, m.usurped = seen, now
		return false
	}
	duration := max(m.options.Lease, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second)
	if m.options.NewIncarnation == nil || !missing && now.Sub(m.usurped) <= duration {
		return false
	}
	m.usurper, m.usurped, m.renewed = usurper{}, time.Time{}, time.Time{}
	m.incarnation = m.options.NewIncarnation()
	return true
}

// Confirm says whether a worker lives, from a look that begins now: whoever comes back
// from the dead, or is new, may have claimed a run since the newest look. What can't be
// looked at lives.
func (m *Membership) Confirm(ctx context.Context, identity string) State {
	state, err := m.look(ctx, identity)
	if err != nil {
		log.FromContext(ctx).Error(err, "Looking at the worker leases failed")
		return Live
	}
	return state
}

// look reads every worker's Lease live, and says what that shows of one worker.
func (m *Membership) look(ctx context.Context, identity string) (State, error) {
	began := m.options.Clock.Now()
	var leases coordinationv1.LeaseList
	if err := m.options.Client.List(ctx, &leases, client.InNamespace(m.options.Namespace), client.HasLabels{LabelWorker}); err != nil {
		return Live, fmt.Errorf("listing worker leases: %w", err)
	}
	seen := make([]Seen, 0, len(leases.Items))
	for i := range leases.Items {
		lease := &leases.Items[i]
		seen = append(seen, Seen{Name: lease.Name, Holder: ptr.Deref(lease.Spec.HolderIdentity, ""), Draining: lease.Labels[labelDraining] != "", UID: string(lease.UID), Version: lease.ResourceVersion})
	}
	m.mu.Lock()
	// A look from outside the loop may be the first thing after a pause.
	now := m.options.Clock.Now()
	m.observer.Tick(now, m.fresh(now))
	m.observer.Observe(now, seen)
	workers, sharers := m.workers, m.sharers
	m.workers, m.sharers, m.known = m.observer.Workers(), m.observer.Sharers(), true
	m.looked = began
	changed := !slices.Equal(workers, m.workers) || !slices.Equal(sharers, m.sharers)
	state := m.observer.State(identity)
	m.mu.Unlock()
	if changed && m.options.Changed != nil {
		m.options.Changed()
	}
	return state, nil
}

// release lets go of the Lease, and with it of every run. It runs after the context
// has ended, so it has one of its own.
func (m *Membership) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: m.options.Namespace, Name: m.leaseName()}
	if err := m.options.Client.Get(ctx, key, lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != m.Identity() {
		return nil
	}
	m.mu.Lock()
	m.renewed = time.Time{}
	m.mu.Unlock()
	err := m.options.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

func (m *Membership) leaseName() string { return "pawl-worker-" + m.options.Name }

// Drain tells the other workers that this one takes up no more runs.
func (m *Membership) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	return m.renew(ctx, m.options.Clock.Now())
}

func (m *Membership) isDraining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

// Lease is how long a worker that stopped renewing is waited for.
func (m *Membership) Lease() time.Duration { return m.options.Lease }

// Fresh says whether this worker may start anything: its last renewal was begun less
// than two thirds of a lease ago.
func (m *Membership) Fresh(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fresh(now)
}

func (m *Membership) fresh(now time.Time) bool {
	return canary.Is(canary.FreshIgnored) || !m.renewed.IsZero() && now.Before(m.renewed.Add(m.options.Lease*2/3))
}

// Ready is an error while this worker is no member: it starts nothing then.
func (m *Membership) Ready() error {
	if !m.Fresh(m.options.Clock.Now()) {
		return errors.New("this worker holds no fresh lease: its log says why")
	}
	return nil
}

// State says whether a worker lives. Before the first live read everybody does.
func (m *Membership) State(identity string) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		return Live
	}
	return m.observer.State(identity)
}

// Workers lists the identities that live.
func (m *Membership) Workers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.workers
}

// Sharers lists those among whom the installation's limits are divided, this worker
// included, and when it may use its share: everybody needs a lease at most to notice that
// it is there, or is back. Known is false while it has not looked lately who they are.
func (m *Membership) Sharers(now time.Time) (members []string, from time.Time, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known = !m.looked.IsZero() && now.Before(m.looked.Add(m.options.Lease*2/3))
	return m.sharers, m.unbroken.Add(m.options.Lease), known
}
