package scan

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const perSecond = 20 // questions to one address

// A Pace limits how often each nameserver is asked: 20 times a second at most, without bursts. Its
// zero value is ready. It is safe for concurrent use.
type Pace struct {
	Every time.Duration // between two questions to one address; 0: a twentieth of a second

	mu   sync.Mutex
	next map[netip.Addr]time.Time // when the next question may be sent
}

// wait waits until a question may be sent to an address, or until ctx ends.
func (p *Pace) wait(ctx context.Context, to netip.Addr) error {
	every := p.Every
	if every == 0 {
		every = time.Second / perSecond
	}
	now := time.Now()
	p.mu.Lock()
	if p.next == nil {
		p.next = map[netip.Addr]time.Time{}
	}
	at, waits := p.next[to]
	if !waits || at.Before(now) {
		at = now
	}
	if len(p.next) > 1000 {
		for addr, next := range p.next {
			if next.Before(now) {
				delete(p.next, addr)
			}
		}
	}
	p.next[to] = at.Add(every)
	p.mu.Unlock()

	if err := ctx.Err(); err != nil || !at.After(now) {
		return err
	}
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
