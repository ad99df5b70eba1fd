package boltfile

import (
	"encoding/binary"
	"errors"
	"io"
)

// ErrNoMeta is returned for a file with two damaged meta pages: its trees cannot be found.
var ErrNoMeta = errors.New("both meta pages of the database are damaged")

// A RowVisitor has the functions that Salvage calls with the buckets and rows that it finds.
type RowVisitor struct {
	// Bucket is called for each bucket before its rows.
	Bucket func(name string, sequence uint64)
	// Row is called with each row, and reports whether it accepts key and value as a row. The
	// bucket is "" for rows on pages that no tree leads to. If the length of a row is damaged, Row
	// is called with several guesses until it accepts one. It must not keep key or value.
	Row func(bucket string, key, value []byte) bool
}

// Salvage passes all rows that can be read in a database with damaged pages to the functions in
// `to`. It reads a damaged page element by element, and compares its header with its elements. It
// also finds pages that only a damaged page led to: they are not in the list of free pages, though
// no tree leads to them. Salvage verifies no row; Row must do that. It returns the damage that it
// found.
func Salvage(f io.ReaderAt, size int64, to RowVisitor) ([]error, error) {
	meta, found, err := NewestMeta(f)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrNoMeta
	}
	s := &salvage{pageCheck: *newPageCheck(f, min(meta.Size, size), meta.pageSize), to: to}
	s.used.add(0)
	s.used.add(1)
	if meta.HasFreelist() {
		s.readFreelist(meta.freelist)
	}
	s.salvageTree(meta.root, "")
	if len(s.errs) > 0 && s.free != nil {
		for id := range s.pages {
			if !s.used.has(id) && !s.free.has(id) {
				if page := s.readPage(id); page != nil {
					s.salvageElements(page, id, lostBucket)
				}
			}
		}
	}
	return s.errs, s.failed
}

// lostBucket stands for the bucket of pages that no tree leads to.
const lostBucket = "\x00lost"

// maxOverflow is the largest number of overflow pages in a page header that is not taken for
// damage.
const maxOverflow = 4096

// A salvage is one walk over trees that may be damaged.
type salvage struct {
	pageCheck
	to     RowVisitor
	free   pageSet // free pages; nil: not known
	failed error   // error of reading the file; ends the walk
}

// readFreelist sets free to the free pages, unless their list is damaged.
func (s *salvage) readFreelist(id uint64) {
	if id >= s.pages {
		return
	}
	list := pageCheck{f: s.f, pageSize: s.pageSize, pages: s.pages, used: newPageSet(s.pages)}
	page := list.readPage(id, freelistText)
	if page == nil {
		return
	}
	used := list.used
	list.used = newPageSet(s.pages)
	list.checkFreelist(page, id, func(uint64) bool { return true })
	if len(list.errs) > 0 {
		return
	}
	s.free = list.used
	for n, its := range used {
		s.used[n] |= its
	}
}

// readPage returns a page with its overflow pages, and marks them as used. It returns nil if the
// page was read before, is free or is outside of the file.
func (s *salvage) readPage(id uint64) []byte {
	if s.failed != nil || id >= s.pages || s.used.has(id) || s.free != nil && s.free.has(id) {
		return nil
	}
	more := uint64(0)
	for {
		page := make([]byte, int64(more+1)*s.pageSize)
		if _, err := s.f.ReadAt(page, int64(id)*s.pageSize); err != nil {
			s.failed = err
			return nil
		}
		overflow := uint64(binary.NativeEndian.Uint32(page[12:]))
		if more == 0 && overflow > 0 && overflow <= maxOverflow && id+overflow < s.pages {
			more = overflow
			continue
		}
		kind, count := pageShape(page)
		list, contiguous := readElements(page, kind, count)
		if last := len(list) - 1; contiguous && last >= 0 { // the elements show how many overflow pages there are
			more = min(more, uint64(list[last].end)/uint64(s.pageSize))
		}
		for n := id; n <= id+more; n++ {
			s.used.add(n)
		}
		return page
	}
}

// salvageTree passes on the rows of the page id and of all pages below it.
func (s *salvage) salvageTree(id uint64, bucket string) {
	page := s.readPage(id)
	if page == nil {
		if s.failed == nil {
			s.add("page %d of %s is missing, or was reached before", id, treeName(bucket))
		}
		return
	}
	s.salvageElements(page, id, bucket)
}

// salvageElements passes on the rows of a page, and those below it.
func (s *salvage) salvageElements(page []byte, id uint64, bucket string) {
	kind, count := pageShape(page)
	list, contiguous := readElements(page, kind, count)
	order := binary.NativeEndian
	intact := contiguous && order.Uint64(page) == id && order.Uint16(page[8:]) == kind && int(order.Uint16(page[10:])) == count
	if kind == branchPage {
		if !intact && bucket != lostBucket {
			s.add("page %d of %s is damaged; the pages below it were searched", id, treeName(bucket))
		}
		if bucket == lostBucket { // the pages below it are found in the same way as this page
			return
		}
		for _, e := range list {
			s.salvageTree(e.child, bucket)
		}
		return
	}
	lost := 0
	for i, e := range list {
		name, value := e.cut(page, e.keySize, e.valueSize)
		switch {
		case bucket == "" || bucket == lostBucket && e.kind == 1:
			if len(value) < 16 {
				s.add("page %d of %s: the root of a bucket cannot be read", id, treeName(bucket))
				continue
			}
			s.salvageBucket(string(name), value, id)
		case !s.passRow(page, list, i, bucket):
			lost++
		}
	}
	switch {
	case bucket == lostBucket:
	case lost > 0:
		s.add("page %d of %s: %d rows are damaged", id, treeName(bucket), lost)
	case !intact:
		s.add("page %d of %s is damaged; each of its rows was found", id, treeName(bucket))
	}
}

