package limit

import (
	"cmp"
	"slices"
	"time"
)

const (
	// grace is how long a place is kept for the one that was woken to take it.
	grace = 5 * time.Second
	// patience is how long somebody waits who can't know when a place is free. It is woken
	// as soon as one is; asking again is only for the case that this got lost.
	patience = 15 * time.Second
)

// Key names what is limited.
type Key struct{ Namespace, Name string }

// Who asks: a run, and the call for which it does; empty for a request to its model.
type Who struct{ Namespace, Run, UID, Call string }

// Cause is why somebody has to wait.
type Cause string

// Causes of waiting.
const (
	// Concurrent is the limit of what is under way at once.
	Concurrent Cause = "Concurrent"
	// PerMinute is the limit of what is begun in a minute.
	PerMinute Cause = "PerMinute"
	// Total is the Gate's own bound on everything under way.
	Total Cause = "Total"
	// Namespace is the Gate's own bound on what is under way for one namespace.
	Namespace Cause = "Namespace"
)

// Answer to who asks.
type Answer struct {
	// Granted is true when it may begin now. Done gives its place back.
	Granted bool
	// Cause and Until say, where it may not, what it waits for and when to ask again.
	Cause Cause
	Until time.Time
	// Woken are others that have a place now and should ask again soon.
	Woken []Who
}

// Gate lets in those that ask, as far as their shares allow: for each key in the order in
// which they came, and across namespaces the one with the least under way first, so that
// nobody waits behind another namespace's flood. Whoever waits asks again; what it is
// given meanwhile is kept for it for a while.
type Gate struct {
	total, perNamespace int
	queues              map[Key]*queue
	waiting             map[string]map[string]*waiter
	granted             []*waiter
	underWay            int
	byNamespace         map[string]int
	came                uint64
}

// queue is what is known of one key.
type queue struct {
	key      Key
	share    Share
	bucket   Bucket
	underWay int
	waiters  []*waiter
}

// waiter is one that asked and was not let in yet.
type waiter struct {
	who   Who
	queue *queue
	// came is its place in the order of all that came.
	came uint64
	// asked is true once it asked since Settle was last called for its run.
	asked bool
	// granted is true while a place is kept for it, since.
	granted bool
	since   time.Time
	// absent is true for one that did not take the place that was kept for it. It keeps
	// its turn, and is passed over until it asks again.
	absent bool
}

// NewGate returns a Gate with bounds of its own on what is under way at once, in all and
// for one namespace; 0 is no bound.
func NewGate(total, perNamespace int) *Gate {
	return &Gate{
		total: total, perNamespace: perNamespace,
		queues: map[Key]*queue{}, waiting: map[string]map[string]*waiter{}, byNamespace: map[string]int{},
	}
}

// Ask asks to begin something now, under the share that the worker has of the key's
// limits at this moment.
func (g *Gate) Ask(now time.Time, key Key, who Who, share Share) Answer {
	q := g.queues[key]
	if q == nil {
		g.sweep(now)
		q = &queue{key: key}
		g.queues[key] = q
	}
	q.share = share
	w := g.waiting[who.UID][who.Call]
	if w == nil {
		w = g.join(q, who)
	}
	w.asked, w.absent = true, false
	if w.granted && share.Concurrent != Unbounded && q.underWay > int(share.Concurrent) {
		g.revoke(w)
	}
	woken := g.serve(now, w)
	if w.granted {
		g.leave(w)
		return Answer{Granted: true, Woken: woken}
	}
	cause, until := g.cause(now, w)
	return Answer{Cause: cause, Until: until, Woken: woken}
}

// Done says that something of the key has ended, and returns who may begin instead.
func (g *Gate) Done(now time.Time, key Key) []Who {
	q := g.queues[key]
	if q == nil || q.underWay == 0 {
		return nil
	}
	g.count(q, -1)
	return g.serve(now, nil)
}

