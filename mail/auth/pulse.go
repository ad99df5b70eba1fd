package auth

import (
	"context"
	"sync"
	"time"
)

const (
	pulseAfter = time.Second      // without any answer, before the resolver is asked whether it lives
	pulseWait  = 2 * time.Second  // for its answer to that, and for all DNS of a message once it is dead
	pulseKept  = 10 * time.Second // how long a dead one is taken for dead before it is asked again
)

// A Pulse knows whether the resolver answers at all, so that mail need not wait for one that is
// dead. It believes no name of the mail's own: those are in the hands of senders, who could keep
// them from being answered to have look-ups given up that would prove them forgers. Only when Probe
// is not answered either is the resolver dead, until anything is answered. It is shared by all
// messages and safe for use by several goroutines.
type Pulse struct {
	// Probe asks the resolver for something that no sender has a hand in. Any answer, a failure of
	// other servers that the resolver tells of too, is life; the error is the context's or that of
	// a resolver that cannot be reached.
	Probe func(ctx context.Context) error
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu      sync.Mutex
	dead    bool
	checked time.Time     // when dead was found
	asking  chan struct{} // closed when a probe that is under way has ended
}

// answered notes that something was answered.
func (p *Pulse) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = false
}

// Dead tells whether the resolver was last found dead.
func (p *Pulse) Dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// watch gives look-ups up by cancel when the resolver is dead. What it returns ends the watch.
func (p *Pulse) watch(ctx context.Context, cancel context.CancelFunc) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		defer stop()
		if !p.Dead() && !sleep(ctx, pulseAfter) {
			return
		}
		// A slow name is no reason to ask where others are answered; a look-up that still runs is.
		if p.alive(ctx) {
			return
		}
		if ctx.Err() == nil {
			cancel()
		}
	}()
	return stop
}

// alive asks the resolver, unless it was found dead a moment ago: then it has pulseWait to come
// back.
func (p *Pulse) alive(ctx context.Context) bool {
	if p.foundDead() {
		sleep(ctx, pulseWait)
		return !p.Dead()
	}
	asked := p.ask()
	select {
	case <-asked:
	case <-ctx.Done():
	}
	return !p.Dead()
}

func (p *Pulse) foundDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead && p.now().Sub(p.checked) < pulseKept
}

// ask puts the question, once for all who want to know.
func (p *Pulse) ask() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking != nil {
		return p.asking
	}
	asking := make(chan struct{})
	p.asking = asking
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), pulseWait)
		defer cancel()
		err := p.Probe(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dead, p.checked, p.asking = err != nil, p.now(), nil
		close(asking)
	}()
	return asking
}

func (p *Pulse) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

// sleep waits; false if the context has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
