// Package diskroom watches how much of a disk is free. It does not know who writes to the disk.
package diskroom

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// Reserve is the number of bytes of a disk that are reserved for deletions.
	Reserve      = 64 << 20
	reserveShare = 20 // on a small disk, the reserve is the size of the disk divided by this

	// CheckInterval is the time for which IsShort reuses the result that the disk has enough space.
	CheckInterval = 20 * time.Millisecond
)

// A Monitor watches the free space of the disk of Dir. It is safe for concurrent use.
type Monitor struct {
	Dir  string
	Free func(dir string) (free, total int64, err error) // returns the free bytes and the size of the disk of dir
	Log  *slog.Logger

	mu      sync.Mutex
	askedAt time.Time // when the disk was last asked
	short   bool      // the last result of IsShort
}

// IsShort reports whether the free space has fallen below the reserve, so that only deletions are
// allowed. It asks for the free space, unless there was enough within the last CheckInterval. If
// that fails, it returns false. It logs when the reserve is reached, and when there is enough space
// again.
func (r *Monitor) IsShort() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Now()
	if !r.short && at.Sub(r.askedAt) < CheckInterval {
		return false
	}
	before := r.short
	free, total, err := r.Free(r.Dir)
	r.askedAt, r.short = at, err == nil && isShort(free, total)
	switch {
	case !before && r.short:
		r.Log.Error("the disk is almost full: new mail and other changes are refused, deletions are not", "directory", r.Dir, "free", free)
	case before && !r.short:
		r.Log.Info("there is room on the disk again", "directory", r.Dir, "free", free)
	}
	return r.short
}

func isShort(free, total int64) bool { return free < min(Reserve, total/reserveShare) }
