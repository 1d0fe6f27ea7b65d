package crash

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
)

// moment is a place in the life of a run, in the order in which a run passes them: in
// each turn the model is asked, has answered, and then each call is sent and is done.
type moment struct{ turn, step int }

const (
	asked = iota
	answered
	firstSent
	firstDone
)

// sent and done are the steps of a turn's n-th call, counted from 0.
func sent(n int) int { return firstSent + 2*n }
func done(n int) int { return firstDone + 2*n }

func (m moment) before(other moment) bool {
	return m.turn < other.turn || m.turn == other.turn && m.step < other.step
}

func (m moment) String() string {
	switch {
	case m.step == asked:
		return fmt.Sprintf("turn %d, the model is asked", m.turn)
	case m.step == answered:
		return fmt.Sprintf("turn %d, the model has answered", m.turn)
	case m.step%2 == 0:
		return fmt.Sprintf("turn %d, call %d arrives", m.turn, (m.step-firstSent)/2+1)
	default:
		return fmt.Sprintf("turn %d, call %d is done", m.turn, (m.step-firstDone)/2+1)
	}
}

// kill is one end of the operator's process.
type kill struct {
	// at is the first moment when it may happen.
	at moment
	// early, where it is not 0, ends the process so long after its start, if the moment
	// does not come before.
	early time.Duration
	// later is how long after the moment it happens. At 0 the one who sees the moment
	// does not go on before the process is gone.
	later time.Duration
	// lost drops the request, or the answer, during which a process is killed at once.
	lost bool
}

func (k kill) String() string {
	if k.early > 0 {
		return fmt.Sprintf("%s after the start, or %s", k.early, k.at)
	}
	return fmt.Sprintf("%s, %s later, lost=%v", k.at, k.later, k.lost)
}

// plan draws two kills for each of the turns; steps says how many steps a turn has.
func plan(random *rand.Rand, turns int, steps func(turn int) int) []kill {
	var kills []kill
	for turn := 1; turn <= turns; turn++ {
		first, second := random.IntN(steps(turn)), random.IntN(steps(turn))
		for _, step := range []int{min(first, second), max(first, second)} {
			k := kill{at: moment{turn, step}, lost: random.IntN(3) == 0}
			switch random.IntN(5) {
			case 0:
				k.early = time.Duration(1+random.IntN(800)) * time.Millisecond
			case 1, 2:
				k.later = time.Duration(random.IntN(40)) * time.Millisecond
			}
			kills = append(kills, k)
		}
	}
	return kills
}

// conductor kills the operator as planned, one kill for each of its lives.
type conductor struct {
	end func()
	// dead gets each kill after it has happened.
	dead chan kill

	mu    sync.Mutex
	plan  []kill
	alive bool
}

func newConductor(plan []kill, end func()) *conductor {
	return &conductor{plan: plan, end: end, dead: make(chan kill, len(plan)), alive: true}
}

// born says that the process was started.
func (c *conductor) born() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive = true
	if len(c.plan) == 0 || c.plan[0].early == 0 {
		return
	}
	left := len(c.plan)
	time.AfterFunc(c.plan[0].early, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.alive && len(c.plan) == left {
			c.take()
		}
	})
}

// see says that the run is at a moment. It returns false when the request or answer
// that belongs to the moment is to be lost.
func (c *conductor) see(now moment) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.alive || len(c.plan) == 0 || now.before(c.plan[0].at) {
		return true
	}
	return !c.take()
}

// take carries out the next kill and says whether something is lost by it.
func (c *conductor) take() bool {
	next := c.plan[0]
	c.plan, c.alive = c.plan[1:], false
	if next.later > 0 {
		time.AfterFunc(next.later, func() { c.carryOut(next) })
		return false
	}
	c.carryOut(next)
	return next.lost
}

func (c *conductor) carryOut(next kill) {
	c.end()
	GinkgoWriter.Println("killed:", next)
	c.dead <- next
}
