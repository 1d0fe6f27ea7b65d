package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var classSeeds = flag.Int("class-seeds", number("CLASS_SEEDS", 10), "how many seeds of each fault class to simulate")

// class is one kind of fault, again and again in a world that is calm otherwise.
type class struct {
	options Options
	// met counts how often the class was met; a test that never meets it shows nothing.
	met func(total Counts) int
}

// troubled is the class of one trouble.
func troubled(name string) class {
	return class{Options{Trouble: name}, func(c Counts) int { return c.Troubles[name] }}
}

// counted is a class of one trouble that shows in another count.
func counted(name string, met func(Counts) int) class { return class{Options{Trouble: name}, met} }

// forced is one fault at the n-th passage of a site, n being that of the seed.
func forced(site Site, fault Fault) class {
	return class{Options{Force: &Force{Site: site, Fault: fault}}, func(c Counts) int { return c.Forced }}
}

// rated is what goes wrong by itself.
func rated(r rates, met func(Counts) int) class { return class{Options{rates: r}, met} }

func starts(c Counts) int { return c.Starts }

// classes are the fault classes by name; docs/regressions.md lists them.
var classes = map[string]class{
	"crash around a tool call, before it is sent":               forced(SiteTool, FaultCrashBefore),
	"crash around a tool call, sent and no reply":               forced(SiteTool, FaultCrashUnsure),
	"crash around a tool call, reply not recorded":              forced(SiteTool, FaultCrashAfter),
	"crash around a request to the model, before it is sent":    forced(SiteModel, FaultCrashBefore),
	"crash around a request to the model, sent and no reply":    forced(SiteModel, FaultCrashUnsure),
	"crash around a request to the model, reply not recorded":   forced(SiteModel, FaultCrashAfter),
	"crash around a look-up of an effect":                       {Options{Force: &Force{Site: SiteEffect, Fault: FaultCrashUnsure}, rates: rates{toolLost: 0.7}}, func(c Counts) int { return c.Forced }},
	"write executed and reported as timed out":                  troubled("writes are done and time out"),
	"write refused and done later":                              troubled("writes time out and are done later"),
	"conflict storm":                                            troubled("every write conflicts"),
	"burst of 429":                                              troubled("the API server answers 429"),
	"burst of 5xx":                                              troubled("the API server answers 5xx"),
	"API server away":                                           troubled("the API server is away"),
	"own write not visible":                                     troubled("a replica does not see its own writes"),
	"write of another replica not visible":                      troubled("a replica does not see others' writes"),
	"time travel and full relist after a watch that is too old": troubled("a watch is too old"),
	"start from an API server that is behind":                   rated(rates{stale: 1, crash: 0.002}, starts),
	"watch events lost":                                         rated(rates{lostEvent: 0.3}, func(c Counts) int { return c.LostEvents }),
	"watch events doubled":                                      rated(rates{twice: 0.5}, func(c Counts) int { return c.Events }),
	"watch events late, and reordered across types":             rated(rates{lateEvent: 0.5}, func(c Counts) int { return c.Events }),
	"deletion missed":                                           {Options{Trouble: "a run is deleted, and created again", rates: rates{lostDelete: 0.8}}, func(c Counts) int { return c.LostEvents }},
	"informer not synced at start":                              rated(rates{unsynced: 1, crash: 0.002}, starts),
	"owner stopped past its lease":                              counted("a replica is stopped", func(c Counts) int { return c.Pauses }),
	"machine suspended past the lease":                          counted("a machine is suspended", func(c Counts) int { return c.Pauses }),
	"clock set forward and back":                                troubled("a clock is set"),
	"clocks that differ":                                        {Options{skewed: true}, starts},
	"partition from the API server":                             counted("a replica reaches no API server", func(c Counts) int { return c.Partitions }),
	"partition from the tools":                                  counted("a replica reaches no tool", func(c Counts) int { return c.Partitions }),
	"two replicas acquire at once":                              {Options{Replicas: 2, together: true}, func(c Counts) int { return c.Claims }},
	"ten replicas acquire at once":                              {Options{Replicas: 10, together: true}, func(c Counts) int { return c.Claims }},
	"replica set resized":                                       troubled("the number of replicas changes"),
	"replicas replaced":                                         counted("a replica is asked to leave", func(c Counts) int { return c.Handovers }),
	"run deleted and created again under the same name":         counted("a run is deleted, and created again", func(c Counts) int { return c.Deleted }),
	"spec edited":                                               troubled("a run is suspended and resumed"),
	"namespace terminating":                                     counted("a namespace ends", func(c Counts) int { return c.Namespaces }),
	"finalizer removed by hand":                                 counted("somebody takes a finalizer off", func(c Counts) int { return c.Stripped }),
	"journal deleted":                                           counted("a journal is destroyed", func(c Counts) int { return c.Destroyed }),
	"segment deleted":                                           counted("somebody deletes a segment", func(c Counts) int { return c.CheckpointFailed }),
	"segment edited, truncated or filled":                       counted("somebody changes a journal", func(c Counts) int { return c.CheckpointFailed }),
	"cancellation at any moment, and again":                     counted("a run is cancelled", func(c Counts) int { return c.Cancelled }),
	"policy edited under a run":                                 counted("a policy is edited", func(c Counts) int { return c.Edits }),
	"Model edited under a run":                                  counted("a Model is edited", func(c Counts) int { return c.Edits }),
	"tool that does not come back in time":                      rated(rates{toolHangs: 0.5}, func(c Counts) int { return c.Late }),
	"quota used up for a while":                                 counted("a quota is used up", func(c Counts) int { return c.Refusals }),
	"quota used up for good":                                    {Options{setup: quotaForGood}, func(c Counts) int { return c.CheckpointFailed }},
	"poison run whose every reconcile panics":                   {Options{setup: poisonRun, final: othersEnd}, func(c Counts) int { return c.Panics }},
	"poison run whose every request to the model panics":        {Options{setup: poisonModel}, func(c Counts) int { return c.Runs }},
}

