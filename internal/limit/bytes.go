package limit

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// A ByteLimit limits how much memory large objects use at the same time. It does not limit small
// objects. Use NewByteLimit to make one.
type ByteLimit struct {
	limit int64 // maximum number of bytes in use
	small int64 // sizes up to this are not counted
	taken *semaphore.Weighted
}

// acquiredKey is the context key that says that memory of a ByteLimit was acquired.
type acquiredKey struct{ of *ByteLimit }

// NewByteLimit returns a limit of a number of bytes. It does not count sizes up to small.
func NewByteLimit(limit, small int64) *ByteLimit {
	return &ByteLimit{limit, small, semaphore.NewWeighted(limit)}
}

// Acquire waits until size bytes are free, and takes them; the caller must call release once. It
// waits for at most maxWait, or until ctx ends if maxWait is 0, and then returns the error of the
// context. A size above the limit takes the whole limit. A second Acquire with the returned context
// succeeds at once and takes nothing; otherwise two callers that need more could wait for each
// other forever.
func (b *ByteLimit) Acquire(ctx context.Context, size int64, maxWait time.Duration) (within context.Context, release func(), err error) {
	if size <= b.small || ctx.Value(acquiredKey{b}) != nil {
		return ctx, func() {}, nil
	}
	limited := ctx
	if maxWait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, maxWait)
		defer cancel()
	}
	size = min(size, b.limit)
	if err := b.taken.Acquire(limited, size); err != nil {
		return ctx, func() {}, err
	}
	return context.WithValue(ctx, acquiredKey{b}, true), func() { b.taken.Release(size) }, nil
}
