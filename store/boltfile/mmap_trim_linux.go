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
	maxMapped        = 96 << 20 // bytes of mapped files that count as this process's memory
	mmapTrimInterval = 200 * time.Millisecond
)

// An MmapTrim keeps database pages that were read once, for example by an import, from counting as
// this process's memory for ever. After Trim they stay in the kernel's page cache until the memory
// is needed.
type MmapTrim struct{ checkedAt time.Time }

// Trim releases the mapped pages if there are more than maxMapped bytes of them. Call it between
// two commits.
func (t *MmapTrim) Trim(db *bolt.DB) {
	now := time.Now()
	if now.Sub(t.checkedAt) < mmapTrimInterval {
		return
	}
	t.checkedAt = now
	if mappedBytes() < maxMapped {
		return
	}
	_ = db.View(func(tx *bolt.Tx) error { // the transaction keeps the mapping in place
		at, size := db.Info().Data, tx.Size()
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, at, uintptr(size), unix.MADV_DONTNEED) // an error only means that the memory is not released
		return nil
	})
}

// mappedBytes returns how many bytes of mapped files are in this process's memory, or 0 if the
// kernel does not say (proc(5), statm).
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
