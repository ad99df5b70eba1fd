// Package diskroom watches how much of a disk is free. It does not know who writes to the disk.
package diskroom

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// Reserve is how many bytes of a disk are reserved for deletions.
	Reserve      = 64 << 20
	reserveShare = 20 // on a smaller disk, the reserve is the disk's size divided by this

	// Interval is how long the result of a disk with enough space is reused.
	Interval = 20 * time.Millisecond
)

// A Monitor watches the free space of a disk. It is safe for concurrent use.
type Monitor struct {
	Dir  string
	Free func(dir string) (free, total int64, err error)
	Log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	short  bool
}

// Short reports whether the free space has fallen to the reserve, so that only deletions are
// allowed. It queries the disk, unless there was enough space within the last Interval. If the
// query fails, it returns false. It logs when the reserve is reached, and when there is space
// again.
func (r *Monitor) Short() bool {
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
