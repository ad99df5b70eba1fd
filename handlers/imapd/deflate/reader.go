// Package deflate compresses and decompresses a connection with DEFLATE (RFC 1951) for the IMAP
// extension COMPRESS (RFC 4978). Idle connections take little memory, and each byte can be read as
// soon as it has arrived. It does not know IMAP.
package deflate

import (
	"bufio"
	"errors"
	"io"
)

const (
	windowSize      = 1 << 15 // bytes
	maxCodeBits     = 15
	literalSymbols  = 286 // number of symbols for bytes and lengths
	distanceSymbols = 30  // number of symbols for distances
)

// errInvalidDeflate is returned for data that are not valid DEFLATE.
var errInvalidDeflate = errors.New("the compressed data are damaged")

// A Reader decompresses. It returns every byte as soon as the peer has flushed it, even if the
// flush does not end at a byte boundary. The reader of compress/flate waits for an empty stored
// block, which clients that use zlib's partial flush never send. A Reader takes 35 KB and does not
// grow.
type Reader struct {
	in       *bufio.Reader
	bits     uint64 // that were read and not used yet; the next one is the lowest
	bitCount uint   // number of bits in bits

	step     func(*Reader, []byte) (int, error) // decodes what comes next
	final    bool                               // this is the last block
	stored   int                                // bytes of a stored block that are not read yet
	length   int                                // bytes of a match that are not copied yet
	distance int                                // of the match
	lengths  huffman                            // code of bytes and lengths
	dists    huffman                            // code of distances
	err      error

	// The last windowSize bytes of output, as a ring.
	window [windowSize]byte
	at     int  // index in window of the next byte
	full   bool // window has been filled at least once
}

// NewReader returns a Reader that decompresses in.
func NewReader(in *bufio.Reader) *Reader { return &Reader{in: in, step: (*Reader).readHeader} }

// Read returns the data that are available. It waits only if there are none.
func (z *Reader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && z.err == nil {
		if z.length == 0 && z.stored == 0 && z.mustWait(n) {
			break
		}
		var done int
		switch {
		case z.length > 0:
			done = z.copyMatch(p[n:])
		default:
			done, z.err = z.step(z, p[n:])
		}
		n += done
	}
	if n > 0 {
		return n, nil
	}
	return 0, z.err
}

// mustWait reports whether the next step may have to wait for the peer although Read can already
// return n bytes. A step takes at most 48 bits, or is the header of a block.
func (z *Reader) mustWait(n int) bool {
	if n == 0 {
		return false
	}
	z.fillBits()
	return z.bitCount < 48
}

// fillBits moves buffered bytes into z.bits. It does not wait.
func (z *Reader) fillBits() {
	for z.bitCount <= 56 && z.in.Buffered() > 0 {
		c, _ := z.in.ReadByte() // cannot fail, since a byte is buffered
		z.bits |= uint64(c) << z.bitCount
		z.bitCount += 8
	}
}

// takeBits returns the next n bits, at most 16. It waits for them.
func (z *Reader) takeBits(n uint) (int, error) {
	for z.bitCount < n {
		c, err := z.in.ReadByte()
		if err != nil {
			return 0, err
		}
		z.bits |= uint64(c) << z.bitCount
		z.bitCount += 8
	}
	v := int(z.bits & (1<<n - 1))
	z.bits >>= n
	z.bitCount -= n
	return v, nil
}

// addToWindow adds a byte to the window.
func (z *Reader) addToWindow(c byte) {
	z.window[z.at] = c
	z.at++
	if z.at == windowSize {
		z.at, z.full = 0, true
	}
}

// copyMatch copies as many bytes of the current match to p as fit, and returns their number.
func (z *Reader) copyMatch(p []byte) int {
	n := min(z.length, len(p))
	for i := range n {
		c := z.window[(z.at-z.distance)&(windowSize-1)]
		p[i] = c
		z.addToWindow(c)
	}
	z.length -= n
	return n
}

// readHeader reads the header of a block (RFC 1951 section 3.2.3).
func (z *Reader) readHeader([]byte) (int, error) {
	if z.final {
		return 0, io.EOF
	}
	final, err := z.takeBits(1)
	if err != nil {
		return 0, err
	}
	kind, err := z.takeBits(2)
	if err != nil {
		return 0, err
	}
	z.final = final == 1
	switch kind {
	case 0:
		return 0, z.readStoredHeader()
	case 1:
		z.lengths.build(fixedLengths[:])
		z.dists.build(fixedDistances[:])
	case 2:
		if err := z.readDynamicHeader(); err != nil {
			return 0, err
		}
	default:
		return 0, errInvalidDeflate
	}
	z.step = (*Reader).decodeSymbol
	return 0, nil
}

