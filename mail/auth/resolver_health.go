package auth

import (
	"context"
	"sync"
	"time"
)

const (
	probeAfter   = time.Second      // without any answer, before the resolver is asked whether it lives
	probeTimeout = 2 * time.Second  // for its answer to that, and for all DNS of a message once it is dead
	recheckAfter = 10 * time.Second // how long a dead one is taken for dead before it is asked again
)

// ResolverHealth knows whether the resolver answers at all, so that mail need not wait for a dead
// one. Look-ups of names in the mail do not count against the resolver: senders control those
// names, and could leave them unanswered to escape the look-ups that would prove them forgers. The
// resolver is dead when Probe is not answered either, until anything is answered. A ResolverHealth
// is shared by all messages and safe for use by several goroutines.
type ResolverHealth struct {
	// Probe asks the resolver for something that no sender controls. Any answer counts as life,
	// even that other servers failed; the error is the context's or that of a resolver that cannot
	// be reached.
	Probe func(ctx context.Context) error
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu      sync.Mutex
	dead    bool
	checked time.Time     // when dead was found
	probing chan struct{} // closed when a probe that is under way has ended
}

// answered notes that something was answered.
func (h *ResolverHealth) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = false
}

// Dead reports whether the resolver was last found dead.
func (h *ResolverHealth) Dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// watch gives look-ups up by cancel when the resolver is dead. What it returns ends the watch.
func (h *ResolverHealth) watch(ctx context.Context, cancel context.CancelFunc) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		defer stop()
		if !h.Dead() && !sleep(ctx, probeAfter) {
			return
		}
		// A slow name is no reason to ask where others are answered; a look-up that still runs is.
		if h.alive(ctx) {
			return
		}
		if ctx.Err() == nil {
			cancel()
		}
	}()
	return stop
}

// alive asks the resolver, unless it was found dead a moment ago: then it has probeTimeout to
// come back.
func (h *ResolverHealth) alive(ctx context.Context) bool {
	h.mu.Lock()
	recentlyDead := h.dead && h.now().Sub(h.checked) < recheckAfter
	h.mu.Unlock()
	if recentlyDead {
		sleep(ctx, probeTimeout)
		return !h.Dead()
	}
	asked := h.probe()
	select {
	case <-asked:
	case <-ctx.Done():
	}
	return !h.Dead()
}

// probe asks the resolver, once for all who want to know.
func (h *ResolverHealth) probe() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probing != nil {
		return h.probing
	}
	asking := make(chan struct{})
	h.probing = asking
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		err := h.Probe(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dead, h.checked, h.probing = err != nil, h.now(), nil
		close(asking)
	}()
	return asking
}

func (h *ResolverHealth) now() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
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
