package agentrun

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// waiting is a run that has made one call and waits for a person about another, with
// nothing of it in memory.
func waiting(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, call(), v1alpha1.ScriptStep{Question: "Which one?"}, final())
	b.drive()
	b.want(v1alpha1.ReasonInputRequired, 1)
	b.restart()
	return b
}

// edit changes the only segment of the run's journal.
func (b *bench) edit(change func(segment *corev1.ConfigMap)) {
	b.t.Helper()
	ctx := context.Background()
	segment := &corev1.ConfigMap{}
	if err := b.api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: store.SegmentName("uid-1", 1)}, segment); err != nil {
		b.t.Fatal(err)
	}
	change(segment)
	// Sealed or not: whoever damages a journal has ways around that.
	if err := b.api.Delete(ctx, segment); err != nil {
		b.t.Fatal(err)
	}
	segment.ResourceVersion = ""
	if err := b.api.Create(ctx, segment); err != nil {
		b.t.Fatal(err)
	}
}

// TestAJournalThatIsDamaged checks that what a chain can't show is shown by what status
// has seen: a journal whose end was cut off or written anew ends its run, and is never
// written to again.
func TestAJournalThatIsDamaged(t *testing.T) {
	last := func(segment *corev1.ConfigMap) string {
		name := ""
		for key := range segment.Data {
			name = max(name, key)
		}
		return name
	}
	for name, damage := range map[string]func(segment *corev1.ConfigMap){
		"an event is altered": func(s *corev1.ConfigMap) { s.Data["e000002"] = strings.Replace(s.Data["e000002"], "Go.", "No.", 1) },
		"its end is cut off":  func(s *corev1.ConfigMap) { delete(s.Data, last(s)) },
		"its last event is replaced": func(s *corev1.ConfigMap) {
			s.Data[last(s)] = strings.Replace(s.Data[last(s)], "InputRequired", "Suspended", 1)
		},
		"it holds something else": func(s *corev1.ConfigMap) { s.Data["odd"] = strings.Repeat("x", 500_000) },
		"it is empty":             func(s *corev1.ConfigMap) { s.Data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := waiting(t)
			before := b.object().Status.Journal
			b.edit(damage)
			b.drive()
			b.want(v1alpha1.ReasonCheckpointFailed, 1)
			if after := b.object().Status.Journal; *after != *before {
				t.Errorf("status showed the journal as %+v, now as %+v", before, after)
			}
			writes := 0
			b.fault = func(*corev1.ConfigMap) fault { writes++; return fault{} }
			b.restart()
			b.drive()
			if writes != 0 {
				t.Errorf("%d writes to a journal that can't be relied on", writes)
			}
		})
	}
}

// TestAJournalThatChangesWhileItIsRead checks that status is read after the journal: what
// another worker writes and shows in between must be there when the journal is read again.
func TestAJournalThatChangesWhileItIsRead(t *testing.T) {
	for name, want := range map[string]v1alpha1.Reason{
		"it grows":                 v1alpha1.ReasonInputRequired,
		"its end is cut off again": v1alpha1.ReasonCheckpointFailed,
	} {
		t.Run(name, func(t *testing.T) {
			b := waiting(t)
			whole, shown := &corev1.ConfigMap{}, b.object()
			if err := b.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: store.SegmentName("uid-1", 1)}, whole); err != nil {
				t.Fatal(err)
			}
			last := fmt.Sprintf("e%06d", shown.Status.Journal.Events)
			earlier := shown.DeepCopy()
			earlier.Status.Journal.Events--
			earlier.Status.Journal.Head = strictjson.Digest([]byte(whole.Data[fmt.Sprintf("e%06d", earlier.Status.Journal.Events)]))
			if err := b.api.SubResource("status").Update(t.Context(), earlier); err != nil {
				t.Fatal(err)
			}
			b.edit(func(segment *corev1.ConfigMap) { delete(segment.Data, last) })
			reads := 0
			b.read = func(object client.Object) error {
				if _, journal := object.(*corev1.ConfigMap); !journal {
					return nil
				}
				if reads++; reads > 1 {
					return nil
				}
				if err := b.api.SubResource("status").Update(t.Context(), b.shows(shown.Status)); err != nil {
					t.Error(err)
				}
				if want != v1alpha1.ReasonCheckpointFailed {
					b.edit(func(segment *corev1.ConfigMap) { segment.Data = whole.Data })
				}
				return nil
			}
			writes := 0
			b.fault = func(*corev1.ConfigMap) fault { writes++; return fault{} }
			b.drive()
			b.want(want, 1)
			if want == v1alpha1.ReasonCheckpointFailed && writes != 0 {
				t.Errorf("%d writes to a journal whose end is gone", writes)
			}
		})
	}
}

