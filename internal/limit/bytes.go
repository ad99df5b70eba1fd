package limit

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bytes limits how much memory is used at a time for what is large. What is small waits for
// nothing. Make it with NewBytes.
type Bytes struct {
	most, small int64
	taken       *semaphore.Weighted
}

// has is the key of a context within which a limit has given room.
type has struct{ of *Bytes }

// NewBytes returns a limit of so many bytes. Up to small bytes are not counted.
func NewBytes(most, small int64) *Bytes {
	return &Bytes{most, small, semaphore.NewWeighted(most)}
}

// Acquire waits until there is room for so many bytes, which release gives back, for at most wait;
// 0 is as long as ctx. What is larger than all there is has it all. Whoever asks again with the
// context that it returns has the room already: two who have some and ask for more would wait for
// each other. The error is that of a context.
func (b *Bytes) Acquire(ctx context.Context, size int64, wait time.Duration) (within context.Context, release func(), err error) {
	if size <= b.small || ctx.Value(has{b}) != nil {
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
	return context.WithValue(ctx, has{b}, true), func() { b.taken.Release(size) }, nil
}