// salvageBucket passes on the rows of a bucket, which are in a tree or inline in value.
func (s *salvage) salvageBucket(name string, value []byte, id uint64) {
	order := binary.NativeEndian
	s.to.Bucket(name, order.Uint64(value[8:]))
	if root := order.Uint64(value); root != 0 {
		s.salvageTree(root, name)
		return
	}
	if inline := value[16:]; len(inline) >= pageHead {
		kind, count := pageShape(inline)
		list, contiguous := readElements(inline, kind, count)
		lost := 0
		for i := range list {
			if kind == branchPage || !s.passRow(inline, list, i, name) {
				lost++
			}
		}
		if lost > 0 {
			s.add("page %d: %d rows of %s are damaged", id, lost, treeName(name))
		} else if !contiguous {
			s.add("page %d: %s is damaged; each of its rows was found", id, treeName(name))
		}
	}
}

// passRow passes a row to RowVisitor.Row until that accepts it: first with the sizes in its
// element, then with sizes that follow from the neighbouring elements. It reports whether the row
// was accepted.
func (s *salvage) passRow(page []byte, list []element, i int, bucket string) bool {
	if bucket == lostBucket {
		bucket = ""
	}
	e := list[i]
	take := func(e element, keySize, valueSize int) bool {
		key, value := e.cut(page, keySize, valueSize)
		return len(key) > 0 && s.to.Row(bucket, key, value)
	}
	if take(e, e.keySize, e.valueSize) {
		return true
	}
	if i > 0 && list[i-1].end != e.at {
		moved := e // the row, if it begins where the one before it ends
		moved.at = list[i-1].end
		if take(moved, e.keySize, e.valueSize) {
			return true
		}
	}
	if i+1 < len(list) {
		if all := list[i+1].at - e.at; all > 0 && all != e.keySize+e.valueSize {
			return take(e, e.keySize, all-e.keySize) || take(e, all-e.valueSize, e.valueSize)
		}
	}
	return false
}

// An element is a row or a child of a page: where its key begins, the sizes of key and value, and
// where the value ends.
type element struct {
	at, keySize, valueSize, end int
	child                       uint64
	kind                        uint32
}

// cut returns key and value, or nil if these are not within the page.
func (e element) cut(page []byte, keySize, valueSize int) (key, value []byte) {
	if keySize < 0 || valueSize < 0 || e.at < pageHead || e.at+keySize+valueSize > len(page) {
		return nil, nil
	}
	return page[e.at : e.at+keySize], page[e.at+keySize : e.at+keySize+valueSize]
}

// pageShape returns the kind of a page and its number of elements. They come from the page header
// or, if the elements do not match it, from the elements.
func pageShape(page []byte) (kind uint16, count int) {
	order := binary.NativeEndian
	headKind, headCount := order.Uint16(page[8:]), int(order.Uint16(page[10:]))
	kinds := []uint16{leafPage, branchPage}
	if headKind == branchPage {
		kinds = []uint16{branchPage, leafPage}
	}
	for _, kind := range kinds {
		counts := []int{headCount}
		if at := pageHead; len(page) >= at+elementSize { // the first key follows the last element
			first := order.Uint32(page[at:])
			if kind == leafPage {
				first = order.Uint32(page[at+4:])
			}
			if n := int(first / elementSize); n > 0 && n < 1<<16 {
				counts = append(counts, n)
				if headCount == 0 {
					counts = []int{n, 0}
				}
			}
		}
		for _, count := range counts {
			if _, contiguous := readElements(page, kind, count); contiguous {
				return kind, count
			}
		}
	}
	return kinds[0], min(headCount, (len(page)-pageHead)/elementSize)
}

// readElements returns the elements of a page. contiguous reports whether each key follows the
// value before it without a gap.
func readElements(page []byte, kind uint16, count int) (list []element, contiguous bool) {
	order := binary.NativeEndian
	want := pageHead + elementSize*count
	if want > len(page) {
		return nil, false
	}
	contiguous = true
	list = make([]element, count)
	for i := range list {
		start := pageHead + elementSize*i
		b, e := page[start:], &list[i]
		if kind == branchPage {
			e.at, e.keySize, e.child = int(order.Uint32(b)), int(order.Uint32(b[4:])), order.Uint64(b[8:])
		} else {
			e.kind, e.at, e.keySize, e.valueSize = order.Uint32(b), int(order.Uint32(b[4:])), int(order.Uint32(b[8:])), int(order.Uint32(b[12:]))
		}
		e.at += start
		e.end = e.at + e.keySize + e.valueSize
		contiguous = contiguous && e.at == want && e.end <= len(page) && e.kind <= 1
		want = e.end
	}
	return list, contiguous
}
