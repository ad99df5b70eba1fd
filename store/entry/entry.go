package entry

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/segment"
)

// MaxMessage is the largest size in bytes of a message that is part of its entry. The size includes
// the header of the message's record.
const MaxMessage = 256 << 10

// ErrDamaged is returned for bytes that are not a complete entry.
var ErrDamaged = errors.New("damaged entry")

// An Entry holds the changes of one commit: the rows of each bucket, and the bytes of those new
// messages that have at most MaxMessage bytes. It has the number of the commit and the nonce of the
// previous entry, so that a missing or replaced entry is recognized. A copy of a store applies
// entries in the order of their numbers.
type Entry struct {
	Number   uint64    // number of the commit
	Time     time.Time // time of the commit
	Nonce    Nonce
	Previous Nonce         // nonce of the entry before this one
	Messages []segment.Ref // the new messages, in the order of their positions in the segments

	row     []byte
	size    int64 // total size of the new messages
	buckets map[string]*bucketChanges
	records map[segment.Ref]messageRecord // records of the messages that are part of the entry
}

type messageRecord struct {
	head   [segment.HeaderSize]byte // header of the segment's file
	record []byte                   // nil: the message could not be read
}

// FromRow decodes the entry in a row; it lacks the bytes of messages. The caller must not change
// the row afterwards. The error is ErrDamaged or segment.ErrNewer.
func FromRow(number uint64, data []byte) (*Entry, error) {
	r, err := newReader(data)
	if err != nil {
		return nil, err
	}
	e := &Entry{Number: number, row: data, buckets: map[string]*bucketChanges{}, records: map[segment.Ref]messageRecord{}}
	e.Time = time.UnixMilli(int64(r.uint64())).UTC()
	copy(e.Nonce[:], r.take(len(e.Nonce)))
	copy(e.Previous[:], r.take(len(e.Previous)))
	e.size = int64(r.uint64())
	for range r.count(16) {
		e.Messages = append(e.Messages, r.ref())
	}
	if !slices.IsSortedFunc(e.Messages, segment.Ref.Compare) {
		return nil, ErrDamaged
	}
	for range r.count(3) {
		name, b := string(r.text()), &bucketChanges{rows: map[string]row{}}
		flags := r.byte()
		b.emptied = flags&bucketEmptied != 0
		if flags&bucketHasSequence != 0 {
			n := r.uvarint()
			b.sequence = &n
		}
		for range r.count(2) {
			key := string(r.text())
			if r.byte() == 1 {
				b.rows[key] = row{deleted: true}
			} else {
				b.rows[key] = row{value: r.text()}
			}
		}
		e.buckets[name] = b
	}
	if r.bad || len(r.left) != 0 {
		return nil, ErrDamaged
	}
	return e, nil
}

// Size returns the size of the entry in bytes, with all of its new messages.
func (e *Entry) Size() int64 { return int64(len(e.row)) + e.size }

// ReadMessages adds the bytes of the new messages of up to MaxMessage to the entry. A damaged
// message is recorded as lost.
func (e *Entry) ReadMessages(from *segment.Store) error {
	for _, ref := range e.Messages {
		if ref.Size() > MaxMessage {
			continue
		}
		head, raw, err := from.ReadRecord(ref)
		if errors.Is(err, segment.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
			raw = nil
		} else if err != nil {
			return fmt.Errorf("read a message of entry %d: %w", e.Number, err)
		}
		e.records[ref] = messageRecord{head, raw}
	}
	return nil
}

// DropMessages removes the bytes of those messages from the entry for which stored returns true.
func (e *Entry) DropMessages(stored func(segment.Ref) bool) {
	maps.DeleteFunc(e.records, func(ref segment.Ref, r messageRecord) bool { return r.record != nil && stored(ref) })
}

// RecordLost records that the bytes of a new message cannot be read any more.
func (e *Entry) RecordLost(ref segment.Ref) { e.records[ref] = messageRecord{} }

// SeparateMessages returns the new messages whose bytes are not part of the entry.
func (e *Entry) SeparateMessages() (list []segment.Ref) {
	for _, ref := range e.Messages {
		if _, here := e.records[ref]; !here {
			list = append(list, ref)
		}
	}
	return list
}