// Settle takes those of a run off the list that have not asked since it was last called:
// the run waits for something else by now. It returns who moves up.
func (g *Gate) Settle(now time.Time, uid string) []Who {
	var left []*waiter
	for _, w := range g.waiting[uid] {
		if !w.asked {
			left = append(left, w)
		}
		w.asked = false
	}
	slices.SortFunc(left, func(a, b *waiter) int { return cmp.Compare(a.came, b.came) })
	var woken []Who
	for _, w := range left {
		if w.granted {
			g.count(w.queue, -1)
		}
		first := len(w.queue.waiters) > 0 && w.queue.waiters[0] == w
		g.leave(w)
		if first && len(w.queue.waiters) > 0 {
			// Its time to ask again was reckoned from behind the one that left.
			woken = append(woken, w.queue.waiters[0].who)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return append(woken, g.serve(now, nil)...)
}

func (g *Gate) join(q *queue, who Who) *waiter {
	g.came++
	w := &waiter{who: who, queue: q, came: g.came}
	q.waiters = append(q.waiters, w)
	if g.waiting[who.UID] == nil {
		g.waiting[who.UID] = map[string]*waiter{}
	}
	g.waiting[who.UID][who.Call] = w
	return w
}

// leave forgets a waiter. What it was granted stays counted.
func (g *Gate) leave(w *waiter) {
	w.queue.waiters = without(w.queue.waiters, w)
	g.granted = without(g.granted, w)
	delete(g.waiting[w.who.UID], w.who.Call)
	if len(g.waiting[w.who.UID]) == 0 {
		delete(g.waiting, w.who.UID)
	}
}

func without(list []*waiter, w *waiter) []*waiter {
	if i := slices.Index(list, w); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// serve gives places away as long as there are any, and returns who has to be told.
func (g *Gate) serve(now time.Time, asking *waiter) []Who {
	for len(g.granted) > 0 && !now.Before(g.granted[0].since.Add(grace)) {
		late := g.granted[0]
		g.revoke(late)
		late.absent = late != asking
	}
	var woken []Who
	for w := g.next(now); w != nil; w = g.next(now) {
		g.count(w.queue, 1)
		if p := w.queue.share.PerMinute; p > 0 {
			w.queue.bucket.Take(now, p)
		}
		w.queue.waiters = without(w.queue.waiters, w)
		w.granted, w.since = true, now
		g.granted = append(g.granted, w)
		if w != asking {
			woken = append(woken, w.who)
		}
	}
	return woken
}

// revoke takes back what was kept for a waiter, which keeps its turn. A token that was
// taken for it is lost.
func (g *Gate) revoke(w *waiter) {
	g.granted = without(g.granted, w)
	w.granted = false
	g.count(w.queue, -1)
	at, _ := slices.BinarySearchFunc(w.queue.waiters, w.came, func(other *waiter, came uint64) int { return cmp.Compare(other.came, came) })
	w.queue.waiters = slices.Insert(w.queue.waiters, at, w)
}

// next is the one to let in, nil when nobody may begin now.
func (g *Gate) next(now time.Time) *waiter {
	var best *waiter
	for _, q := range g.queues {
		w := q.head()
		if w == nil || g.blocked(now, q) != "" {
			continue
		}
		if best == nil || g.before(w, best) {
			best = w
		}
	}
	return best
}

func (g *Gate) before(a, b *waiter) bool {
	busyA, busyB := g.byNamespace[a.queue.key.Namespace], g.byNamespace[b.queue.key.Namespace]
	return busyA < busyB || busyA == busyB && a.came < b.came
}

// head is the first waiter that is there.
func (q *queue) head() *waiter {
	for _, w := range q.waiters {
		if !w.absent {
			return w
		}
	}
	return nil
}

// blocked says why nobody of a queue may begin now, empty when somebody may.
func (g *Gate) blocked(now time.Time, q *queue) Cause {
	switch {
	case q.share.Concurrent != Unbounded && q.underWay >= int(q.share.Concurrent):
		return Concurrent
	case q.share.PerMinute == 0, q.share.PerMinute > 0 && q.bucket.Next(now, q.share.PerMinute, 1).After(now):
		return PerMinute
	case g.perNamespace > 0 && g.byNamespace[q.key.Namespace] >= g.perNamespace:
		return Namespace
	case g.total > 0 && g.underWay >= g.total:
		return Total
	default:
		return ""
	}
}

// cause says what a waiter waits for, and when it should ask again.
func (g *Gate) cause(now time.Time, w *waiter) (Cause, time.Time) {
	q, until := w.queue, now.Add(patience)
	cause := g.blocked(now, q)
	if cause != PerMinute || q.share.PerMinute <= 0 {
		return cause, until
	}
	position := 0
	for _, other := range q.waiters {
		if !other.absent {
			position++
		}
		if other == w {
			break
		}
	}
	if at := q.bucket.Next(now, q.share.PerMinute, position); at.Before(until) {
		until = at
	}
	return cause, until
}

// count notes what began or ended.
func (g *Gate) count(q *queue, change int) {
	q.underWay += change
	g.underWay += change
	g.byNamespace[q.key.Namespace] += change
	if g.byNamespace[q.key.Namespace] == 0 {
		delete(g.byNamespace, q.key.Namespace)
	}
}

// sweep forgets keys that nobody waits for and that nothing is known of.
func (g *Gate) sweep(now time.Time) {
	for key, q := range g.queues {
		if len(q.waiters) == 0 && q.underWay == 0 && q.bucket.Full(now) {
			delete(g.queues, key)
		}
	}
}
