package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool"
)

// brief says what is worth reading of an event.
func brief(event journal.Event) string {
	switch event.Type {
	case journal.TypeClaimed:
		var p journal.Claimed
		_ = json.Unmarshal(event.Data, &p)
		return fmt.Sprintf("epoch %d from %q", event.Epoch, p.Previous)
	case journal.TypeReleased:
		var p journal.Released
		_ = json.Unmarshal(event.Data, &p)
		return p.Waiting
	case journal.TypeCallDispatched:
		var p journal.CallDispatched
		_ = json.Unmarshal(event.Data, &p)
		text := ""
		for _, call := range p.Calls {
			text += fmt.Sprintf("%s/%d ", call.ID, call.Attempt)
		}
		return text
	case journal.TypeCallCompleted:
		var p journal.CallCompleted
		_ = json.Unmarshal(event.Data, &p)
		return fmt.Sprintf("%s/%d %s %s final=%t", p.ID, p.Attempt, p.Class, p.Effect, p.Final)
	case journal.TypeEffectReconciled:
		var p journal.EffectReconciled
		_ = json.Unmarshal(event.Data, &p)
		return fmt.Sprintf("%s %s, says the %s", p.ID, p.Effect, p.Source)
	case journal.TypeFinished:
		var p journal.Finished
		_ = json.Unmarshal(event.Data, &p)
		return p.Reason
	default:
		return ""
	}
}

// consequences checks what one event means outside the journal.
func (c *checker) consequences(by string, h *runHistory, event journal.Event, pending *journal.ApprovalRequested, granted string) {
	switch event.Type {
	case journal.TypeApprovalGranted:
		c.approved(by, h, pending)
	case journal.TypeCallDispatched:
		var p journal.CallDispatched
		_ = json.Unmarshal(event.Data, &p)
		for _, call := range p.Calls {
			c.dispatched(by, h, call)
		}
		c.undenied(by, h, granted)
	case journal.TypeCallCompleted:
		var p journal.CallCompleted
		_ = json.Unmarshal(event.Data, &p)
		if p.Effect == journal.EffectUnknown {
			c.unknown(by, h, p)
		}
	default:
		// All others are about the journal alone.
	}
}

// approved notes what was granted, and checks that somebody approved of it.
func (c *checker) approved(by string, h *runHistory, pending *journal.ApprovalRequested) {
	for _, call := range pending.Calls {
		if pending.Intent {
			h.intents[intended{pending.Digest, call.Tool, call.ArgumentsDigest}]++
		} else {
			h.grants[call.ID] = call.ArgumentsDigest
		}
	}
	if !c.sawSome(h, func(run *v1alpha1.AgentRun) bool {
		a := run.Annotations
		return a[v1alpha1.AnnotationApprove] == pending.Digest && a[v1alpha1.AnnotationDeny] != pending.Digest && wanted(run)
	}) {
		c.fail("approval is judged live", "%s grants what nobody approves of at that time in %s", by, h.name)
	}
}

// undenied checks that nobody took back the grant under which calls are sent, empty for
// calls that need none.
func (c *checker) undenied(by string, h *runHistory, granted string) {
	if granted != "" && !c.sawSome(h, func(run *v1alpha1.AgentRun) bool {
		return run.Annotations[v1alpha1.AnnotationDeny] != granted && wanted(run)
	}) {
		c.fail("approval is judged live", "%s sends what was denied meanwhile in %s", by, h.name)
	}
}

// unknown checks that who calls an effect unknown was not told what became of it.
func (c *checker) unknown(by string, h *runHistory, p journal.CallCompleted) {
	c.w.counts.Unknown++
	d := h.dispatches[p.ID]
	if d == nil {
		c.fail("unknown is what is unknown", "%s says that of %s, which was never sent", by, p.ID)
	} else if watched := c.w.elapsed-d.at >= time.Duration(h.call(p.ID).Call.TimeoutSeconds+9)*time.Second; d.by == by && !p.Final && d.known(p.Attempt) && !watched {
		// A watchdog that was faster than the answer may have spoken otherwise.
		c.fail("unknown is what is unknown", "%s says that of %s, but was told %v", by, p.ID, d.outcomes)
	} else if d.by != by {
		// What its sender was told is for the evidence from here on.
		d.outcomes = map[int32]string{}
	}
}

// known says whether the sender was told what became of every attempt so far.
func (d *dispatchHistory) known(attempts int32) bool {
	for n := int32(1); n <= attempts; n++ {
		if said := d.outcomes[n]; said == "" || said == journal.EffectUnknown {
			return false
		}
	}
	return true
}

func wanted(run *v1alpha1.AgentRun) bool {
	return run.DeletionTimestamp.IsZero() && run.Spec.State != v1alpha1.StateCancelled
}