// Marshal encodes the entry for Parse.
func (e *Entry) Marshal() []byte {
	out := binary.BigEndian.AppendUint64([]byte{version}, e.Number)
	out = appendText(out, e.row)
	out = binary.AppendUvarint(out, uint64(len(e.records)))
	for _, ref := range e.Messages {
		r, here := e.records[ref]
		if !here {
			continue
		}
		out = ref.AppendTo(out)
		if r.record == nil {
			out = append(out, 1)
		} else {
			out = append(append(append(out, 0), r.head[:]...), r.record...)
		}
	}
	return appendSum(out)
}

// Parse decodes what Marshal has encoded. The error is ErrDamaged, or segment.ErrNewer if a newer
// version has written the entry. The entry keeps references to data.
func Parse(data []byte) (*Entry, error) {
	r, err := newReader(data)
	if err != nil {
		return nil, err
	}
	number := r.uint64()
	e, err := FromRow(number, r.text())
	if err != nil {
		return nil, err
	}
	for range r.count(17) {
		ref, one := r.ref(), messageRecord{}
		if r.byte() == 0 {
			copy(one.head[:], r.take(segment.HeaderSize))
			one.record = r.take(int(min(ref.Size(), int64(len(data)))))
		}
		if _, found := slices.BinarySearchFunc(e.Messages, ref, segment.Ref.Compare); !found {
			return nil, ErrDamaged
		}
		e.records[ref] = one
	}
	if r.bad || len(r.left) != 0 {
		return nil, ErrDamaged
	}
	return e, nil
}

// WriteMessages writes the bytes of the new messages to their positions in the segments. Messages
// that are not part of the entry must have been written before; it verifies them.
func (e *Entry) WriteMessages(to *segment.Store) error {
	for _, ref := range e.Messages {
		one, here := e.records[ref]
		switch {
		case !here:
			if err := to.Verify(ref); err != nil {
				return fmt.Errorf("verify a separately stored message of entry %d: %w", e.Number, err)
			}
		case one.record != nil:
			if err := to.WriteRecord(one.head, ref, bytes.NewReader(one.record)); err != nil {
				return fmt.Errorf("write a message of entry %d: %w", e.Number, err)
			}
		}
	}
	return nil
}

// Apply writes the rows of the entry to a database.
func (e *Entry) Apply(tx *bolt.Tx) error {
	for name, b := range e.buckets {
		if err := b.apply(tx, []byte(name)); err != nil {
			return fmt.Errorf("apply entry %d to bucket %s: %w", e.Number, name, err)
		}
	}
	return nil
}

func (c *bucketChanges) apply(tx *bolt.Tx, name []byte) error {
	b, err := tx.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	if c.emptied {
		sequence := b.Sequence()
		if err := tx.DeleteBucket(name); err != nil {
			return err
		}
		b, err = tx.CreateBucket(name)
		if err != nil {
			return err
		}
		if err := b.SetSequence(sequence); err != nil {
			return err
		}
	}
	if c.sequence != nil {
		if err := b.SetSequence(*c.sequence); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.rows)) {
		if row := c.rows[key]; row.deleted {
			err = b.Delete([]byte(key))
		} else {
			err = b.Put([]byte(key), row.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A reader decodes fields from bytes with a valid checksum. After an error, bad is true and all
// fields are zero.
type reader struct {
	left []byte
	bad  bool
}

func newReader(data []byte) (*reader, error) {
	if len(data) < 5 || crc32.Checksum(data[:len(data)-4], castagnoli) != binary.BigEndian.Uint32(data[len(data)-4:]) {
		return nil, ErrDamaged
	}
	if data[0] != version {
		return nil, fmt.Errorf("unknown entry version %d: %w", data[0], segment.ErrNewer)
	}
	return &reader{left: data[1 : len(data)-4]}, nil
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.bad, r.left = true, nil
		return make([]byte, min(max(n, 0), 64))
	}
	out := r.left[:n:n]
	r.left = r.left[n:]
	return out
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) ref() segment.Ref {
	ref, _ := segment.ParseRef(r.take(16))
	return ref
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	r.take(cmp.Or(max(n, 0), len(r.left)+1))
	return v
}

func (r *reader) text() []byte { return r.take(int(min(r.uvarint(), 1<<40))) }

// count decodes the number of the items that follow. Each item has at least `least` bytes.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.left)/least) {
		r.bad, r.left = true, nil
		return 0
	}
	return int(n)
}
