package agentrun

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/limit"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/worker"
)

// places keep this worker within its share of what all may do together, and within its
// own bounds: requests to models, and attempts at calls.
type places struct {
	mu           sync.Mutex
	turns, calls *limit.Gate
	divisions    map[limit.Key]division
}

// division is how the limits of one thing are shared, as long as neither they nor the
// members change.
type division struct {
	limits  limit.Limits
	members []string
	shares  []limit.Share
}

// maxDivisions bounds what is kept; beyond it everything is divided anew.
const maxDivisions = 1024

// newPlaces returns the places of a worker that may have so many requests to models under
// way, 0 for any number, and so many for one namespace, 0 for four fifths of all: a
// namespace that wants everything leaves some to the others at once.
func newPlaces(total, perNamespace int) *places {
	if perNamespace == 0 && total > 0 {
		perNamespace = max(total*4/5, 1)
	}
	return &places{turns: limit.NewGate(total, perNamespace), calls: limit.NewGate(0, 0), divisions: map[limit.Key]division{}}
}

// divide gives every member's share, in their order.
func (p *places) divide(key limit.Key, limits limit.Limits, members []string) []limit.Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.divisions[key]
	if known.shares == nil || known.limits != limits || !slices.Equal(known.members, members) {
		if len(p.divisions) >= maxDivisions {
			clear(p.divisions)
		}
		shares := limit.Divide(key.Namespace+"/"+key.Name, limits, members)
		known = division{limits: limits, members: slices.Clone(members), shares: shares}
		p.divisions[key] = known
	}
	return known.shares
}

// standing is this worker's part in the limits of one thing, as they are now.
type standing struct {
	limits limit.Limits
	share  limit.Share
	// members share the limits, and shares are theirs.
	members []string
	shares  []limit.Share
	// known is false while this worker can't tell who they are.
	known bool
	// from is when the share may be used.
	from time.Time
}

func (r *Reconciler) standing(key limit.Key, limits limit.Limits, now time.Time) standing {
	if limits.None() {
		return standing{share: limit.Free, known: true}
	}
	members, from, known := r.members.Sharers(now)
	if !known {
		return standing{limits: limits, from: now.Add(r.members.Lease() / 15)}
	}
	s := standing{limits: limits, members: members, shares: r.places.divide(key, limits, members), known: true, from: from}
	if i := slices.Index(members, r.members.Identity()); i >= 0 {
		s.share = s.shares[i]
	}
	if canary.Is(canary.ShareIgnored) {
		s.share = r.places.divide(key, limits, []string{r.members.Identity()})[0]
	}
	return s
}

// elsewhere says whether only others may do anything.
func (s standing) elsewhere() bool { return s.known && s.share.Nothing() }

// usable says whether this worker may do something now.
func (s standing) usable(now time.Time) bool {
	return s.known && !s.share.Nothing() && !s.from.After(now)
}

// rank is this worker's place in a run's order of preference. Where the run's Model has
// limits, the workers that may ask it come first, each for as many runs as its share is
// large; the others can't take the run far.
func (r *Reconciler) rank(ctx context.Context, object *v1alpha1.AgentRun, now time.Time) int {
	uid, workers := string(object.UID), r.members.Workers()
	plain := worker.Rank(uid, r.members.Identity(), workers)
	key, limits, err := r.modelLimits(ctx, object)
	if err != nil || limits.None() {
		return plain
	}
	s := r.standing(key, limits, now)
	var able []string
	var weights []int32
	for i, member := range s.members {
		if weight := s.shares[i].Weight(); weight > 0 && slices.Contains(workers, member) && member != r.members.Identity() {
			able, weights = append(able, member), append(weights, weight)
		}
	}
	if !s.usable(now) {
		return len(able) + plain
	}
	return limit.Rank(uid, r.members.Identity(), append(able, r.members.Identity()), append(weights, s.share.Weight()))
}

// modelLimits reads the limits of a run's Model as they are now: none for one that is gone.
func (r *Reconciler) modelLimits(ctx context.Context, object *v1alpha1.AgentRun) (limit.Key, limit.Limits, error) {
	found := &v1alpha1.Model{}
	name := client.ObjectKey{Namespace: object.Namespace, Name: object.Spec.ModelRef.Name}
	key := limit.Key{Namespace: name.Namespace, Name: "model/" + name.Name}
	if err := r.client.Get(ctx, name, found); err != nil {
		if apierrors.IsNotFound(err) {
			return key, limit.Limits{}, nil
		}
		return key, limit.Limits{}, fmt.Errorf("reading Model %s: %w", name.Name, err)
	}
	if l := found.Spec.Limits; l != nil {
		return key, limit.Limits{Concurrent: l.MaxConcurrentRequests, PerMinute: l.RequestsPerMinute}, nil
	}
	return key, limit.Limits{}, nil
}

// admit lets a step pass that begins nothing, or only what there is a place for. Any other
// becomes one that waits for a place, or hands the run over to who may have one.
func (r *Reconciler) admit(ctx context.Context, object *v1alpha1.AgentRun, s *session, rules rules, step run.Step) (run.Step, error) {
	switch step.Kind {
	case run.AskModel:
		return r.admitRequest(ctx, object, s, rules, step)
	case run.Send:
		return r.admitCalls(object, s, rules, step), nil
	default:
		return step, nil
	}
}

