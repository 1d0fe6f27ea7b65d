package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func who(namespace string, n int) Who {
	run := fmt.Sprint("run-", n)
	return Who{Namespace: namespace, Run: run, UID: namespace + "/" + run}
}

func modelOf(namespace string) Key { return Key{namespace, "model"} }

// scene drives a Gate like reconciles do.
type scene struct {
	t    *testing.T
	gate *Gate
	now  time.Time
}

func newScene(t *testing.T, total, perNamespace int) *scene {
	return &scene{t: t, gate: NewGate(total, perNamespace), now: start}
}

// ask is one reconcile of a run that wants to begin something.
func (s *scene) ask(w Who, share Share) Answer {
	answer := s.gate.Ask(s.now, modelOf(w.Namespace), w, share)
	s.gate.Settle(s.now, w.UID)
	return answer
}

func (s *scene) wantGranted(w Who, share Share) {
	s.t.Helper()
	if answer := s.ask(w, share); !answer.Granted {
		s.t.Fatalf("%s waits for %s", w.UID, answer.Cause)
	}
}

func (s *scene) wantWaiting(w Who, share Share, cause Cause) time.Time {
	s.t.Helper()
	answer := s.ask(w, share)
	if answer.Granted || answer.Cause != cause || !answer.Until.After(s.now) {
		s.t.Fatalf("%s: %+v, want to wait for %s", w.UID, answer, cause)
	}
	return answer.Until
}

func (s *scene) wantWoken(got []Who, want ...Who) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Fatalf("woken are %v, want %v", got, want)
	}
}

func places(n int32) Share { return Share{Concurrent: n, PerMinute: Unbounded} }

func TestFirstComeFirstServed(t *testing.T) {
	s := newScene(t, 0, 0)
	one := places(1)
	s.wantGranted(who("a", 0), one)
	for i := 1; i <= 3; i++ {
		s.wantWaiting(who("a", i), one, Concurrent)
	}
	// Asking again changes no turn.
	s.wantWaiting(who("a", 3), one, Concurrent)
	for i := 1; i <= 3; i++ {
		s.wantWoken(s.gate.Done(s.now, modelOf("a")), who("a", i))
		// The one that has just had its turn comes last, and so does everybody new.
		s.wantWaiting(who("a", i-1), one, Concurrent)
		s.wantGranted(who("a", i), one)
	}
}

func TestAnotherNamespaceDoesNotWaitBehindAFlood(t *testing.T) {
	for name, s := range map[string]*scene{"in all": newScene(t, 4, 0), "with a bound for each": newScene(t, 6, 4)} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			cause := Total
			if s.gate.perNamespace > 0 {
				cause = Namespace
			}
			for i := range 4 {
				s.wantGranted(who("flood", i), Free)
			}
			for i := 4; i < 50; i++ {
				s.wantWaiting(who("flood", i), Free, cause)
			}
			if cause == Namespace {
				// There is room that the flood must not take.
				s.wantGranted(who("b", 0), Free)
				s.wantGranted(who("c", 0), Free)
				return
			}
			s.wantWaiting(who("b", 0), Free, Total)
			s.wantWaiting(who("c", 0), Free, Total)
			s.wantWoken(s.gate.Done(s.now, modelOf("flood")), who("b", 0))
			s.wantWoken(s.gate.Done(s.now, modelOf("flood")), who("c", 0))
			s.wantWoken(s.gate.Done(s.now, modelOf("b")), who("flood", 4))
		})
	}
}

func TestAPlaceIsKeptForAWhile(t *testing.T) {
	s := newScene(t, 0, 0)
	one := places(1)
	s.wantGranted(who("a", 0), one)
	s.wantWaiting(who("a", 1), one, Concurrent)
	s.wantWaiting(who("a", 2), one, Concurrent)
	s.wantWoken(s.gate.Done(s.now, modelOf("a")), who("a", 1))
	s.now = s.now.Add(grace - time.Millisecond)
	s.wantWaiting(who("a", 2), one, Concurrent)
	s.now = s.now.Add(time.Millisecond)
	s.wantGranted(who("a", 2), one)
	// Whoever was late has not lost its turn.
	s.wantWaiting(who("a", 3), one, Concurrent)
	s.wantWaiting(who("a", 1), one, Concurrent)
	s.wantWoken(s.gate.Done(s.now, modelOf("a")), who("a", 1))
	s.wantGranted(who("a", 1), one)
}

func TestWhoWantsSomethingElseGivesWay(t *testing.T) {
	s := newScene(t, 0, 0)
	one := places(1)
	s.wantGranted(who("a", 0), one)
	for i := 1; i <= 3; i++ {
		s.wantWaiting(who("a", i), one, Concurrent)
	}
	s.wantWoken(s.gate.Settle(s.now, who("a", 1).UID), who("a", 2))
	s.wantWoken(s.gate.Done(s.now, modelOf("a")), who("a", 2))
	// It was given a place, and was cancelled meanwhile.
	s.wantWoken(s.gate.Settle(s.now, who("a", 2).UID), who("a", 3))
	s.wantGranted(who("a", 3), one)
	s.gate.Done(s.now, modelOf("a"))
	s.gate.sweep(s.now)
	if len(s.gate.queues)+len(s.gate.waiting)+len(s.gate.byNamespace)+len(s.gate.granted)+s.gate.underWay != 0 {
		t.Errorf("something is remembered of nobody: %+v", s.gate)
	}
}

