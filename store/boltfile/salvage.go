package boltfile

import (
	"encoding/binary"
	"errors"
	"io"
)

// ErrNoMeta is returned for a file with two damaged meta pages: nothing says where its trees begin.
var ErrNoMeta = errors.New("both meta pages are damaged")

// Rows receives what Salvage finds.
type Rows struct {
	// Bucket is called for each bucket before its rows.
	Bucket func(name string, sequence uint64)
	// Row reports whether key and value are a row that it accepts. Rows on pages that no tree leads
	// to have the bucket "". If the length of a row is damaged, Row is called with several guesses
	// until it accepts one. It must not keep key or value.
	Row func(bucket string, key, value []byte) bool
}

// Salvage passes all rows that can be read in a database with damaged pages to `to`. A damaged page
// is read element by element, and its header is compared with its elements. Pages that only a
// damaged page led to are found if the list of free pages says that they are in use. Salvage
// verifies no row: the callbacks must do so. It returns the damage that it found.
func Salvage(f io.ReaderAt, size int64, to Rows) ([]error, error) {
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
	s.tree(meta.root, "")
	if len(s.errs) > 0 && s.free != nil {
		for id := range s.pages {
			if !s.used.has(id) && !s.free.has(id) {
				if page := s.read(id); page != nil {
					s.elements(page, id, lostPage)
				}
			}
		}
	}
	return s.errs, s.failed
}

// lostPage is used as the bucket of pages that no tree leads to.
const lostPage = "\x00lost"

// maxOverflow is the most overflow pages that a page header is trusted with.
const maxOverflow = 4096

// A salvage is one walk over possibly damaged trees.
type salvage struct {
	pageCheck
	to     Rows
	free   pageSet // nil: not known
	failed error
}

// readFreelist records which pages are free, if the list is not damaged.
func (s *salvage) readFreelist(id uint64) {
	if id >= s.pages {
		return
	}
	list := pageCheck{f: s.f, pageSize: s.pageSize, pages: s.pages, used: newPageSet(s.pages)}
	page := list.read(id, freePages)
	if page == nil {
		return
	}
	used := list.used
	list.used = newPageSet(s.pages)
	list.freelist(page, id, func(uint64) bool { return true })
	if len(list.errs) > 0 {
		return
	}
	s.free = list.used
	for n, its := range used {
		s.used[n] |= its
	}
}

// read returns a page with its overflow pages, and marks them as used; nil if the page is used,
// free or outside of the file.
func (s *salvage) read(id uint64) []byte {
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
		said := uint64(binary.NativeEndian.Uint32(page[12:]))
		if more == 0 && said > 0 && said <= maxOverflow && id+said < s.pages {
			more = said
			continue
		}
		kind, count := shape(page)
		list, sound := layout(page, kind, count)
		if last := len(list) - 1; sound && last >= 0 { // how many overflow pages its elements need
			more = min(more, uint64(list[last].end)/uint64(s.pageSize))
		}
		for n := id; n <= id+more; n++ {
			s.used.add(n)
		}
		return page
	}
}

// tree reads the page and everything below it.
func (s *salvage) tree(id uint64, bucket string) {
	page := s.read(id)
	if page == nil {
		if s.failed == nil {
			s.add("page %d of %s is missing, or was reached before", id, treeName(bucket))
		}
		return
	}
	s.elements(page, id, bucket)
}

// elements reads the elements of a page.
func (s *salvage) elements(page []byte, id uint64, bucket string) {
	kind, count := shape(page)
	list, sound := layout(page, kind, count)
	order := binary.NativeEndian
	intact := sound && order.Uint64(page) == id && order.Uint16(page[8:]) == kind && int(order.Uint16(page[10:])) == count
	if kind == branchPage {
		if !intact && bucket != lostPage {
			s.add("page %d of %s is damaged; the pages below it were searched", id, treeName(bucket))
		}
		if bucket == lostPage { // its children are found on their own, as it was
			return
		}
		for _, e := range list {
			s.tree(e.child, bucket)
		}
		return
	}
	lost := 0
	for i, e := range list {
		name, value := e.cut(page, e.keySize, e.valueSize)
		switch {
		case bucket == "" || bucket == lostPage && e.kind == 1:
			if len(value) < 16 {
				s.add("page %d of %s: the root of a bucket cannot be read", id, treeName(bucket))
				continue
			}
			s.bucket(string(name), value, id)
		case !s.row(page, list, i, bucket):
			lost++
		}
	}
	switch {
	case bucket == lostPage:
	case lost > 0:
		s.add("page %d of %s: %d rows are damaged", id, treeName(bucket), lost)
	case !intact:
		s.add("page %d of %s is damaged; each of its rows was found", id, treeName(bucket))
	}
}

