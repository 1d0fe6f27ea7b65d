package sim

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// person acts on runs now and then, and on everything once the faults have stopped.
func (w *world) person() {
	quiet := w.quiet()
	if w.idle {
		w.after(time.Second, nil, w.person)
		return
	}
	for _, script := range w.scripts() {
		object, err := w.server.get(script.address())
		if err != nil {
			continue
		}
		run := object.(*v1alpha1.AgentRun)
		if quiet {
			w.help(run)
		} else if run.Spec.State == v1alpha1.StateActive && w.retrying(run) && w.chance(0.3) {
			w.desire(run, v1alpha1.StateSuspended)
		} else if w.chance(0.35) {
			w.meddle(script, run)
		}
	}
	w.after(w.between(200*time.Millisecond, 4*time.Second), nil, w.person)
}

// retrying says whether another attempt at some call is due: the moment in which time
// that passes matters most.
func (w *world) retrying(run *v1alpha1.AgentRun) bool {
	turn := w.check.run(run.UID).state.OpenTurn()
	if turn == nil {
		return false
	}
	return slices.ContainsFunc(turn.Calls, func(call journal.CallState) bool { return call.Phase == journal.PhaseRetrying })
}

// scripts lists the newest run of each name.
func (w *world) scripts() []*scenarioRun {
	newest := map[string]*scenarioRun{}
	for _, script := range w.runs {
		newest[script.name] = script
	}
	var out []*scenarioRun
	for _, script := range w.runs {
		if newest[script.name] == script {
			out = append(out, script)
		}
	}
	return out
}

func (w *world) annotate(run *v1alpha1.AgentRun, values ...string) {
	if run.Annotations == nil {
		run.Annotations = map[string]string{}
	}
	for i := 0; i < len(values); i += 2 {
		run.Annotations[values[i]] = values[i+1]
	}
	w.note("person", "annotates %s: %q", run.Name, values)
	_ = w.server.update("person", run)
}

func (w *world) desire(run *v1alpha1.AgentRun, state v1alpha1.DesiredState) {
	w.note("person", "wants %s to be %s", run.Name, state)
	run.Spec.State = state
	_ = w.server.update("person", run)
}

// meddle does one thing, sensible or not.
func (w *world) meddle(script *scenarioRun, run *v1alpha1.AgentRun) {
	if w.chance(0.5) && w.attend(run) {
		return
	}
	switch w.rng.IntN(60) {
	case 0:
		if run.DeletionTimestamp.IsZero() {
			w.delete(script, run)
		}
	case 1:
		if run.Spec.State != v1alpha1.StateCancelled {
			w.desire(run, v1alpha1.StateCancelled)
		}
	case 2, 3:
		if run.Spec.State == v1alpha1.StateActive {
			w.desire(run, v1alpha1.StateSuspended)
		}
	case 4, 5, 6, 7, 8:
		if run.Spec.State == v1alpha1.StateSuspended {
			w.desire(run, v1alpha1.StateActive)
		}
	case 9:
		if w.chance(0.5) {
			w.destroy(run)
		}
	case 10:
		w.annotate(run, v1alpha1.AnnotationApprove, "sha256:0000", v1alpha1.AnnotationApproveBy, "mallory")
	default:
	}
}

// attend answers what the run waits for, and says whether it waits for anything.
func (w *world) attend(run *v1alpha1.AgentRun) bool {
	switch {
	case run.Status.Pending != nil:
		w.judge(run, run.Status.Pending.Digest)
	case run.Status.Question != nil:
		answer, _ := json.Marshal(map[string]string{run.Status.Question.ID: "this one"})
		w.annotate(run, v1alpha1.AnnotationAnswer, string(answer), v1alpha1.AnnotationAnswerBy, "alice")
	case len(run.Status.UnknownEffects) > 0:
		// Finding out what became of something takes people longer than a click.
		if w.quiet() || w.chance(0.15) {
			w.settle(run)
		}
	default:
		return false
	}
	return true
}

