// Package postings encodes the blocks of the text index: words with the numbers of the messages
// that contain them. It also merges several such lists into one. It does not know where blocks are
// stored, what a message is, or what a word means.
//
// A run numbers its messages, newest first, and contains their words in sorted order. A block is a
// range of these words, each with the numbers of the messages that contain it.
//
//	shared·16+rest 1 | rest of the word | numbers
//	0 | shared uvarint | rest uvarint | rest of the word | numbers
//
// where shared is how many bytes the word has in common with the word before it in the block, and
// rest is how many bytes follow. The first form is for values of both below 15. The numbers have
// the shortest of three forms:
//
//	size·4 uvarint | the first number, then the distance less one to each next,
//	as uvarints, which are size bytes together
//	size·4+1 uvarint | a bitmap of size bytes, lowest bit first, without zeros at its end
//	size·4+2 uvarint | k 1 | bits, lowest first (Rice's code): for the first number and for each
//	distance less one, as many zeros as it has 2ᵏ, a one and its lowest k bits; zeros fill the
//	last byte
package postings

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// MaxWord is the largest size of a word in bytes.
const MaxWord = 255

// blockSize is the size in bytes at which a block is full; two blocks fit on a page of the
// database.
const blockSize = 1960

// ErrDamaged is returned for bytes that this package cannot have written.
var ErrDamaged = errors.New("damaged row of the text index")

// A BlockReader reads the words of a block one after the other. The zero value has no words.
type BlockReader struct {
	rest  []byte
	entry Entry
}

// Reset starts reading a block, which must not be changed meanwhile.
func (r *BlockReader) Reset(block []byte) { r.rest, r.entry = block, Entry{Word: r.entry.Word[:0]} }

// Entry returns the word that Next has read.
func (r *BlockReader) Entry() *Entry { return &r.entry }

// Next reads the next word. It returns false at the end. The error is ErrDamaged.
func (r *BlockReader) Next() (bool, error) {
	if len(r.rest) == 0 {
		return false, nil
	}
	shared, size, rest, ok := cutWordHead(r.rest)
	if !ok || shared > uint64(len(r.entry.Word)) || size == 0 || shared+size > MaxWord || size > uint64(len(rest)) {
		return false, ErrDamaged
	}
	word := append(r.entry.Word[:shared], rest[:size]...)
	rest = rest[size:]
	form, used := binary.Uvarint(rest)
	if used <= 0 || form/4 == 0 || form/4 > uint64(len(rest)-used) || form%4 > formRice {
		return false, ErrDamaged
	}
	end := used + int(form/4)
	r.entry = Entry{word, rest[used:end], byte(form % 4)}
	r.rest = rest[end:]
	return true, nil
}

// maxPackedSize bounds the two sizes that are packed into the one byte before a word.
const maxPackedSize = 15

// cutWordHead decodes the head of a word: how many bytes it shares with the word before, and how
// many bytes follow. rest is what comes after the head.
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
	if n <= 0 || size > MaxWord || shared > MaxWord {
		return 0, 0, nil, false
	}
	return shared, size, rest[n:], true
}

// A Block is an encoded range of words.
type Block struct {
	Last []byte // last word in Data
	Data []byte
}

// A BlockWriter divides words into blocks. The zero value is ready.
type BlockWriter struct {
	block  []byte
	last   []byte
	size   int64
	blocks []Block
}

// Add adds a word of at most MaxWord bytes, which must sort after the word before it. numbers are
// the ascending numbers of the messages that contain it; there must be at least one.
func (w *BlockWriter) Add(word []byte, numbers []uint16) {
	shared := 0
	if len(w.block) > 0 {
		shared = sharedPrefix(w.last, word)
	}
	at := len(w.block)
	w.block = appendWord(w.block, word, shared, numbers)
	if at > 0 && len(w.block) > blockSize {
		first := bytes.Clone(w.block[:at])
		w.addBlock(first)
		w.block = appendWord(w.block[:0], word, 0, numbers)
	}
	w.last = append(w.last[:0], word...)
}

func appendWord(b, word []byte, shared int, numbers []uint16) []byte {
	if size := len(word) - shared; shared < maxPackedSize && size < maxPackedSize {
		b = append(b, byte(shared<<4|size))
	} else {
		b = binary.AppendUvarint(append(b, 0), uint64(shared))
		b = binary.AppendUvarint(b, uint64(size))
	}
	b = append(b, word[shared:]...)
	return appendNumbers(b, numbers)
}

func (w *BlockWriter) addBlock(block []byte) {
	w.blocks = append(w.blocks, Block{bytes.Clone(w.last), block})
	w.size += int64(len(block))
}

// Finish returns the blocks, and their total size in bytes.
func (w *BlockWriter) Finish() (blocks []Block, size int64) {
	if len(w.block) > 0 {
		w.addBlock(slices.Clone(w.block))
	}
	w.block = nil
	return w.blocks, w.size
}

func sharedPrefix(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
