package deliver

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// maxPerConnection is the maximum number of messages per connection. Many servers close a
// connection after a hundred.
const maxPerConnection = 100

// pool keeps idle sessions by next hop. The zero value is an empty pool.
type pool struct {
	mu     sync.Mutex
	idle   map[hop][]*session
	total  int
	closed bool
	ending sync.WaitGroup
}

// release takes a session back after a transaction. It keeps the session for another message if it
// is intact and the pool has room; otherwise it closes the session.
func (c *Client) release(s *session) {
	if s.broken || s.uses >= maxPerConnection {
		c.closeSession(s)
		return
	}
	if !s.unbind() {
		s.raw.Close()
		return
	}
	perHop := max(cmp.Or(c.IdlePerHop, 4), 0)
	if !c.idle.put(s, perHop, cmp.Or(c.IdleTotal, 64), cmp.Or(c.IdleTimeout, 30*time.Second)) {
		s.quit()
	}
}

// put adds s to the pool, which closes s after timeout. It returns false if there is no room.
func (p *pool) put(s *session, perHop, total int, timeout time.Duration) (kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.total >= total || len(p.idle[s.hop]) >= perHop {
		return false
	}
	if p.idle == nil {
		p.idle = make(map[hop][]*session)
	}
	p.idle[s.hop] = append(p.idle[s.hop], s)
	p.total++
	s.timer = time.AfterFunc(timeout, func() { p.expire(s) })
	return true
}

// take removes the most recently used session of h from the pool and returns it, nil if there is
// none.
func (p *pool) take(h hop) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[h]
	if len(list) == 0 {
		return nil
	}
	s := list[len(list)-1]
	p.remove(s)
	s.timer.Stop()
	return s
}

// remove removes s from the pool and reports whether it was there. The caller holds mu.
func (p *pool) remove(s *session) (removed bool) {
	list := p.idle[s.hop]
	i := slices.Index(list, s)
	if i < 0 {
		return false
	}
	p.total--
	if len(list) == 1 {
		delete(p.idle, s.hop)
	} else {
		p.idle[s.hop] = slices.Delete(list, i, i+1)
	}
	return true
}

// expire closes a session that was idle for too long.
func (p *pool) expire(s *session) {
	p.mu.Lock()
	idle := p.remove(s)
	if idle {
		p.ending.Add(1)
	}
	p.mu.Unlock()
	if idle {
		defer p.ending.Done()
		s.quit()
	}
}

// close closes all idle sessions and waits until that is done.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, list := range p.idle {
		for _, s := range list {
			s.timer.Stop()
			p.ending.Go(s.quit)
		}
	}
	p.idle, p.total = nil, 0
	p.mu.Unlock()
	p.ending.Wait()
}
