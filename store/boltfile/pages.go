package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// CheckPages verifies what bbolt relies on: that each page of its trees is in its place and used
// once, that the keys are in order, that a page has the first key that the page above it says, and
// that the list of free pages has all other pages. With damaged pages, bbolt would read out of
// bounds, not return, or damage other pages when it writes. The file must not change meanwhile.
// Each error names the bucket of a damaged page. Values are not checked, except those of buckets.
func CheckPages(f io.ReaderAt, size int64) []error {
	meta, found, err := NewestMeta(f)
	if err != nil {
		return []error{err}
	}
	if !found {
		return []error{ErrNoMeta}
	}
	return checkPages(f, size, meta).errs
}

// checkPages does the work of CheckPages, for a known newest meta page. If it finds no damage and
// the file has no list of free pages, the pages that are not in c.used are free.
func checkPages(f io.ReaderAt, size int64, meta Meta) *pageCheck {
	c := newPageCheck(f, meta.Size, meta.pageSize)
	if meta.Size > size {
		c.add("the file has %d bytes, but its pages need %d", size, meta.Size)
		return c
	}
	for _, at := range []int64{0, meta.pageSize} {
		var page [80]byte
		if _, err := f.ReadAt(page[:], at); err != nil {
			c.add("meta page: %w", err)
		} else if _, ok := parseMeta(page[16:]); !ok {
			c.add("meta page %d is damaged; the last commit may be missing", at/meta.pageSize)
		}
	}
	c.used.add(0)
	c.used.add(1)
	c.walk(meta.root, checkWorkers)
	if meta.HasFreelist() && len(c.errs) == 0 { // otherwise the same damage would be reported twice
		if page := c.readPage(meta.freelist, freelistText); page != nil {
			c.checkFreelist(page, meta.freelist, func(id uint64) bool { return !c.used.has(id) })
		}
		for n := range c.pages {
			if !c.used.has(n) && len(c.errs) == 0 {
				c.add("page %d is neither used nor in %s", n, freelistText)
			}
		}
	}
	return c
}

// CheckBucket makes the checks of CheckPages on a part of one bucket's tree, and on the tree of all
// buckets. A process may have the file open. root and size describe a snapshot of that process: the
// root page of the tree of all buckets, and the size in bytes. The snapshot must stay open until
// CheckBucket returns. The check begins at the key `from` and reads about `most` pages. next is the
// key to continue at, in this or a later snapshot; nil means that the bucket is done. CheckBucket
// uses one goroutine.
func CheckBucket(f io.ReaderAt, root uint64, bucket string, size, pageSize int64, from []byte, most int) (next []byte, wrong []error) {
	// No set of used pages is needed: if a page is used twice, its keys are out of order.
	c := &pageCheck{f: f, pageSize: pageSize, pages: uint64(size / pageSize), only: &bucket, start: from, left: most}
	c.walk(root, 1)
	if c.next != nil && bytes.Compare(c.next, from) <= 0 {
		c.add("the tree of %s has a cycle", treeName(bucket))
	}
	return c.next, c.errs
}

const (
	pageHead     = 16
	elementSize  = 16
	branchPage   = 1
	leafPage     = 2
	freelistPage = 16
	freelistText = "the list of free pages"
)

// A pageSet is a set of pages that several goroutines may add to.
type pageSet []uint32

func newPageSet(pages uint64) pageSet { return make(pageSet, (pages+31)/32) }

// add adds a page and reports whether it is new in the set; a nil set accepts every page.
func (s pageSet) add(id uint64) bool {
	if s == nil {
		return true
	}
	bit := uint32(1) << (id % 32)
	return atomic.OrUint32(&s[id/32], bit)&bit == 0
}

func (s pageSet) has(id uint64) bool { return s[id/32]&(1<<(id%32)) != 0 }

// A pageCheck is one walk over the trees of a database, or the part of it that one goroutine does.
type pageCheck struct {
	f        io.ReaderAt
	pageSize int64
	pages    uint64
	used     pageSet
	errs     []error

	only     *string // the bucket to check in parts; nil: check all buckets whole
	start    []byte  // where the part begins
	left     int     // number of pages that may still be read
	next     []byte  // where the next part begins; nil: the tree is finished
	split    bool    // do not walk below the first page of each bucket's tree, but add those pages to branches
	branches []branch
}

// A branch is a page to walk down from. Its fields id, bucket, from and to are the arguments of
// checkTree.
type branch struct {
	id       uint64
	bucket   string
	from, to []byte
	errs     []error
}

func newPageCheck(f io.ReaderAt, size, pageSize int64) *pageCheck {
	pages := uint64(size / pageSize)
	return &pageCheck{f: f, pageSize: pageSize, pages: pages, used: newPageSet(pages)}
}

// walk verifies all trees with the given number of goroutines.
func (c *pageCheck) walk(root uint64, workers int) {
	c.split = workers > 1
	c.checkTree(root, "", nil, nil)
	c.split = false
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, len(c.branches)) {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(c.branches)); n = next.Add(1) - 1 {
				b := &c.branches[n]
				part := &pageCheck{f: c.f, pageSize: c.pageSize, pages: c.pages, used: c.used}
				part.checkTree(b.id, b.bucket, b.from, b.to)
				b.errs = part.errs
			}
		})
	}
	all.Wait()
	for _, b := range c.branches {
		for _, err := range b.errs {
			c.add("%w", err)
		}
	}
}

// checkWorkers is the number of goroutines that verify a database that is not in use. A disk reads
// faster with several requests at a time.
const checkWorkers = 8

// maxErrs is the largest number of errors that a check keeps.
const maxErrs = 100