func (r *Reconciler) admitRequest(ctx context.Context, object *v1alpha1.AgentRun, s *session, rules rules, step run.Step) (run.Step, error) {
	if s.place != nil {
		return step, nil
	}
	key, limits, err := r.modelLimits(ctx, object)
	if err != nil {
		return run.Step{}, err
	}
	now, facts, name := r.clock.Now(), r.facts(object, s, rules), object.Spec.ModelRef.Name
	mine := s.draft.State.Owner == r.members.Identity()
	switch at := r.standing(key, limits, now); {
	case at.elsewhere():
		r.memory.of(s.uid).passed = now.Add(lookInterval)
		return run.HandOver(facts, fmt.Sprintf("waiting for a replica with a share of the limits of Model %s", name), now.Add(lookInterval+jitter(s.uid))), nil
	case !at.usable(now) && mine:
		return run.Hold(facts, fmt.Sprintf("waiting until this replica may use its share of the limits of Model %s", name), at.from), nil
	case !at.usable(now):
		return run.HandOver(facts, fmt.Sprintf("waiting until a replica may use its share of the limits of Model %s", name), at.from), nil
	case !mine:
		// It is claimed before it waits here, so that nobody else waits for the same.
		return step, nil
	default:
		answer := r.places.ask(r.places.turns, now, key, whoIs(object, ""), at.share)
		r.wakeAll(answer.Woken)
		if !answer.Granted {
			return run.Hold(facts, waitsFor(answer.Cause, name, limits), answer.Until), nil
		}
		s.place = &key
		return step, nil
	}
}

// waitsFor says what a request to a model waits for.
func waitsFor(cause limit.Cause, model string, limits limit.Limits) string {
	switch cause {
	case limit.PerMinute:
		return fmt.Sprintf("waiting for its turn: Model %s allows %d requests in a minute (limits.requestsPerMinute)", model, limits.PerMinute)
	case limit.Total:
		return "waiting for its turn: this replica has as many requests to models under way as it may (--max-concurrent-turns)"
	case limit.Namespace:
		return "waiting for its turn: this replica has as many requests to models under way for this namespace as it may (--max-concurrent-turns-per-namespace)"
	default:
		return fmt.Sprintf("waiting for its turn: Model %s allows %d requests at once (limits.maxConcurrentRequests)", model, limits.Concurrent)
	}
}

// admitCalls takes the calls out of a step whose tools were called often enough.
func (r *Reconciler) admitCalls(object *v1alpha1.AgentRun, s *session, rules rules, step run.Step) run.Step {
	now, refused, elsewhere := r.clock.Now(), false, false
	for _, sending := range step.Calls {
		id := sending.Call.ID
		if s.admitted[id] {
			continue
		}
		key, limits := toolLimits(object.Namespace, sending.Call.Tool, rules)
		at := r.standing(key, limits, now)
		until := at.from
		switch {
		case limits.None():
			continue
		case at.elsewhere():
			until, elsewhere = now.Add(lookInterval), true
		case at.usable(now):
			answer := r.places.ask(r.places.calls, now, key, whoIs(object, id), at.share)
			r.wakeAll(answer.Woken)
			if answer.Granted {
				r.places.done(r.places.calls, now, key)
				s.admitted[id] = true
				continue
			}
			until = answer.Until
		}
		s.throttled[id], refused = until, true
	}
	if !refused {
		return step
	}
	step = r.next(object, s, rules)
	if elsewhere && step.Kind == run.Await && r.flights.underWay(s.uid, s.settled).empty() {
		r.memory.of(s.uid).passed = now.Add(lookInterval)
		return run.HandOver(r.facts(object, s, rules), step.Message, now.Add(lookInterval+jitter(s.uid)))
	}
	return step
}

// toolLimits are the limits of a tool, as the policy that declares it says now.
func toolLimits(namespace, tool string, rules rules) (limit.Key, limit.Limits) {
	if rules.set == nil {
		return limit.Key{}, limit.Limits{}
	}
	key := limit.Key{Namespace: namespace, Name: "tool/" + rules.set.Owner(tool) + "/" + tool}
	return key, limit.Limits{PerMinute: rules.set.Properties(tool).RequestsPerMinute}
}

func whoIs(object *v1alpha1.AgentRun, call string) limit.Who {
	return limit.Who{Namespace: object.Namespace, Run: object.Name, UID: string(object.UID), Call: call}
}

func (p *places) ask(gate *limit.Gate, now time.Time, key limit.Key, who limit.Who, share limit.Share) limit.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return gate.Ask(now, key, who, share)
}

func (p *places) done(gate *limit.Gate, now time.Time, key limit.Key) []limit.Who {
	p.mu.Lock()
	defer p.mu.Unlock()
	return gate.Done(now, key)
}

func (p *places) settle(now time.Time, uid types.UID) []limit.Who {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(p.turns.Settle(now, string(uid)), p.calls.Settle(now, string(uid))...)
}

// leaveQueues gives up the turns of a run that it has not asked for in this reconcile: it
// waits for something else by now.
func (r *Reconciler) leaveQueues(uid types.UID) {
	r.wakeAll(r.places.settle(r.clock.Now(), uid))
}

// giveBack gives back the place of a request that has ended, or that did not begin.
func (r *Reconciler) giveBack(key limit.Key) {
	r.wakeAll(r.places.done(r.places.turns, r.clock.Now(), key))
}

// vacate gives back a place that a reconcile got and did not use.
func (r *Reconciler) vacate(s *session) {
	if s.place != nil {
		r.giveBack(*s.place)
		s.place = nil
	}
}

func (r *Reconciler) wakeAll(woken []limit.Who) {
	for _, who := range woken {
		r.wakeups.wake(types.NamespacedName{Namespace: who.Namespace, Name: who.Run})
	}
}
