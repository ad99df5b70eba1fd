package classify

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

// A Count says in how many training messages of an account a token occurred.
type Count struct {
	Spam, Ham uint16
	Day       uint16 // day of the last training, in days since 1970
}

// A Model holds the training data of one account. While it is changed, it is not safe for
// concurrent use.
type Model struct {
	Spam, Ham uint32 // number of training messages

	slots []slot // hash table with open addressing; its length is a power of two, and token 0 marks a free slot
	used  int
	seed  uint64 // random, so that nobody can choose words that collide in slots
}

type slot struct {
	token Token
	count Count
}

const minSlots = 64

// NewModel returns a model without training data.
func NewModel() *Model { return &Model{seed: rand.Uint64() | 1} }

// Len returns the number of tokens in the model.
func (m *Model) Len() int { return m.used }

// Bytes returns the memory that the model uses, in bytes.
func (m *Model) Bytes() int {
	return int(unsafe.Sizeof(*m)) + len(m.slots)*int(unsafe.Sizeof(slot{}))
}

// Clone returns a deep copy of the model.
func (m *Model) Clone() *Model {
	c := *m
	c.slots = append([]slot(nil), m.slots...)
	return &c
}

// homeSlot returns the index of the slot where the search for a token begins.
func (m *Model) homeSlot(t Token) int {
	hi, lo := bits.Mul64(uint64(t), m.seed)
	return int(hi^lo) & (len(m.slots) - 1)
}

// findSlot returns the slot of a token, or the free slot where it would be inserted.
func (m *Model) findSlot(t Token) int {
	at := m.homeSlot(t)
	for m.slots[at].token != t && m.slots[at].token != 0 {
		at = (at + 1) & (len(m.slots) - 1)
	}
	return at
}

// Get returns the count of a token. The count is zero if the token is not in the model.
func (m *Model) Get(t Token) Count {
	if m.used == 0 {
		return Count{}
	}
	return m.slots[m.findSlot(t)].count
}

// Set sets the count of a token. A count without spam and ham removes the token.
func (m *Model) Set(t Token, c Count) {
	if t == 0 {
		return
	}
	if c.Spam == 0 && c.Ham == 0 {
		m.remove(t)
		return
	}
	if m.used >= len(m.slots)*13/16 {
		old := m.slots
		m.slots = make([]slot, max(2*len(old), minSlots))
		for _, s := range old {
			if s.token != 0 {
				m.slots[m.findSlot(s.token)] = s
			}
		}
	}
	at := m.findSlot(t)
	if m.slots[at].token == 0 {
		m.used++
	}
	m.slots[at] = slot{t, c}
}

// remove removes a token. It fills the freed slot from later ones, so that no free slot is between
// a token and its home slot.
func (m *Model) remove(t Token) {
	if m.used == 0 {
		return
	}
	free := m.findSlot(t)
	if m.slots[free].token == 0 {
		return
	}
	m.used--
	last := len(m.slots) - 1
	for at := (free + 1) & last; m.slots[at].token != 0; at = (at + 1) & last {
		if away := (at - m.homeSlot(m.slots[at].token)) & last; away >= (at-free)&last {
			m.slots[free] = m.slots[at]
			free = at
		}
	}
	m.slots[free] = slot{}
}

// Train counts a message as spam or ham. If undo is set, it takes back an earlier Train, but leaves
// the days of the counts. It returns the tokens whose counts changed. Counts stop at 0 and at their
// maximum.
func (m *Model) Train(tokens []Token, spam, undo bool, day uint16) []Token {
	messages := &m.Ham
	if spam {
		messages = &m.Spam
	}
	switch {
	case !undo && *messages < math.MaxUint32:
		*messages++
	case undo && *messages > 0:
		*messages--
	}
	changed := make([]Token, 0, len(tokens))
	for _, t := range tokens {
		before := m.Get(t)
		c := before
		n := &c.Ham
		if spam {
			n = &c.Spam
		}
		if undo {
			*n -= min(*n, 1)
		} else {
			*n += min(math.MaxUint16-*n, 1)
			c.Day = day
		}
		if c != before {
			m.Set(t, c)
			changed = append(changed, t)
		}
	}
	return changed
}

// LeastUsed returns n tokens to remove: those with the smallest counts and, if counts are equal,
// the oldest day.
func (m *Model) LeastUsed(n int) []Token {
	n = min(n, m.used)
	if n <= 0 {
		return nil
	}
	order := func(a, b slot) int {
		return cmp.Or(cmp.Compare(int(a.count.Spam)+int(a.count.Ham), int(b.count.Spam)+int(b.count.Ham)),
			cmp.Compare(a.count.Day, b.count.Day), cmp.Compare(a.token, b.token))
	}
	// heap is a max-heap of the n least used slots so far; the most used of them is on top.
	heap := make([]slot, 0, n)
	sink := func(at int) {
		for {
			below := 2*at + 1
			if below >= len(heap) {
				return
			}
			if below+1 < len(heap) && order(heap[below+1], heap[below]) > 0 {
				below++
			}
			if order(heap[at], heap[below]) >= 0 {
				return
			}
			heap[at], heap[below] = heap[below], heap[at]
			at = below
		}
	}
	for _, s := range m.slots {
		switch {
		case s.token == 0:
		case len(heap) < n:
			heap = append(heap, s)
			if len(heap) == n {
				for at := n/2 - 1; at >= 0; at-- {
					sink(at)
				}
			}
		case order(s, heap[0]) < 0:
			heap[0] = s
			sink(0)
		}
	}
	out := make([]Token, n)
	for i := n - 1; i >= 0; i-- { // fill from the end, since the top is the most used of the rest
		out[i] = heap[0].token
		heap[0] = heap[len(heap)-1]
		heap = heap[:len(heap)-1]
		sink(0)
	}
	return out
}
