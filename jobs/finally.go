package jobs

import (
	"context"
	"sync"
)

// cleanup holds the functions to call after an attempt.
type cleanup struct {
	mu  sync.Mutex
	fns []func()
}

type cleanupKey struct{}

// Finally registers fn to run when the attempt of ctx is over: after its Writes were committed or
// failed, or after Work if its Writes are never called. fn releases what Work holds for its Writes,
// and must be short. Outside of Work, Finally returns false and fn never runs.
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
