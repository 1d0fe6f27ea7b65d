package agentrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/limit"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// session is a run that this worker has in hand: its journal as last read or written
// and the state folded from it. It is a cache that a lost race throws away.
type session struct {
	uid   types.UID
	key   types.NamespacedName
	log   *store.Log
	draft journal.Draft
	// contents are the artifacts of events in the draft, to be stored before it.
	contents []string
	// fetched are the artifacts that were read in this reconcile.
	fetched map[string]run.Fetched
	// settled are the flights whose outcome is in the draft.
	settled []*flight
	// acknowledged is when the newest append was, on a clock that counts suspension: the
	// right to send what it announces runs from there.
	acknowledged time.Duration
	// mark is when active time was last booked, on a clock that only goes forward.
	mark time.Time
	// shown is when status was last written.
	shown time.Time
	// place is the limit under which the request to the model that is about to begin was
	// given a place.
	place *limit.Key
	// admitted are the calls that may be sent in this reconcile, and throttled says when
	// the others may, by id.
	admitted  map[string]bool
	throttled map[string]time.Time
	// closed is true once the run has ended in status alone.
	closed bool
	// configuration is what resolving came to.
	configuration *run.Configuration
	// wish is what people want of the run.
	wish wish
	// childWaits are the child runs that wait for people, by call, pendingChildren what they
	// and the runs below them ask.
	childWaits      map[string]run.ChildWait
	pendingChildren []v1alpha1.PendingChild
	// waiting is the reason last shown.
	waiting v1alpha1.Reason
}

// open returns the session of a run, reading the journal where none is in hand, and nil
// for a run that is gone.
func (r *Reconciler) open(ctx context.Context, object *v1alpha1.AgentRun) (*session, error) {
	// A journal that had not begun is read again: somebody else may have begun it.
	if s := r.memory.session(object.UID); s != nil && s.draft.State.Events > 0 {
		s.closed = s.closed || endedInStatusAlone(object)
		return s, nil
	}
	log, records, closed, err := r.loadWhole(ctx, object)
	if err != nil || log == nil {
		return nil, err
	}
	state, err := journal.Fold(string(object.UID), records)
	if err != nil {
		place := store.SegmentName(string(object.UID), log.Segments())
		return nil, &store.CorruptError{Place: place, Problem: err.Error()}
	}
	s := &session{uid: object.UID, key: client.ObjectKeyFromObject(object), log: log, draft: journal.Draft{State: state}, mark: r.clock.Now(), closed: closed}
	r.memory.hold(s)
	return s, nil
}

// loadWhole reads a journal and what status has seen of it, and returns no log for a run
// that is gone. Status is read live, since a cache that lags behind would let a lost journal
// pass for one that never began, and after the journal, or an end that is written, seen and
// cut off while this worker reads would not be missed. A journal that is shorter than status
// says has grown in between, or is not whole: reading it once more tells. Closed says
// whether status alone has ended the run.
func (r *Reconciler) loadWhole(ctx context.Context, object *v1alpha1.AgentRun) (log *store.Log, records []journal.Record, closed bool, err error) {
	log, records, err = r.store.Load(ctx, object)
	if err != nil {
		return nil, nil, false, err
	}
	mark := &v1alpha1.AgentRun{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(object), mark); err != nil {
		return nil, nil, false, client.IgnoreNotFound(err)
	}
	if mark.UID != object.UID {
		return nil, nil, false, nil
	}
	closed = endedInStatusAlone(mark)
	if canary.Is(canary.StaleMark) {
		mark = object
	}
	if known := mark.Status.Journal; known != nil && int64(len(records)) < known.Events {
		if log, records, err = r.store.Load(ctx, object); err != nil {
			return nil, nil, false, err
		}
	}
	if err := checkMark(mark, log, records); err != nil {
		return nil, nil, false, err
	}
	return log, records, closed, nil
}

// checkMark compares a journal with what status has seen of it: a chain shows what was
// changed inside it, but not that its end was cut off or written anew.
func checkMark(mark *v1alpha1.AgentRun, log *store.Log, records []journal.Record) error {
	known := mark.Status.Journal
	if known == nil || known.Events < 1 || canary.Is(canary.EmptyFold) {
		return nil
	}
	if n := int64(len(records)); n < known.Events {
		return &store.CorruptError{
			Place:   store.SegmentName(string(mark.UID), log.Segments()+1),
			Problem: fmt.Sprintf("the journal ends at event %d, but %d were recorded in status", n, known.Events),
		}
	}
	if strictjson.Digest(records[known.Events-1].Bytes) != known.Head {
		return &store.CorruptError{
			Place:   store.SegmentName(string(mark.UID), log.Segments()),
			Problem: fmt.Sprintf("event %d is not the one that was recorded in status", known.Events),
		}
	}
	return nil
}

