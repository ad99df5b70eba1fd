package rdap

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

const (
	pace       = 100 * time.Millisecond // between two queries to one server
	burst      = 20                     // queries that may follow each other without that pause after a rest
	places     = 10                     // parallel queries to one server
	maxWaiting = 15 * time.Second       // wait for one of the places

	maxFailures = 3 // in a row
	rest        = 30 * time.Second

	maxServers = 1000 // how many are remembered
)

// A server is the state of one host. All suffixes that it serves share it.
type server struct {
	host   string
	places chan struct{}

	mu          sync.Mutex
	next        time.Time // when the next query is due at an even pace
	pausedUntil time.Time // no queries before this time
	answered    time.Time // the last time
	failures    int       // since the last answer
}

func newServer(host string) *server {
	return &server{host: host, places: make(chan struct{}, places)}
}

// server returns the state of the server behind a base URL.
func (c *Client) server(base string) (*server, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[u.Host]
	if s == nil {
		if len(c.servers) >= maxServers {
			c.forget()
		}
		s = newServer(u.Host)
		c.servers[u.Host] = s
	}
	return s, nil
}

// forget deletes the idle servers; if too many remain, all of them.
func (c *Client) forget() {
	now := c.now()
	for host, s := range c.servers {
		if s.idle(now) {
			delete(c.servers, host)
		}
	}
	if len(c.servers) >= maxServers {
		clear(c.servers)
	}
}

func (s *server) idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures == 0 && len(s.places) == 0 && !now.Before(s.next) && !now.Before(s.pausedUntil)
}

// acquireTurn waits until the server may be queried. After success the caller must call
// releaseTurn.
func (s *server) acquireTurn(ctx context.Context, now func() time.Time) error {
	enough := time.NewTimer(maxWaiting)
	defer enough.Stop()
	select {
	case s.places <- struct{}{}:
	case <-enough.C:
		return fmt.Errorf("%w: too many queries are waiting for it", ErrBusy)
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.waitPace(ctx, now)
	if err != nil {
		s.releaseTurn()
	}
	return err
}

func (s *server) releaseTurn() { <-s.places }

// waitPace waits until the next query is due.
func (s *server) waitPace(ctx context.Context, now func() time.Time) error {
	if err := s.open(now()); err != nil {
		return err
	}
	wait := s.reserve(now())
	if wait <= 0 {
		return nil
	}
	due := time.NewTimer(wait)
	defer due.Stop()
	select {
	case <-due.C:
		return s.open(now()) // meanwhile, other queries may have failed at it
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve takes the next free moment, and returns how long to wait for it.
func (s *server) reserve(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Before(now) {
		s.next = now
	}
	wait := s.next.Sub(now) - (burst-1)*pace
	s.next = s.next.Add(pace)
	return wait
}

// open returns an error if the server must not be queried now.
func (s *server) open(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.pausedUntil) {
		return fmt.Errorf("%w, for %s", ErrBusy, s.pausedUntil.Sub(now).Round(time.Second))
	}
	return nil
}

// recordResult records the result of a query that was sent at the time put. A nonsensical answer
// counts as a failure; a refusal of this query alone does not. The server is left alone for a while
// after three failures in a row, or at once after a timeout in which it answered no other query
// either.
func (s *server) recordResult(err error, put, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paused *pauseError
	var refused *statusError
	switch {
	case errors.As(err, &paused):
		if until := now.Add(paused.pause); until.After(s.pausedUntil) {
			s.pausedUntil = until
		}
	case err == nil, errors.Is(err, ErrNotFound), errors.As(err, &refused) && refused.status < 500 && !refused.page:
		s.failures, s.answered = 0, now
	default:
		s.failures++
		silent := errors.Is(err, context.DeadlineExceeded) && !s.answered.After(put)
		if silent || s.failures >= maxFailures {
			s.pausedUntil = now.Add(rest)
		}
	}
}
