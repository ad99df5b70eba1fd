package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// CheckPages verifies what bbolt takes for granted: that the pages of its trees are where they
// should be, each used once, with their keys in order, and that the list of free pages names the
// others. bbolt would read beyond a damaged page or not return. The file must not change meanwhile.
// It says of each damaged page which bucket it is of; values are not looked into, except those of
// buckets.
func CheckPages(f io.ReaderAt, size int64) []error {
	meta, found, err := NewestMeta(f)
	if err != nil {
		return []error{err}
	}
	if !found {
		return []error{fmt.Errorf("both meta pages are damaged")}
	}
	c := &pageCheck{f: f, pageSize: meta.pageSize, pages: uint64(meta.Size / meta.pageSize)}
	if meta.Size > size {
		return []error{fmt.Errorf("the file has %d bytes, its pages take %d", size, meta.Size)}
	}
	for _, at := range []int64{0, meta.pageSize} {
		var page [80]byte
		if _, err := f.ReadAt(page[:], at); err != nil {
			c.add("meta page: %w", err)
		} else if _, ok := parseMeta(page[16:]); !ok {
			c.add("meta page %d is damaged; the last commit may be missing", at/meta.pageSize)
		}
	}
	c.used = make([]bool, c.pages)
	c.used[0], c.used[1] = true, true
	c.tree(meta.root, "", nil, nil)
	if meta.HasFreelist() && len(c.errs) == 0 { // else it would be told of once more
		if page := c.read(meta.freelist, freePages); page != nil {
			c.freelist(page, meta.freelist, func(id uint64) bool { return !c.used[id] })
		}
		for n, used := range c.used {
			if !used && len(c.errs) == 0 {
				c.add("page %d is neither used nor in %s", n, freePages)
			}
		}
	}
	return c.errs
}

// CheckTrees is CheckPages of the trees alone, in a file that a process has open: root is where
// they begin in a snapshot, which must stay open meanwhile, and size what its pages take.
func CheckTrees(f io.ReaderAt, root uint64, size, pageSize int64) []error {
	c := &pageCheck{f: f, pageSize: pageSize, pages: uint64(size / pageSize)}
	c.used = make([]bool, c.pages)
	c.tree(root, "", nil, nil)
	return c.errs
}

const (
	pageHead    = 16
	elementSize = 16
	branchPage  = 1
	leafPage    = 2
	listPage    = 16
	freePages   = "the list of free pages"
)

// A pageCheck is one walk over the trees.
type pageCheck struct {
	f        io.ReaderAt
	pageSize int64
	pages    uint64
	used     []bool
	errs     []error
	spare    [][]byte // for pages to be read into
}

