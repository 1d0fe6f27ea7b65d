package mcptool

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

const (
	// maxPlaces and maxRemembered bound what a Memory holds: servers, and bytes of their
	// lists.
	maxPlaces     = 1024
	maxRemembered = 64 << 20
)

// Memory is what a process knows of the servers it talks to: what they speak and what
// they offer, by URL and credentials, since a server may offer other tools to others. The
// credentials themselves are not in it. Safe for concurrent use.
type Memory struct {
	now func() time.Time
	// key keeps digests of credentials from being tried out.
	key []byte

	mu     sync.Mutex
	places map[string]*place
	bytes  int
}

// place is one server under one set of credentials. Its fields are guarded by the Memory.
type place struct {
	// turn lets one caller at a time ask for the server's tools; others then have them.
	turn chan struct{}
	// version is what the server spoke last, "" when that is to be found out.
	version string
	// catalogue is what it offered last, nil when nobody knows.
	catalogue *catalogue
	used      time.Time
}

// NewMemory makes an empty Memory with a clock.
func NewMemory(now func() time.Time) *Memory {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return &Memory{now: now, key: key, places: map[string]*place{}}
}

// place finds what is known of a server, or begins to.
func (m *Memory) place(endpoint string, credentials string) *place {
	mac := hmac.New(sha256.New, m.key)
	_, _ = fmt.Fprintf(mac, "%d %s %s", len(endpoint), endpoint, credentials)
	name := hex.EncodeToString(mac.Sum(nil))
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.places[name]
	if found == nil {
		found = &place{turn: make(chan struct{}, 1)}
		m.places[name] = found
	}
	found.used = m.now()
	m.evict(found)
	return found
}

// evict forgets what was not used for longest until the rest fits, kept excepted.
func (m *Memory) evict(kept *place) {
	for len(m.places) > maxPlaces || m.bytes > maxRemembered {
		oldest := ""
		for name, p := range m.places {
			if p != kept && (oldest == "" || p.used.Before(m.places[oldest].used)) {
				oldest = name
			}
		}
		if oldest == "" {
			return
		}
		m.replace(m.places[oldest], nil)
		delete(m.places, oldest)
	}
}

// replace puts another catalogue into a place.
func (m *Memory) replace(p *place, c *catalogue) {
	if p.catalogue != nil {
		m.bytes -= p.catalogue.size
	}
	if p.catalogue = c; c != nil {
		m.bytes += c.size
	}
}

// version is what the server spoke last.
func (m *Memory) version(p *place) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.version
}

// learn remembers what the server speaks.
func (m *Memory) learn(p *place, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.version = version
}

// last is what the server offered last, and whether that is still taken for true.
func (m *Memory) last(p *place) (c *catalogue, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.catalogue, p.catalogue != nil && m.now().Before(p.catalogue.until)
}

// keep remembers what the server offers from now on.
func (m *Memory) keep(p *place, c *catalogue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.until = m.now().Add(c.freshness)
	m.replace(p, c)
	m.evict(p)
}
