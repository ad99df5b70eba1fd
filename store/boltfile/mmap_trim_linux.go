package boltfile

import (
	"bytes"
	"os"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

const (
	mappedMost       = 96 << 20 // bytes of mapped files that count as this process's memory
	mmapTrimInterval = 200 * time.Millisecond
)

// An MmapTrim keeps the pages of the database that were touched once, as by an import, from
// counting as this process's memory for ever. The kernel still has them cached for as long as
// nobody else needs the room.
type MmapTrim struct{ looked time.Time }

// Trim gives the pages back if there are many. Call it between two commits.
func (t *MmapTrim) Trim(db *bolt.DB) {
	now := time.Now()
	if now.Sub(t.looked) < mmapTrimInterval {
		return
	}
	t.looked = now
	if mappedBytes() < mappedMost {
		return
	}
	_ = db.View(func(tx *bolt.Tx) error { // keeps the map where it is
		at, size := db.Info().Data, tx.Size()
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, at, uintptr(size), unix.MADV_DONTNEED) // without it nothing is lost but memory
		return nil
	})
}

// mappedBytes is how much of mapped files is in memory for this process; 0 if the kernel does not
// tell (proc(5), statm).
func mappedBytes() int {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 3 {
		return 0
	}
	pages, err := strconv.Atoi(string(fields[2]))
	if err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}
