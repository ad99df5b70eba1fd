// Package diskroom tells how near a disk is to its end. It does not know who writes to it.
package diskroom

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// Reserve is how many bytes of a disk are kept for deletions.
	Reserve      = 64 << 20
	reserveShare = 20 // of a smaller disk, one part in so many

	// Interval is how long a disk that had enough room is not looked at again.
	Interval = 20 * time.Millisecond
)

// A Room knows how much of the disk is free. It may be used from any number of goroutines.
type Room struct {
	Dir  string
	Free func(dir string) (free, total int64, err error)
	Log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	short  bool
}

// Short tells whether there is room for deletions alone, since the reserve is reached. It looks at
// the disk, unless there was enough room a moment ago. Where the system does not tell, there is
// room. The log is told when the reserve is reached, and when there is room again.
func (r *Room) Short() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Now()
	if !r.short && at.Sub(r.looked) < Interval {
		return false
	}
	before := r.short
	free, total, err := r.Free(r.Dir)
	r.looked, r.short = at, err == nil && isShort(free, total)
	switch {
	case !before && r.short:
		r.Log.Error("the disk is almost full: new mail and other changes are refused, deletions are not", "directory", r.Dir, "free", free)
	case before && !r.short:
		r.Log.Info("there is room on the disk again", "directory", r.Dir, "free", free)
	}
	return r.short
}

func isShort(free, total int64) bool { return free < min(Reserve, total/reserveShare) }
