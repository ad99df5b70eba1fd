package store

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// The disk is not written to its end: a commit that the system refuses half-way costs more than one
// that is not begun, and whoever frees room needs some. From the reserve on, new messages and large
// transactions are refused; in its second half, every transaction that does not free anything.
// Refusals are ErrFull.

const (
	reserveMost  = 64 << 20 // of a disk
	reserveShare = 20       // of a smaller disk, one part in so many
	reserveLook  = 20 * time.Millisecond
	reserveSmall = 16 << 10 // bytes that a transaction may write in the first half
)

// room knows how much of the disk is free.
type room struct {
	dir  string
	free func(dir string) (free, total int64, err error)
	log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	level  roomLevel
}

type roomLevel int

const (
	roomEnough roomLevel = iota
	roomShort            // for deletions and small changes
	roomLeast            // for deletions
)

// now looks at the disk, unless there was enough room a moment ago. Where the system does not tell
// there is room. The log hears when the reserve is reached, and when there is room again.
func (r *room) now() roomLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Now()
	if r.level == roomEnough && at.Sub(r.looked) < reserveLook {
		return r.level
	}
	before := r.level
	r.looked, r.level = at, roomEnough
	free, total, err := r.free(r.dir)
	if err == nil {
		r.level = levelOf(free, total)
	}
	switch {
	case before == roomEnough && r.level != roomEnough:
		r.log.Error("the disk is almost full: new mail and other changes are refused, deletions are not", "directory", r.dir, "free", free)
	case before != roomEnough && r.level == roomEnough:
		r.log.Info("there is room on the disk again", "directory", r.dir, "free", free)
	}
	return r.level
}

func levelOf(free, total int64) roomLevel {
	switch reserve := min(reserveMost, total/reserveShare); {
	case free < reserve/2:
		return roomLeast
	case free < reserve:
		return roomShort
	}
	return roomEnough
}

// errReserve is why the store refuses what the disk might still take.
var errReserve = fmt.Errorf("%w: what is left is for deletions", ErrFull)

// forMessage tells whether a new message may be written.
func (r *room) forMessage() error {
	if r.now() != roomEnough {
		return errReserve
	}
	return nil
}

// forTx tells whether a transaction may be committed.
func (r *room) forTx(tx *Tx) error {
	if tx.writes == 0 || tx.frees {
		return nil
	}
	switch level := r.now(); {
	case level == roomLeast, level == roomShort && tx.bytes > reserveSmall:
		return errReserve
	}
	return nil
}

// MayUseReserve lets the transaction write where the disk has room for deletions only. It is for
// what deletions depend on, such as the queue of jobs. A transaction that deletes records or
// messages needs no permission.
func (tx *Tx) MayUseReserve() { tx.frees = true }