// sawSome says whether the run was in some state at any moment since the activity began
// that is now writing.
func (c *checker) sawSome(h *runHistory, ok func(*v1alpha1.AgentRun) bool) bool {
	past := c.w.server.past[address{kindRun, types.NamespacedName{Namespace: h.namespace, Name: h.name}}]
	for i, old := range past {
		if i+1 < len(past) && past[i+1].at < c.began {
			continue
		}
		if run, there := old.object.(*v1alpha1.AgentRun); there && run.UID == h.uid && ok(run) {
			return true
		}
	}
	return false
}

func (c *checker) dispatched(by string, h *runHistory, call journal.Dispatch) {
	c.w.counts.Dispatches++
	d := h.dispatches[call.ID]
	if d == nil {
		d = &dispatchHistory{first: c.w.elapsed, outcomes: map[int32]string{}}
		h.dispatches[call.ID] = d
	}
	if d.by != by {
		// What was told to somebody else is not known to this one.
		d.outcomes = map[int32]string{}
	}
	d.attempt, d.by, d.at, d.acked = call.Attempt, by, c.w.elapsed, false
	c.permitted(h, h.call(call.ID).Call, call.Attempt)
}

// permitted checks that a call which asks was approved, by itself or as one that was
// announced; each announcement serves one call.
func (c *checker) permitted(h *runHistory, call journal.Call, attempt int32) {
	v := call.Verdict
	switch {
	case v == nil:
		c.fail("nothing runs without its approval", "%s of %s has no verdict", call.ID, h.name)
	case v.Action != journal.ActionAsk || h.grants[call.ID] == call.ArgumentsDigest || attempt > 1:
	case v.ApprovedBy == "":
		c.fail("nothing runs without its approval", "%s of %s", call.ID, h.name)
	default:
		used := intended{v.ApprovedBy, call.Tool, call.ArgumentsDigest}
		if h.intents[used]--; h.intents[used] < 0 {
			c.fail("nothing runs without its approval", "%s of %s was not announced, or is another one", call.ID, h.name)
		}
	}
}

// call finds a call in the journal.
func (h *runHistory) call(id string) *journal.CallState {
	for i := range h.state.Transcript {
		for j := range h.state.Transcript[i].Calls {
			if found := &h.state.Transcript[i].Calls[j]; found.Call.ID == id {
				return found
			}
		}
	}
	return nil
}

// acknowledged notes that a process was told of its own append.
func (c *checker) acknowledged(p *process, uid types.UID) {
	if h := c.runs[uid]; h != nil {
		for _, d := range h.dispatches {
			if d.by == p.id && !d.acked {
				d.acked, d.ack = true, c.w.elapsed
			}
		}
	}
}

// sendWindow is how long an acknowledged dispatch may wait for its first byte.
const sendWindow = 5 * time.Second

// keyMargin is what the operator leaves of a key's lifetime for clocks that differ, and
// slack what a request takes from the decision to its first byte.
const (
	keyMargin = 5 * time.Minute
	slack     = 25 * time.Second
)

// sent checks a request whose first byte is about to leave.
func (c *checker) sent(p *process, call tool.Call, known *toolSpec) {
	c.w.counts.Requests++
	c.w.note(p.id, "sends %s of %s attempt %d (%s)", call.ID, call.RunName, call.Attempt, known.name)
	h := c.run(types.UID(call.RunUID))
	d := h.dispatches[call.ID]
	if h.destroyed >= 0 || h.gone && known.class == v1alpha1.EffectReadOnly {
		return
	}
	if h.stray && (d == nil || d.attempt < call.Attempt) {
		return
	}
	if d == nil || d.attempt < call.Attempt {
		c.fail("dispatch is committed before it is sent", "%s of %s attempt %d", call.ID, call.RunName, call.Attempt)
		return
	}
	switch known.class {
	case v1alpha1.EffectReadOnly:
	case v1alpha1.EffectIdempotent:
		if c.w.elapsed-d.first > time.Duration(known.lifetime)*time.Second-keyMargin+2*maxOffset+slack {
			c.fail("no key is used past its lifetime", "%s of %s", call.ID, call.RunName)
		}
	default:
		c.sentOnce(p, call, h, d)
	}
}

// sentOnce checks the right to send a call that may be sent once.
func (c *checker) sentOnce(p *process, call tool.Call, h *runHistory, d *dispatchHistory) {
	renewed, held := c.renewed(p.members.Identity())
	switch {
	case c.w.services.effect(call.EffectKey).sent > 0:
		c.fail("one dispatch of what can't be repeated", "%s of %s is sent again", call.ID, call.RunName)
	case !held || c.w.elapsed-renewed > lease*2/3*103/100:
		c.fail("only the living send", "%s sends %s of %s, its lease was renewed %s ago", p.id, call.ID, call.RunName, c.w.elapsed-renewed)
	case !d.acked || c.w.elapsed-d.ack > sendWindow*103/100:
		c.fail("the send window is short", "%s of %s is sent %s after it was acknowledged", call.ID, call.RunName, c.w.elapsed-d.ack)
	case h.state.Finished != nil:
		c.fail("an ending is final", "%s of %s is sent after the end", call.ID, call.RunName)
	}
}

