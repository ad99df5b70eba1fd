package deflate

// A huffman is a canonical Huffman code (RFC 1951 section 3.2.2). It has the number of codes of
// each length, and the symbols in the order of their codes.
type huffman struct {
	counts  [maxCodeBits + 1]uint16
	symbols [288]uint16
}

// build makes the code from the code lengths of its symbols. Length 0 means that a symbol has no
// code. It returns false if the code is invalid: too many codes of some lengths, or too few. A code
// with no symbol, or one symbol of length 1, is valid.
func (h *huffman) build(lengths []byte) (valid bool) {
	clear(h.counts[:])
	used := 0
	for _, n := range lengths {
		h.counts[n]++
		if n > 0 {
			used++
		}
	}
	h.counts[0] = 0
	room := 1
	var next [maxCodeBits + 2]int
	for n := 1; n <= maxCodeBits; n++ {
		room = room<<1 - int(h.counts[n])
		if room < 0 {
			return false
		}
		next[n+1] = next[n] + int(h.counts[n])
	}
	for symbol, n := range lengths {
		if n > 0 {
			h.symbols[next[n]] = uint16(symbol)
			next[n]++
		}
	}
	return room == 0 || used == 0 || used == 1 && h.counts[1] == 1
}

// decode reads the code of one symbol bit by bit, and returns the symbol.
func (h *huffman) decode(z *Reader) (int, error) {
	code, first, index := 0, 0, 0
	for n := 1; n <= maxCodeBits; n++ {
		bit, err := z.takeBits(1)
		if err != nil {
			return 0, err
		}
		code |= bit
		count := int(h.counts[n])
		if code-first < count {
			return int(h.symbols[index+code-first]), nil
		}
		index += count
		first = (first + count) << 1
		code <<= 1
	}
	return 0, errInvalidDeflate
}

// The smallest length or distance of each symbol, and the number of extra bits after the symbol
// (RFC 1951 section 3.2.5). The fixed code lengths are those of section 3.2.6.
var (
	lengthBase    = [29]int{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthExtra   = [29]int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distanceBase  = [30]int{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distanceExtra = [30]int{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}

	fixedLengths = func() (lengths [288]byte) {
		fillBytes(lengths[:144], 8)
		fillBytes(lengths[144:256], 9)
		fillBytes(lengths[256:280], 7)
		fillBytes(lengths[280:], 8)
		return lengths
	}()
	fixedDistances = [30]byte{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}
)
