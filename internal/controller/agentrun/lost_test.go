package agentrun

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
)

// loseJournal deletes the only segment, as somebody does who may do anything.
func (b *bench) loseJournal() *corev1.ConfigMap {
	b.t.Helper()
	ctx := context.Background()
	segment := &corev1.ConfigMap{}
	if err := b.api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: store.SegmentName("uid-1", 1)}, segment); err != nil {
		b.t.Fatal(err)
	}
	whole := segment.DeepCopy()
	whole.ResourceVersion = ""
	segment.Finalizers = nil
	if err := b.api.Update(ctx, segment); err != nil {
		b.t.Fatal(err)
	}
	if err := b.api.Delete(ctx, segment); err != nil {
		b.t.Fatal(err)
	}
	return whole
}

// change updates the run as a person does.
func (b *bench) change(edit func(object *v1alpha1.AgentRun)) {
	b.t.Helper()
	object := b.object()
	edit(object)
	if err := b.api.Update(context.Background(), object); err != nil {
		b.t.Fatal(err)
	}
}

// remove deletes the run as a person does.
func (b *bench) remove() {
	b.t.Helper()
	if err := b.api.Delete(context.Background(), b.object()); err != nil {
		b.t.Fatal(err)
	}
}

// gone says whether the run is no more.
func (b *bench) gone() bool {
	b.t.Helper()
	err := b.api.Get(context.Background(), runKey, &v1alpha1.AgentRun{})
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return apierrors.IsNotFound(err)
}

// told takes what was published so far and holds the word.
func (b *bench) told(word string) []string {
	b.t.Helper()
	var out []string
	for {
		select {
		case event := <-b.events.Events:
			if strings.Contains(event, word) {
				out = append(out, event)
			}
		default:
			return out
		}
	}
}

func (b *bench) outcome() metav1.Condition {
	b.t.Helper()
	c := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionOutcomeUnknown)
	if c == nil {
		b.t.Fatal("there is no condition OutcomeUnknown")
	}
	return *c
}

// doubtful is a run with one effect of which nobody knows, with nothing of it in memory.
func doubtful(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, call(), final())
	comesBack := hang(b)
	b.restart()
	comesBack()
	b.executor.pending = nil
	return b
}

// TestALostJournalKeepsWhatStatusKnew checks that a run whose journal is gone still names
// what nobody knows of it, is kept for it, and is not let go without a word.
func TestALostJournalKeepsWhatStatusKnew(t *testing.T) {
	b := doubtful(t)
	before := b.object().Status
	b.loseJournal()
	b.change(func(object *v1alpha1.AgentRun) { object.Spec.TTLSecondsAfterFinished = ptr.To[int32](0) })
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 1)
	after := b.object().Status
	if len(after.UnknownEffects) != 1 || after.UnknownEffects[0].EffectKey != before.UnknownEffects[0].EffectKey {
		t.Errorf("unknown were %+v, now %+v", before.UnknownEffects, after.UnknownEffects)
	}
	if before.Turns == 0 || before.ToolCalls == 0 || after.Turns != before.Turns || after.ToolCalls != before.ToolCalls {
		t.Errorf("%d turns and %d calls, before %d and %d", after.Turns, after.ToolCalls, before.Turns, before.ToolCalls)
	}
	if c := b.outcome(); c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "others") {
		t.Errorf("OutcomeUnknown is %+v", c)
	}
	b.clock.Step(time.Hour)
	b.drive()
	if b.gone() {
		t.Fatal("the run was deleted with its record of an unknown effect")
	}
	b.told("")
	b.remove()
	b.drive()
	if told := b.told("EffectsAbandoned"); len(told) != 1 || !b.gone() {
		t.Errorf("told %q, gone %v", told, b.gone())
	}
}

// TestALostJournalHidesWhatWasUnderWay checks that nobody says all outcomes are known where
// the journal is gone that would have named the calls under way.
func TestALostJournalHidesWhatWasUnderWay(t *testing.T) {
	b := newBench(t, call(), final())
	b.dispatched()
	b.restart()
	b.loseJournal()
	b.change(func(object *v1alpha1.AgentRun) { object.Spec.TTLSecondsAfterFinished = ptr.To[int32](0) })
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 0)
	if c := b.outcome(); c.Status != metav1.ConditionUnknown || c.Reason != "OutcomesNotRecorded" {
		t.Errorf("OutcomeUnknown is %+v", c)
	}
	b.clock.Step(time.Hour)
	b.drive()
	if b.gone() {
		t.Fatal("the run was deleted although nobody knows what it did")
	}
	b.told("")
	b.remove()
	b.drive()
	if told := b.told("EffectsAbandoned"); len(told) != 1 || !b.gone() {
		t.Errorf("told %q, gone %v", told, b.gone())
	}
}

// TestALostJournalOfAHarmlessRun checks that a run which never came to a call that may have
// an effect has nothing unknown.
func TestALostJournalOfAHarmlessRun(t *testing.T) {
	b := newBench(t, v1alpha1.ScriptStep{Question: "Which one?"}, final())
	b.drive()
	b.want(v1alpha1.ReasonInputRequired, 0)
	b.restart()
	b.loseJournal()
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 0)
	if c := b.outcome(); c.Status != metav1.ConditionFalse {
		t.Errorf("OutcomeUnknown is %+v", c)
	}
}

