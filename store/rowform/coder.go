package rowform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A Coder encodes the fields of a record one after the other, or decodes them in the same order.
// The same function lists the fields for both, so that each field is listed once.
//
//	number  zigzag varint
//	bool    0 or 1
//	text    length uvarint | bytes
//	time    uvarint: 2 × milliseconds since the year 1, UTC, and 1 if nanoseconds within the
//	        millisecond follow as uvarint
//	list    count uvarint | each element: length uvarint | fields
//
// The zero value of each is a byte 0. Zero fields at the end of a record or of a list element are
// left out, and a missing field is decoded as zero. So a version that adds a field lists it after
// all others, and can read older rows. A version that changes the meaning of a field raises the
// version of the record. Both raise the format number of the store, because an older program would
// lose the field when it rewrites the row. A row with more fields than are known is ErrNewer.
type Coder struct {
	out []byte
	end int // end of the last nonzero field

	in      string // bytes not decoded yet
	reading bool
	err     error
}

// fail stores the first error and stops the decoding.
func (c *Coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.in = ""
}

// finish checks after decoding that no bytes are left.
func (c *Coder) finish() {
	if c.in != "" {
		c.fail(fmt.Errorf("the row has %d bytes of unknown fields: %w", len(c.in), ErrNewer))
	}
}

// uvarint encodes n, or decodes and returns a number. The decoded number is 0 if no bytes are left.
func (c *Coder) uvarint(n uint64) uint64 {
	if !c.reading {
		c.out = binary.AppendUvarint(c.out, n)
		if n != 0 {
			c.end = len(c.out)
		}
		return n
	}
	if c.in == "" {
		return 0
	}
	n = 0
	for i := 0; i < len(c.in) && i < binary.MaxVarintLen64; i++ {
		b := c.in[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 {
				break
			}
			c.in = c.in[i+1:]
			return n
		}
	}
	c.fail(ErrDamaged)
	return 0
}

// Version encodes or decodes the first field: the version of the record's fields, from 1. known is
// the current version.
func (c *Coder) Version(known uint64) {
	switch v := c.uvarint(known); {
	case v == 0:
		c.fail(ErrDamaged)
	case v > known:
		c.fail(fmt.Errorf("unknown version %d of the fields of a record: %w", v, ErrNewer))
	}
}

// Int encodes or decodes a number.
func Int[T ~int | ~int64 | ~uint16 | ~uint32](c *Coder, n *T) {
	v := int64(*n)
	u := c.uvarint(uint64(v<<1) ^ uint64(v>>63))
	if !c.reading {
		return
	}
	v = int64(u>>1) ^ -int64(u&1)
	*n = T(v)
	if int64(*n) != v {
		c.fail(ErrDamaged)
	}
}

// Bool encodes or decodes a bool.
func (c *Coder) Bool(b *bool) {
	n := uint64(0)
	if *b {
		n = 1
	}
	n = c.uvarint(n)
	if n > 1 {
		c.fail(ErrDamaged)
	}
	*b = n == 1
}

// decodeText decodes a length and the text after it.
func (c *Coder) decodeText() string {
	n := c.uvarint(0)
	if n > uint64(len(c.in)) {
		c.fail(ErrDamaged)
		return ""
	}
	text := c.in[:n]
	c.in = c.in[n:]
	return text
}

// String encodes or decodes a text. All decoded texts of a record share one piece of memory.
func (c *Coder) String(s *string) {
	if c.reading {
		*s = c.decodeText()
		return
	}
	if c.uvarint(uint64(len(*s))); *s != "" {
		c.out = append(c.out, *s...)
		c.end = len(c.out)
	}
}

// Bytes encodes or decodes a byte slice. An empty one is decoded as nil.
func (c *Coder) Bytes(b *[]byte) {
	if c.reading {
		*b = nil
		if text := c.decodeText(); text != "" {
			*b = []byte(text)
		}
		return
	}
	if c.uvarint(uint64(len(*b))); len(*b) > 0 {
		c.out = append(c.out, *b...)
		c.end = len(c.out)
	}
}

// yearOne is the Unix time of the zero time.Time, in seconds.
const yearOne = -62135596800

var errTime = errors.New("the time is outside the years 1 to 9999")

// Time encodes or decodes a time in the years 1 to 9999. It is decoded as UTC.
func (c *Coder) Time(t *time.Time) {
	if !c.reading {
		u := t.UTC()
		if year := u.Year(); year < 1 || year > 9999 {
			c.fail(errTime)
			return
		}
		ms, rest := uint64(u.Unix()-yearOne)*1000+uint64(u.Nanosecond()/1e6), uint64(u.Nanosecond()%1e6)
		if rest == 0 {
			c.uvarint(ms << 1)
			return
		}
		c.uvarint(ms<<1 | 1)
		c.uvarint(rest)
		return
	}
	n, rest := c.uvarint(0), uint64(0)
	if n&1 == 1 {
		rest = c.uvarint(0)
	}
	ms := n >> 1
	*t = time.Unix(int64(ms/1000)+yearOne, int64(ms%1000)*1e6+int64(rest%1e6)).UTC()
	if rest >= 1e6 || t.Year() > 9999 {
		c.fail(ErrDamaged)
	}
}

// List encodes or decodes a list. fields does the same for the fields of one element. An empty list
// is decoded as nil.
func List[T any](c *Coder, list *[]T, fields func(*T, *Coder)) {
	n := c.uvarint(uint64(len(*list)))
	if !c.reading {
		for i := range *list {
			var element Coder
			fields(&(*list)[i], &element)
			if element.err != nil {
				c.fail(element.err)
			}
			text := element.out[:element.end]
			c.Bytes(&text)
			c.end = len(c.out)
		}
		return
	}
	*list = nil
	if n > uint64(len(c.in)) {
		c.fail(ErrDamaged)
		return
	}
	for ; n > 0 && c.err == nil; n-- {
		element := Coder{in: c.decodeText(), reading: true}
		var one T
		fields(&one, &element)
		element.finish()
		if element.err != nil {
			c.fail(element.err)
		}
		*list = append(*list, one)
	}
}
