package store

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// A block is a stretch of the words of a run in their order, each with the numbers of the messages that have it:
//
//	shared uvarint | rest uvarint | rest of the word | numbers
//
// where shared is how many bytes the word has in common with the one before it in the block, and numbers are
//
//	size·2 uvarint | the first number, then the distance less one to each next, uvarints of size bytes together
//	size·2+1 uvarint | a bitmap of size bytes, lowest bit first, without zeros at its end
//
// whichever is shorter.

const (
	maxTextWord  = 255
	textBlock    = 960 // bytes after which a block is full, so that four rows go on a page
	textRunDocs  = 30_000
	textRunBytes = 8 << 20 // of blocks; a run that has reached this or half of textRunDocs stays as it is
)

// A textSet is a set of message numbers of a run.
type textSet []uint64

func newTextSet(docs int) textSet     { return make(textSet, (docs+63)/64) }
func (s textSet) add(n uint32)        { s[n/64] |= 1 << (n % 64) }
func (s textSet) has(n uint32) bool   { return s[n/64]>>(n%64)&1 == 1 }
func (s textSet) intersect(o textSet) { each(s, o, func(a, b uint64) uint64 { return a & b }) }
func (s textSet) fill(docs int)       { s.set(docs, ^uint64(0)) }
func each(s, o textSet, f func(a, b uint64) uint64) {
	for i := range s {
		s[i] = f(s[i], o[i])
	}
}

func (s textSet) set(docs int, word uint64) {
	for i := range s {
		s[i] = word
	}
	if over := len(s)*64 - docs; over > 0 {
		s[len(s)-1] >>= over
	}
}

func (s textSet) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

// from gives the lowest number that is not below n; false if there is none.
func (s textSet) from(n uint32) (uint32, bool) {
	for i := int(n / 64); i < len(s); i++ {
		w := s[i]
		if i == int(n/64) {
			w &= ^uint64(0) << (n % 64)
		}
		if w != 0 {
			return uint32(i*64 + bits.TrailingZeros64(w)), true
		}
	}
	return 0, false
}

// appendNumbers appends the numbers, which rise.
func appendNumbers(b []byte, numbers []uint16) []byte {
	size, last := 0, -1
	for _, n := range numbers {
		size += uvarintSize(uint64(int(n) - last - 1))
		last = int(n)
	}
	if bitmap := last/8 + 1; bitmap < size {
		b = binary.AppendUvarint(b, uint64(bitmap)*2+1)
		at := len(b)
		b = append(b, make([]byte, bitmap)...)
		for _, n := range numbers {
			b[at+int(n/8)] |= 1 << (n % 8)
		}
		return b
	}
	b = binary.AppendUvarint(b, uint64(size)*2)
	last = -1
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(int(n)-last-1))
		last = int(n)
	}
	return b
}

func uvarintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// A textEntry is one word of a block; its word counts until the next one is read.
type textEntry struct {
	word   []byte
	data   []byte // numbers
	bitmap bool
}

// addTo adds the numbers to the set, all of them below docs.
func (e *textEntry) addTo(s textSet, docs int) error {
	return e.each(docs, func(n uint32) { s.add(n) })
}

// each calls fn with each number, rising, all of them below docs.
func (e *textEntry) each(docs int, fn func(n uint32)) error {
	if e.bitmap {
		for i, b := range e.data {
			for ; b != 0; b &= b - 1 {
				n := i*8 + bits.TrailingZeros8(b)
				if n >= docs {
					return errDamagedRow
				}
				fn(uint32(n))
			}
		}
		return nil
	}
	last := -1
	for rest := e.data; len(rest) > 0; {
		gap, used := uint64(rest[0]), 1
		if gap >= 0x80 {
			gap, used = binary.Uvarint(rest)
		}
		if used <= 0 || gap >= uint64(docs-last-1) {
			return errDamagedRow
		}
		last += 1 + int(gap)
		fn(uint32(last))
		rest = rest[used:]
	}
	return nil
}

// A textBlockReader reads the words of a block one after the other.
type textBlockReader struct {
	rest  []byte
	entry textEntry
}

// next reads the next word; false at the end.
func (r *textBlockReader) next() (bool, error) {
	if len(r.rest) == 0 {
		return false, nil
	}
	shared, used := binary.Uvarint(r.rest)
	if used <= 0 || shared > uint64(len(r.entry.word)) {
		return false, errDamagedRow
	}
	tail, rest, err := cutField(r.rest[used:])
	if err != nil || int(shared)+len(tail) > maxTextWord || int(shared)+len(tail) == 0 {
		return false, errDamagedRow
	}
	form, used := binary.Uvarint(rest)
	if used <= 0 || form/2 == 0 || form/2 > uint64(len(rest)-used) {
		return false, errDamagedRow
	}
	word := append(r.entry.word[:shared], tail...)
	r.entry = textEntry{word, rest[used : used+int(form/2)], form&1 == 1}
	r.rest = rest[used+int(form/2):]
	return true, nil
}

// A textBlockWriter divides words, which come in their order, into blocks.
type textBlockWriter struct {
	block []byte
	last  []byte
	size  int64
	rows  []textBlockRow
}

type textBlockRow struct{ last, block []byte }

func (w *textBlockWriter) add(word []byte, numbers []uint16) {
	shared := 0
	if len(w.block) > 0 {
		shared = sharedPrefix(w.last, word)
	}
	at := len(w.block)
	w.block = appendTextWord(w.block, word, shared, numbers)
	if at > 0 && len(w.block) > textBlock {
		first := bytes.Clone(w.block[:at])
		w.push(first)
		w.block = appendTextWord(w.block[:0], word, 0, numbers)
	}
	w.last = append(w.last[:0], word...)
}

func appendTextWord(b, word []byte, shared int, numbers []uint16) []byte {
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(word)-shared))
	b = append(b, word[shared:]...)
	return appendNumbers(b, numbers)
}

func (w *textBlockWriter) push(block []byte) {
	w.rows = append(w.rows, textBlockRow{bytes.Clone(w.last), block})
	w.size += int64(len(block))
}

// finish gives the rows.
func (w *textBlockWriter) finish() []textBlockRow {
	if len(w.block) > 0 {
		w.push(slices.Clone(w.block))
	}
	w.block = nil
	return w.rows
}

func sharedPrefix(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
