package store

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/segment"
)

// An entry is what one commit changed. Entries are numbered from 1 without gaps: the number of the
// last commit is the sequence of bucketEntry. A store that keeps entries has each of them as a row
// of that bucket, written by the commit itself, so that nothing is synced twice and none can be
// missing. Rows are deleted once they are stored elsewhere. The bytes of new messages stand in the
// segments; they join the row when the entry is read.
//
//	row    version 1 | time ms 8 | nonce 16 | bytes of its new messages 8
//	       | count uvarint | for each new message: reference 16
//	       | count uvarint | for each bucket: name | flags 1 | sequence uvarint if flag 2
//	         | count uvarint | for each row, by key: key | 0 and value, or 1 if it was deleted
//	       | crc32c 4
//	entry  version 1 | number 8 | row: length uvarint | bytes
//	       | count uvarint | for each new message of up to 256 KiB that is still needed:
//	         reference 16 | file header 36 | record
//	       | crc32c 4
//
// Names, keys and values: length uvarint | bytes. Flags of a bucket: 1 emptied before the rows were
// written, 2 its sequence is given.
const (
	bucketEntry   = "entry"
	entryVersion  = 1
	entryRowHead  = 1 + 8 + 16 + 8
	entryBytes    = 256 << 10 // a larger message is not part of its entry
	entriesMost   = 1 << 30   // bytes of entries that are kept, with their messages
	bucketEmptied = 1
	bucketCounted = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrGap is returned by Entries and Apply where the entry that comes next is not there. What copies
// the store begins anew with all of it.
var ErrGap = errors.New("entries are missing")

// errDamagedEntry is returned for bytes that are no whole entry.
var errDamagedEntry = errors.New("damaged entry")

// changes is what the transactions of a commit have written, so far as later ones have not written
// it again.
type changes struct {
	keep    bool // else they are only counted
	n       int
	buckets map[string]*bucketChange
	blobs   []BlobRef // new ones
	size    int64     // of the blobs
}

type bucketChange struct {
	emptied  bool
	sequence *uint64
	rows     map[string]rowChange
}

type rowChange struct {
	value   []byte
	deleted bool
}

func (c *changes) bucket(name string) *bucketChange {
	if c.buckets == nil {
		c.buckets = map[string]*bucketChange{}
	}
	b := c.buckets[name]
	if b == nil {
		b = &bucketChange{rows: map[string]rowChange{}}
		c.buckets[name] = b
	}
	return b
}

// row notes a row that was written or deleted. The value must not change until the commit.
func (c *changes) row(bucket string, key []byte, change rowChange) {
	if c == nil {
		return
	}
	c.n++
	if c.keep {
		c.bucket(bucket).rows[string(key)] = change
	}
}

func (c *changes) sequence(bucket string, n uint64) {
	if c == nil {
		return
	}
	c.n++
	if c.keep {
		c.bucket(bucket).sequence = &n
	}
}

func (c *changes) emptied(bucket string) {
	if c == nil {
		return
	}
	c.n++
	if c.keep {
		b := c.bucket(bucket)
		b.emptied = true
		clear(b.rows)
	}
}

func (c *changes) blob(ref BlobRef) {
	if c != nil && c.keep {
		c.blobs = append(c.blobs, ref)
		c.size += ref.Size()
	}
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// encode makes the row of an entry.
func (c *changes) encode(now time.Time) []byte {
	out := make([]byte, entryRowHead, 4096)
	out[0] = entryVersion
	binary.BigEndian.PutUint64(out[1:], uint64(now.UnixMilli()))
	rand.Read(out[9:25])
	binary.BigEndian.PutUint64(out[25:], uint64(c.size))
	out = binary.AppendUvarint(out, uint64(len(c.blobs)))
	for _, ref := range c.blobs {
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
			flags |= bucketCounted
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
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// number counts the commit up, and keeps what it changed as an entry.
func (s *Store) number(b *bolt.Tx, c *changes) error {
	entries := b.Bucket([]byte(bucketEntry))
	number, err := entries.NextSequence()
	if err != nil || !c.keep || s.droppingEntries.Load() {
		return err
	}
	if s.entries.Load() > s.maxEntries {
		s.log.Error("nobody has taken the entries of a backup for too long: they are dropped, and the next backup is a full one", "bytes", s.entries.Load())
		s.droppingEntries.Store(true)
		go func() {
			defer s.droppingEntries.Store(false)
			if err := s.DropEntries(number); err != nil && !errors.Is(err, ErrClosed) {
				s.log.Error("old entries could not be dropped", "error", err)
			}
		}()
		return nil
	}
	row := c.encode(s.Now())
	if err := entries.Put(binary.BigEndian.AppendUint64(nil, number), row); err != nil {
		return err
	}
	s.entries.Add(int64(len(row)) + c.size)
	return nil
}

// Number is the number of the last commit.
func (tx *Tx) Number() uint64 { return tx.bucket(bucketEntry).Sequence() }

// An Entry is what one commit changed, with the bytes of its new messages of up to 256 KiB.
type Entry struct {
	Number uint64
	Time   time.Time // of the commit
	Large  []BlobRef // new messages whose bytes are not part of it
	row    []byte
	blobs  []entryBlob
}

type entryBlob struct {
	ref    BlobRef
	head   [segment.HeaderSize]byte // of the file
	record []byte
}

// Entries gives the entries after a number, up to about so many bytes, but at least one if there is
// one. It returns ErrGap if the next is not kept any more. A message that is not referred to any
// more, and whose segment is gone, is left out.
func (s *Store) Entries(after uint64, most int) (list []*Entry, err error) {
	// Update, not View: a view may see a commit before it is on disk.
	err = s.Update(func(tx *Tx) error {
		list = nil
		next, size := after+1, 0
		for k, v := range tx.ascend(tx.bucket(bucketEntry), binary.BigEndian.AppendUint64(nil, next)) {
			if binary.BigEndian.Uint64(k) != next || size >= most {
				break
			}
			list = append(list, &Entry{Number: next, row: bytes.Clone(v)})
			size += len(v) + int(binary.BigEndian.Uint64(v[25:]))
			next++
		}
		if len(list) == 0 && tx.Number() != after {
			return ErrGap
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		blobs, _, err := e.parseRow()
		if err != nil {
			return nil, err
		}
		for _, ref := range blobs {
			if ref.Size() > entryBytes {
				e.Large = append(e.Large, ref)
				continue
			}
			head, record, err := s.seg.ReadRecord(ref)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("entry %d: %w", e.Number, err)
			}
			e.blobs = append(e.blobs, entryBlob{ref, head, record})
		}
	}
	return list, nil
}

// DropEntries deletes the entries up to a number, which are stored elsewhere or wanted no more.
func (s *Store) DropEntries(upTo uint64) error {
	const atOnce = 500
	for {
		n, size := 0, int64(0)
		err := s.Update(func(tx *Tx) error {
			n, size = 0, 0
			b := tx.bucket(bucketEntry)
			var keys [][]byte
			for k, v := range tx.ascend(b, nil) {
				if binary.BigEndian.Uint64(k) > upTo || len(keys) == atOnce {
					break
				}
				keys = append(keys, bytes.Clone(k))
				size += entrySize(v)
			}
			n = len(keys)
			if n == 0 {
				return nil
			}
			tx.writes++
			tx.frees = true
			for _, k := range keys {
				if err := b.Delete(k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.entries.Add(-size)
		if n < atOnce {
			return nil
		}
	}
}

// entrySize is what a kept entry takes, with its new messages.
func entrySize(row []byte) int64 {
	return int64(len(row)) + int64(binary.BigEndian.Uint64(row[25:]))
}

// countEntries finds how many bytes of entries are kept.
func (s *Store) countEntries() error {
	return s.db.View(func(b *bolt.Tx) error {
		var size int64
		c := b.Bucket([]byte(bucketEntry)).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			size += entrySize(v)
		}
		s.entries.Store(size)
		return nil
	})
}

// oldestEntry is when the oldest entry that is kept was made; false if none is.
func (tx *Tx) oldestEntry() (time.Time, bool) {
	_, v := tx.bucket(bucketEntry).Cursor().First()
	if v == nil {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(v[1:]))).UTC(), true
}

// Marshal gives the bytes that ParseEntry reads.
func (e *Entry) Marshal() []byte {
	out := binary.BigEndian.AppendUint64([]byte{entryVersion}, e.Number)
	out = appendText(out, e.row)
	out = binary.AppendUvarint(out, uint64(len(e.blobs)))
	for _, b := range e.blobs {
		out = append(append(b.ref.AppendTo(out), b.head[:]...), b.record...)
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// ParseEntry reads what Marshal gave. Its error says that the entry is damaged, or that a newer
// version has written it.
func ParseEntry(data []byte) (*Entry, error) {
	r, err := newEntryReader(data)
	if err != nil {
		return nil, err
	}
	e := &Entry{Number: r.uint64(), row: r.text()}
	for range r.count(16 + segment.HeaderSize) {
		b := entryBlob{ref: r.ref()}
		copy(b.head[:], r.take(segment.HeaderSize))
		b.record = r.take(int(min(b.ref.Size(), int64(len(data)))))
		e.blobs = append(e.blobs, b)
	}
	if r.bad || len(r.left) != 0 {
		return nil, errDamagedEntry
	}
	blobs, _, err := e.parseRow()
	if err != nil {
		return nil, err
	}
	for _, ref := range blobs {
		if ref.Size() > entryBytes {
			e.Large = append(e.Large, ref)
		}
	}
	return e, nil
}

// parseRow reads the entry's row: its new messages, and what it changes in each bucket.
func (e *Entry) parseRow() (blobs []BlobRef, buckets iter.Seq2[string, *bucketChange], err error) {
	r, err := newEntryReader(e.row)
	if err != nil {
		return nil, nil, err
	}
	e.Time = time.UnixMilli(int64(r.uint64())).UTC()
	r.take(16 + 8)
	for range r.count(16) {
		blobs = append(blobs, r.ref())
	}
	list := map[string]*bucketChange{}
	for range r.count(3) {
		name, b := string(r.text()), &bucketChange{rows: map[string]rowChange{}}
		flags := r.byte()
		b.emptied = flags&bucketEmptied != 0
		if flags&bucketCounted != 0 {
			n := r.uvarint()
			b.sequence = &n
		}
		for range r.count(2) {
			key := string(r.text())
			if r.byte() == 1 {
				b.rows[key] = rowChange{deleted: true}
			} else {
				b.rows[key] = rowChange{value: r.text()}
			}
		}
		list[name] = b
	}
	if r.bad || len(r.left) != 0 {
		return nil, nil, errDamagedEntry
	}
	return blobs, maps.All(list), nil
}

// An entryReader reads fields from bytes whose checksum was right.
type entryReader struct {
	left []byte
	bad  bool
}

func newEntryReader(data []byte) (*entryReader, error) {
	if len(data) < 5 || crc32.Checksum(data[:len(data)-4], castagnoli) != binary.BigEndian.Uint32(data[len(data)-4:]) {
		return nil, errDamagedEntry
	}
	if data[0] != entryVersion {
		return nil, fmt.Errorf("an entry of version %d: %w", data[0], segment.ErrNewer)
	}
	return &entryReader{left: data[1 : len(data)-4]}, nil
}

func (r *entryReader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.bad, r.left = true, nil
		return make([]byte, min(max(n, 0), 64))
	}
	out := r.left[:n:n]
	r.left = r.left[n:]
	return out
}

func (r *entryReader) byte() byte     { return r.take(1)[0] }
func (r *entryReader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *entryReader) ref() BlobRef {
	ref, _ := segment.ParseRef(r.take(16))
	return ref
}

func (r *entryReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	r.take(cmp.Or(max(n, 0), len(r.left)+1))
	return v
}

func (r *entryReader) text() []byte { return r.take(int(min(r.uvarint(), 1<<40))) }

// count reads how many items follow, each of at least so many bytes.
func (r *entryReader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.left)/least) {
		r.bad, r.left = true, nil
		return 0
	}
	return int(n)
}

// Apply makes the changes of the entry that comes next: a store at N becomes what the store that
// made the entry was at N+1. An entry that was applied before changes nothing, and one that does
// not come next is ErrGap. The bytes of messages in Large must have been written by WriteRecord. A
// store that applies entries takes no messages of its own until it is opened again.
func (s *Store) Apply(e *Entry) error {
	_, buckets, err := e.parseRow()
	if err != nil {
		return err
	}
	for _, ref := range e.Large {
		if err := s.seg.Verify(ref); err != nil {
			return fmt.Errorf("entry %d: a message that is stored apart from it: %w", e.Number, err)
		}
	}
	for _, b := range e.blobs {
		if err := s.seg.WriteRecord(b.head, b.ref, bytes.NewReader(b.record)); err != nil {
			return fmt.Errorf("entry %d: %w", e.Number, err)
		}
	}
	return s.Update(func(tx *Tx) error {
		switch have := tx.Number(); {
		case have >= e.Number:
			return nil
		case have+1 != e.Number:
			return fmt.Errorf("entry %d after %d: %w", e.Number, have, ErrGap)
		}
		tx.writes++
		for name, change := range buckets {
			if err := change.apply(tx.b, []byte(name)); err != nil {
				return fmt.Errorf("apply entry %d to %s: %w", e.Number, name, err)
			}
		}
		return tx.bucket(bucketEntry).SetSequence(e.Number)
	})
}

func (c *bucketChange) apply(tx *bolt.Tx, name []byte) error {
	b, err := tx.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	if c.emptied {
		sequence := b.Sequence()
		if err := tx.DeleteBucket(name); err != nil {
			return err
		}
		if b, err = tx.CreateBucket(name); err != nil {
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

// Digest gives a SHA-256 of each bucket, of its sequence and its rows. That of the entries is left
// out but for its sequence, the number of the last commit.
func (tx *Tx) Digest() (map[string][sha256.Size]byte, error) {
	out := map[string][sha256.Size]byte{}
	err := tx.b.ForEach(func(name []byte, b *bolt.Bucket) error {
		h := sha256.New()
		_, _ = fmt.Fprintf(h, "%d\n", b.Sequence())
		if string(name) != bucketEntry {
			for k, v := range tx.ascend(b, nil) {
				_, _ = fmt.Fprintf(h, "%d %d\n%s%s", len(k), len(v), k, v)
			}
		}
		out[string(name)] = [sha256.Size]byte(h.Sum(nil))
		return nil
	})
	return out, err
}
