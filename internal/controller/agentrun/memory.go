package agentrun

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// notes are what this process remembers of a run between two reconciles. None of it is
// truth; whatever is lost is found again or only asked once more. The work queue never
// reconciles a run twice at the same time, so only the map of notes needs a lock.
type notes struct {
	// claimable is since when the run could be taken up, since it has no owner that lives.
	claimable time.Time
	// passed is until when this worker leaves the run to the others, since it may not do
	// what comes next.
	passed time.Time
	// ending is since when a living owner was seen not to have ended a run that people
	// want to end.
	ending time.Time
	// refused is since when the API server refuses the run's journal.
	refused time.Time
	// checked says when unknown effects were last looked up, by call.
	checked map[string]time.Time
	// polled says when calls that go on outside were last asked about, recalled which were
	// called off when, by call.
	polled, recalled map[string]time.Time
	// problem is what was last said about a verdict, so that it is said once.
	problem string
}

// since returns when something was first so, now for the first time.
func since(first *time.Time, now time.Time) time.Time {
	if first.IsZero() {
		*first = now
	}
	return *first
}

// memory holds the notes on every run.
type memory struct {
	mu    sync.Mutex
	byRun map[types.UID]*notes
	byKey map[types.NamespacedName]types.UID
	// inHand are the runs that this worker is busy with.
	inHand map[types.UID]*session
	// stirred are the runs of whose calls outside something was heard since they were last
	// asked about.
	stirred map[types.UID]bool
}

// stir notes that something was heard of what a run's calls do outside.
func (m *memory) stir(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stirred == nil {
		m.stirred = map[types.UID]bool{}
	}
	m.stirred[uid] = true
}

// isStirred says whether something was heard.
func (m *memory) isStirred(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stirred[uid]
}

// calm says that what was heard is about to be looked at.
func (m *memory) calm(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stirred, uid)
}

// session returns the run in hand, nil for one that rests or belongs to somebody else.
func (m *memory) session(uid types.UID) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inHand[uid]
}

// hold takes a run in hand.
func (m *memory) hold(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inHand == nil {
		m.inHand = map[types.UID]*session{}
	}
	m.inHand[s.uid] = s
}

// drop lets a run out of hand.
func (m *memory) drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.inHand, uid)
}

// busy lists the runs in hand.
func (m *memory) busy() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(m.inHand))
	for _, session := range m.inHand {
		keys = append(keys, session.key)
	}
	return keys
}

// of returns the notes on a run.
func (m *memory) of(uid types.UID) *notes {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byRun == nil {
		m.byRun = map[types.UID]*notes{}
	}
	if m.byRun[uid] == nil {
		m.byRun[uid] = &notes{checked: map[string]time.Time{}, polled: map[string]time.Time{}, recalled: map[string]time.Time{}}
	}
	return m.byRun[uid]
}

// learn notes the UID that a name has.
func (m *memory) learn(key types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKey == nil {
		m.byKey = map[types.NamespacedName]types.UID{}
	}
	m.byKey[key] = uid
}

// lookup returns the UID that a name had.
func (m *memory) lookup(key types.NamespacedName) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid, known := m.byKey[key]
	return uid, known
}

func (m *memory) forgetKey(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, key)
}

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byRun, uid)
	delete(m.inHand, uid)
	delete(m.stirred, uid)
}
