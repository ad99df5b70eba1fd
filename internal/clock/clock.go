// Package clock tells the time of the calendar, which a sandbox can shift and advance, and wakes
// those who wait for a date. It does not know who waits, and is not for the durations of input and
// output, such as deadlines of connections: those are the machine's.
package clock

import (
	"sync"
	"time"
)

// lookAgain is how long somebody who waits for a date sleeps at most. A timer of Go does not see
// that the machine's clock was set, nor that the machine slept.
const lookAgain = time.Minute

// A Clock shows a time that may be ahead of the machine's, or behind it. It is safe for concurrent
// use.
type Clock struct {
	now func() time.Time

	mu    sync.Mutex
	ahead time.Duration
	moved chan struct{} // closed by Advance
}

// New makes a clock that is so far ahead of another one, which is time.Now if nil.
func New(now func() time.Time, ahead time.Duration) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, ahead: ahead, moved: make(chan struct{})}
}

// Now is the time.
func (c *Clock) Now() time.Time {
	now, _ := c.look()
	return now
}

// look is the time, and a channel that is closed when it is advanced.
func (c *Clock) look() (time.Time, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.ahead != 0 { // Add would change what == compares
		now = now.Add(c.ahead)
	}
	return now, c.moved
}

// Advance moves the clock on, and wakes who waits for a date that is past then.
func (c *Clock) Advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
	close(c.moved)
	c.moved = make(chan struct{})
}

// At gives a channel that is closed when the clock shows the date or a later one. stop ends the
// waiting, and must be called.
func (c *Clock) At(date time.Time) (due <-chan struct{}, stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	if !c.Now().Before(date) {
		close(over)
		return over, func() {}
	}
	go func() {
		if c.wait(date, ended) {
			close(over)
		}
	}()
	return over, sync.OnceFunc(func() { close(ended) })
}

// Every gives a channel that has a value each time an interval is over; intervals that pass before
// it is received make one value. stop ends that, and must be called.
func (c *Clock) Every(interval time.Duration) (tick <-chan struct{}, stop func()) {
	ticks, ended := make(chan struct{}, 1), make(chan struct{})
	next := c.Now().Add(interval)
	go func() {
		for c.wait(next, ended) {
			select {
			case ticks <- struct{}{}:
			default:
			}
			next = c.Now().Add(interval)
		}
	}()
	return ticks, sync.OnceFunc(func() { close(ended) })
}

// wait returns true when the date has come, or false when ended is closed before.
func (c *Clock) wait(date time.Time, ended <-chan struct{}) bool {
	for {
		now, moved := c.look()
		left := date.Sub(now)
		if left <= 0 {
			return true
		}
		t := time.NewTimer(min(left, lookAgain))
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
