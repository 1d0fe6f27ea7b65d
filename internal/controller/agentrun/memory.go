package agentrun

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// sessions holds the runs in hand.
type sessions struct {
	mu    sync.Mutex
	byRun map[types.UID]*session
}

func (m *sessions) get(uid types.UID) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byRun[uid]
}

func (m *sessions) put(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byRun == nil {
		m.byRun = map[types.UID]*session{}
	}
	m.byRun[s.uid] = s
}

func (m *sessions) drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byRun, uid)
}

// refusals remembers since when the API server refuses a run's journal.
type refusals struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

// note returns since when, now for the first time.
func (m *refusals) note(uid types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = map[types.UID]time.Time{}
	}
	if _, known := m.since[uid]; !known {
		m.since[uid] = now
	}
	return m.since[uid]
}

func (m *refusals) clear(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, uid)
}

// names remembers the UID that a name had, for runs that are gone.
type names struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]types.UID
}

// learn returns the UID that the name had before, when it had another.
func (m *names) learn(key types.NamespacedName, uid types.UID) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKey == nil {
		m.byKey = map[types.NamespacedName]types.UID{}
	}
	old, known := m.byKey[key]
	m.byKey[key] = uid
	return old, known && old != uid
}

func (m *names) forget(key types.NamespacedName) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.byKey[key]
	delete(m.byKey, key)
	return old, known
}

// problems remembers what was said about verdicts, so that it is said once.
type problems struct {
	mu   sync.Mutex
	said map[types.UID]string
}

// fresh is true the first time in a row that a problem comes up.
func (m *problems) fresh(uid types.UID, problem string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said == nil {
		m.said = map[types.UID]string{}
	}
	if m.said[uid] == problem {
		return false
	}
	m.said[uid] = problem
	return true
}

func (m *problems) clear(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.said, uid)
}
