package auth

import (
	"context"
	"sync"
	"time"
)

const (
	probeAfter   = time.Second      // how long look-ups may run before the resolver is probed
	probeTimeout = 2 * time.Second  // limit of a probe, and of all DNS for a message while the resolver is dead
	recheckAfter = 10 * time.Second // time after which a dead resolver is probed again
)

// ResolverHealth knows whether the resolver answers at all, so that mail need not wait for a dead
// one. Failed look-ups of names in mail do not make the resolver count as dead. A sender controls
// those names: by leaving them unanswered, a forger could have the checks skipped. The resolver
// counts as dead once Probe has failed as well, and as alive as soon as any look-up is answered. A
// ResolverHealth is shared by all messages and safe for concurrent use.
type ResolverHealth struct {
	// Probe queries the resolver for a name that no sender controls. Any answer counts, even one
	// that reports a failure of other servers. It returns an error only if ctx ends or if the
	// resolver cannot be reached.
	Probe func(ctx context.Context) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu      sync.Mutex
	dead    bool
	checked time.Time     // when a probe last ended
	probing chan struct{} // closed when the running probe ends; nil if none is running
}

// recordAnswer records that the resolver answered a look-up.
func (h *ResolverHealth) recordAnswer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = false
}

// Dead reports whether the resolver counts as dead.
func (h *ResolverHealth) Dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// watch calls cancel, which ends look-ups, if the resolver is found dead. stop ends the watch. It
// does not end a probe that is already running, which ends with ctx.
func (h *ResolverHealth) watch(ctx context.Context, cancel context.CancelFunc) (stop func()) {
	wait := probeAfter
	if h.Dead() {
		wait = 0
	}
	timer := time.AfterFunc(wait, func() {
		// Other names may have been answered, but a look-up is still running, so probe.
		if !h.alive(ctx) && ctx.Err() == nil {
			cancel()
		}
	})
	return func() { timer.Stop() }
}

// alive probes the resolver and reports whether it answers. If the resolver was found dead less
// than recheckAfter ago, alive does not probe; it waits probeTimeout for an answer to any look-up.
func (h *ResolverHealth) alive(ctx context.Context) bool {
	h.mu.Lock()
	recentlyDead := h.dead && h.now().Sub(h.checked) < recheckAfter
	h.mu.Unlock()
	if recentlyDead {
		sleep(ctx, probeTimeout)
		return !h.Dead()
	}
	asked := h.startProbe()
	select {
	case <-asked:
	case <-ctx.Done():
	}
	return !h.Dead()
}

// startProbe starts a probe, or joins the one that is running. It returns a channel that is closed
// when the probe ends.
func (h *ResolverHealth) startProbe() <-chan struct{} {
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

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) (completed bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
