package postings

import (
	"encoding/binary"
	"math/bits"
)

// A Set is a bit set of the numbers that messages have in one run of the text index.
type Set []uint64

// NewSet returns an empty set for numbers below docs.
func NewSet(docs int) Set { return make(Set, (docs+63)/64) }

// Add adds a number.
func (s Set) Add(n uint32) { s[n/64] |= 1 << (n % 64) }

// Intersect removes the numbers that are not in o. Both sets must be of one run.
func (s Set) Intersect(o Set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// Subtract removes the numbers that are in o. Both sets must be of one run.
func (s Set) Subtract(o Set) {
	for i := range s {
		s[i] &^= o[i]
	}
}

// Union adds the numbers of o. Both sets must be of one run.
func (s Set) Union(o Set) {
	for i := range s {
		s[i] |= o[i]
	}
}

// Has reports whether the set has a number.
func (s Set) Has(n uint32) bool { return s[n/64]&(1<<(n%64)) != 0 }

// Fill adds all numbers below docs.
func (s Set) Fill(docs int) {
	for i := range s {
		s[i] = ^uint64(0)
	}
	if over := len(s)*64 - docs; over > 0 {
		s[len(s)-1] >>= over
	}
}

// Empty reports whether the set is empty.
func (s Set) Empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

// From returns the lowest number that is at least n; false if there is none.
func (s Set) From(n uint32) (uint32, bool) {
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

// Encodings of numbers, see the package comment.
const (
	formGaps = iota
	formBitmap
	formRice
)

// maxRiceParameter is the largest k of Rice's code.
const maxRiceParameter = 15

// appendNumbers appends ascending numbers in the shortest encoding.
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

// riceSize returns a suitable k for the distances, and the size in bytes of the numbers with it.
func riceSize(numbers []uint16) (k, size int) {
	mean := (int(numbers[len(numbers)-1]) + 1) / len(numbers)
	k = min(max(bits.Len(uint(mean*7/10))-1, 0), maxRiceParameter)
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

// flushBits appends the complete bytes of acc to b. acc has `held` bits.
func flushBits(b []byte, acc uint64, held int) ([]byte, uint64, int) {
	for ; held >= 8; held -= 8 {
		b = append(b, byte(acc))
		acc >>= 8
	}
	return b, acc, held
}

func uvarintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// An Entry is one word of a block with the numbers of the messages that have it.
type Entry struct {
	Word []byte // valid until the next word is read

	data []byte // numbers
	form byte
}

// Size is the size in bytes of the encoded numbers, an estimate of how frequent the word is.
func (e *Entry) Size() int { return len(e.data) }

// AddTo adds the numbers to the set. It returns ErrDamaged if one is not below docs.
func (e *Entry) AddTo(s Set, docs int) error {
	if e.form != formBitmap {
		return e.Each(docs, s.Add)
	}
	if n := len(e.data); n*8-bits.LeadingZeros8(e.data[n-1]) > docs {
		return ErrDamaged
	}
	for i, b := range e.data {
		s[i/8] |= uint64(b) << (i % 8 * 8)
	}
	return nil
}

// Each calls fn with each number in ascending order. It returns ErrDamaged if one is not below
// docs.
func (e *Entry) Each(docs int, fn func(n uint32)) error {
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
			return ErrDamaged
		}
		last += 1 + int(gap)
		fn(uint32(last))
		rest = rest[used:]
	}
	return nil
}

func (e *Entry) eachBit(docs int, fn func(n uint32)) error {
	for i, b := range e.data {
		for ; b != 0; b &= b - 1 {
			n := i*8 + bits.TrailingZeros8(b)
			if n >= docs {
				return ErrDamaged
			}
			fn(uint32(n))
		}
	}
	return nil
}

func (e *Entry) eachRice(docs int, fn func(n uint32)) error {
	k := int(e.data[0])
	if k > maxRiceParameter {
		return ErrDamaged
	}
	r, last := bitReader{rest: e.data[1:]}, -1
	for {
		high, more := r.countZeros(docs)
		if !more {
			return nil
		}
		low, whole := r.bits(k)
		gap := high<<k | low
		if !whole || high > docs || gap >= docs-last-1 {
			return ErrDamaged
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

// countZeros counts zeros up to the next one bit, which it consumes, or until there are more than
// `most`. It returns false if no one bit is left.
func (r *bitReader) countZeros(most int) (n int, more bool) {
	for n <= most {
		r.fill()
		if r.acc != 0 {
			z := bits.TrailingZeros64(r.acc)
			r.acc >>= z + 1
			r.held -= z + 1
			return n + z, true
		}
		n += r.held
		if len(r.rest) == 0 {
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
