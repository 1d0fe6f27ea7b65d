// Package agentrun moves runs: it gathers facts, asks the turn machine for the next
// step, acts on it and records what came of it. It holds no rule of its own; whatever
// decides about a run is in the pure packages.
package agentrun

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/status"
	"github.com/pawl-run/pawl/internal/worker"
)

// maxSteps bounds the steps of one reconcile. A turn takes a handful; more means that
// the turn machine proposes what changes nothing.
const maxSteps = 64

// statusInterval is how often status follows a run that is working.
const statusInterval = 5 * time.Second

// Options are what a Reconciler is built from.
type Options struct {
	// Client reads AgentRuns, Models and ToolPolicies from a cache, and ConfigMaps and
	// Secrets live.
	Client client.Client
	// Live reads AgentRuns live, where a verdict is judged.
	Live  client.Reader
	Store *store.Store
	// Recorder publishes Kubernetes events.
	Recorder events.EventRecorder
	Clock    clock.WithDelayedExecution
	// Boot reads a clock that also counts time in which the machine was suspended.
	Boot     func() time.Duration
	Executor Executor
	// Members says which workers there are, this one included.
	Members Membership
	// MaxConcurrentTurns bounds how many requests to models this process has in flight at
	// once, and MaxConcurrentTurnsPerNamespace how many of them for the runs of one
	// namespace; zero for four fifths of all.
	MaxConcurrentTurns, MaxConcurrentTurnsPerNamespace int
	// JournalRefusalTimeout is how long the API server may refuse a run's journal
	// before the run ends as CheckpointFailed.
	JournalRefusalTimeout time.Duration
	// DeletionGrace is how long a deleted run waits for somebody to settle its unknown
	// outcomes before it is let go; zero for ten minutes.
	DeletionGrace time.Duration
	// Clients builds what talks to models and tools.
	Clients Clients
	// Jobs lets go of the Jobs of calls, Children of the child runs; nil where there are none.
	Jobs, Children Keeper
}

// Reconciler moves AgentRuns.
type Reconciler struct {
	client   client.Client
	live     client.Reader
	store    *store.Store
	recorder events.EventRecorder
	clock    clock.WithDelayedExecution
	boot     func() time.Duration
	members  Membership
	clients  Clients

	flights        *Flights
	places         *places
	refusalTimeout time.Duration
	deletionGrace  time.Duration

	jobs, children           Keeper
	jobWakeups, childWakeups wakeups

	wakeups  wakeups
	memory   memory
	policies policyCache
	draining atomic.Bool
	beat     heartbeat
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{
		client: o.Client, live: o.Live, store: o.Store, recorder: o.Recorder, clock: o.Clock,
		boot: o.Boot, members: o.Members, clients: o.Clients, refusalTimeout: o.JournalRefusalTimeout,
		places:        newPlaces(o.MaxConcurrentTurns, o.MaxConcurrentTurnsPerNamespace),
		deletionGrace: cmp.Or(o.DeletionGrace, 10*time.Minute), jobs: o.Jobs, children: o.Children,
	}
	r.flights = NewFlights(o.Executor, o.Clock, func(key types.NamespacedName) { r.wakeups.wake(key) })
	// Others take the run of an owner that has not ended it a lease and a bit after its
	// cancellation: an owner that works must not wait that long for a reply.
	r.flights.grace = min(effectGrace, o.Members.Lease())
	return r
}

// Reconcile moves one run by at most one turn.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if request == heartbeatRequest {
		r.beat.felt(r.clock.Now())
		return ctrl.Result{}, nil
	}
	object := &v1alpha1.AgentRun{}
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			return r.vanished(ctx, request.NamespacedName)
		}
		return ctrl.Result{}, fmt.Errorf("reading the run: %w", err)
	}
	if old, known := r.memory.lookup(request.NamespacedName); known && old != object.UID {
		if there, err := r.stillThere(ctx, request.NamespacedName, old); err != nil || there {
			return ctrl.Result{RequeueAfter: lagRetry}, err
		}
		r.abandon(old)
		r.flights.forget(old)
	}
	r.memory.learn(request.NamespacedName, object.UID)
	defer r.leaveQueues(object.UID)
	if nothingLeft(object) && (endedInStatusAlone(object) || len(r.flights.landed(object.UID)) == 0) {
		return r.leave(ctx, object)
	}
	if entitled, again := r.entitled(ctx, object); !entitled {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	result, err := r.moveOrDrop(ctx, object)
	if err != nil {
		return r.fail(ctx, object, err)
	}
	return result, nil
}

// moveOrDrop lets a run out of hand unless it was moved whole: what was proposed and not
// committed is not known to anybody else. That holds for a panic too, which the work queue
// survives.
func (r *Reconciler) moveOrDrop(ctx context.Context, object *v1alpha1.AgentRun) (result ctrl.Result, err error) {
	whole := false
	defer func() {
		if !whole {
			r.memory.drop(object.UID)
		}
	}()
	result, err = r.move(ctx, object)
	whole = err == nil
	return result, err
}

