package store

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// A block is a stretch of the words of a run in their order, each with the numbers of the messages
// that have it:
//
//	shared·16+rest 1 | rest of the word | numbers
//	0 | shared uvarint | rest uvarint | rest of the word | numbers
//
// where shared is how many bytes the word has in common with the one before it in the block, and
// rest how many it has besides. The first form is for those below 15. Numbers are, whichever is
// shortest:
//
//	size·4 uvarint | the first number, then the distance less one to each next,
//	as uvarints, which are size bytes together
//	size·4+1 uvarint | a bitmap of size bytes, lowest bit first, without zeros at its end
//	size·4+2 uvarint | k 1 | bits, lowest first: of the first number and the distances less one,
//	as many zeros as it has 2ᵏ, a one and the k bits below; zeros fill the last byte (Rice's code)

const (
	maxTextWord  = 255
	textBlock    = 1960 // bytes after which a block is full, so that two rows go on a page
	textRunDocs  = 30_000
	textRunBytes = 8 << 20 // of blocks; a run that has reached this or half of textRunDocs stays as it is
)

// A textSet is a set of message numbers of a run.
type textSet []uint64

func newTextSet(docs int) textSet { return make(textSet, (docs+63)/64) }

func (s textSet) add(n uint32) { s[n/64] |= 1 << (n % 64) }

