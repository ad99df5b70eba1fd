package ca

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// limitedTransport limits the rate of requests to a certificate authority and the size of its
// answers.
type limitedTransport struct {
	next http.RoundTripper
	rate *RateLimiter
}

// RoundTrip waits until the rate permits a request, and sends it. It truncates answers to maxBody.
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
	resp.Body = &limitedBody{Reader: io.LimitReader(resp.Body, maxBody), Closer: resp.Body}
	return resp, nil
}

// A limitedBody reads a limited part of a response body, and closes the whole body.
type limitedBody struct {
	io.Reader
	io.Closer
}

// A RateLimiter permits a burst of events at once, and after that one event in each interval.
type RateLimiter struct {
	burst int
	every time.Duration // the interval
	now   func() time.Time
	mu    sync.Mutex
	full  time.Time // when the whole burst will be available again
}

// NewRateLimiter returns a RateLimiter that permits burst events at once, and then one event in
// each interval every.
func NewRateLimiter(burst int, every time.Duration, now func() time.Time) *RateLimiter {
	return &RateLimiter{burst: burst, every: every, now: now}
}

// Take counts an event and returns 0 if an event is permitted now. Otherwise it counts nothing and
// returns how long to wait.
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

// Wait waits until an event is permitted, and counts it. It returns an error if ctx ends before.
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
