package core

import (
	"crypto/sha256"
	"time"
)

// What tests outside of the package use.

// SlowHashes makes each hash take clock time instead of processor time. Call it before any password
// is set.
func (s *Core) SlowHashes(each time.Duration) {
	s.Logins.derive = func(password, salt []byte, _, _ uint32, _ uint8, n uint32) []byte {
		time.Sleep(each)
		sum := sha256.Sum256(append(append([]byte{}, salt...), password...))
		return sum[:n]
	}
}

// HashesWaiting returns how many passwords wait or are being hashed.
func (s *Core) HashesWaiting() int {
	g := s.Logins.limiter
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known.size + g.strange.size + g.running + len(g.known.waiting) + len(g.strange.waiting) + len(g.known.order) + len(g.strange.order)
}

// Probe checks whether a resolver answers.
var Probe = probe