// errBehind is a lost race for a journal that somebody else went on with.
var errBehind = errors.New("the journal in hand is older than status says")

// behind says whether status has seen more of the journal than this worker has. The next
// append would fail, unless the journal is gone by then: what is in hand must not be its start.
func (s *session) behind(mark *v1alpha1.AgentRun) bool {
	known := mark.Status.Journal
	return known != nil && known.Events > s.draft.State.Events-int64(len(s.draft.Records))
}

// active is the time spent working so far, this moment included.
func (s *session) active(now time.Time, worker string) time.Duration {
	booked := time.Duration(s.draft.State.ActiveMillis) * time.Millisecond
	if s.draft.State.Owner != worker {
		return booked + s.draft.State.Parked(now)
	}
	return booked + now.Sub(s.mark)
}

// add puts an event into the draft, claiming the run first where that is needed.
func (r *Reconciler) add(s *session, entry run.Entry) error {
	if _, settles := entry.Payload.(journal.EffectReconciled); !settles || s.draft.State.Finished == nil {
		if err := r.claim(s); err != nil {
			return err
		}
	}
	now := r.clock.Now()
	active := s.active(now, r.members.Identity())
	err := s.draft.Add(entry.Payload, journal.Meta{Time: now, By: entry.By, Part: entry.Part, ActiveMillis: active.Milliseconds()})
	if err != nil {
		return fmt.Errorf("proposing an event: %w", err)
	}
	s.mark = now
	s.keep(entry)
	return nil
}

// keep remembers what is to be stored before an event that is in the draft.
func (s *session) keep(entry run.Entry) {
	if entry.Content != "" {
		s.contents = append(s.contents, entry.Content)
	}
}

// fetch reads artifacts for the rest of this reconcile.
func (r *Reconciler) fetch(ctx context.Context, object *v1alpha1.AgentRun, s *session, artifacts []journal.Artifact) error {
	for _, artifact := range artifacts {
		text, problem, err := r.store.Fetch(ctx, object, artifact)
		if err != nil {
			return err
		}
		s.fetched[artifact.Digest] = run.Fetched{Text: text, Problem: problem}
	}
	return nil
}

// claim makes this worker the owner. A previous owner that did not let go may have
// asked the model and died before the answer: that request is charged.
func (r *Reconciler) claim(s *session) error {
	state := s.draft.State
	if state.Owner == r.members.Identity() {
		return nil
	}
	claimed := journal.Claimed{Worker: r.members.Identity(), Previous: state.Owner}
	if state.Owner != "" && state.DecisionDue() {
		lost := run.Lost(state)
		claimed.Lost = &lost
	}
	now := r.clock.Now()
	if err := s.draft.Add(claimed, journal.Meta{Time: now, ActiveMillis: s.active(now, r.members.Identity()).Milliseconds()}); err != nil {
		return fmt.Errorf("claiming: %w", err)
	}
	s.mark = now
	return nil
}

// inherit claims a run whose owner is gone even while it only waits for its next attempt:
// somebody has to count its time, and people see who has it.
func (r *Reconciler) inherit(s *session) error {
	state := s.draft.State
	if state.Owner == "" || state.Owner == r.members.Identity() || r.draining.Load() || !r.members.Fresh(r.clock.Now()) {
		return nil
	}
	return r.claim(s)
}

// flush commits the draft. Flights are forgotten only once their outcome is stored.
func (r *Reconciler) flush(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	if len(s.draft.Records) > 0 {
		if err := r.keepContents(ctx, object, s); err != nil {
			r.memory.drop(s.uid)
			return err
		}
		if err := r.store.Append(ctx, s.log, s.draft.Records, s.draft.State.EffectsOpen()); err != nil {
			r.flights.withhold(s.uid, s.draft.Records)
			r.memory.drop(s.uid)
			return err
		}
		s.acknowledged = r.boot()
		r.announce(object, s.draft.Records)
		r.wakeCallees(object, s.draft.State, s.draft.Records)
		s.draft.Records = nil
		r.memory.of(s.uid).refused = time.Time{}
	}
	r.flights.settle(s.uid, s.settled)
	s.settled = nil
	return nil
}

// keepContents stores the artifacts of the draft.
func (r *Reconciler) keepContents(ctx context.Context, object *v1alpha1.AgentRun, s *session) error {
	for _, content := range s.contents {
		if err := r.store.Keep(ctx, object, journal.NewArtifact(content), content); err != nil {
			return err
		}
	}
	s.contents = nil
	return nil
}

// corrupt says whether an error means that the journal can't be relied on.
func corrupt(err error) (string, bool) {
	var problem *store.CorruptError
	if errors.As(err, &problem) {
		return problem.Error(), true
	}
	return "", false
}
