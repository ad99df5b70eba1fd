package ca

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// limitedTransport limits the rate of requests to an authority and the size of its answers.
type limitedTransport struct {
	next http.RoundTripper
	rate *RateLimiter
}

// RoundTrip waits for its turn and sends a request. An answer longer than maxBody is truncated.
func (b *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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

// A RateLimiter permits a burst of events at once, and after that one event in each interval.
type RateLimiter struct {
	burst int
	every time.Duration
	now   func() time.Time
	mu    sync.Mutex
	full  time.Time // when the whole burst is available again
}

// NewRateLimiter returns a RateLimiter with its whole burst.
func NewRateLimiter(burst int, every time.Duration, now func() time.Time) *RateLimiter {
	return &RateLimiter{burst: burst, every: every, now: now}
}

// Take takes a turn and returns 0; if there is none now, it returns how long to wait for the next.
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

// Wait waits for a turn and takes it.
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
