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
	pace       = 100 * time.Millisecond // between two questions to one server
	burst      = 20                     // questions that may come without that distance after a rest
	places     = 10                     // questions to one server that are open at a time
	maxWaiting = 15 * time.Second       // for a place

	failuresToRest = 3 // in a row
	rest           = 30 * time.Second

	maxServers = 1000 // that are remembered
)

// A server is what is remembered of one host. All its endings share it, as they share the machine.
type server struct {
	host   string
	places chan struct{}

	mu       sync.Mutex
	next     time.Time // when a question is due if they came evenly
	shut     time.Time // nobody asks before
	answered time.Time // last
	failures int       // since then
}

func newServer(host string) *server {
	return &server{host: host, places: make(chan struct{}, places)}
}

// server gives the one behind a base URL.
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

// forget drops the servers about which there is nothing to remember; if that helps too little, all.
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
	return s.failures == 0 && len(s.places) == 0 && !now.Before(s.next) && !now.Before(s.shut)
}

// turn waits until the server may be asked. Whoever has got the turn gives its place back with
// leave.
func (s *server) turn(ctx context.Context, now func() time.Time) error {
	enough := time.NewTimer(maxWaiting)
	defer enough.Stop()
	select {
	case s.places <- struct{}{}:
	case <-enough.C:
		return fmt.Errorf("%w: too many questions wait for it", ErrBusy)
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.paced(ctx, now)
	if err != nil {
		s.leave()
	}
	return err
}

func (s *server) leave() { <-s.places }

// paced waits until the next question is due.
func (s *server) paced(ctx context.Context, now func() time.Time) error {
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
		return s.open(now()) // it may have failed for others meanwhile
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve takes the next free moment, and says how far off it is.
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

// open reports whether the server may be asked at all.
func (s *server) open(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.shut) {
		return fmt.Errorf("%w, for %s", ErrBusy, s.shut.Sub(now).Round(time.Second))
	}
	return nil
}

// note remembers what became of a question that was put at the time put. An answer that makes no
// sense counts as a failure, one that refuses this question alone does not. A server that has said
// nothing to anybody since is not kept waiting for three times.
func (s *server) note(err error, put, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paused *pauseError
	var refused *statusError
	switch {
	case errors.As(err, &paused):
		if until := now.Add(paused.pause); until.After(s.shut) {
			s.shut = until
		}
	case err == nil, errors.Is(err, ErrNotFound), errors.As(err, &refused) && refused.status < 500 && !refused.page:
		s.failures, s.answered = 0, now
	default:
		s.failures++
		silent := errors.Is(err, context.DeadlineExceeded) && !s.answered.After(put)
		if silent || s.failures >= failuresToRest {
			s.shut = now.Add(rest)
		}
	}
}
