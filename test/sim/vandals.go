package sim

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// Admission lets nobody do what is done here. Somebody with too many rights, or with a copy
// of etcd's data, can. Only what status has seen of a journal is touched: what was appended
// since can be cut off without a trace.

// damage changes one segment of a journal.
func (w *world) damage(run *v1alpha1.AgentRun) {
	segment, events := w.known(run)
	if segment == nil {
		return
	}
	key := events[w.rng.IntN(len(events))]
	kind := w.rng.IntN(4)
	switch kind {
	case 0:
		segment.Data[key] = strings.Replace(segment.Data[key], `"epoch":`, `"epoch":1`, 1)
	case 1:
		delete(segment.Data, key)
	case 2:
		segment.Data["filler"] = strings.Repeat("x", 100_000)
	default:
		segment.Data[key] = "{}"
	}
	w.vandalise(run, func() {
		w.note(vandal, "changes %s in %s (%d)", key, segment.Name, kind)
		w.server.put(vandal, segment)
	})
}

// deleteSegment deletes one segment of a journal.
func (w *world) deleteSegment(run *v1alpha1.AgentRun) {
	segment, _ := w.known(run)
	if segment == nil {
		return
	}
	if segment.Name == segmentName(run.UID, 1) {
		// Nothing that follows is ever read: to whoever looks, the whole journal is gone.
		w.destroy(run)
		return
	}
	w.vandalise(run, func() {
		w.note(vandal, "deletes %s", segment.Name)
		w.server.remove(vandal, addressOf(segment))
	})
}

func (w *world) vandalise(run *v1alpha1.AgentRun, act func()) {
	w.check.run(run.UID).damaged = true
	w.counts.Damaged++
	act()
}

// known picks a segment of a run that is open, and the events in it that status has seen.
func (w *world) known(run *v1alpha1.AgentRun) (*corev1.ConfigMap, []string) {
	h := w.check.run(run.UID)
	if run.Status.Journal == nil || run.Status.CompletionTime != nil || h.destroyed >= 0 || h.damaged || h.gone || len(h.segments) == 0 || w.quiet() {
		return nil, nil
	}
	at := address{kindMap, keyOf(run.Namespace, segmentName(run.UID, 1+w.rng.IntN(len(h.segments))))}
	object, err := w.server.get(at)
	if err != nil {
		return nil, nil
	}
	segment := object.(*corev1.ConfigMap)
	var events []string
	for seq := int64(1); seq <= run.Status.Journal.Events; seq++ {
		if key := fmt.Sprintf("e%06d", seq); segment.Data[key] != "" {
			events = append(events, key)
		}
	}
	if len(events) == 0 || !ptr.Deref(segment.Immutable, false) && len(events) < len(segment.Data) {
		// A segment that goes on after what status has seen is left alone where deleting it
		// would leave no trace.
		return nil, nil
	}
	return segment, events
}