func (s textSet) intersect(o textSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

// fill adds all numbers below docs.
func (s textSet) fill(docs int) {
	for i := range s {
		s[i] = ^uint64(0)
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

// The forms of numbers.
const (
	formGaps = iota
	formBitmap
	formRice
)

// maxRice bounds the k of Rice's code.
const maxRice = 15

// appendNumbers appends the numbers, which rise.
func appendNumbers(b []byte, numbers []uint16) []byte {
	size, last := 0, -1
	for _, n := range numbers {
		size += uvarintSize(uint64(int(n) - last - 1))
		last = int(n)
	}
	k, rice := riceSize(numbers)
	bitmap := last/8 + 1
	switch {
	case rice < min(size, bitmap):
		b = binary.AppendUvarint(b, uint64(rice)*4+formRice)
		return appendRice(b, numbers, k)
	case bitmap < size:
		return appendBitmap(binary.AppendUvarint(b, uint64(bitmap)*4+formBitmap), numbers)
	}
	b = binary.AppendUvarint(b, uint64(size)*4+formGaps)
	last = -1
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(int(n)-last-1))
		last = int(n)
	}
	return b
}

func appendBitmap(b []byte, numbers []uint16) []byte {
	at := len(b)
	b = append(b, make([]byte, numbers[len(numbers)-1]/8+1)...)
	for _, n := range numbers {
		b[at+int(n/8)] |= 1 << (n % 8)
	}
	return b
}

// riceSize gives the k that suits the distances, and how many bytes the numbers take with it.
func riceSize(numbers []uint16) (k, size int) {
	mean := (int(numbers[len(numbers)-1]) + 1) / len(numbers)
	k = min(max(bits.Len(uint(mean*7/10))-1, 0), maxRice)
	all, last := 0, -1
	for _, n := range numbers {
		all += (int(n)-last-1)>>k + 1 + k
		last = int(n)
	}
	return k, 1 + (all+7)/8
}

func appendRice(b []byte, numbers []uint16, k int) []byte {
	b = append(b, byte(k))
	var acc uint64
	held, last := 0, -1
	for _, n := range numbers {
		gap := int(n) - last - 1
		last = int(n)
		for zeros := gap >> k; zeros > 0; {
			some := min(zeros, 32)
			held, zeros = held+some, zeros-some
			b, acc, held = flushBits(b, acc, held)
		}
		acc |= (1 | uint64(gap&(1<<k-1))<<1) << held
		b, acc, held = flushBits(b, acc, held+1+k)
	}
	if held > 0 {
		b = append(b, byte(acc))
	}
	return b
}

// flushBits writes the whole bytes of what is held.
func flushBits(b []byte, acc uint64, held int) ([]byte, uint64, int) {
	for ; held >= 8; held -= 8 {
		b = append(b, byte(acc))
		acc >>= 8
	}
	return b, acc, held
}

func uvarintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// A textEntry is one word of a block; its word counts until the next one is read.
type textEntry struct {
	word []byte
	data []byte // numbers
	form byte
}

// addTo adds the numbers to the set, all of them below docs.
func (e *textEntry) addTo(s textSet, docs int) error {
	if e.form != formBitmap {
		return e.each(docs, s.add)
	}
	if n := len(e.data); n*8-bits.LeadingZeros8(e.data[n-1]) > docs {
		return ErrTextDamaged
	}
	for i, b := range e.data {
		s[i/8] |= uint64(b) << (i % 8 * 8)
	}
	return nil
}

// each calls fn with each number, rising, all of them below docs.
func (e *textEntry) each(docs int, fn func(n uint32)) error {
	switch e.form {
	case formBitmap:
		return e.eachBit(docs, fn)
	case formRice:
		return e.eachRice(docs, fn)
	}
	last := -1
	for rest := e.data; len(rest) > 0; {
		gap, used := uint64(rest[0]), 1
		if gap >= 0x80 {
			gap, used = binary.Uvarint(rest)
		}
		if used <= 0 || gap >= uint64(docs-last-1) {
			return ErrTextDamaged
		}
		last += 1 + int(gap)
		fn(uint32(last))
		rest = rest[used:]
	}
	return nil
}

func (e *textEntry) eachBit(docs int, fn func(n uint32)) error {
	for i, b := range e.data {
		for ; b != 0; b &= b - 1 {
			n := i*8 + bits.TrailingZeros8(b)
			if n >= docs {
				return ErrTextDamaged
			}
			fn(uint32(n))
		}
	}
	return nil
}

func (e *textEntry) eachRice(docs int, fn func(n uint32)) error {
	k := int(e.data[0])
	if k > maxRice {
		return ErrTextDamaged
	}
	r, last := bitReader{rest: e.data[1:]}, -1
	for {
		high, more := r.zeros(docs)
		if !more {
			return nil
		}
		low, whole := r.bits(k)
		gap := high<<k | low
		if !whole || high > docs || gap >= docs-last-1 {
			return ErrTextDamaged
		}
		last += 1 + gap
		fn(uint32(last))
	}
}

// A bitReader reads bits, the lowest of each byte first.
type bitReader struct {
	rest []byte
	acc  uint64
	held int
}

func (r *bitReader) fill() {
	for ; r.held <= 56 && len(r.rest) > 0; r.held += 8 {
		r.acc |= uint64(r.rest[0]) << r.held
		r.rest = r.rest[1:]
	}
}

// zeros counts zeros up to a one, which it takes too, or until they are more than most; false where
// no one is left.
func (r *bitReader) zeros(most int) (n int, more bool) {
	for n <= most {
		r.fill()
		if r.acc != 0 {
			z := bits.TrailingZeros64(r.acc)
			r.acc >>= z + 1
			r.held -= z + 1
			return n + z, true
		}
		if n += r.held; len(r.rest) == 0 {
			return n, false
		}
		r.held = 0
	}
	return n, true
}

func (r *bitReader) bits(k int) (v int, ok bool) {
	if r.fill(); r.held < k {
		return 0, false
	}
	v = int(r.acc & (1<<k - 1))
	r.acc >>= k
	r.held -= k
	return v, true
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
	shared, size, rest, ok := cutWordHead(r.rest)
	if !ok || shared > uint64(len(r.entry.word)) || size == 0 || shared+size > maxTextWord || size > uint64(len(rest)) {
		return false, ErrTextDamaged
	}
	word := append(r.entry.word[:shared], rest[:size]...)
	rest = rest[size:]
	form, used := binary.Uvarint(rest)
	if used <= 0 || form/4 == 0 || form/4 > uint64(len(rest)-used) || form%4 > formRice {
		return false, ErrTextDamaged
	}
	end := used + int(form/4)
	r.entry = textEntry{word, rest[used:end], byte(form % 4)}
	r.rest = rest[end:]
	return true, nil
}

// packedWord bounds what is packed into the one byte before a word.
const packedWord = 15

// cutWordHead cuts off how many bytes of a word are shared with the one before, and how many
// follow.
func cutWordHead(b []byte) (shared, size uint64, rest []byte, ok bool) {
	if b[0] != 0 {
		return uint64(b[0] >> 4), uint64(b[0] & 15), b[1:], true
	}
	shared, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return 0, 0, nil, false
	}
	rest = b[1+n:]
	size, n = binary.Uvarint(rest)
	if n <= 0 || size > maxTextWord || shared > maxTextWord {
		return 0, 0, nil, false
	}
	return shared, size, rest[n:], true
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
	if size := len(word) - shared; shared < packedWord && size < packedWord {
		b = append(b, byte(shared<<4|size))
	} else {
		b = binary.AppendUvarint(append(b, 0), uint64(shared))
		b = binary.AppendUvarint(b, uint64(size))
	}
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
