// Package entry encodes the changes of one commit of the store as bytes that another store can
// apply. It does not know what the rows mean, nor where entries are kept.
//
// Integers are big-endian; names, keys, values and rows are length uvarint | bytes.
//
//	row    version 1 | time ms 8 | nonce 16 | nonce of the entry before it 16
//	       | bytes 8 of its new messages
//	       | count uvarint | for each new message: reference 16
//	       | count uvarint | for each bucket: name | flags 1 | sequence uvarint if flag 2
//	         | count uvarint | for each row, by key: key | 0 and value, or 1 if it was deleted
//	       | crc32c 4
//	entry  version 1 | number 8 | row
//	       | count uvarint | for each new message whose bytes are here: reference 16
//	         | 0 and file header 36 | record, or 1 if it could not be read
//	       | crc32c 4
//
// Flags of a bucket: 1 if it was emptied before the rows were written, 2 if its sequence follows.
package entry

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/mailstead/mailstead/store/segment"
)

const (
	version           = 1
	bucketEmptied     = 1
	bucketHasSequence = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Nonce is a random number that identifies an entry among all entries of a store and of its
// copies.
type Nonce [16]byte

// Changes collects the changes of a commit's transactions. A later change of a row replaces an
// earlier one. A nil Changes records nothing.
type Changes struct {
	Keep   bool   // record the changes, not only their number
	N      int    // number of changes
	Number uint64 // number of the entry, set once the entry is on disk

	buckets  map[string]*bucketChanges
	messages map[segment.Ref]bool // messages first referred to in this commit
}

type bucketChanges struct {
	emptied  bool
	sequence *uint64
	rows     map[string]row
}

type row struct {
	value   []byte
	deleted bool
}

// bucketFor counts a change and returns the bucket in which it must be recorded. It returns nil if
// changes are only counted.
func (c *Changes) bucketFor(name string) *bucketChanges {
	if c == nil {
		return nil
	}
	c.N++
	if !c.Keep {
		return nil
	}
	if c.buckets == nil {
		c.buckets = map[string]*bucketChanges{}
	}
	b := c.buckets[name]
	if b == nil {
		b = &bucketChanges{rows: map[string]row{}}
		c.buckets[name] = b
	}
	return b
}

// Put records a written row. The value must not change until the commit.
func (c *Changes) Put(bucket string, key, value []byte) {
	if b := c.bucketFor(bucket); b != nil {
		b.rows[string(key)] = row{value: value}
	}
}

// Delete records a deleted row.
func (c *Changes) Delete(bucket string, key []byte) {
	if b := c.bucketFor(bucket); b != nil {
		b.rows[string(key)] = row{deleted: true}
	}
}

// SetSequence records the new sequence of a bucket.
func (c *Changes) SetSequence(bucket string, n uint64) {
	if b := c.bucketFor(bucket); b != nil {
		b.sequence = &n
	}
}

// EmptyBucket records that all rows of a bucket are deleted.
func (c *Changes) EmptyBucket(bucket string) {
	if b := c.bucketFor(bucket); b != nil {
		b.emptied = true
		clear(b.rows)
	}
}

// AddMessage records a new message: no earlier commit has referred to it.
func (c *Changes) AddMessage(ref segment.Ref) {
	if c == nil || !c.Keep {
		return
	}
	if c.messages == nil {
		c.messages = map[segment.Ref]bool{}
	}
	c.messages[ref] = true
}

// Row encodes the changes as the row of their entry. previous is the nonce of the entry before it.
func (c *Changes) Row(at time.Time, nonce, previous Nonce) []byte {
	messages, size := slices.Collect(maps.Keys(c.messages)), int64(0)
	sort.Slice(messages, func(i, j int) bool { return messages[i].Compare(messages[j]) < 0 })
	for _, ref := range messages {
		size += ref.Size()
	}
	out := append(make([]byte, 0, 4096), version)
	out = binary.BigEndian.AppendUint64(out, uint64(at.UnixMilli()))
	out = append(append(out, nonce[:]...), previous[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(size))
	out = binary.AppendUvarint(out, uint64(len(messages)))
	for _, ref := range messages {
		out = ref.AppendTo(out)
	}
	out = binary.AppendUvarint(out, uint64(len(c.buckets)))
	for _, name := range slices.Sorted(maps.Keys(c.buckets)) {
		b := c.buckets[name]
		out = appendText(out, name)
		var flags byte
		if b.emptied {
			flags |= bucketEmptied
		}
		if b.sequence != nil {
			flags |= bucketHasSequence
		}
		out = append(out, flags)
		if b.sequence != nil {
			out = binary.AppendUvarint(out, *b.sequence)
		}
		out = binary.AppendUvarint(out, uint64(len(b.rows)))
		for _, key := range slices.Sorted(maps.Keys(b.rows)) {
			out = appendText(out, key)
			if row := b.rows[key]; row.deleted {
				out = append(out, 1)
			} else {
				out = appendText(append(out, 0), row.value)
			}
		}
	}
	return appendSum(out)
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}
