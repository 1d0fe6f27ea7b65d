package sim

import (
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// sharedModel is the Model of all runs of a namespace where it has limits.
const sharedModel = "shared"

// lateness is how long after its turn a request may reach the model: it is announced
// first, which may take several tries.
const lateness = 30 * time.Second

// limited is what reached the shared Models.
type limited struct {
	limits   *v1alpha1.ModelLimits
	underWay map[*asking]bool
	begun    map[string][]time.Duration
	// changes are when members came, went, or were late enough to be taken for dead.
	changes []time.Duration
}

// asking is one request that is under way.
type asking struct {
	p         *process
	namespace string
	began     time.Duration
}

// member notes that the members of the installation change.
func (c *checker) member() {
	c.limited.changes = append(c.limited.changes, c.w.elapsed)
}

// changed counts the changes of members since a time, those included that nobody wrote: a
// lease that runs out.
func (c *checker) changed(since time.Duration) int {
	n := 0
	for _, at := range c.limited.changes {
		if at >= since {
			n++
		}
	}
	for _, h := range c.leases {
		if len(h.writes) == 0 {
			continue
		}
		if lapses := h.writes[len(h.writes)-1] + lease*6/10; lapses >= since && lapses <= c.w.elapsed {
			n++
		}
	}
	return n
}

// begins checks a request to the shared Model of a namespace, and returns what ends it.
func (c *checker) begins(p *process, namespace string) (ends func()) {
	l := &c.limited
	request := &asking{p, namespace, c.w.elapsed}
	for other := range l.underWay {
		if other.p.dead {
			delete(l.underWay, other)
		}
	}
	l.underWay[request] = true
	l.begun[namespace] = append(l.begun[namespace], c.w.elapsed)
	c.atOnce(request)
	c.inAMinute(request)
	return func() { delete(l.underWay, request) }
}

// atOnce holds what is under way to the limit: exactly while the members stay the same,
// and doubled, trebled and so on by what is under way since before they changed.
func (c *checker) atOnce(newest *asking) {
	l, n := &c.limited, 0
	limit := int(l.limits.MaxConcurrentRequests)
	if limit == 0 {
		return
	}
	oldest := c.w.elapsed
	for request := range l.underWay {
		if request.namespace == newest.namespace {
			oldest = min(oldest, request.began)
			n++
		}
	}
	changes := c.changed(oldest - 2*lease)
	if changes == 0 {
		c.w.counts.Steady++
		if n == limit {
			c.w.counts.AtLimit++
		}
	}
	if n > limit*(changes+1) {
		c.fail("limits hold for the installation", "%s asks as the %d. at once, the limit is %d and members changed %d times", newest.p.id, n, limit, changes)
	}
}

// inAMinute holds what was begun to the rate in the same way.
func (c *checker) inAMinute(newest *asking) {
	l, n := &c.limited, 0
	limit := int(l.limits.RequestsPerMinute)
	if limit == 0 {
		return
	}
	for _, at := range l.begun[newest.namespace] {
		if c.w.elapsed-at < time.Minute {
			n++
		}
	}
	changes := c.changed(c.w.elapsed - time.Minute - lateness - 2*lease)
	if changes == 0 {
		c.w.counts.Steady++
	}
	// What had its turn a while ago arrives with what has it now.
	allowed := (limit*int((time.Minute+lateness)/time.Second) + 59) / 60
	if n > allowed*(changes+1) {
		c.fail("rates hold for the installation", "%s asks as the %d. within a minute, the limit is %d and members changed %d times", newest.p.id, n, limit, changes)
	}
}