func (c *pageCheck) add(format string, args ...any) {
	if len(c.errs) < maxErrs {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

// treeName returns the name of a bucket's tree for error texts.
func treeName(bucket string) string {
	switch bucket {
	case "":
		return "the list of buckets"
	case freelistText:
		return bucket
	case lostBucket:
		return "no known bucket"
	}
	return fmt.Sprintf("bucket %q", bucket)
}

// pageBuffers has buffers for pages, so that repeated checks of a database in use need no new ones.
var pageBuffers = sync.Pool{New: func() any { return new([]byte) }}

// readPage returns a page with its overflow pages, and marks them as used. It returns nil if the
// page is damaged. The caller may put a page that it no longer uses into pageBuffers.
func (c *pageCheck) readPage(id uint64, bucket string) []byte {
	wrong := func(text string) []byte {
		c.add("page %d of %s %s", id, treeName(bucket), text)
		return nil
	}
	if id >= c.pages {
		return wrong("is beyond the end of the database")
	}
	page := *pageBuffers.Get().(*[]byte)
	if int64(cap(page)) < c.pageSize {
		page = make([]byte, c.pageSize)
	}
	page = page[:c.pageSize]
	if _, err := c.f.ReadAt(page, int64(id)*c.pageSize); err != nil {
		return wrong(err.Error())
	}
	order := binary.NativeEndian
	more := uint64(order.Uint32(page[12:]))
	if order.Uint64(page) != id || id+more >= c.pages {
		return wrong("is damaged: its head is wrong")
	}
	for n := id; n <= id+more; n++ {
		if !c.used.add(n) {
			return wrong("is used twice")
		}
	}
	if more > 0 {
		page = append(page, make([]byte, int64(more)*c.pageSize)...)
		if _, err := c.f.ReadAt(page[c.pageSize:], int64(id+1)*c.pageSize); err != nil {
			return wrong(err.Error())
		}
	}
	return page
}

// checkTree walks down from the page id. Its first key must be `from` if that is not nil, and its
// keys must be less than `to` if that is not nil. The bucket "" is the tree of all buckets.
func (c *pageCheck) checkTree(id uint64, bucket string, from, to []byte) {
	if page := c.readPage(id, bucket); page != nil {
		if c.checkElements(page, id, bucket, from, to); !c.split { // with split, c.branches still refer to the page
			page = page[:c.pageSize]
			pageBuffers.Put(&page)
		}
	}
}

// checkElements verifies the elements of a page and the pages below it.
func (c *pageCheck) checkElements(page []byte, id uint64, bucket string, from, to []byte) {
	order := binary.NativeEndian
	flags, count := order.Uint16(page[8:]), int(order.Uint16(page[10:]))
	wrong := func(text string) { c.add("page %d of %s is damaged: %s", id, treeName(bucket), text) }
	at := pageHead + elementSize*count // bbolt writes keys and values one after another, without gaps
	if flags != branchPage && flags != leafPage || at > len(page) {
		wrong("its head is wrong")
		return
	}
	if from != nil && count == 0 {
		wrong("it is empty")
		return
	}
	above := from
	type element struct {
		key, value []byte
		child      uint64
		isBucket   bool
	}
	var parents []element // elements to walk down from
	if flags == branchPage {
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
			wrong(fmt.Sprintf("row %d has an unknown kind", i))
			return
		}
		at = end
		if bytes.Compare(e.key, from) < 0 || i > 0 && bytes.Equal(e.key, from) || to != nil && bytes.Compare(e.key, to) >= 0 {
			wrong(fmt.Sprintf("row %d is out of order", i))
			return
		}
		if i == 0 && above != nil && !bytes.Equal(e.key, above) {
			wrong("the page above it has another first key for it")
			return
		}
		from = e.key
		if flags == branchPage || e.isBucket && (c.only == nil || string(e.key) == *c.only) {
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
			if c.only != nil && bucket != "" {
				if end != nil && bytes.Compare(end, c.start) <= 0 {
					continue // an earlier call has checked it
				}
				if c.left--; c.left < 0 && c.next == nil {
					c.next = bytes.Clone(e.key)
				}
				if c.next != nil {
					return
				}
			}
			if c.split && bucket != "" {
				c.branches = append(c.branches, branch{id: e.child, bucket: bucket, from: e.key, to: end})
				continue
			}
			c.checkTree(e.child, bucket, e.key, end)
		case len(e.value) < 16:
			wrong(fmt.Sprintf("the row of bucket %q is too short", e.key))
		default:
			if root := order.Uint64(e.value); root != 0 {
				c.checkTree(root, string(e.key), nil, nil)
			} else if inline := e.value[16:]; len(inline) < pageHead || order.Uint16(inline[8:]) != leafPage {
				wrong(fmt.Sprintf("the rows of bucket %q, which are inline, are damaged", e.key))
			} else {
				c.checkElements(inline, id, string(e.key), nil, nil)
			}
		}
	}
}

// checkFreelist verifies the list of free pages, which must be in order, and marks each of them as
// used. mayBeFree reports whether a page may be in the list.
func (c *pageCheck) checkFreelist(page []byte, id uint64, mayBeFree func(id uint64) bool) {
	order := binary.NativeEndian
	count, ids := uint64(order.Uint16(page[10:])), page[pageHead:]
	if count == 0xffff {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if order.Uint16(page[8:]) != freelistPage || count > uint64(len(ids)/8) {
		c.add("page %d, %s, is damaged", id, freelistText)
		return
	}
	last := uint64(0)
	for i := range count {
		free := order.Uint64(ids[8*i:])
		if free <= last || free >= c.pages || !mayBeFree(free) {
			c.add("page %d, %s, is damaged: it names page %d", id, freelistText, free)
			return
		}
		c.used.add(free)
		last = free
	}
}