// judge approves or denies, and often changes its mind.
func (w *world) judge(run *v1alpha1.AgentRun, digest string) {
	a := run.Annotations
	switch {
	case a[v1alpha1.AnnotationDeny] == digest:
	case a[v1alpha1.AnnotationApprove] == digest || w.chance(0.25):
		w.annotate(run, v1alpha1.AnnotationDeny, digest, v1alpha1.AnnotationDenyBy, "bob")
	default:
		w.annotate(run, v1alpha1.AnnotationApprove, digest, v1alpha1.AnnotationApproveBy, "alice")
		if w.chance(0.4) {
			w.after(w.between(time.Millisecond, 3*time.Second), nil, func() { w.deny(run, digest) })
		}
	}
}

func (w *world) deny(run *v1alpha1.AgentRun, digest string) {
	object, err := w.server.get(addressOf(run))
	if err == nil && object.GetUID() == run.UID {
		w.annotate(object.(*v1alpha1.AgentRun), v1alpha1.AnnotationDeny, digest, v1alpha1.AnnotationDenyBy, "bob")
	}
}

// settle says what became of unknown effects, once the service itself can't change its
// mind any more.
func (w *world) settle(run *v1alpha1.AgentRun) {
	said := map[string]string{}
	for _, unknown := range run.Status.UnknownEffects {
		e := w.services.effect(unknown.EffectKey)
		switch {
		case e.underWay > 0 || e.accepted && !e.refused && e.applied == 0:
		case e.applied > 0:
			said[unknown.EffectKey] = "committed"
		default:
			said[unknown.EffectKey] = "rejected"
		}
	}
	if len(said) == 0 {
		return
	}
	text, _ := json.Marshal(said)
	w.annotate(run, v1alpha1.AnnotationSettle, string(text), v1alpha1.AnnotationSettleBy, "carol")
}

// delete deletes a run, and sometimes creates another of the same name.
func (w *world) delete(script *scenarioRun, run *v1alpha1.AgentRun) {
	w.note("person", "deletes %s", run.Name)
	_ = w.server.delete("person", addressOf(run), nil)
	w.counts.Deleted++
	if w.chance(0.5) {
		w.after(w.between(time.Millisecond, 30*time.Second), nil, func() { w.createRun(script.namespace, script.name, script.generation+1) })
	}
}

// destroy deletes a run's whole journal, as only somebody with too many rights can. It
// does so only where status has a low-water mark, since nothing could show it before.
func (w *world) destroy(run *v1alpha1.AgentRun) {
	h := w.check.run(run.UID)
	if run.Status.Journal == nil || run.Status.CompletionTime != nil || h.destroyed >= 0 || h.damaged || w.quiet() {
		return
	}
	w.note(vandal, "destroys the journal of %s", run.Name)
	w.counts.Destroyed++
	h.destroyed = w.elapsed
	for i := range h.segments {
		at := address{kindMap, keyOf(run.Namespace, segmentName(run.UID, i+1))}
		if w.server.objects[at] != nil {
			w.server.remove(vandal, at)
		}
	}
}

// help does whatever a run needs to come to its end.
func (w *world) help(run *v1alpha1.AgentRun) {
	if run.Spec.State == v1alpha1.StateSuspended {
		// Some take their time, longer than an idempotency key lives.
		if w.chance(0.02) {
			w.desire(run, v1alpha1.StateActive)
		}
		return
	}
	if run.Status.Pending != nil {
		digest := run.Status.Pending.Digest
		if run.Annotations[v1alpha1.AnnotationDeny] != digest && run.Annotations[v1alpha1.AnnotationApprove] != digest {
			w.annotate(run, v1alpha1.AnnotationApprove, digest, v1alpha1.AnnotationApproveBy, "alice")
		}
		return
	}
	if run.Status.Question == nil && len(run.Status.UnknownEffects) == 0 {
		return
	}
	w.attend(run)
}