// nothingLeft says whether a run needs no more looking after than its time to live: it
// has ended and nobody settles anything, or it is being deleted and holds nothing.
func nothingLeft(object *v1alpha1.AgentRun) bool {
	held := controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerEffects)
	switch {
	case !object.DeletionTimestamp.IsZero():
		return !held
	case object.Status.CompletionTime == nil:
		return false
	default:
		return !settlementGiven(object) && (endedInStatusAlone(object) || !held || len(object.Status.UnknownEffects) > 0)
	}
}

// leave lets go of a run that needs nothing more.
func (r *Reconciler) leave(ctx context.Context, object *v1alpha1.AgentRun) (ctrl.Result, error) {
	r.abandon(object.UID)
	if !object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	err := r.writeStatus(ctx, object, func(previous v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
		return status.Observed(previous, object.Generation)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.expire(ctx, object)
}

// move does the five things that a reconcile is made of.
func (r *Reconciler) move(ctx context.Context, object *v1alpha1.AgentRun) (ctrl.Result, error) {
	session, err := r.open(ctx, object)
	if err != nil || session == nil {
		return ctrl.Result{}, err
	}
	defer r.vacate(session)
	if foreign, again := r.foreign(ctx, object, session); foreign {
		err := r.testify(ctx, object, session)
		if err == nil {
			err = r.correctHint(ctx, object, session)
		}
		r.memory.drop(object.UID)
		return ctrl.Result{RequeueAfter: again}, err
	}
	rules, err := r.gatherRules(ctx, object, session)
	if err != nil {
		return ctrl.Result{}, err
	}
	if session.wish, err = r.wishFor(ctx, object, r.client); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.observeChildren(ctx, object, session); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.recordLanded(object, session, rules); err != nil {
		return ctrl.Result{}, err
	}
	object, err = r.refresh(ctx, object, session)
	if err != nil || object == nil {
		r.memory.drop(session.uid)
		return ctrl.Result{}, err
	}
	step, err := r.drive(ctx, object, session, rules)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.conclude(ctx, object, session, step)
}

// refresh reads the run live where a person's verdict is to be judged: a cache may not
// know yet that it was taken back. It returns nil for a run that is gone.
func (r *Reconciler) refresh(ctx context.Context, object *v1alpha1.AgentRun, s *session) (*v1alpha1.AgentRun, error) {
	state := s.draft.State
	turn := state.OpenTurn()
	granted := turn != nil && turn.Granted != nil && !turn.Dispatched
	if canary.Is(canary.StaleApproval) || state.Approval == nil && state.Question == nil && len(state.Unknown) == 0 && !granted && !effectsAhead(turn) {
		return object, nil
	}
	fresh := &v1alpha1.AgentRun{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(object), fresh)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the run live: %w", err)
	case fresh.UID != object.UID:
		return nil, nil
	case s.behind(fresh):
		return nil, errBehind
	}
	s.wish, err = r.wishFor(ctx, fresh, r.live)
	return fresh, err
}

// effectsAhead says whether the turn has calls that may have an effect and were not sent
// yet: a run that is being deleted must not send them.
func effectsAhead(turn *journal.Turn) bool {
	if turn == nil {
		return false
	}
	for i := range turn.Calls {
		if call := &turn.Calls[i]; (call.Phase == journal.PhasePrepared || call.Phase == journal.PhaseInput) && call.Call.Effect != journal.ReadOnly {
			return true
		}
	}
	return false
}

// drive asks for steps and acts on them until the run has to wait.
func (r *Reconciler) drive(ctx context.Context, object *v1alpha1.AgentRun, s *session, rules rules) (run.Step, error) {
	s.admitted, s.throttled = map[string]bool{}, map[string]time.Time{}
	s.fetched = map[string]run.Fetched{}
	defer func() { s.fetched = nil }()
	for range maxSteps {
		step, err := r.admit(ctx, object, s, rules, r.next(object, s, rules))
		if err != nil {
			return run.Step{}, err
		}
		if step.Kind == run.Send {
			if err := r.guard(ctx, object, s, step); err != nil {
				return run.Step{}, err
			}
		}
		if step.Kind == run.AskModel && s.draft.State.Owner != r.members.Identity() {
			// A claim may charge what the owner before lost; the limits are judged after it.
			if err := r.claim(s); err != nil {
				return run.Step{}, err
			}
			continue
		}
		for _, entry := range step.Events {
			if err := r.add(s, entry); err != nil {
				return run.Step{}, err
			}
		}
		waits, err := r.act(ctx, object, s, &step)
		if err != nil {
			return run.Step{}, err
		}
		if waits {
			return step, nil
		}
	}
	return run.Step{}, fmt.Errorf("no end after %d steps", maxSteps)
}

// next is the next step of a run, as far as this worker may take it.
func (r *Reconciler) next(object *v1alpha1.AgentRun, s *session, rules rules) run.Step {
	facts := r.facts(object, s, rules)
	return r.hold(s, facts, run.Next(facts))
}

// hold keeps a worker from starting anything while it is not sure to be alive in the
// eyes of others, and lets go of runs while it is on its way out.
func (r *Reconciler) hold(s *session, facts run.Facts, step run.Step) run.Step {
	starts := step.Kind == run.Resolve || step.Kind == run.AskModel || step.Kind == run.Send
	waits := starts || step.Kind == run.Await
	switch {
	case step.Kind == run.Poll && s.draft.State.Owner != r.members.Identity() && worker.Rank(string(s.uid), r.members.Identity(), r.members.Workers()) > 0:
		// Every replica sees that it is time; one of them asks.
		return run.LeaveAsking(facts, step, r.clock.Now().Add(lookInterval))
	case step.Anew && worker.Rank(string(s.uid), r.members.Identity(), r.members.Workers()) > 0:
		step.Anew = false // likewise one of them records it
		return step
	case waits && r.draining.Load() && r.flights.underWay(s.uid, s.settled).empty():
		return run.Step{Kind: run.Rest, Waiting: string(v1alpha1.ReasonRunning), Message: "handed over to another replica"}
	case starts && (r.draining.Load() || !r.members.Fresh(r.clock.Now())):
		return run.Step{Kind: run.Await, Waiting: string(v1alpha1.ReasonRunning), Until: r.clock.Now().Add(r.members.Lease() / 15)}
	default:
		return step
	}
}

// act does what a step asks for, and says whether the run now waits.
func (r *Reconciler) act(ctx context.Context, object *v1alpha1.AgentRun, s *session, step *run.Step) (waits bool, err error) {
	switch step.Kind {
	case run.Commit:
		return false, nil
	case run.Resolve:
		return true, r.resolve(ctx, object, s)
	case run.AskModel:
		return r.ask(ctx, object, s, step)
	case run.Send:
		return false, r.send(ctx, object, s, step.Calls)
	case run.Fetch:
		return false, r.fetch(ctx, object, s, step.Artifacts)
	case run.Check:
		r.check(object, s, step.Unknown)
		return false, nil
	case run.Poll:
		r.inquire(object, s, polls, step.Calls)
		return false, nil
	case run.Recall:
		r.inquire(object, s, recalls, step.Calls)
		return false, nil
	case run.Stop:
		r.flights.stop(s.uid)
		return true, r.flush(ctx, object, s)
	case run.Rest, run.Await:
		return r.wait(ctx, object, s, step)
	case run.Done:
		return true, r.letGo(ctx, object, s, "")
	default:
		return false, fmt.Errorf("step %q is not known", step.Kind)
	}
}

// wait lets go of a run that rests, and keeps one that awaits something.
func (r *Reconciler) wait(ctx context.Context, object *v1alpha1.AgentRun, s *session, step *run.Step) (waits bool, err error) {
	switch {
	case step.Kind == run.Await:
		err = r.inherit(s)
	case step.Anew:
		err = r.claim(s)
	}
	if err != nil {
		return false, err
	}
	if step.Kind == run.Await {
		return true, r.flush(ctx, object, s)
	}
	return true, r.letGo(ctx, object, s, step.Waiting)
}

// conclude shows where the run stands and says when to look again.
func (r *Reconciler) conclude(ctx context.Context, object *v1alpha1.AgentRun, s *session, step run.Step) (ctrl.Result, error) {
	now := r.clock.Now()
	until := step.Until
	if r.showNow(object, s, step, now) {
		if err := r.show(ctx, object, s, step); err != nil {
			return ctrl.Result{}, err
		}
	} else if next := s.shown.Add(statusInterval); step.Kind != run.Resolve && (until.IsZero() || next.Before(until)) {
		until = next
	}
	if step.Kind == run.Rest || step.Kind == run.Done {
		r.memory.drop(s.uid)
		r.memory.of(s.uid).claimable = time.Time{}
	}
	if step.Kind == run.Done {
		return r.settle(ctx, object, s)
	}
	if step.Waiting == string(v1alpha1.ReasonConfigurationNotReady) {
		poll := now.Add(pollInterval(now.Sub(object.CreationTimestamp.Time)))
		if until.IsZero() || poll.Before(until) {
			until = poll
		}
	}
	if until.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(until.Sub(now), time.Millisecond)}, nil
}

// pollInterval is how long to wait for what can't be watched, such as a Secret: short
// for a run that was just created, since its objects often arrive together.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/4, 500*time.Millisecond), 30*time.Second)
}