func TestALoweredShareHoldsForWhatWasGranted(t *testing.T) {
	s := newScene(t, 0, 0)
	for i := range 3 {
		s.wantGranted(who("a", i), places(3))
	}
	s.wantWaiting(who("a", 3), places(3), Concurrent)
	s.wantWoken(s.gate.Done(s.now, modelOf("a")), who("a", 3))
	s.wantWaiting(who("a", 3), places(1), Concurrent)
	s.wantWoken(s.gate.Done(s.now, modelOf("a")))
	s.wantWoken(s.gate.Done(s.now, modelOf("a")), who("a", 3))
	s.wantGranted(who("a", 3), places(1))
}

func TestARateSaysWhenToAskAgain(t *testing.T) {
	s := newScene(t, 0, 0)
	rate := Share{Concurrent: Unbounded, PerMinute: 10}
	s.wantGranted(who("a", 0), rate)
	for i := 1; i <= 2; i++ {
		if until := s.wantWaiting(who("a", i), rate, PerMinute); until.Sub(start) != time.Duration(i)*6*time.Second {
			t.Errorf("%d asks again after %s", i, until.Sub(start))
		}
	}
	s.now = start.Add(6 * time.Second)
	if answer := s.ask(who("a", 2), rate); answer.Granted || !slices.Equal(answer.Woken, []Who{who("a", 1)}) {
		t.Errorf("who came second overtakes: %+v", answer)
	}
	s.wantGranted(who("a", 1), rate)
	s.now = start.Add(12 * time.Second)
	s.wantGranted(who("a", 2), rate)
	if share := (Share{Concurrent: Unbounded}); s.ask(who("a", 9), share).Granted {
		t.Error("who has no share of the rate is let in")
	}
}

// crowd is many runs that do anything in any order.
type crowd struct {
	t        *rapid.T
	gate     *Gate
	now      time.Time
	shares   map[string]Share
	underWay map[string]int
	// waiting are those that asked and were not let in, in the order in which they came.
	waiting map[string][]Who
}

var namespaces = []string{"a", "b", "c"}

func newCrowd(t *rapid.T) *crowd {
	total, perNamespace := rapid.IntRange(0, 4).Draw(t, "total"), rapid.IntRange(0, 3).Draw(t, "perNamespace")
	return &crowd{
		t: t, gate: NewGate(total, perNamespace), now: start, underWay: map[string]int{}, waiting: map[string][]Who{},
		shares: map[string]Share{"a": places(rapid.Int32Range(1, 3).Draw(t, "a")), "b": places(rapid.Int32Range(1, 3).Draw(t, "b")), "c": Free},
	}
}

// ask returns whether somebody is let in.
func (c *crowd) ask(w Who) bool {
	answer := c.gate.Ask(c.now, modelOf(w.Namespace), w, c.shares[w.Namespace])
	c.gate.Settle(c.now, w.UID)
	known := slices.Contains(c.waiting[w.Namespace], w)
	switch {
	case answer.Granted:
		c.underWay[w.Namespace]++
		c.forget(w)
	case !answer.Until.After(c.now):
		c.t.Fatalf("%s is to ask again at once", w.UID)
	case !known:
		c.waiting[w.Namespace] = append(c.waiting[w.Namespace], w)
	}
	return answer.Granted
}

func (c *crowd) forget(w Who) {
	c.waiting[w.Namespace] = slices.DeleteFunc(c.waiting[w.Namespace], func(o Who) bool { return o == w })
}

func (c *crowd) done(namespace string) {
	if c.underWay[namespace] > 0 {
		c.underWay[namespace]--
		c.gate.Done(c.now, modelOf(namespace))
	}
}

func (c *crowd) step() {
	namespace := rapid.SampledFrom(namespaces).Draw(c.t, "namespace")
	w := who(namespace, rapid.IntRange(0, 6).Draw(c.t, "run"))
	switch rapid.SampledFrom([]string{"ask", "ask", "ask", "done", "leave", "wait"}).Draw(c.t, "step") {
	case "ask":
		c.ask(w)
	case "done":
		c.done(namespace)
	case "leave":
		c.gate.Settle(c.now, w.UID)
		c.forget(w)
	case "wait":
		c.now = c.now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(c.t, "time")))
	}
}

// check holds what is under way to every bound.
func (c *crowd) check() {
	all := 0
	for namespace, n := range c.underWay {
		all += n
		if share := c.shares[namespace].Concurrent; share != Unbounded && n > int(share) || c.gate.perNamespace > 0 && n > c.gate.perNamespace {
			c.t.Fatalf("%d under way in %s", n, namespace)
		}
	}
	if c.gate.total > 0 && all > c.gate.total {
		c.t.Fatalf("%d under way in all", all)
	}
}

// settle lets what is under way end, and wants those that wait to get their turn in the
// order in which they came to their namespace.
func (c *crowd) settle() {
	for round := 0; len(c.waiting["a"])+len(c.waiting["b"])+len(c.waiting["c"]) > 0; round++ {
		if round > 100 {
			c.t.Fatalf("still waiting: %v", c.waiting)
		}
		c.now = c.now.Add(grace - time.Millisecond)
		for _, namespace := range namespaces {
			for _, w := range slices.Clone(c.waiting[namespace]) {
				// Once everybody has asked again, nobody was late.
				first := c.waiting[namespace][0]
				if c.ask(w) && round > 0 && first != w {
					c.t.Fatalf("%s overtakes %s", w.UID, first.UID)
				}
				c.check()
			}
		}
		for _, namespace := range namespaces {
			for c.underWay[namespace] > 0 {
				c.done(namespace)
			}
		}
	}
}

func TestGate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd(t)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			c.step()
			c.check()
		}
		c.settle()
	})
}