// readStoredHeader reads the size of a stored block (RFC 1951 section 3.2.4).
func (z *Reader) readStoredHeader() error {
	z.bits >>= z.bitCount % 8
	z.bitCount -= z.bitCount % 8
	size, err := z.takeBits(16)
	if err != nil {
		return err
	}
	check, err := z.takeBits(16)
	if err != nil {
		return err
	}
	if size != ^check&0xffff {
		return errInvalidDeflate
	}
	z.stored = size
	if size > 0 {
		z.step = (*Reader).copyStored
	}
	return nil
}

// copyStored copies one byte of a stored block. It need not be fast, because few clients send such
// blocks.
func (z *Reader) copyStored(p []byte) (int, error) {
	c, err := z.takeBits(8)
	if err != nil {
		return 0, err
	}
	p[0] = byte(c)
	z.addToWindow(p[0])
	if z.stored--; z.stored == 0 {
		z.step = (*Reader).readHeader
	}
	return 1, nil
}

// decodeSymbol decodes one symbol: a byte, the beginning of a match, or the end of the block.
func (z *Reader) decodeSymbol(p []byte) (int, error) {
	s, err := z.lengths.decode(z)
	switch {
	case err != nil:
		return 0, err
	case s < 256:
		p[0] = byte(s)
		z.addToWindow(p[0])
		return 1, nil
	case s == 256:
		z.step = (*Reader).readHeader
		return 0, nil
	case s >= literalSymbols:
		return 0, errInvalidDeflate
	}
	length, err := z.readExtra(lengthBase[s-257], lengthExtra[s-257])
	if err != nil {
		return 0, err
	}
	d, err := z.dists.decode(z)
	if err != nil {
		return 0, err
	}
	if d >= distanceSymbols {
		return 0, errInvalidDeflate
	}
	back, err := z.readExtra(distanceBase[d], distanceExtra[d])
	if err != nil {
		return 0, err
	}
	if !z.full && back > z.at {
		return 0, errInvalidDeflate
	}
	z.length, z.distance = length, back
	return 0, nil
}

// readExtra reads extra bits and returns base plus their value.
func (z *Reader) readExtra(base, extra int) (int, error) {
	more, err := z.takeBits(uint(extra))
	return base + more, err
}

// codeLengthOrder is the order in which a block has the lengths of its code length code (RFC 1951
// section 3.2.7).
var codeLengthOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// readDynamicHeader reads the two codes of a block (RFC 1951 section 3.2.7).
func (z *Reader) readDynamicHeader() error {
	var counts [3]int
	for i, n := range []uint{5, 5, 4} {
		v, err := z.takeBits(n)
		if err != nil {
			return err
		}
		counts[i] = v
	}
	nlen, ndist := counts[0]+257, counts[1]+1
	if nlen > literalSymbols || ndist > distanceSymbols {
		return errInvalidDeflate
	}
	var lengths [literalSymbols + distanceSymbols]byte
	for _, at := range codeLengthOrder[:counts[2]+4] {
		v, err := z.takeBits(3)
		if err != nil {
			return err
		}
		lengths[at] = byte(v)
	}
	if !z.lengths.build(lengths[:19]) {
		return errInvalidDeflate
	}
	clear(lengths[:19])
	if err := z.readCodeLengths(lengths[:nlen+ndist]); err != nil {
		return err
	}
	if lengths[256] == 0 || !z.lengths.build(lengths[:nlen]) || !z.dists.build(lengths[nlen:nlen+ndist]) {
		return errInvalidDeflate
	}
	return nil
}

// readCodeLengths reads the code lengths of both Huffman codes, in which repeated lengths are
// compressed.
func (z *Reader) readCodeLengths(to []byte) error {
	for i := 0; i < len(to); {
		s, err := z.lengths.decode(z)
		if err != nil {
			return err
		}
		if s < 16 {
			to[i] = byte(s)
			i++
			continue
		}
		run := [3]struct {
			base int
			bits uint
		}{{3, 2}, {3, 3}, {11, 7}}[s-16]
		more, err := z.takeBits(run.bits)
		if err != nil {
			return err
		}
		if n := run.base + more; s == 16 && i == 0 || i+n > len(to) {
			return errInvalidDeflate
		} else if s == 16 {
			fillBytes(to[i:i+n], to[i-1])
			i += n
		} else {
			i += n // the lengths are zero already
		}
	}
	return nil
}

func fillBytes(to []byte, c byte) {
	for i := range to {
		to[i] = c
	}
}
