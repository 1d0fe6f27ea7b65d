package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// Violation is a property that did not hold.
type Violation struct {
	Property string
	Detail   string
	Step     int
	At       time.Duration
	Tail     []string
}

// String is the violation with the end of the history.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (step %d, at %s)\n%s", v.Property, v.Detail, v.Step, v.At, strings.Join(v.Tail, "\n"))
}

// checker sees every write and every request as it happens and compares it with what it
// knows: it trusts nothing that the operator remembers.
type checker struct {
	w          *world
	violations []Violation
	runs       map[types.UID]*runHistory
	leases     map[string]*leaseHistory
	// writer is the process whose write is being executed, and began the moment when the
	// activity began that decided on it.
	writer *process
	began  time.Duration
	// limited is what reaches the Model that has limits.
	limited limited
}

func newChecker(w *world) *checker {
	return &checker{w: w, runs: map[types.UID]*runHistory{}, leases: map[string]*leaseHistory{}, limited: limited{underWay: map[*asking]bool{}, begun: map[string][]time.Duration{}}}
}

// as makes the checker know on whose behalf a call is executed.
func (c *checker) as(p *process, began time.Duration, do func() error) func() error {
	return func() error {
		outer, since := c.writer, c.began
		c.writer, c.began = p, began
		defer func() { c.writer, c.began = outer, since }()
		return do()
	}
}

// fail records a violation; only the first few matter.
func (c *checker) fail(property, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	c.w.note("CHECKER", "%s: %s", property, detail)
	if len(c.violations) < 5 {
		c.violations = append(c.violations, Violation{property, detail, c.w.steps, c.w.elapsed, slices.Clone(c.w.tail(40))})
	}
}

// runHistory is what the checker knows of a run.
type runHistory struct {
	uid       types.UID
	namespace string
	name      string
	state     *journal.State
	heads     []string
	segments  []*segmentHistory
	// owner is the process that claimed last.
	owner      string
	dispatches map[string]*dispatchHistory
	// grants are the argument digests of the calls that were approved, by call id, and
	// intents the calls that were approved when they were announced.
	grants  map[string]string
	intents map[intended]int
	// endsSince is when people first wanted the run to end, negative before.
	endsSince time.Duration
	// destroyed is when somebody else deleted the journal, negative before.
	destroyed time.Duration
	reborn    bool
	// damaged is true once somebody else changed what the journal holds.
	damaged bool
	// gone is true once the run is, and witnesses are the processes that had it in their
	// cache then.
	gone      bool
	witnesses []*process
	// stray is true once its journal went on in a segment that was created after it was gone.
	stray bool
	// refusals are when, and to whom, the API server refused the journal since it last took
	// some of it.
	refusals []refusal
}

type refusal struct {
	at time.Duration
	by string
}

// intended is a call as it was announced, and the approval that it got.
type intended struct{ approval, tool, arguments string }

// refusedFor is how long the API server has refused the journal.
func (h *runHistory) refusedFor(now time.Duration) time.Duration {
	if len(h.refusals) == 0 {
		return 0
	}
	return now - h.refusals[0].at
}

// maxRefusals is how often a process may write a refused journal in a minute.
const maxRefusals = 20

// refused notes that the API server refused a segment. Who begins anew knows nothing of what
// was refused to others, and those that are not preferred look now and then.
func (c *checker) refused(by string, segment client.Object) {
	h := c.run(types.UID(segment.GetLabels()[v1alpha1.LabelRunUID]))
	h.refusals = append(h.refusals, refusal{c.w.elapsed, by})
	c.w.counts.Refusals++
	recent := map[string]int{}
	total := 0
	for _, r := range h.refusals {
		if c.w.elapsed-r.at < time.Minute {
			recent[r.by]++
			total++
		}
	}
	if recent[by] > maxRefusals || total > maxRefusals+(len(recent)-1)*maxRefusals/2 {
		c.fail("a refused journal is no hot loop", "%s was written %d times in a minute, %d times by %s", segment.GetName(), total, recent[by], by)
	}
}

type segmentHistory struct {
	name   string
	sealed bool
	gone   bool
	// damaged is set once somebody else changed its data.
	damaged bool
	data    map[string]string
}

// dispatchHistory is the newest attempt at a call.
type dispatchHistory struct {
	attempt  int32
	by       string
	at, ack  time.Duration
	first    time.Duration
	acked    bool
	outcomes map[int32]string
}

// leaseHistory is when a worker's lease was written.
type leaseHistory struct {
	holder string
	writes []time.Duration
}

func (c *checker) run(uid types.UID) *runHistory {
	h := c.runs[uid]
	if h == nil {
		h = &runHistory{uid: uid, state: journal.NewState(string(uid)), endsSince: -1, destroyed: -1,
			dispatches: map[string]*dispatchHistory{}, grants: map[string]string{}, intents: map[intended]int{}}
		c.runs[uid] = h
	}
	return h
}

