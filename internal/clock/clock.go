// Package clock provides a clock that a sandbox can shift and advance, and wakes goroutines that
// wait for a time of that clock. It is not for timeouts, such as deadlines of connections.
package clock

import (
	"sync"
	"time"
)

// maxSleep is the maximum time after which a waiting goroutine looks at the clock again. Go's
// timers do not notice that the system clock was set, or that the machine was suspended.
const maxSleep = time.Minute

// A Clock is a clock that may be ahead of or behind the system clock. It is safe for concurrent
// use.
type Clock struct {
	now func() time.Time

	mu    sync.Mutex
	ahead time.Duration // offset from now; may be negative
	moved chan struct{} // closed by Advance
}

// New returns a clock that is ahead of the clock now by a duration. A nil now means time.Now.
func New(now func() time.Time, ahead time.Duration) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, ahead: ahead, moved: make(chan struct{})}
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	now, _ := c.read()
	return now
}

// read returns the time, and a channel that is closed when the clock is advanced.
func (c *Clock) read() (now time.Time, advanced <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.now()
	if c.ahead != 0 { // Add(0) would drop the monotonic clock reading, which == compares
		now = now.Add(c.ahead)
	}
	return now, c.moved
}

// Advance moves the clock forward, and wakes the goroutines that wait for a time that has now come.
func (c *Clock) Advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
	close(c.moved)
	c.moved = make(chan struct{})
}

// At returns a channel that is closed when the clock reaches date. The caller must call stop, which
// releases resources.
func (c *Clock) At(date time.Time) (due <-chan struct{}, stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	if !c.Now().Before(date) {
		close(over)
		return over, func() {}
	}
	go func() {
		if c.waitUntil(date, ended) {
			close(over)
		}
	}()
	return over, sync.OnceFunc(func() { close(ended) })
}

// Every returns a channel that gets a value after each interval. If the receiver is slow, values
// are dropped. The caller must call stop, which releases resources.
func (c *Clock) Every(interval time.Duration) (tick <-chan struct{}, stop func()) {
	ticks, ended := make(chan struct{}, 1), make(chan struct{})
	next := c.Now().Add(interval)
	go func() {
		for c.waitUntil(next, ended) {
			select {
			case ticks <- struct{}{}:
			default:
			}
			next = c.Now().Add(interval)
		}
	}()
	return ticks, sync.OnceFunc(func() { close(ended) })
}

// waitUntil waits until the clock reaches date, and returns true. It returns false if ended is
// closed first.
func (c *Clock) waitUntil(date time.Time, ended <-chan struct{}) bool {
	for {
		now, moved := c.read()
		left := date.Sub(now)
		if left <= 0 {
			return true
		}
		t := time.NewTimer(min(left, maxSleep))
		select {
		case <-t.C:
		case <-moved:
		case <-ended:
		}
		t.Stop()
		select {
		case <-ended:
			return false
		default:
		}
	}
}
