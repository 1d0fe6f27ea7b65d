package agentrun

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/tool"
)

// Executor starts everything that runs beside the reconcile workers, so that a test can
// step it.
type Executor interface {
	// Go runs the function some time from now.
	Go(f func())
}

// Goroutines is the Executor of a real operator.
type Goroutines struct{}

// Go implements Executor.
func (Goroutines) Go(f func()) { go f() }

// effectGrace is how long the reply of a call that may have an effect is waited for
// once its run is to end: a known outcome is worth more than a quick ending.
const effectGrace = 10 * time.Second

// flight is one thing under way outside: a request to the model, an attempt at a call,
// or the resolution of a run's references.
type flight struct {
	// call is the id of the call, empty for the model and for resolving; check is true
	// for a look-up of its effect instead of an attempt.
	call    string
	attempt int32
	check   bool
	// inquiry is set for a question about a call that goes on outside instead of an attempt.
	inquiry inquiry
	// epoch under which the call was dispatched.
	epoch int64
	// withheld is true for an attempt that was announced, so far as is known, and not sent.
	withheld bool
	// asked is the request that the model was given.
	asked *run.Asked
	// cut is true once it was ended because this process leaves: somebody else does it again.
	cut bool
	// effectful is true for calls whose outcome must be known.
	effectful bool
	cancel    context.CancelFunc
	started   time.Time
	// ended is called once it has landed; nil for nothing to do.
	ended func()

	// What came of it, once done is true.
	done          bool
	reply         model.Reply
	failure       *model.Error
	outcome       tool.Outcome
	found         run.Found
	configuration *run.Configuration
	duration      time.Duration
}

// Flights are what this process has under way, by run. Nothing here is truth: after a
// crash the journal says what was announced.
type Flights struct {
	executor Executor
	clock    clock.WithDelayedExecution
	// Wake is called when something has landed.
	wake func(types.NamespacedName)
	// grace is how long stop waits for the reply of a call that may have an effect.
	grace time.Duration

	mu    sync.Mutex
	byRun map[types.UID][]*flight
	// lost are calls that the watchdog gave up and that may still come back.
	lost map[types.UID][]*flight
}

// NewFlights returns an empty set.
func NewFlights(executor Executor, clock clock.WithDelayedExecution, wake func(types.NamespacedName)) *Flights {
	return &Flights{executor: executor, clock: clock, wake: wake, grace: effectGrace, byRun: map[types.UID][]*flight{}, lost: map[types.UID][]*flight{}}
}

// start puts a flight in the air. Work fills in what came of it.
func (f *Flights) start(uid types.UID, key types.NamespacedName, entry *flight, timeout time.Duration, work func(context.Context, *flight)) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	entry.cancel, entry.started = cancel, f.clock.Now()
	f.mu.Lock()
	f.byRun[uid] = append(f.byRun[uid], entry)
	f.mu.Unlock()
	watchdog := f.clock.AfterFunc(timeout+watchdogMargin, func() {
		f.executor.Go(func() { f.giveUp(uid, key, entry) })
	})
	f.executor.Go(func() {
		defer cancel()
		landed := &flight{call: entry.call, asked: entry.asked, inquiry: entry.inquiry}
		landed.fly(ctx, work)
		watchdog.Stop()
		f.land(uid, key, entry, landed)
	})
}

// watchdogMargin is how long after its deadline a flight may still be out. An adapter
// that does not come back then has broken its promise, and its run must not hang on it.
const watchdogMargin = 10 * time.Second

// land records what came of a flight and wakes its run. What comes back after it was given
// up is kept beside what was said of it then: it may still say what became of an effect.
func (f *Flights) land(uid types.UID, key types.NamespacedName, entry, landed *flight) {
	f.mu.Lock()
	if entry.done {
		if !f.found(uid, entry) || landed.outcome.Effect == tool.EffectUnknown || canary.Is(canary.LateDropped) {
			f.mu.Unlock()
			return
		}
		entry = &flight{call: entry.call, attempt: entry.attempt, epoch: entry.epoch, effectful: true, cancel: entry.cancel, started: entry.started}
		f.byRun[uid] = append(f.byRun[uid], entry)
	}
	f.fill(entry, landed)
	f.mu.Unlock()
	f.tell(key, entry)
}

// giveUp lands a flight that does not come back.
func (f *Flights) giveUp(uid types.UID, key types.NamespacedName, entry *flight) {
	f.mu.Lock()
	if entry.done {
		f.mu.Unlock()
		return
	}
	if entry.effectful {
		f.lost[uid] = append(f.lost[uid], entry)
	}
	f.fill(entry, hung(entry))
	f.mu.Unlock()
	f.tell(key, entry)
}

// tell lets those know who wait for a flight to end.
func (f *Flights) tell(key types.NamespacedName, entry *flight) {
	if entry.ended != nil {
		entry.ended()
	}
	f.wake(key)
}

func (f *Flights) fill(entry, landed *flight) {
	entry.reply, entry.failure, entry.outcome = landed.reply, landed.failure, landed.outcome
	entry.configuration, entry.found = landed.configuration, landed.found
	entry.duration, entry.done = f.clock.Since(entry.started), true
}