// shows is the run as it is now with another status.
func (b *bench) shows(status v1alpha1.AgentRunStatus) *v1alpha1.AgentRun {
	object := b.object()
	object.Status = status
	return object
}

// later makes the journal one that a later build has gone on with.
func (b *bench) later() {
	b.t.Helper()
	known := b.object().Status.Journal
	b.edit(func(segment *corev1.ConfigMap) {
		for key, event := range segment.Data {
			if strictjson.Digest([]byte(event)) == known.Head {
				segment.Data[key] = strings.Replace(event, `"v":1`, `"v":2`, 1)
			}
		}
	})
}

// TestAJournalOfALaterFormat checks that a replica which is about to be replaced leaves
// alone what the new ones write, and that a deleted run is not held by it for ever.
func TestAJournalOfALaterFormat(t *testing.T) {
	b := waiting(t)
	b.later()
	before := b.object()
	writes := 0
	b.fault = func(*corev1.ConfigMap) fault { writes++; return fault{} }
	result, err := b.reconcile()
	if err != nil || result.RequeueAfter < lookInterval {
		t.Errorf("looks again after %s, error %v", result.RequeueAfter, err)
	}
	if after := b.object(); after.ResourceVersion != before.ResourceVersion || writes != 0 {
		t.Errorf("%d writes to the journal, status %+v", writes, after.Status)
	}
	b.want(v1alpha1.ReasonInputRequired, 1)

	object := b.object()
	object.Finalizers = []string{v1alpha1.FinalizerEffects}
	if err := b.api.Update(context.Background(), object); err != nil {
		t.Fatal(err)
	}
	if err := b.api.Delete(context.Background(), object); err != nil {
		t.Fatal(err)
	}
	b.clock.SetTime(b.object().DeletionTimestamp.Time)
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if err := b.api.Get(context.Background(), runKey, object); err != nil {
		t.Fatalf("the run was let go at once: %v", err)
	}
	b.clock.SetTime(object.DeletionTimestamp.Add(b.r.deletionGrace))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if err := b.api.Get(context.Background(), runKey, object); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the run is still there: %v", err)
	}
}

// ranked notes what is put into a queue with priorities.
type ranked struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	plain, first []reconcile.Request
}

func (q *ranked) Add(request reconcile.Request) { q.plain = append(q.plain, request) }

func (q *ranked) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	if o.Priority != nil && *o.Priority > 0 {
		q.first = append(q.first, requests...)
	}
}

// TestTheHeartbeatGoesFirst checks that a long queue does not look like one that hangs.
func TestTheHeartbeatGoesFirst(t *testing.T) {
	r := &Reconciler{}
	queue := &ranked{}
	if err := r.Listen(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
	r.wakeups.wake(runKey)
	r.wakeups.wake(heartbeatRequest.NamespacedName)
	if len(queue.plain) != 1 || len(queue.first) != 1 || queue.first[0] != heartbeatRequest {
		t.Errorf("queued as usual %v, before all others %v", queue.plain, queue.first)
	}
}
