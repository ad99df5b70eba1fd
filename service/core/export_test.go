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
	return g.knownQueue.size + g.strangerQueue.size + g.running + len(g.knownQueue.waiting) + len(g.strangerQueue.waiting) + len(g.knownQueue.order) + len(g.strangerQueue.order)
}

// Probe checks whether a resolver answers.
var Probe = probeResolver
