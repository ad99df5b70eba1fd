package core

import (
	"crypto/sha256"
	"time"
)

// What tests outside of the package look at.

// SlowHashes has each password take a time of the clock instead of the processor's. Call it before
// any is set.
func (s *Core) SlowHashes(each time.Duration) {
	s.Logins.derive = func(password, salt []byte, _, _ uint32, _ uint8, n uint32) []byte {
		time.Sleep(each)
		sum := sha256.Sum256(append(append([]byte{}, salt...), password...))
		return sum[:n]
	}
}

// HashesWaiting says how many passwords wait or are being hashed.
func (s *Core) HashesWaiting() int {
	g := s.Logins.limiter
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known.size + g.strange.size + g.running + len(g.known.waiting) + len(g.strange.waiting) + len(g.known.order) + len(g.strange.order)
}

// Probe asks a resolver for a sign of life.
var Probe = probe