func (c *pageCheck) add(format string, args ...any) {
	if len(c.errs) < 100 {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

// what names a tree.
func what(bucket string) string {
	switch bucket {
	case "":
		return "the list of buckets"
	case freePages:
		return bucket
	case lostPage:
		return "no known bucket"
	}
	return fmt.Sprintf("bucket %q", bucket)
}

// read gives a page with those that it runs on into, and marks them as used. It returns nil where
// the page is damaged. A page that is no longer used may be given to spare.
func (c *pageCheck) read(id uint64, bucket string) []byte {
	wrong := func(text string) []byte {
		c.add("page %d of %s %s", id, what(bucket), text)
		return nil
	}
	if id >= c.pages {
		return wrong("is beyond the end of the database")
	}
	var page []byte
	if n := len(c.spare); n > 0 {
		page, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		page = make([]byte, c.pageSize)
	}
	if _, err := c.f.ReadAt(page, int64(id)*c.pageSize); err != nil {
		return wrong(err.Error())
	}
	order := binary.NativeEndian
	more := uint64(order.Uint32(page[12:]))
	if order.Uint64(page) != id || id+more >= c.pages {
		return wrong("is damaged: its head is wrong")
	}
	for n := id; n <= id+more; n++ {
		if c.used[n] {
			return wrong("is used twice")
		}
		c.used[n] = true
	}
	if more > 0 {
		page = append(page, make([]byte, int64(more)*c.pageSize)...)
		if _, err := c.f.ReadAt(page[c.pageSize:], int64(id+1)*c.pageSize); err != nil {
			return wrong(err.Error())
		}
	}
	return page
}

// tree walks down from a page. Its keys are from `from` on and before `to`, where there is one. The
// bucket without a name is that of all buckets.
func (c *pageCheck) tree(id uint64, bucket string, from, to []byte) {
	if page := c.read(id, bucket); page != nil {
		c.elements(page, id, bucket, from, to)
		c.spare = append(c.spare, page[:c.pageSize])
	}
}

func (c *pageCheck) elements(page []byte, id uint64, bucket string, from, to []byte) {
	order := binary.NativeEndian
	flags, count := order.Uint16(page[8:]), int(order.Uint16(page[10:]))
	wrong := func(text string) { c.add("page %d of %s is damaged: %s", id, what(bucket), text) }
	at := pageHead + elementSize*count // bbolt writes keys and values behind each other, without gaps
	if flags != branchPage && flags != leafPage || at > len(page) {
		wrong("its head is wrong")
		return
	}
	type element struct {
		key, value []byte
		child      uint64
		isBucket   bool
	}
	var parents []element // those with something below them
	if flags == branchPage || bucket == "" {
		parents = make([]element, 0, count)
	}
	for i := range count {
		start := pageHead + elementSize*i
		b := page[start:]
		var kind, pos, keySize, valueSize uint32
		var child uint64
		if flags == branchPage {
			pos, keySize, child = order.Uint32(b), order.Uint32(b[4:]), order.Uint64(b[8:])
		} else {
			kind, pos, keySize, valueSize = order.Uint32(b), order.Uint32(b[4:]), order.Uint32(b[8:]), order.Uint32(b[12:])
		}
		if uint64(start)+uint64(pos) != uint64(at) || uint64(at)+uint64(keySize)+uint64(valueSize) > uint64(len(page)) {
			wrong(fmt.Sprintf("row %d is not where it should be", i))
			return
		}
		keyEnd := at + int(keySize)
		end := keyEnd + int(valueSize)
		e := element{key: page[at:keyEnd], value: page[keyEnd:end], child: child, isBucket: kind == 1}
		if kind > 1 || flags == leafPage && e.isBucket != (bucket == "") {
			wrong(fmt.Sprintf("row %d is of no known kind", i))
			return
		}
		at = end
		if bytes.Compare(e.key, from) < 0 || i > 0 && bytes.Equal(e.key, from) || to != nil && bytes.Compare(e.key, to) >= 0 {
			wrong(fmt.Sprintf("row %d is out of order", i))
			return
		}
		from = e.key
		if parents != nil {
			parents = append(parents, e)
		}
	}
	for i, e := range parents {
		switch {
		case flags == branchPage:
			end := to
			if i+1 < count {
				end = parents[i+1].key
			}
			c.tree(e.child, bucket, e.key, end)
		case e.isBucket && len(e.value) < 16:
			wrong(fmt.Sprintf("row %d is too short for a bucket", i))
		case e.isBucket:
			if root := order.Uint64(e.value); root != 0 {
				c.tree(root, string(e.key), nil, nil)
			} else if inline := e.value[16:]; len(inline) < pageHead || order.Uint16(inline[8:]) != leafPage {
				wrong(fmt.Sprintf("the rows of bucket %q, which stand in it, are damaged", e.key))
			} else {
				c.elements(inline, id, string(e.key), nil, nil)
			}
		}
	}
}

// freelist reads the list of free pages, which are in order, and marks each as used that may be
// free.
func (c *pageCheck) freelist(page []byte, id uint64, mayBeFree func(id uint64) bool) {
	order := binary.NativeEndian
	count, ids := uint64(order.Uint16(page[10:])), page[pageHead:]
	if count == 0xffff {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if order.Uint16(page[8:]) != listPage || count > uint64(len(ids)/8) {
		c.add("page %d, %s, is damaged", id, freePages)
		return
	}
	last := uint64(0)
	for i := range count {
		free := order.Uint64(ids[8*i:])
		if free <= last || free >= c.pages || !mayBeFree(free) {
			c.add("page %d, %s, is damaged: it names page %d", id, freePages, free)
			return
		}
		c.used[free], last = true, free
	}
}