// bucket reads the tree of a bucket, or its inline rows.
func (s *salvage) bucket(name string, value []byte, id uint64) {
	order := binary.NativeEndian
	s.to.Bucket(name, order.Uint64(value[8:]))
	if root := order.Uint64(value); root != 0 {
		s.tree(root, name)
		return
	}
	if inline := value[16:]; len(inline) >= pageHead {
		kind, count := shape(inline)
		list, sound := layout(inline, kind, count)
		lost := 0
		for i := range list {
			if kind == branchPage || !s.row(inline, list, i, name) {
				lost++
			}
		}
		if lost > 0 {
			s.add("page %d: %d rows of %s are damaged", id, lost, treeName(name))
		} else if !sound {
			s.add("page %d: %s is damaged; each of its rows was found", id, treeName(name))
		}
	}
}

// row offers a row with the sizes in its element, then with sizes that follow from the neighbouring
// elements, until one is accepted.
func (s *salvage) row(page []byte, list []placed, i int, bucket string) bool {
	if bucket == lostPage {
		bucket = ""
	}
	e := list[i]
	take := func(e placed, keySize, valueSize int) bool {
		key, value := e.cut(page, keySize, valueSize)
		return len(key) > 0 && s.to.Row(bucket, key, value)
	}
	if take(e, e.keySize, e.valueSize) {
		return true
	}
	if i > 0 && list[i-1].end != e.at {
		moved := e
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

// A placed is an element of a page, with the place of its key and the sizes of key and value.
type placed struct {
	at, keySize, valueSize, end int
	child                       uint64
	kind                        uint32
}

// cut returns key and value, or nil if they are not within the page.
func (e placed) cut(page []byte, keySize, valueSize int) (key, value []byte) {
	if keySize < 0 || valueSize < 0 || e.at < pageHead || e.at+keySize+valueSize > len(page) {
		return nil, nil
	}
	return page[e.at : e.at+keySize], page[e.at+keySize : e.at+keySize+valueSize]
}

// shape returns the kind of a page and its number of elements. It uses the page header, or, if the
// elements do not fit that, what the elements say.
func shape(page []byte) (kind uint16, count int) {
	order := binary.NativeEndian
	saidKind, saidCount := order.Uint16(page[8:]), int(order.Uint16(page[10:]))
	kinds := []uint16{leafPage, branchPage}
	if saidKind == branchPage {
		kinds = []uint16{branchPage, leafPage}
	}
	for _, kind := range kinds {
		counts := []int{saidCount}
		if at := pageHead; len(page) >= at+elementSize { // the first key follows the last element
			first := order.Uint32(page[at:])
			if kind == leafPage {
				first = order.Uint32(page[at+4:])
			}
			if n := int(first / elementSize); n > 0 && n < 1<<16 {
				counts = append(counts, n)
				if saidCount == 0 {
					counts = []int{n, 0}
				}
			}
		}
		for _, count := range counts {
			if _, sound := layout(page, kind, count); sound {
				return kind, count
			}
		}
	}
	return kinds[0], min(saidCount, (len(page)-pageHead)/elementSize)
}

// layout returns the elements of a page; sound reports whether each key follows the value before it
// without a gap.
func layout(page []byte, kind uint16, count int) (list []placed, sound bool) {
	order := binary.NativeEndian
	want := pageHead + elementSize*count
	if want > len(page) {
		return nil, false
	}
	sound = true
	list = make([]placed, count)
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
		sound = sound && e.at == want && e.end <= len(page) && e.kind <= 1
		want = e.end
	}
	return list, sound
}
