package ca

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// bounded keeps an authority from filling the memory, and us from asking it in a hurry, whatever it
// answers.
type bounded struct {
	next http.RoundTripper
	rate *RateLimiter
}

// RoundTrip waits for its turn and passes a request on. An answer that is longer than maxBody is
// cut.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := b.rate.Wait(r.Context()); err != nil {
		return nil, err
	}
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &body{Reader: io.LimitReader(resp.Body, maxBody), Closer: resp.Body}
	return resp, nil
}

type body struct {
	io.Reader
	io.Closer
}

// A RateLimiter lets something happen a number of times at once, and from then on once in an
// interval.
type RateLimiter struct {
	burst int
	every time.Duration
	now   func() time.Time
	mu    sync.Mutex
	full  time.Time // when the whole burst is there again
}

// NewRateLimiter returns a RateLimiter with its whole burst.
func NewRateLimiter(burst int, every time.Duration, now func() time.Time) *RateLimiter {
	return &RateLimiter{burst: burst, every: every, now: now}
}

// Take takes a turn; if there is none it tells how long to wait until there is one.
func (l *RateLimiter) Take() (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	full := l.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(l.every)
	wait = full.Sub(now) - time.Duration(l.burst)*l.every
	if wait > 0 {
		return wait
	}
	l.full = full
	return 0
}

// Wait takes a turn as soon as there is one.
func (l *RateLimiter) Wait(ctx context.Context) error {
	for {
		wait := l.Take()
		if wait == 0 {
			return nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
