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
	queryInterval = 100 * time.Millisecond // average time between two queries to one server
	queryBurst    = 20                     // number of queries to an idle server without that interval
	maxParallel   = 10                     // maximum number of parallel queries to one server
	maxSlotWait   = 15 * time.Second       // how long a query waits for others to end

	maxFailures  = 3                // after so many failures in a row, a server is not queried for failurePause
	failurePause = 30 * time.Second // how long a server is not queried then

	maxServers = 1000 // maximum number of servers whose state is kept
)

// A server is the state of one RDAP server: its rate of queries and its recent failures.
type server struct {
	host  string
	slots chan struct{} // has an element for each query in progress

	mu          sync.Mutex
	next        time.Time // when the next query would be due without bursts
	pausedUntil time.Time // no queries are sent before this time
	answered    time.Time // time of the last useful answer
	failures    int       // number of failures since the last useful answer
}

func newServer(host string) *server {
	return &server{host: host, slots: make(chan struct{}, maxParallel)}
}

// serverAt returns the state of the server with a base URL. It makes a new one for an unknown host.
func (c *Client) serverAt(base string) (*server, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[u.Host]
	if s == nil {
		if len(c.servers) >= maxServers {
			c.removeIdle()
		}
		s = newServer(u.Host)
		c.servers[u.Host] = s
	}
	return s, nil
}

// removeIdle removes the state of idle servers. If too many remain, it removes all.
func (c *Client) removeIdle() {
	now := c.now()
	for host, s := range c.servers {
		if s.isIdle(now) {
			delete(c.servers, host)
		}
	}
	if len(c.servers) >= maxServers {
		clear(c.servers)
	}
}

// isIdle reports whether the state of the server is the same as that of a new one.
func (s *server) isIdle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures == 0 && len(s.slots) == 0 && !now.Before(s.next) && !now.Before(s.pausedUntil)
}

// acquireTurn waits until the server may be queried. If it returns nil, the caller must call
// releaseTurn after the query. It returns ErrBusy if the query would have to wait too long.
func (s *server) acquireTurn(ctx context.Context, now func() time.Time) error {
	timeout := time.NewTimer(maxSlotWait)
	defer timeout.Stop()
	select {
	case s.slots <- struct{}{}:
	case <-timeout.C:
		return fmt.Errorf("%w: too many queries are waiting", ErrBusy)
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.waitInterval(ctx, now)
	if err != nil {
		s.releaseTurn()
	}
	return err
}

func (s *server) releaseTurn() { <-s.slots }

// waitInterval waits until the next query may be sent. It returns ErrBusy if the server is not
// queried at the moment (see pausedUntil).
func (s *server) waitInterval(ctx context.Context, now func() time.Time) error {
	if err := s.checkPause(now()); err != nil {
		return err
	}
	wait := s.reserveTime(now())
	if wait <= 0 {
		return nil
	}
	due := time.NewTimer(wait)
	defer due.Stop()
	select {
	case <-due.C:
		return s.checkPause(now()) // other queries may have failed meanwhile
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserveTime reserves the time for one query, and returns how long to wait until then. The result
// is negative or 0 if the query may be sent at once.
func (s *server) reserveTime(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Before(now) {
		s.next = now
	}
	wait := s.next.Sub(now) - (queryBurst-1)*queryInterval
	s.next = s.next.Add(queryInterval)
	return wait
}

// checkPause returns ErrBusy if the server must not be queried at the moment.
func (s *server) checkPause(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.pausedUntil) {
		return fmt.Errorf("%w; try again in %s", ErrBusy, s.pausedUntil.Sub(now).Round(time.Second))
	}
	return nil
}

// recordResult records the result of a query. An invalid answer counts as a failure, but a refusal
// of this query does not. After maxFailures failures in a row the server is not queried for
// failurePause. sent is when the query was sent. If the server has given no useful answer since
// then, one timeout is enough for such a pause.
func (s *server) recordResult(err error, sent, now time.Time) {
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
		silent := errors.Is(err, context.DeadlineExceeded) && !s.answered.After(sent)
		if silent || s.failures >= maxFailures {
			s.pausedUntil = now.Add(failurePause)
		}
	}
}