// stored is called for every new version of every object.
func (c *checker) stored(by string, at address, object client.Object) {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		c.segment(by, object)
	case *coordinationv1.Lease:
		c.lease(object)
	case *v1alpha1.AgentRun:
		c.status(by, object)
	default:
		_ = at
	}
}

func (c *checker) removed(by string, at address, object client.Object) {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		h := c.run(types.UID(object.Labels[v1alpha1.LabelRunUID]))
		for _, segment := range h.segments {
			if segment.name == at.Name {
				segment.gone = true
				c.lost(by, h, object)
			}
		}
	case *coordinationv1.Lease:
		c.leases[at.Name] = &leaseHistory{}
		c.member()
	case *v1alpha1.AgentRun:
		h := c.run(object.UID)
		h.gone = true
		for _, r := range c.w.replicas {
			if p := r.now; p != nil && !p.dead && p.view.objects[at] != nil && p.view.objects[at].GetUID() == object.UID {
				h.witnesses = append(h.witnesses, p)
			}
		}
	}
}

// lost notes that a segment is gone. Nobody but the collector may take any, and those who
// destroy journals or end namespaces are known.
func (c *checker) lost(by string, h *runHistory, segment *corev1.ConfigMap) {
	switch {
	case h.gone || h.destroyed >= 0 || by == vandal:
	case c.w.server.ending[segment.Namespace]:
		h.destroyed = c.w.elapsed
	default:
		c.fail("a journal only grows", "%s was deleted by %s", segment.Name, by)
	}
}

func (c *checker) lease(object *coordinationv1.Lease) {
	h := c.leases[object.Name]
	holder := ptr.Deref(object.Spec.HolderIdentity, "")
	if h == nil || h.holder != holder {
		h = &leaseHistory{holder: holder}
		c.leases[object.Name] = h
		c.member()
	} else if n := len(h.writes); n > 0 && c.w.elapsed-h.writes[n-1] > lease*6/10 {
		c.member()
		c.member()
	}
	h.writes = append(h.writes, c.w.elapsed)
	if len(h.writes) > 64 {
		h.writes = h.writes[32:]
	}
}

// expired says whether the lease of a worker was dead at some moment of a period.
func (c *checker) expired(identity string, from time.Duration) bool {
	for _, h := range c.leases {
		if h.holder != identity {
			continue
		}
		last := h.writes[0]
		for _, write := range append(slices.Clone(h.writes[1:]), c.w.elapsed) {
			if write-last >= lease*95/100 && write >= from {
				return true
			}
			last = write
		}
		return false
	}
	return true
}

// renewed is when a worker's lease was last written.
func (c *checker) renewed(identity string) (time.Duration, bool) {
	for _, h := range c.leases {
		if h.holder == identity && len(h.writes) > 0 {
			return h.writes[len(h.writes)-1], true
		}
	}
	return 0, false
}

// segment checks one write to a journal.
func (c *checker) segment(by string, object *corev1.ConfigMap) {
	h := c.run(types.UID(object.Labels[v1alpha1.LabelRunUID]))
	h.name, h.namespace = object.Labels[v1alpha1.LabelRun], object.Namespace
	h.refusals = nil
	switch {
	case h.gone && !h.holds(object.Name):
		// A create that comes late, which is for the collector. What it announces is announced.
		h.stray = true
	case by == vandal:
		c.damaged(h, object)
	case h.destroyed >= 0:
		c.destroyed(by, h, object.Name)
	default:
		c.appended(by, h, c.place(by, h, object.Name), object)
	}
}

// holds says whether a segment is one that the journal has and that was not collected yet.
// Until it is, its run may be gone: what is announced there is announced.
func (h *runHistory) holds(name string) bool {
	return slices.ContainsFunc(h.segments, func(s *segmentHistory) bool { return s.name == name && !s.gone })
}

// destroyed checks a write to a journal that somebody else deleted.
func (c *checker) destroyed(by string, h *runHistory, name string) {
	if name != segmentName(h.uid, 1) {
		return
	}
	// Who read the journal before it began may begin it once more.
	h.reborn = h.reborn || c.began <= h.destroyed
	if !h.reborn {
		c.fail("an empty fold is no start", "%s begins the journal of %s anew", by, h.name)
	}
}