// received checks a request that arrived.
func (c *checker) received(e *effect, call tool.Call) {
	if e.class == v1alpha1.EffectNonIdempotent && e.received > 1 {
		c.fail("one dispatch of what can't be repeated", "%s of %s was received %d times", call.ID, e.run, e.received)
	}
}

func (c *checker) applied(e *effect) {
	if e.applied > 1 {
		c.fail("one effect per key", "%s of %s took effect %d times", e.key, e.run, e.applied)
	}
}

// recordWithin is how long a healthy worker may sit on a known outcome.
const recordWithin = 12 * time.Second

// returned notes what a worker was told, and looks later whether the journal says so.
func (c *checker) returned(p *process, call tool.Call, known *toolSpec, outcome tool.Outcome) {
	h := c.run(types.UID(call.RunUID))
	if d, found := h.dispatches[call.ID], h.call(call.ID); d != nil && d.by == p.id && found.Phase == journal.PhaseDispatched {
		// What is told of an attempt that others have called unknown is for the evidence.
		d.outcomes[call.Attempt] = string(outcome.Effect)
	}
	if known.class != v1alpha1.EffectReadOnly && outcome.Effect != tool.EffectUnknown {
		c.expectRecord(p, h, call, outcome.Effect, c.w.elapsed)
	}
}

// open says whether the journal waits for what somebody knows of a call: while that attempt
// is under way, and while nobody else knows that it took effect.
func (h *runHistory) open(found *journal.CallState, call tool.Call, effect tool.EffectState) bool {
	if found.Phase == journal.PhaseDispatched {
		return found.Attempt == call.Attempt
	}
	unknown := slices.ContainsFunc(h.state.Unknown, func(u journal.UnknownEffect) bool { return u.EffectKey == call.EffectKey })
	return unknown && effect == tool.EffectCommitted
}

// hindered says whether something kept a process from its work at a run since a moment.
func (p *process) hindered(run reconcile.Request, since time.Duration) bool {
	w := p.w
	return p.stopped || p.leaving || p.queue.backsOff(run) || p.cutOff > since || w.server.away > since || w.server.busy.until > since || p.troubled >= since || w.server.quotaEnds > since
}

func (c *checker) expectRecord(p *process, h *runHistory, call tool.Call, effect tool.EffectState, since time.Duration) {
	c.w.after(recordWithin, nil, func() {
		found := h.call(call.ID)
		switch {
		case p.dead || h.gone || h.destroyed >= 0 || h.damaged || found == nil || !h.open(found, call, effect):
		case p.hindered(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: h.namespace, Name: h.name}}, since):
			c.expectRecord(p, h, call, effect, c.w.elapsed)
		default:
			c.fail("an outcome is recorded as soon as it is known", "%s knows since %s what became of %s of %s", p.id, since, call.ID, call.RunName)
		}
	})
}

// asked checks that the model decides on what is committed.
func (c *checker) asked(p *process, script *scenarioRun, request model.Request) {
	h := c.run(script.uid)
	if h.destroyed >= 0 || h.gone {
		return
	}
	if !h.state.DecisionDue() && h.state.Finished == nil && h.owner == p.id || int(h.state.Turns)+1 < request.Decision {
		c.fail("the model is told what is committed", "%s asks for decision %d of %s", p.id, request.Decision, h.name)
	}
	if renewed, held := c.renewed(p.members.Identity()); !held || c.w.elapsed-renewed > lease*2/3*103/100 {
		c.fail("only the living ask", "%s asks for decision %d of %s, its lease was renewed %s ago", p.id, request.Decision, h.name, c.w.elapsed-renewed)
	}
}

// status checks what is shown of a run.
func (c *checker) status(by string, object *v1alpha1.AgentRun) {
	h := c.run(object.UID)
	h.name, h.namespace = object.Name, object.Namespace
	if h.endsSince < 0 && !wanted(object) {
		h.endsSince = c.w.elapsed
	}
	if h.destroyed >= 0 {
		return
	}
	if j := object.Status.Journal; j != nil && (int(j.Events) > len(h.heads) || h.heads[j.Events-1] != j.Head) {
		c.fail("status shows the journal", "%s: event %d is not what status says", h.name, j.Events)
	}
	succeeded := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionSucceeded)
	if succeeded == nil || succeeded.Status == metav1.ConditionUnknown {
		return
	}
	if succeeded.Reason == string(v1alpha1.ReasonCheckpointFailed) && (h.damaged || h.refusedFor(c.w.elapsed) >= refusalTimeout*98/100) {
		c.w.counts.CheckpointFailed++
		return
	}
	if h.state.Finished == nil || h.state.Finished.Reason != succeeded.Reason {
		c.fail("status shows the journal", "%s ends %s as %s", by, h.name, succeeded.Reason)
	}
}

// refusedStatus is called when the definition's rules refuse a write of status.
func (c *checker) refusedStatus(by string, now, _ *v1alpha1.AgentRun, err error) {
	c.fail("status never goes back", "%s writes to %s: %v", by, now.Name, err)
}
