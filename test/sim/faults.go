package sim

import (
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Site is a place where the operator leaves its process.
type Site string

// Sites.
const (
	SiteRunRead       Site = "run read, live"
	SiteJournalRead   Site = "journal read"
	SiteJournalCreate Site = "journal create"
	SiteJournalUpdate Site = "journal update"
	SiteStatus        Site = "status update"
	SiteFinalizer     Site = "finalizer patch"
	SiteRelease       Site = "segment release"
	SiteRunDelete     Site = "run delete"
	SiteLeaseRead     Site = "lease read"
	SiteLeaseList     Site = "lease list"
	SiteLeaseWrite    Site = "lease renew"
	SiteLeaseDelete   Site = "lease release"
	SiteModel         Site = "model call"
	SiteTool          Site = "tool call"
	SiteEffect        Site = "effect look-up"
)

// Fault is what goes wrong there.
type Fault string

// Faults of a call to the API server. Of those, a read knows only what can't be told
// apart from it.
const (
	FaultNone        Fault = ""
	FaultCrashBefore Fault = "crash before"
	FaultCrashUnsure Fault = "crash, unacknowledged"
	FaultCrashAfter  Fault = "crash, acknowledged"
	FaultConflict    Fault = "409"
	FaultThrottled   Fault = "429"
	FaultServer      Fault = "5xx, not done"
	FaultServerDone  Fault = "5xx, done"
	FaultTimeout     Fault = "timeout, not done"
	FaultTimeoutDone Fault = "timeout, done"
	FaultTimeoutLate Fault = "timeout, done later"
	FaultStop        Fault = "stopped past the lease"
	// FaultReplyLost is a tool or model whose answer does not come back.
	FaultReplyLost Fault = "reply lost"
	// FaultUnreachable is a tool or model that can't be reached.
	FaultUnreachable Fault = "not reached"
)

var writeFaults = []Fault{
	FaultCrashBefore, FaultCrashUnsure, FaultCrashAfter, FaultConflict, FaultThrottled, FaultServer,
	FaultServerDone, FaultTimeout, FaultTimeoutDone, FaultTimeoutLate, FaultStop,
}

var readFaults = []Fault{FaultCrashBefore, FaultCrashAfter, FaultThrottled, FaultServer, FaultTimeout, FaultStop}

var outsideFaults = []Fault{
	FaultCrashBefore, FaultCrashUnsure, FaultCrashAfter, FaultThrottled, FaultServer, FaultServerDone,
	FaultTimeout, FaultTimeoutDone, FaultTimeoutLate, FaultReplyLost, FaultUnreachable, FaultStop,
}

// sites lists every Site with the faults that it knows.
var sites = []struct {
	Site   Site
	Faults []Fault
}{
	{SiteJournalCreate, writeFaults}, {SiteJournalUpdate, writeFaults}, {SiteStatus, writeFaults},
	{SiteFinalizer, writeFaults}, {SiteRelease, writeFaults}, {SiteRunDelete, writeFaults},
	{SiteLeaseWrite, writeFaults}, {SiteLeaseDelete, writeFaults},
	{SiteRunRead, readFaults}, {SiteJournalRead, readFaults}, {SiteLeaseRead, readFaults}, {SiteLeaseList, readFaults},
	{SiteModel, outsideFaults}, {SiteTool, outsideFaults}, {SiteEffect, outsideFaults},
}

// Force is one fault at the n-th time that a site is passed.
type Force struct {
	Site  Site
	Fault Fault
	Nth   int
}

// rates say how often something goes wrong by itself.
type rates struct {
	crash, refuse, unsure, slow                float64
	stale, lostEvent, lateEvent, twice         float64
	lostDelete, unsynced                       float64
	toolLost, toolReject, toolBroken, toolSlow float64
	toolHangs, toolAway, modelFails, destroyed float64
}

// faults decides what goes wrong.
type faults struct {
	w      *world
	rates  rates
	force  *Force
	passed map[Site]int
	// Forced is true once the forced fault was met.
	forced bool
}

func newFaults(w *world, o Options) *faults {
	f := &faults{w: w, passed: map[Site]int{}, force: o.Force}
	if o.Calm {
		f.rates = o.rates
		if o.rates == (rates{}) {
			// Enough for every site to be passed.
			f.rates = rates{toolLost: 0.15}
		}
		return f
	}
	level := w.rng.Float64() * 1.2
	f.rates = rates{
		crash: 0.002 * level, refuse: 0.02 * level, unsure: 0.02 * level, slow: 0.02 * level,
		stale: 0.5, lostEvent: 0.05 * level, lateEvent: 0.2 * level, twice: 0.05 * level,
		toolLost: 0.12 * level, toolReject: 0.06, toolBroken: 0.08 * level, toolSlow: 0.2 * level, modelFails: 0.05 * level, destroyed: 0.05,
		unsynced: 0.15, toolHangs: 0.1 * level, toolAway: 0.06 * level,
	}
	return f
}

// calm ends all faults.
func (f *faults) calm() { f.rates = rates{} }

// at draws the fault of one passage.
func (f *faults) at(site Site, known []Fault) Fault {
	f.passed[site]++
	if f.force != nil && f.force.Site == site && f.passed[site] == f.force.Nth {
		f.forced = true
		return f.force.Fault
	}
	w := f.w
	switch {
	case w.chance(f.rates.crash):
		return pick(w, known, FaultCrashBefore, FaultCrashUnsure, FaultCrashAfter)
	case w.chance(f.rates.refuse):
		return pick(w, known, FaultConflict, FaultThrottled, FaultServer, FaultTimeout)
	case w.chance(f.rates.unsure):
		return pick(w, known, FaultServerDone, FaultTimeoutDone, FaultTimeoutLate)
	case w.chance(f.rates.crash / 4):
		return FaultStop
	default:
		return FaultNone
	}
}

// pick takes one of several faults, none where the site does not know it.
func pick(w *world, known []Fault, some ...Fault) Fault {
	fault := some[w.rng.IntN(len(some))]
	for _, one := range known {
		if one == fault {
			return fault
		}
	}
	return FaultNone
}

// latency of one way between a process and a service.
func (f *faults) latency(p *process) time.Duration {
	if f.w.chance(f.rates.slow) {
		if p != nil {
			p.troubled = f.w.elapsed
		}
		return f.w.between(50*time.Millisecond, 3*time.Second)
	}
	return f.w.between(200*time.Microsecond, 6*time.Millisecond)
}

// errorOf is the answer that a fault gives the caller.
func errorOf(fault Fault, at address) error {
	switch fault {
	case FaultConflict:
		return apierrors.NewConflict(at.kind.resource(), at.Name, fmt.Errorf("the object has been modified"))
	case FaultThrottled:
		return apierrors.NewTooManyRequests("too many requests", 1)
	case FaultServer, FaultServerDone:
		return apierrors.NewInternalError(fmt.Errorf("etcdserver: leader changed"))
	default:
		return &net.OpError{Op: "read", Net: "tcp", Err: fmt.Errorf("i/o timeout")}
	}
}
