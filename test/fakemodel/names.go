package fakemodel

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"sync"
)

// Names makes the ids and signatures of one server's replies, no two of them alike.
type Names struct {
	mu    sync.Mutex
	given int
}

func (n *Names) next() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.given++
	return n.given
}

// ID makes an id that begins with a prefix.
func (n *Names) ID(prefix string) string { return fmt.Sprintf("%s%024d", prefix, n.next()) }

// Signature makes a signature for a content: opaque text, in the alphabet of base64.
func (n *Names) Signature(content string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", n.next(), content))
	return base64.StdEncoding.EncodeToString(append(sum[:], sum[:]...))
}
