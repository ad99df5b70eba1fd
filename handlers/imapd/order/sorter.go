package order

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// A Message is what SORT and THREAD look at.
type Message struct {
	Number        uint32 // sequence number or UID
	Arrival, Sent int64  // seconds since 1970
	Size          int64
	From, To, CC  []byte // the mailbox of the first address
	Subject       []byte // decoded
	ID            []byte
	References    [][]byte // ids
	InReplyTo     [][]byte // ids
}

// A Field is what SORT compares (RFC 5256 section 3).
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

// NeedsEnvelope reports whether one of the keys looks at more than Arrival and Size.
func NeedsEnvelope(keys []Key) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.Field != Arrival && k.Field != Size })
}

const (
	keptText   = 24      // bytes of each text that are always kept
	sharedText = 4 << 20 // and bytes of all together beyond that, to which each message adds perMessage
	perMessage = 180
)

// A Sorter gathers the keys of messages. Texts are kept whole as long as they are not very long on
// the whole: what a large folder may take is bounded, and messages that differ only behind what is
// kept count as equal.
type Sorter struct {
	keys    []Key
	numbers []uint32
	values  [][]int64  // of each key that is a number
	texts   [][]uint32 // of each key that is a text: where it is in blocks
	blocks  [][]byte
	left    int // of the bytes that the texts share
	room    []byte
}

// NewSorter makes a sorter of about n messages.
func NewSorter(keys []Key, n int) *Sorter {
	s := &Sorter{
		keys: keys, numbers: make([]uint32, 0, n), left: sharedText,
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

// Add takes the next message, in the order of the mailbox. It keeps nothing that m points to.
func (s *Sorter) Add(m *Message) {
	s.numbers = append(s.numbers, m.Number)
	s.left += perMessage
	for i, k := range s.keys {
		switch k.Field {
		case Arrival:
			s.values[i] = append(s.values[i], m.Arrival)
		case Date:
			s.values[i] = append(s.values[i], m.Sent)
		case Size:
			s.values[i] = append(s.values[i], m.Size)
		case Subject:
			s.room, _ = AppendBaseSubject(s.room[:0], m.Subject)
			s.addText(i)
		case From:
			s.room = AppendCasemap(s.room[:0], m.From)
			s.addText(i)
		case To:
			s.room = AppendCasemap(s.room[:0], m.To)
			s.addText(i)
		case CC:
			s.room = AppendCasemap(s.room[:0], m.CC)
			s.addText(i)
		}
	}
}

const (
	blockSize = 1 << 16
	textSize  = 2 // bytes of the length before each text
)

// addText keeps s.room as the text of the key i.
func (s *Sorter) addText(i int) {
	size := min(len(s.room), blockSize-textSize, keptText+s.left)
	s.left -= max(size-keptText, 0)
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last])+textSize+size > blockSize {
		s.blocks = append(s.blocks, make([]byte, 0, min(blockSize, max(cap(s.numbers)*64, textSize+size))))
		last++
	}
	s.texts[i] = append(s.texts[i], uint32(last*blockSize+len(s.blocks[last])))
	b := binary.BigEndian.AppendUint16(s.blocks[last], uint16(size))
	s.blocks[last] = append(b, s.room[:size]...)
}

func (s *Sorter) text(at uint32) []byte {
	b := s.blocks[at/blockSize][at%blockSize:]
	return b[textSize : textSize+int(binary.BigEndian.Uint16(b))]
}

// Sorted returns the numbers of the messages in order. Those that are equal in all keys stay in the
// order of the mailbox.
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
