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
	burst      = 20                     // questions that may come at once after a rest
	maxWaiting = 15 * time.Second       // until a question's turn

	failuresToRest = 3 // in a row
	rest           = 30 * time.Second

	maxServers = 1000 // that are remembered
)

// A server is what is remembered of one host. All its endings share it, as they share the machine.
type server struct {
	host string

	mu       sync.Mutex
	next     time.Time // when a question is due if they came evenly
	shut     time.Time // nobody asks before
	failures int       // since the last answer
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
		s = &server{host: u.Host}
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
	return s.failures == 0 && !now.Before(s.next) && !now.Before(s.shut)
}

// turn waits until the server may be asked. It does not wait long: a question that would is refused at once.
func (s *server) turn(ctx context.Context, now func() time.Time) error {
	wait, err := s.reserve(now())
	if err != nil || wait <= 0 {
		return err
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

func (s *server) reserve(now time.Time) (time.Duration, error) {
	if err := s.open(now); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Before(now) {
		s.next = now
	}
	wait := s.next.Sub(now) - (burst-1)*pace
	if wait > maxWaiting {
		return 0, fmt.Errorf("%w: too many questions wait for it", ErrBusy)
	}
	s.next = s.next.Add(pace)
	return wait, nil
}

// open tells whether the server may be asked at all.
func (s *server) open(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.shut) {
		return fmt.Errorf("%w, for %s", ErrBusy, s.shut.Sub(now).Round(time.Second))
	}
	return nil
}

// note remembers what became of a question. An answer that makes no sense counts as a failure, one that refuses this
// question alone does not.
func (s *server) note(err error, now time.Time) {
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
		s.failures = 0
	default:
		if s.failures++; s.failures >= failuresToRest {
			s.shut = now.Add(rest)
		}
	}
}
