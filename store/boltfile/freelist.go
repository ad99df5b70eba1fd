package boltfile

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
)

// maxReadAhead is the largest number of bytes of a database that are read ahead of a walk over its
// trees.
const maxReadAhead = 8 << 30

// LacksFreelist reports whether a database file lacks the list of its free pages. After a crash the
// list is missing if it was long. bbolt walks over all trees when it opens such a file.
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
	return found && !meta.HasFreelist(), err
}

// CheckAndWriteFreelist runs CheckPages on a file that is open for reading and writing, and that
// nobody else writes to. If it finds no damage and the list of free pages is missing, it writes the
// list, like a commit that changes nothing else. err is the reason if that failed; bbolt will then
// walk over all trees when it opens the file.
func CheckAndWriteFreelist(f *os.File) (damage []error, err error) {
	meta, found, err := NewestMeta(f)
	if err != nil {
		return []error{err}, nil
	}
	if !found {
		return []error{ErrNoMeta}, nil
	}
	info, err := f.Stat()
	if err != nil {
		return []error{err}, nil
	}
	readAhead(f, min(maxReadAhead, meta.Size))
	c := checkPages(f, info.Size(), meta)
	if len(c.errs) > 0 || meta.HasFreelist() {
		return c.errs, nil
	}
	return nil, c.writeFreelist(f, meta)
}

// A freelistFile has the methods that writeFreelist needs.
type freelistFile interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// writeFreelist writes the list of free pages: all pages that are not used. Then it writes a copy
// of the newest meta page over the older one, with the place of the list. Free pages may still
// belong to the trees of the older meta page, so the newest meta page must be on disk before they
// are overwritten.
func (c *pageCheck) writeFreelist(f freelistFile, meta Meta) error {
	page := make([]byte, c.pageSize)
	if _, err := f.ReadAt(page, int64(meta.page)*c.pageSize); err != nil {
		return err
	}
	m := page[pageHead:]
	if now, ok := parseMeta(m); !ok || now.txid != meta.txid {
		return errors.New("read the newest meta page again: it has changed")
	}
	var free []uint64
	for id := range c.pages {
		if !c.used.has(id) {
			free = append(free, id)
		}
	}
	size := uint64(pageHead + 8*(len(free)+1))
	own := (size + uint64(c.pageSize) - 1) / uint64(c.pageSize)
	at := c.pages // page of the list: at the end of the file, unless there are enough adjacent free pages
	for i := 0; i+int(own) <= len(free); i++ {
		if free[i+int(own)-1] == free[i]+own-1 {
			at = free[i]
			free = append(free[:i], free[i+int(own):]...)
			break
		}
	}
	order := binary.NativeEndian
	list := make([]byte, own*uint64(c.pageSize))
	order.PutUint64(list, at)
	order.PutUint16(list[8:], freelistPage)
	order.PutUint16(list[10:], uint16(min(len(free), 0xffff)))
	order.PutUint32(list[12:], uint32(own-1))
	ids := list[pageHead:pageHead]
	if len(free) >= 0xffff {
		ids = order.AppendUint64(ids, uint64(len(free)))
	}
	for _, id := range free {
		ids = order.AppendUint64(ids, id)
	}
	txid := meta.txid + 1
	order.PutUint64(page, txid%2)
	order.PutUint64(m[32:], at)
	order.PutUint64(m[40:], max(c.pages, at+own))
	order.PutUint64(m[48:], txid)
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaSize-8])
	order.PutUint64(m[metaSize-8:], sum.Sum64())
	for _, step := range []func() error{
		f.Sync,
		func() error { _, err := f.WriteAt(list, int64(at)*c.pageSize); return err },
		f.Sync,
		func() error { _, err := f.WriteAt(page, int64(txid%2)*c.pageSize); return err },
		f.Sync,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
