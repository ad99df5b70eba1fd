package boltfile

import (
	"encoding/binary"
	"errors"
	"io"
)

// ErrNoMeta is returned for a file of which both meta pages are damaged: nothing says where its
// trees begin.
var ErrNoMeta = errors.New("both meta pages are damaged")

// Rows is who takes what Salvage finds.
type Rows struct {
	// Bucket is told of each bucket before its rows.
	Bucket func(name string, sequence uint64)
	// Row tells whether key and value are a row that it knows. What is on pages to which no tree
	// leads comes with the bucket "". Where the length of a row is damaged, it is given more than
	// one guess, until it takes one. It must keep neither key nor value.
	Row func(bucket string, key, value []byte) bool
}

// Salvage gives all rows that can be read of a database whose pages may be damaged. A page that is
// damaged is read element by element; what its head says is compared with its elements. Pages to
// which a damaged one no longer leads are found where the list of free pages tells that they are in
// use. Salvage believes no row: whoever takes them verifies them. It gives what is damaged.
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

// lostPage stands for the bucket of pages to which no tree leads.
const lostPage = "\x00lost"

// runMost is how many pages one may run on into, where that is all that its head says.
const runMost = 4096

// A salvage is one walk over trees that may be damaged.
type salvage struct {
	pageCheck
	to     Rows
	free   pageSet // nil: not known
	failed error
}

// readFreelist notes which pages are free, if the list is sound.
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

// read gives the page at a place with those that it runs on into, and marks them as used; nil where
// there is none to be read.
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
		if more == 0 && said > 0 && said <= runMost && id+said < s.pages {
			more = said
			continue
		}
		kind, count := shape(page)
		list, sound := layout(page, kind, count)
		if last := len(list) - 1; sound && last >= 0 { // how far it does run on
			more = min(more, uint64(list[last].end)/uint64(s.pageSize))
		}
		for n := id; n <= id+more; n++ {
			s.used.add(n)
		}
		return page
	}
}

// tree reads all that a page leads to.
func (s *salvage) tree(id uint64, bucket string) {
	page := s.read(id)
	if page == nil {
		if s.failed == nil {
			s.add("page %d of %s is not there, or has another place", id, what(bucket))
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
			s.add("page %d of %s is damaged; what it leads to was looked for", id, what(bucket))
		}
		if bucket == lostPage { // its children are found as it was
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
				s.add("page %d of %s: a bucket that cannot be read", id, what(bucket))
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
		s.add("page %d of %s: %d rows are damaged", id, what(bucket), lost)
	case !intact:
		s.add("page %d of %s is damaged; each of its rows was found", id, what(bucket))
	}
}

// bucket reads the tree of a bucket, or the rows that stand in it.
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
			s.add("page %d: %d rows of %s are damaged", id, lost, what(name))
		} else if !sound {
			s.add("page %d: %s is damaged; each of its rows was found", id, what(name))
		}
	}
}

// row offers a row as its element says, and then as its neighbours say where it is.
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

// A placed is an element of a page: where its key begins, and how long key and value are.
type placed struct {
	at, keySize, valueSize, end int
	child                       uint64
	kind                        uint32
}

// cut gives key and value; nothing where they are not on the page.
func (e placed) cut(page []byte, keySize, valueSize int) (key, value []byte) {
	if keySize < 0 || valueSize < 0 || e.at < pageHead || e.at+keySize+valueSize > len(page) {
		return nil, nil
	}
	return page[e.at : e.at+keySize], page[e.at+keySize : e.at+keySize+valueSize]
}

// shape gives the kind of a page and how many elements it has: what its head says, or, if its
// elements are then not where they should be, what they say.
func shape(page []byte) (kind uint16, count int) {
	order := binary.NativeEndian
	saidKind, saidCount := order.Uint16(page[8:]), int(order.Uint16(page[10:]))
	kinds := []uint16{leafPage, branchPage}
	if saidKind == branchPage {
		kinds = []uint16{branchPage, leafPage}
	}
	for _, kind := range kinds {
		counts := []int{saidCount}
		if at := pageHead; len(page) >= at+elementSize { // the first key stands behind the last element
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

// layout gives the elements of a page; sound tells whether each stands behind the one before it.
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