// TestFaultClasses simulates each class by itself. No schedule may violate any property.
func TestFaultClasses(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		t.Run(name, func(t *testing.T) { classes[name].simulate(t) })
	}
}

func (c class) simulate(t *testing.T) {
	var total Counts
	for seed := uint64(1); seed <= uint64(*classSeeds); seed++ {
		o := c.options
		o.Seed, o.Calm = seed, true
		if o.Force != nil {
			force := *o.Force
			force.Nth = int(seed)%3 + 1
			o.Force = &force
		}
		result := Run(o)
		total.add(result.Counts)
		for _, violation := range result.Violations {
			t.Errorf("seed %d: %s", seed, violation)
		}
	}
	if c.met(total) == 0 {
		t.Errorf("it was never met: %s", total)
	}
	t.Logf("%d seeds, met %d times", *classSeeds, c.met(total))
}

// quotaForGood is a quota that nobody raises in time.
func quotaForGood(w *world) {
	w.populate(3)
	w.lastingQuota = refusalTimeout + 5*time.Minute
	w.server.quotaEnds = w.lastingQuota
}

// poisonRun is a run that makes every reconcile panic, among others.
func poisonRun(w *world) {
	w.begin(&scenarioRun{namespace: namespaces[0], name: "poison", model: "poison-model", poison: true})
	w.populate(4)
}

// othersEnd checks that a poison run was tried ever less often.
func othersEnd(w *world) {
	for _, r := range w.replicas {
		if r.now == nil {
			continue
		}
		for request, times := range r.now.queue.reconciles {
			// Every change of it and of the replicas begins anew; what repeats by itself doubles.
			if request.Name == "poison" && times > 60 {
				w.check.fail("a poison run is no hot loop", "%s reconciled it %d times", r.now.id, times)
			}
		}
	}
}

// poisonModel is a run whose model makes its adapter panic, among others.
func poisonModel(w *world) {
	w.begin(&scenarioRun{namespace: namespaces[0], name: "poison", model: "poison-model", adapterPanics: true})
	w.populate(3)
}

// thousand is a setup of many runs of one call each, which waits for a person.
func thousand(w *world) {
	for i := range 1000 {
		w.begin(&scenarioRun{
			namespace: namespaces[0], name: fmt.Sprintf("run-%04d", i), model: fmt.Sprintf("model-%04d", i),
			turns: [][]proposal{{{tool: serverName + ".refund", arguments: `{"n":1}`}}},
		})
	}
	w.idle = true
	// Once all of them wait, a change of their policy wakes them at once, and writes nothing.
	// Then somebody approves of all of them.
	w.after(80*time.Second, nil, func() {
		w.writes = 0
		w.touchPolicy(namespaces[0])
	})
	w.after(faultsFor, nil, func() {
		if w.writes > 0 {
			w.check.fail("waiting costs nothing", "waking 1000 runs that wait cost %d writes", w.writes)
		}
		w.idle = false
	})
}

// TestAThousandRunsThatWakeAtOnce checks that a queue of a thousand runs neither costs
// writes nor makes a replica look as if it hung.
func TestAThousandRunsThatWakeAtOnce(t *testing.T) {
	result := Run(Options{Seed: 1, Calm: true, Replicas: 3, steady: true, setup: thousand})
	for _, violation := range result.Violations {
		t.Error(violation)
	}
	c := result.Counts
	if c.Runs != 1000 || c.Effects != 1000 || c.Takeovers > 0 || c.Crashes > 0 {
		t.Errorf("%s", c)
	}
	t.Log(c)
}

// TestANamespaceThatFloods checks that many runs in one namespace, whose models take their
// time, do not keep those of another from getting on.
func TestANamespaceThatFloods(t *testing.T) {
	var ended time.Duration
	flood := func(w *world) {
		for i := range 300 {
			w.begin(&scenarioRun{namespace: namespaces[1], name: fmt.Sprintf("flood-%03d", i), model: fmt.Sprintf("flood-model-%03d", i), thinks: 20 * time.Second})
		}
		w.after(20*time.Second, nil, func() {
			for i := range 5 {
				w.begin(&scenarioRun{namespace: namespaces[0], name: fmt.Sprintf("run-%d", i), model: fmt.Sprintf("model-%d", i),
					turns: [][]proposal{{{tool: serverName + ".look", arguments: `{"n":1}`}}}})
			}
			w.watchEnds(namespaces[0], func() { ended = w.elapsed - 20*time.Second })
		})
	}
	result := Run(Options{Seed: 1, Calm: true, Replicas: 2, steady: true, setup: flood})
	for _, violation := range result.Violations {
		t.Error(violation)
	}
	if ended == 0 || ended > 5*time.Second {
		t.Errorf("the five runs of the other namespace took %s: %s", ended, result.Counts)
	}
	t.Logf("the five runs of the other namespace took %s, all 305 %s", ended, result.Elapsed)
}

// TestFaultClassesHaveTroubles checks that every kind of trouble is a class by itself.
func TestFaultClassesHaveTroubles(t *testing.T) {
	for _, one := range troubles {
		found := false
		for _, class := range classes {
			found = found || class.options.Trouble == one.name
		}
		// That replicas die is part of every other class, and has the crash matrix.
		if !found && one.name != "a replica is killed" {
			t.Errorf("no class has the trouble %q", one.name)
		}
	}
	for name := range classes {
		if strings.Contains(name, "/") {
			t.Errorf("%q can't be named on a command line", name)
		}
	}
}
