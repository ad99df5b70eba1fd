package limit

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Bytes limits how much memory is used at a time for what is large. What is small waits for
// nothing. Make it with NewBytes.
type Bytes struct {
	most, small int64
	taken       *semaphore.Weighted
}

// NewBytes returns a limit of so many bytes. Up to small bytes are not counted.
func NewBytes(most, small int64) *Bytes {
	return &Bytes{most, small, semaphore.NewWeighted(most)}
}

// Acquire waits until there is room for so many bytes, which release gives back. What is larger
// than all there is has it all. The error is that of ctx.
func (b *Bytes) Acquire(ctx context.Context, size int64) (release func(), err error) {
	if size <= b.small {
		return func() {}, nil
	}
	size = min(size, b.most)
	if err := b.taken.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return func() { b.taken.Release(size) }, nil
}
