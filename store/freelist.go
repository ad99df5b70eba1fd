package store

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"

	bolt "go.etcd.io/bbolt"
)

// bbolt keeps the list of its free pages in memory. Without a copy in the file it walks the whole
// database at Open, and again after each commit that the system refused. A copy costs 8 bytes a
// free page at each commit, so it is written while the list is short, and always by Close. bbolt
// looks at NoFreelistSync in Commit alone, which the committer calls: so it may be switched from
// one commit to the next. A commit that leaves the copy out says so in its meta page.

// freelistMost is how many free pages a list that is written at each commit may have: 8 KiB, two
// pages.
const freelistMost = 1000

// keepFreelist decides, before a commit, whether the list of free pages goes with it.
func (s *Store) keepFreelist() {
	stats := s.db.Stats()
	s.db.NoFreelistSync = stats.FreePageN+stats.PendingPageN > freelistMost
}

// closeFreelist writes the list of free pages if the last commit has not.
func (s *Store) closeFreelist() {
	if !s.freelistMissing || s.failure.get() != nil {
		return
	}
	s.db.NoFreelistSync = false
	if err := s.db.Update(func(*bolt.Tx) error { return nil }); err != nil {
		s.log.Warn("the list of free pages was not written; the next start takes longer", "error", err)
	}
}

// readAheadMost bounds how much of a database is read ahead of a walk.
const readAheadMost = 8 << 30

// lacksFreelist tells whether a database file is without the list of its free pages, which is after
// a crash with a long list. bbolt will then read every page, in the order of the trees: all of it
// is read before, in the order of the file, which disks give many times faster.
func lacksFreelist(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	meta, found, err := newestMeta(f)
	if err != nil || !found || meta.freelist != noFreelist {
		return false, err
	}
	buf := make([]byte, 1<<20)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(f, min(readAheadMost, meta.size))}, buf)
	return true, err
}

// noFreelist stands in a meta page for a list that was not written.
const noFreelist = ^uint64(0)

// A boltMeta is what we read of a meta page of bbolt's file format, version 2.
type boltMeta struct {
	freelist uint64 // page
	size     int64  // of the pages in use
	txid     uint64
}

// newestMeta reads the meta page that bbolt will go by; found is false in a file that has none,
// such as an empty one.
func newestMeta(f io.ReaderAt) (newest boltMeta, found bool, err error) {
	for _, at := range []int64{0, int64(os.Getpagesize())} {
		var page [80]byte
		if _, err := f.ReadAt(page[:], at); err == io.EOF {
			return newest, found, nil
		} else if err != nil {
			return newest, found, err
		}
		if m, ok := parseMeta(page[16:]); ok && (!found || m.txid > newest.txid) {
			newest, found = m, true
		}
	}
	return newest, found, nil
}

// parseMeta reads a meta: magic 4 | version 4 | page size 4 | flags 4 | root 16 | freelist 8 |
// pages 8 | txid 8 | FNV-1a 8, in the order of bytes of the machine, as bbolt writes them.
func parseMeta(b []byte) (boltMeta, bool) {
	const magic, version, size = 0xED0CDAED, 2, 64
	order := binary.NativeEndian
	if len(b) < size || order.Uint32(b) != magic || order.Uint32(b[4:]) != version {
		return boltMeta{}, false
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:size-8])
	pageSize, pages := order.Uint32(b[8:]), order.Uint64(b[40:])
	if sum.Sum64() != order.Uint64(b[size-8:]) || pages > 1<<40 {
		return boltMeta{}, false
	}
	return boltMeta{freelist: order.Uint64(b[32:]), size: int64(pages) * int64(pageSize), txid: order.Uint64(b[48:])}, true
}