// place finds the segment that is written to, and checks that a new one is the next.
func (c *checker) place(by string, h *runHistory, name string) *segmentHistory {
	for _, segment := range h.segments {
		if segment.name == name {
			// A create that was given up before somebody deleted the segment comes late.
			segment.damaged = segment.damaged || segment.gone && h.damaged
			return segment
		}
	}
	if n := len(h.segments); n > 0 && !h.segments[n-1].sealed {
		c.fail("a journal has one tail", "%s creates %s while %s is open", by, name, h.segments[n-1].name)
	}
	if name != segmentName(h.uid, len(h.segments)+1) {
		c.fail("a journal has one tail", "%s creates %s as segment %d", by, name, len(h.segments)+1)
	}
	known := &segmentHistory{name: name, data: map[string]string{}}
	h.segments = append(h.segments, known)
	return known
}

// appended checks that a segment keeps what it held, and that all else in it is the
// journal's next events.
func (c *checker) appended(by string, h *runHistory, known *segmentHistory, object *corev1.ConfigMap) {
	if known.damaged {
		if !known.gone && !maps.Equal(known.data, object.Data) {
			c.fail("nothing is added to a damaged journal", "%s writes to %s", by, object.Name)
		}
		return
	}
	for key, value := range known.data {
		if object.Data[key] != value {
			c.fail("a journal only grows", "%s changes %s in %s", by, key, object.Name)
			return
		}
	}
	known.sealed = ptr.Deref(object.Immutable, false)
	for seq := h.state.Events + 1; ; seq++ {
		key := fmt.Sprintf("e%06d", seq)
		data, there := object.Data[key]
		if !there {
			break
		}
		known.data[key] = data
		if !c.event(by, h, data, object.BinaryData[fmt.Sprintf("p%06d", seq)]) {
			return
		}
	}
	if len(known.data) != len(object.Data) {
		c.fail("a journal's chain folds", "%s holds %d events, %d fit", object.Name, len(object.Data), len(known.data))
	}
}

// damaged notes what somebody else made of a segment.
func (c *checker) damaged(h *runHistory, object *corev1.ConfigMap) {
	for _, segment := range h.segments {
		if segment.name == object.Name {
			segment.damaged, segment.data = true, maps.Clone(object.Data)
		}
	}
}

func segmentName(uid types.UID, n int) string { return fmt.Sprintf("pawl-journal-%s-%04d", uid, n) }

// event checks one event that was appended.
func (c *checker) event(by string, h *runHistory, data string, part []byte) bool {
	event, err := journal.Decode([]byte(data))
	if err != nil {
		c.fail("a journal's chain folds", "%s: %v", h.name, err)
		return false
	}
	epoch, finished, previous := h.state.Epoch, h.state.Finished != nil, h.state.Owner
	pending, granted := h.state.Approval, h.grantedDigest()
	if err := h.state.Apply(journal.Record{Event: event, Bytes: []byte(data), Part: part}); err != nil {
		c.fail("a journal's chain folds", "%s by %s: %v", h.name, by, err)
		return false
	}
	h.heads = append(h.heads, h.state.Head)
	c.w.counts.Events++
	c.w.note(by, "%s #%d %s %s", h.name, event.Seq, event.Type, brief(event))
	if h.state.Epoch < epoch {
		c.fail("epochs never go back", "%s: %d after %d", h.name, h.state.Epoch, epoch)
	}
	if finished && event.Type != journal.TypeEffectReconciled {
		c.fail("an ending is final", "%s: %s after the end", h.name, event.Type)
	}
	switch event.Type {
	case journal.TypeClaimed:
		c.claimed(by, h, previous)
	case journal.TypeEffectReconciled:
	default:
		if by != h.owner {
			c.fail("only the owner writes", "%s appends %s to %s, which %s claimed", by, event.Type, h.name, h.owner)
		}
	}
	c.consequences(by, h, event, pending, granted)
	return true
}

// grantedDigest is the request that covers the open turn, empty for none.
func (h *runHistory) grantedDigest() string {
	if turn := h.state.OpenTurn(); turn != nil && turn.Granted != nil && !turn.Dispatched {
		return turn.Granted.Digest
	}
	return ""
}

// claimed checks that nothing is taken from a living worker.
func (c *checker) claimed(by string, h *runHistory, previous string) {
	h.owner = by
	c.w.counts.Claims++
	if previous == "" {
		return
	}
	c.w.counts.Takeovers++
	ends := h.endsSince >= 0 && c.w.elapsed-h.endsSince >= lease*95/100
	if ends {
		return
	}
	if !c.expired(previous, c.began) {
		c.fail("nothing is taken from the living", "%s takes %s from %s, whose lease is held", by, h.name, previous)
	}
	held := slices.ContainsFunc(c.w.replicas, func(r *replica) bool {
		known := c.leases["pawl-worker-"+r.name]
		return known != nil && known.holder == previous
	})
	if p := c.writer; p != nil && held && p.woken > 0 && c.began > p.woken && c.w.elapsed-p.woken < lease*9/10 {
		c.fail("who slept knows nothing", "%s takes %s from %s only %s after its own pause", by, h.name, previous, c.w.elapsed-p.woken)
	}
}
