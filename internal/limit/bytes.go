package limit

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bytes limits how much memory large objects use at the same time. Small ones do not wait. Make it
// with NewBytes.
type Bytes struct {
	most, small int64
	taken       *semaphore.Weighted
}

// acquiredKey is the key of a context in which memory was already acquired.
type acquiredKey struct{ of *Bytes }

// NewBytes returns a limit of most bytes. Sizes up to small are not counted.
func NewBytes(most, small int64) *Bytes {
	return &Bytes{most, small, semaphore.NewWeighted(most)}
}

// Acquire waits until size bytes are free, for at most wait (0: until ctx ends); release frees
// them. A size above the limit gets the whole limit. An Acquire with the returned context succeeds
// at once, since two callers that hold some and wait for more would wait for each other. The error
// is that of a context.
func (b *Bytes) Acquire(ctx context.Context, size int64, wait time.Duration) (within context.Context, release func(), err error) {
	if size <= b.small || ctx.Value(acquiredKey{b}) != nil {
		return ctx, func() {}, nil
	}
	limited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	size = min(size, b.most)
	if err := b.taken.Acquire(limited, size); err != nil {
		return ctx, func() {}, err
	}
	return context.WithValue(ctx, acquiredKey{b}, true), func() { b.taken.Release(size) }, nil
}
