package segment

import (
	"context"
	"sync"
)

// Leases are the blobs that were appended and that nothing refers to for certain yet. Compaction
// leaves their segments alone.
type Leases struct {
	mu       sync.Mutex
	held     map[Ref]struct{}
	segments map[uint32]int             // how many are held in each
	appends  map[chan struct{}]struct{} // that are under way; closed when they end
}

// NewLeases returns Leases that hold nothing.
func NewLeases() *Leases {
	return &Leases{held: map[Ref]struct{}{}, segments: map[uint32]int{}, appends: map[chan struct{}]struct{}{}}
}

// BeginAppend announces an append whose blob will be added before done is called.
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

// WaitAppends waits until every append that has begun has ended, so that in segments that were full
// before all blobs are held, referred to, or dead.
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

// Add holds the blob.
func (l *Leases) Add(ref Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[ref] = struct{}{}
	l.segments[ref.Segment]++
}

// Release gives the blob up, if it is held.
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

// Has tells whether the blob is held.
func (l *Leases) Has(ref Ref) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.held[ref]
	return held
}

// InSegment tells whether a blob of the segment is held.
func (l *Leases) InSegment(segment uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[segment] > 0
}

// Len is how many blobs are held.
func (l *Leases) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
