// Package boltfile does what bbolt itself does not offer: it verifies the pages of a database,
// writes a missing list of free pages, reads the rows of a damaged database, and releases memory
// that bbolt holds. It does not know what the database contains.
package boltfile

import (
	"encoding/binary"
	"hash/fnv"
	"io"
)

// noFreelist is the page number that a meta page has if the list of free pages was not written.
const noFreelist = ^uint64(0)

const metaSize = 64

// A Meta holds fields of a meta page in bbolt's file format, version 2.
type Meta struct {
	Size     int64  // size in bytes up to the last page in use
	page     uint64 // number of the meta page
	pageSize int64
	root     uint64 // root page of the tree of all buckets
	freelist uint64 // page of the list of free pages
	txid     uint64
}

// HasFreelist reports whether the list of free pages is in the file.
func (m Meta) HasFreelist() bool { return m.freelist != noFreelist }

// NewestMeta returns the meta page that bbolt will use. found is false if the file has no valid
// meta page, for example if it is empty. The page size may be that of another machine: the first
// meta page says where the second is. If the first is damaged, NewestMeta looks for the second at
// every possible place.
func NewestMeta(f io.ReaderAt) (newest Meta, found bool, err error) {
	read := func(id uint64, at int64) error {
		var page [pageHead + metaSize]byte
		if _, err := f.ReadAt(page[:], at); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if m, ok := parseMeta(page[pageHead:]); ok && int64(id)*m.pageSize == at && (!found || m.txid > newest.txid) {
			newest, found = m, true
			newest.page = id
		}
		return nil
	}
	if err := read(0, 0); err != nil {
		return newest, found, err
	}
	if found {
		err = read(1, newest.pageSize)
		return newest, true, err
	}
	for size := int64(512); size <= 1<<20 && !found && err == nil; size *= 2 {
		err = read(1, size)
	}
	return newest, found, err
}

// parseMeta parses the contents of a meta page, which bbolt writes in the machine's byte order:
// magic 4 | version 4 | page size 4 | flags 4 | root 16 | freelist 8 | pages 8 | txid 8 | FNV-1a 8.
func parseMeta(b []byte) (Meta, bool) {
	const magic, version, size = 0xED0CDAED, 2, metaSize
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
