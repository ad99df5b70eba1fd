package order

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// A Message is the part of a message that SORT and THREAD need.
type Message struct {
	Number        uint32   // sequence number or UID
	Arrival, Sent int64    // Unix seconds
	Size          int64    // bytes
	From, To, CC  []byte   // the local part of the first address
	Subject       []byte   // with encoded words decoded
	ID            []byte   // message ID
	References    [][]byte // message IDs
	InReplyTo     [][]byte // message IDs
}

// A Field is a part of a message by which SORT orders (RFC 5256 section 3).
type Field byte

const (
	Arrival Field = iota
	CC
	Date
	From
	Size
	Subject
	To
)

// A Key is one criterion of SORT.
type Key struct {
	Field   Field
	Reverse bool
}

// NeedsEnvelope reports whether a key needs more than the arrival date and the size.
func NeedsEnvelope(keys []Key) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.Field != Arrival && k.Field != Size })
}

const (
	keptTextBytes         = 24      // bytes of each text that are always kept
	sharedTextBytes       = 4 << 20 // further bytes for all texts together; each message adds sharedBytesPerMessage
	sharedBytesPerMessage = 180
)

// A Sorter collects the sort keys of messages. To limit the memory for a large folder, it cuts long
// texts when all texts together become too long. Messages that differ only behind the cut count as
// equal.
type Sorter struct {
	keys     []Key
	numbers  []uint32
	values   [][]int64  // for each key that is a number: the values of all messages
	texts    [][]uint32 // for each key that is a text: positions of the texts in blocks
	blocks   [][]byte   // the texts
	textLeft int        // bytes that are left of sharedTextBytes
	buf      []byte     // reused
}

// NewSorter returns a Sorter for about n messages.
func NewSorter(keys []Key, n int) *Sorter {
	s := &Sorter{
		keys: keys, numbers: make([]uint32, 0, n), textLeft: sharedTextBytes,
		values: make([][]int64, len(keys)), texts: make([][]uint32, len(keys)),
	}
	for i, k := range keys {
		if k.Field == Arrival || k.Field == Date || k.Field == Size {
			s.values[i] = make([]int64, 0, n)
		} else {
			s.texts[i] = make([]uint32, 0, n)
		}
	}
	return s
}

// Add adds the next message, in mailbox order. It keeps nothing that m points to.
func (s *Sorter) Add(m *Message) {
	s.numbers = append(s.numbers, m.Number)
	s.textLeft += sharedBytesPerMessage
	for i, k := range s.keys {
		switch k.Field {
		case Arrival:
			s.values[i] = append(s.values[i], m.Arrival)
		case Date:
			s.values[i] = append(s.values[i], m.Sent)
		case Size:
			s.values[i] = append(s.values[i], m.Size)
		case Subject:
			s.buf, _ = AppendBaseSubject(s.buf[:0], m.Subject)
			s.addText(i)
		case From:
			s.buf = AppendCasemap(s.buf[:0], m.From)
			s.addText(i)
		case To:
			s.buf = AppendCasemap(s.buf[:0], m.To)
			s.addText(i)
		case CC:
			s.buf = AppendCasemap(s.buf[:0], m.CC)
			s.addText(i)
		}
	}
}

const (
	blockSize        = 1 << 16
	lengthPrefixSize = 2 // bytes of the length prefix of each text
)

// addText stores s.buf, perhaps cut, as the text of key i.
func (s *Sorter) addText(i int) {
	size := min(len(s.buf), blockSize-lengthPrefixSize, keptTextBytes+s.textLeft)
	s.textLeft -= max(size-keptTextBytes, 0)
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last])+lengthPrefixSize+size > blockSize {
		s.blocks = append(s.blocks, make([]byte, 0, min(blockSize, max(cap(s.numbers)*64, lengthPrefixSize+size))))
		last++
	}
	s.texts[i] = append(s.texts[i], uint32(last*blockSize+len(s.blocks[last])))
	b := binary.BigEndian.AppendUint16(s.blocks[last], uint16(size))
	s.blocks[last] = append(b, s.buf[:size]...)
}

// text returns the text at a position in blocks.
func (s *Sorter) text(at uint32) []byte {
	b := s.blocks[at/blockSize][at%blockSize:]
	return b[lengthPrefixSize : lengthPrefixSize+int(binary.BigEndian.Uint16(b))]
}

// Sorted returns the numbers of the messages in order. Messages with equal keys stay in mailbox
// order.
func (s *Sorter) Sorted() []uint32 {
	list := make([]uint32, len(s.numbers))
	for i := range list {
		list[i] = uint32(i)
	}
	slices.SortFunc(list, s.compare)
	for i, at := range list {
		list[i] = s.numbers[at]
	}
	return list
}

// compare compares the messages with the indexes a and b.
func (s *Sorter) compare(a, b uint32) int {
	for i, k := range s.keys {
		order := 0
		if s.values[i] != nil {
			order = cmp.Compare(s.values[i][a], s.values[i][b])
		} else {
			order = bytes.Compare(s.text(s.texts[i][a]), s.text(s.texts[i][b]))
		}
		switch {
		case order == 0:
		case k.Reverse:
			return -order
		default:
			return order
		}
	}
	return cmp.Compare(a, b)
}
