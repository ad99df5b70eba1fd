// Package boltfile knows three things of a bbolt database that bbolt does not offer: whether the
// file has the list of its free pages, whether its pages are sound, and how to give back the memory
// of its mapped pages. It does not know what the database holds.
package boltfile

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
)

// readAheadMost bounds how much of a database is read ahead of a walk.
const readAheadMost = 8 << 30

// LacksFreelist tells whether a database file is without the list of its free pages, as after a
// crash with a long list. bbolt will then read every page, in the order of the trees. So
// LacksFreelist reads the whole file first, in its own order, which is many times faster.
func LacksFreelist(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	meta, found, err := NewestMeta(f)
	if err != nil || !found || meta.HasFreelist() {
		return false, err
	}
	buf := make([]byte, 1<<20)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(f, min(readAheadMost, meta.Size))}, buf)
	return true, err
}

// noFreelist stands in a meta page for a list that was not written.
const noFreelist = ^uint64(0)

// A Meta is what we read of a meta page of bbolt's file format, version 2.
type Meta struct {
	Size     int64 // of the pages in use
	pageSize int64
	root     uint64 // page of the bucket of buckets
	freelist uint64 // page
	txid     uint64
}

// HasFreelist tells whether the list of free pages is in the file.
func (m Meta) HasFreelist() bool { return m.freelist != noFreelist }

// NewestMeta reads the meta page that bbolt will go by; found is false in a file that has none,
// such as an empty one.
func NewestMeta(f io.ReaderAt) (newest Meta, found bool, err error) {
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
func parseMeta(b []byte) (Meta, bool) {
	const magic, version, size = 0xED0CDAED, 2, 64
	order := binary.NativeEndian
	if len(b) < size || order.Uint32(b) != magic || order.Uint32(b[4:]) != version {
		return Meta{}, false
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:size-8])
	pageSize, pages := order.Uint32(b[8:]), order.Uint64(b[40:])
	if sum.Sum64() != order.Uint64(b[size-8:]) || pages < 2 || pages > 1<<40 || pageSize < 512 || pageSize > 1<<20 {
		return Meta{}, false
	}
	return Meta{
		Size: int64(pages) * int64(pageSize), pageSize: int64(pageSize), root: order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]), txid: order.Uint64(b[48:]),
	}, true
}