// found takes a flight off the list of those that were given up, and says whether it was
// on it.
func (f *Flights) found(uid types.UID, entry *flight) bool {
	i := slices.Index(f.lost[uid], entry)
	if i < 0 {
		return false
	}
	if f.lost[uid] = slices.Delete(f.lost[uid], i, i+1); len(f.lost[uid]) == 0 {
		delete(f.lost, uid)
	}
	return true
}

// hung is what is known of a flight that does not come back.
func hung(entry *flight) *flight {
	if entry.inquiry != "" {
		return &flight{outcome: tool.NothingLearned(unasked)}
	}
	return &flight{
		failure:       &model.Error{Class: model.ClassTransient, Sent: true, Detail: "the adapter did not come back"},
		outcome:       tool.Outcome{Class: tool.ClassTimeout, Effect: tool.EffectUnknown, Message: "the call did not come back; nobody knows whether it took effect"},
		configuration: hungConfiguration(entry),
	}
}

func hungConfiguration(entry *flight) *run.Configuration {
	if entry.call != "" || entry.asked != nil {
		return nil
	}
	return &run.Configuration{NotReady: "the tool servers do not answer"}
}

// fly does the work. A panic, which some input of one run may bring about, must not end
// the process and with it every other run: it is an outcome that nobody knows.
func (f *flight) fly(ctx context.Context, work func(context.Context, *flight)) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		// What caused it may hold what a model or a tool said; its type and place do not.
		ctrl.Log.WithName("agentrun").Error(fmt.Errorf("panic of type %T", cause), "An adapter failed", "stack", string(debug.Stack()))
		const message = "the operator failed while it was under way"
		switch {
		case f.inquiry != "":
			f.outcome = tool.NothingLearned(unasked)
		case f.call != "":
			f.outcome = tool.Outcome{Class: tool.ClassUnknown, Effect: tool.EffectUnknown, Message: message}
		case f.asked != nil:
			f.failure = &model.Error{Class: model.ClassTransient, Sent: true, Detail: message}
		default:
			f.configuration = &run.Configuration{NotReady: "the operator failed while it looked up what the run refers to"}
		}
	}()
	work(ctx, f)
}

// landed lists what has ended and was not settled yet.
func (f *Flights) landed(uid types.UID) []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*flight
	for _, entry := range f.byRun[uid] {
		if entry.done {
			out = append(out, entry)
		}
	}
	return out
}

// settle forgets flights whose outcome is committed, or no longer wanted.
func (f *Flights) settle(uid types.UID, entries []*flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.byRun[uid][:0]
	for _, entry := range f.byRun[uid] {
		if !slices.Contains(entries, entry) {
			kept = append(kept, entry)
		}
	}
	if len(kept) == 0 {
		delete(f.byRun, uid)
		return
	}
	f.byRun[uid] = kept
}

// underWay says what is not accounted for yet: whether the model was asked, whether
// references are being resolved, and which calls were sent. What has landed counts
// until it is settled, or it would look like something that was lost.
func (f *Flights) underWay(uid types.UID, settled []*flight) underWay {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := underWay{calls: map[string]bool{}, checks: map[string]bool{}, inquiries: map[string]bool{}}
	for _, entry := range f.byRun[uid] {
		switch {
		case slices.Contains(settled, entry):
		case entry.check:
			out.checks[entry.call] = true
		case entry.inquiry != "":
			out.inquiries[entry.call] = true
		case entry.call != "":
			out.calls[entry.call] = true
		case entry.asked != nil:
			out.model = true
		default:
			out.resolving = true
		}
	}
	return out
}

// underWay is what a run has in the air: calls, look-ups and inquiries by call id.
type underWay struct {
	model, resolving         bool
	calls, checks, inquiries map[string]bool
}

func (u underWay) empty() bool {
	return !u.model && !u.resolving && len(u.calls) == 0 && len(u.checks) == 0 && len(u.inquiries) == 0
}

// stop ends everything of a run: at once, or after the grace for calls that may have
// an effect.
func (f *Flights) stop(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range f.byRun[uid] {
		switch {
		case entry.inquiry == recalls:
			// It is how the run's calls are stopped, and ends by itself.
		case entry.effectful:
			f.clock.AfterFunc(f.grace, entry.cancel)
		default:
			entry.cancel()
		}
	}
}

// stopRepeatable ends, for every run, what may be done again: requests to models and
// calls without effect.
func (f *Flights) stopRepeatable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entries := range f.byRun {
		for _, entry := range entries {
			if !entry.effectful {
				entry.cut = true
				entry.cancel()
			}
		}
	}
}

// drop stops what a run has under way. A call that may have an effect counts as given up:
// others may have ended the run without knowing what became of it, and it may still say so.
func (f *Flights) drop(uid types.UID) {
	f.stop(uid)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range f.byRun[uid] {
		if entry.effectful && !entry.done {
			entry.done = true
			f.lost[uid] = append(f.lost[uid], entry)
		}
	}
	delete(f.byRun, uid)
}

// forget drops a run of which nothing is wanted any more.
func (f *Flights) forget(uid types.UID) {
	f.drop(uid)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lost, uid)
}
