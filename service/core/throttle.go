package core

import (
	"sync"
	"time"
)

// A Throttle counts events by key over about one window, two generations of half of it: what is
// older than both is forgotten, and so is the older half when more keys come than memory is given
// to.
type Throttle struct {
	half  time.Duration
	most  int // keys of one generation
	mu    sync.Mutex
	since time.Time // of the newer generation
	newer map[string]int
	older map[string]int
}

func NewThrottle(window time.Duration, most int) *Throttle {
	return &Throttle{half: window / 2, most: most, newer: map[string]int{}, older: map[string]int{}}
}

// turn starts a new generation when the newer one is old or full. The lock is held.
func (t *Throttle) turn(now time.Time) {
	age := now.Sub(t.since)
	if age < t.half && len(t.newer) < t.most {
		return
	}
	t.older = t.newer
	if age >= 2*t.half {
		t.older = map[string]int{}
	}
	t.newer, t.since = map[string]int{}, now
}

// Count adds one to the key.
func (t *Throttle) Count(key string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	t.newer[key]++
}

// Seen says how many there were of the key.
func (t *Throttle) Seen(key string, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	return t.newer[key] + t.older[key]
}

// Forget takes the key out.
func (t *Throttle) Forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.newer, key)
	delete(t.older, key)
}