// settleAgain settles as people do who see the effects in status.
func (b *bench) settleAgain() {
	b.t.Helper()
	b.told("")
	settle(b, journal.EffectCommitted)
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, b.calls.Load())
	status := b.object().Status
	if len(status.UnknownEffects) != 0 {
		b.t.Errorf("still unknown are %+v", status.UnknownEffects)
	}
	told := b.told("")
	settled := slices.DeleteFunc(slices.Clone(told), func(event string) bool { return !strings.Contains(event, "EffectSettled") })
	if len(settled) != 1 || !strings.Contains(settled[0], "dana") {
		b.t.Errorf("told %q", told)
	}
	for _, event := range told {
		if strings.Contains(event, "CheckpointFailed") || strings.Contains(event, "Cancelled") {
			b.t.Errorf("a second ending is told: %s", event)
		}
	}
	b.drive()
	if again := b.told(""); len(again) != 0 {
		b.t.Errorf("told once more: %q", again)
	}
}

// expires checks that the time to live of the run applies.
func (b *bench) expires() {
	b.t.Helper()
	b.change(func(object *v1alpha1.AgentRun) { object.Spec.TTLSecondsAfterFinished = ptr.To[int32](10) })
	b.clock.Step(time.Minute)
	b.drive()
	if !b.gone() {
		b.drive() // its finalizer keeps it for one more look
	}
	if !b.gone() {
		b.t.Errorf("the run is still there: %+v", b.object().Status)
	}
}

// neverEnds checks that the journal of a run that ended in status has no other ending.
func (b *bench) neverEnds() {
	b.t.Helper()
	if n := b.count(journal.TypeFinished); n != 0 {
		b.t.Errorf("%d endings are in the journal", n)
	}
}

// TestALostJournalIsSettledInStatus checks that what people settle is taken where the
// journal is gone, once.
func TestALostJournalIsSettledInStatus(t *testing.T) {
	b := doubtful(t)
	b.loseJournal()
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 1)
	b.settleAgain()
	if c := b.outcome(); c.Status != metav1.ConditionUnknown {
		t.Errorf("OutcomeUnknown is %+v", c)
	}
	b.remove()
	b.drive()
	if told := b.told("EffectsAbandoned"); len(told) != 1 || !b.gone() {
		t.Errorf("told %q, gone %v", told, b.gone())
	}
}

// TestAJournalThatIsBackIsSettled checks that the settlement of a run that ended as
// CheckpointFailed goes into its journal where that can be written again.
func TestAJournalThatIsBackIsSettled(t *testing.T) {
	b := doubtful(t)
	whole := b.loseJournal()
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 1)
	if err := b.api.Create(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	b.settleAgain()
	if by := b.settledBy(); len(by) != 1 || by[0] != journal.SourcePerson {
		t.Errorf("settled by %v", by)
	}
	b.neverEnds()
	if c := b.outcome(); c.Status != metav1.ConditionFalse {
		t.Errorf("OutcomeUnknown is %+v", c)
	}
	b.expires()
}

// refusing is a run that has ended since the API server refused its journal while a call was
// under way.
func refusing(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, call(), final())
	b.dispatched()
	b.restart()
	b.fault = func(*corev1.ConfigMap) fault {
		return fault{err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "segment", errors.New("exceeded quota"))}
	}
	b.drive()
	b.clock.Step(2 * time.Minute)
	b.drive()
	b.want(v1alpha1.ReasonCheckpointFailed, 0)
	if n := len(b.object().Status.UnknownEffects); n != 1 {
		t.Fatalf("%d unknown effects", n)
	}
	return b
}

// TestARefusedJournalIsSettled checks the same where the journal was refused: the call that
// was under way is called unknown in it, and settled.
func TestARefusedJournalIsSettled(t *testing.T) {
	for name, heals := range map[string]bool{"it is written again": true, "it is still refused": false} {
		t.Run(name, func(t *testing.T) {
			b := refusing(t)
			if heals {
				b.fault = nil
			}
			b.settleAgain()
			if by := b.settledBy(); len(by) == 1 != heals {
				t.Errorf("settled by %v", by)
			}
			b.neverEnds()
			if c := b.outcome(); c.Status != metav1.ConditionFalse {
				t.Errorf("OutcomeUnknown is %+v", c)
			}
			b.fault = nil
			b.expires()
		})
	}
}

// TestAnEndedRunIsDeleted checks that a run which ended in status alone, and whose journal
// can be written again, gets no second ending when it is deleted, and waits for people.
func TestAnEndedRunIsDeleted(t *testing.T) {
	for name, settled := range map[string]bool{"somebody settles": true, "nobody settles": false} {
		t.Run(name, func(t *testing.T) {
			b := refusing(t)
			b.fault = nil
			b.remove()
			b.clock.SetTime(b.object().DeletionTimestamp.Time)
			b.drive()
			if b.gone() {
				t.Fatal("the run was let go at once")
			}
			b.neverEnds()
			if settled {
				b.told("")
				settle(b, journal.EffectRejected)
			} else {
				b.clock.SetTime(b.object().DeletionTimestamp.Add(b.r.deletionGrace - 10*time.Second))
				b.drive()
				b.neverEnds()
				b.clock.Step(time.Minute)
			}
			b.drive()
			if told := b.told("EffectsAbandoned"); !b.gone() || (len(told) == 0) != settled {
				t.Errorf("gone %v, told %q", b.gone(), told)
			}
		})
	}
}
