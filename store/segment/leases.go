package segment

import (
	"context"
	"sync"
)

// Leases holds the blobs that were appended and may get a reference, but have none yet. Compaction
// keeps the segments of such blobs. It is safe for concurrent use.
type Leases struct {
	mu       sync.Mutex
	held     map[Ref]struct{}
	segments map[uint32]int             // number of leases in each segment
	appends  map[chan struct{}]struct{} // appends in progress; closed when they end
}

// NewLeases returns Leases without a blob.
func NewLeases() *Leases {
	return &Leases{held: map[Ref]struct{}{}, segments: map[uint32]int{}, appends: map[chan struct{}]struct{}{}}
}

// BeginAppend records that an append is in progress. The caller adds the blob, then calls done.
func (l *Leases) BeginAppend() (done func()) {
	ended := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appends[ended] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.appends, ended)
		close(ended)
	}
}

// WaitAppends waits until all appends in progress have ended. After that, each blob in a segment
// that was full before the call has a lease or a reference, or will never get one. It returns the
// error of ctx if ctx ends first.
func (l *Leases) WaitAppends(ctx context.Context) error {
	l.mu.Lock()
	var running []chan struct{}
	for ended := range l.appends {
		running = append(running, ended)
	}
	l.mu.Unlock()
	for _, ended := range running {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Add adds a lease on the blob.
func (l *Leases) Add(ref Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[ref] = struct{}{}
	l.segments[ref.Segment]++
}

// Release ends the lease on the blob, if there is one.
func (l *Leases) Release(ref Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[ref]; !held {
		return
	}
	delete(l.held, ref)
	if l.segments[ref.Segment]--; l.segments[ref.Segment] == 0 {
		delete(l.segments, ref.Segment)
	}
}

// Has reports whether the blob has a lease.
func (l *Leases) Has(ref Ref) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.held[ref]
	return held
}

// InSegment reports whether any blob of the segment has a lease.
func (l *Leases) InSegment(segment uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[segment] > 0
}

// Len returns the number of leases.
func (l *Leases) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
