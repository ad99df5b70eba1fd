package jobs

import (
	"context"
	"sync"
)

// cleanup is what is left to do when an attempt has ended.
type cleanup struct {
	mu  sync.Mutex
	fns []func()
}

type cleanupKey struct{}

// Finally has fn run once the attempt that ctx belongs to is over: its Writes were committed, were
// refused, or were dropped and never called. It is for what Work holds for its Writes. fn must be
// short; outside of Work it never runs, and Finally returns false.
func Finally(ctx context.Context, fn func()) bool {
	l, _ := ctx.Value(cleanupKey{}).(*cleanup)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fns = append(l.fns, fn)
	return true
}

func (l *cleanup) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fn := range l.fns {
		fn()
	}
	l.fns = nil
}
